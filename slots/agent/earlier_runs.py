"""Runs of an earlier start of the agent with a reaper that still ends them. The agent waits for
these runs and does not end them itself.
"""

from __future__ import annotations

import time

from .common.state import FINISHED, REPORTED, Record, State
from .processes.process_table import LOOK_EVERY, end_all, list_marked, started_at
from .server.protocol import StopOrder


class Leftovers:
    def __init__(self, state: State, identity: str) -> None:
        self.state, self.identity = state, identity
        self.ending: list[Record] = []

    def find(self) -> None:
        records = self.state.list_records()
        self.ending = [
            record
            for record in records
            if record.phase not in (FINISHED, REPORTED) and is_reaper_alive(record)
        ]

    def end_unattended(self, grace: float) -> bool:
        """End processes without a reaper. False: processes remain."""
        return end_all(
            None,
            "",
            grace,
            others=lambda: set(list_marked(f".{self.identity}")) - self._list_ending(),
        )

    def list_ended(self) -> list[Record]:
        return [record for record in self.ending if not is_reaper_alive(record)]

    def remove(self, record: Record) -> None:
        self.ending = [each for each in self.ending if each is not record]

    def holds(self, stop: StopOrder) -> bool:
        return any(
            (record.slot, record.generation) == (stop.slot, stop.generation)
            for record in self.ending
        )

    def wait(self, seconds: float) -> list[Record]:
        """Wait for the runs; returns those that have not ended after this time."""
        until = time.monotonic() + seconds
        while left := [record for record in self.ending if is_reaper_alive(record)]:
            if time.monotonic() >= until:
                break
            time.sleep(LOOK_EVERY)
        return left

    def _list_ending(self) -> set[int]:
        marks = [record.mark(self.identity) for record in self.ending]
        return {pid for mark in marks for pid in list_marked(mark)}


def is_reaper_alive(record: Record) -> bool:
    return bool(record.pid) and started_at(record.pid) == record.pid_start != ""
