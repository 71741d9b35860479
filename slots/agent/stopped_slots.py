"""Reports slots whose runs the server has stopped, once no process of them remains."""

from __future__ import annotations

import time
from typing import Callable

from .earlier_runs import Leftovers
from .processes.process_table import list_marked, started_at
from .runner import Context
from .server.protocol import StopOrder

SAY_AGAIN = 5.0  # seconds until a stopped slot that the server still lists is reported again


class StoppedSlots:
    def __init__(
        self, context: Context, leftovers: Leftovers, report: Callable[[list[StopOrder]], None]
    ) -> None:
        self.context, self.leftovers, self.send = context, leftovers, report
        self.stopped_at: dict[StopOrder, float] = {}

    def report(self, listed: set[StopOrder], idle: list[StopOrder]) -> None:
        """`listed`: all stops that the server lists. `idle`: those without a run of this agent."""
        now = time.monotonic()
        self.stopped_at = {stop: at for stop, at in self.stopped_at.items() if stop in listed}
        due = [stop for stop in idle if now - self.stopped_at.get(stop, -SAY_AGAIN) >= SAY_AGAIN]
        self.stopped_at.update(dict.fromkeys(due, now))
        if free := [stop for stop in due if not self._is_left(stop)]:
            self.send(free)

    def _is_left(self, stop: StopOrder) -> bool:
        """Whether processes of a stopped run remain, so that its slot is still in use."""
        if self.leftovers.holds(stop) or list_marked(f".{stop.generation}.{self.context.identity}"):
            return True
        known = [
            record
            for record in self.context.state.list_records()
            if (record.slot, record.generation) == (stop.slot, stop.generation)
        ]
        return any(
            started_at(pid) == since != ""
            for record in known
            for pid, since in record.extra.get("left") or ()
        )
