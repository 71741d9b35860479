"""The main loop of the agent: compares the server's orders with the running tasks. Each run has its
own thread; this one only decides.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import queue
import shutil
import socket
import time
from typing import Any, Callable, Tuple, TypeVar

from .common.errors import AgentError, TokenRejected
from .common.json_types import Json
from .common.log import AgentLog
from .common.state import ACCEPTED, FINISHED, LOST, REPORTED, Record, write_whole
from .earlier_runs import Leftovers
from .executors.outcome import name_platform
from .executors.state_rescue import is_left_behind, rescue_state
from .poller import Poller
from .processes.process_table import children, collect_orphans, end_all
from .run_folders import RunFolders
from .runner import NOT_HERE, Context, TaskThread
from .server.protocol import Hello, Order, Orders, StopOrder, read_hello
from .state_upload import StateSender, describe_rescued
from .stopped_slots import StoppedSlots
from .version import name_version
from .workdir.folders import base_elsewhere, rescued_folder

TICK = 1.0
MOST_AT_ONCE = 100  # tasks
COLLECT_EVERY = 30.0
BEGIN_AGAIN = 5.0  # seconds until an order that could not start is tried again
REFUSED_LONG = 60.0  # seconds that tasks go on with a refused token, which may be rotating
LAST_WORDS = 5.0  # seconds at the end for results, while the server is away
LONGEST_WORDS = 30.0  # seconds at the end for results that fail on this machine
LEFT_OVER_GRACE = 10.0
END_MARGIN = 20.0  # seconds at the end for KILL and the last results
REPORT_AGAIN = 10.0  # seconds until a report that failed on this machine is repeated

Message = Tuple[str, Any]  # ("orders", Orders), ("reported", lost records), ("away", error), ...
T = TypeVar("T")


class Agent:
    def __init__(
        self,
        context: Context,
        exit_when_away: float = 0,
        give_up: float = 600,
        inbox: queue.SimpleQueue[Message] | None = None,
        end_within: float = 0,
    ) -> None:
        self.context = context
        self.exit_when_away, self.give_up, self.end_within = exit_when_away, give_up, end_within
        self.end_asked_at = 0.0
        self.inbox: queue.SimpleQueue[Message] = inbox or queue.SimpleQueue()
        self.runs: dict[tuple[int, int], TaskThread] = {}
        self.lost: list[Record] = []
        self.unreported: dict[tuple[int, int], tuple[float, Record]] = {}  # when to try again
        self.orders: Orders | None = None
        self.not_begun: dict[tuple[int, int], float] = {}
        self.dead: set[int] = set()
        self.collected_at = time.monotonic()
        self.is_ending = False
        self.is_away_since: float | None = time.monotonic()
        self.refused_since: float | None = None
        self.leftovers = Leftovers(context.state, context.identity)
        self.states = StateSender(context)
        self.poller = Poller(context, self.inbox.put, self.hello)
        self.folders = RunFolders(context, self.leftovers)
        self.stopped = StoppedSlots(context, self.leftovers, self.poller.report_stopped)

    @property
    def log(self) -> AgentLog:
        return self.context.log

    # Start

    def recover(self) -> None:
        """Take over the runs of an earlier start. A run with a living reaper is left to it, all
        other processes are ended; finished runs are reported, unfinished ones are lost.
        """
        context = self.context
        for name in context.state.load():
            self.log.error("unreadable record, its run counts as lost", file=name)
        self.leftovers.find()
        if not self.leftovers.end_unattended(LEFT_OVER_GRACE):
            self.log.error("processes of earlier tasks cannot be ended")
        for record in context.state.list_records():
            if record.phase == FINISHED:
                self._report(record)
            elif record in self.leftovers.ending:
                self.log.info("still ended by its reaper", run=record.name, stage=record.stage)
            elif record.phase != REPORTED and not self._lose(record):
                self.leftovers.ending.append(record)
        self._try(self.folders.sweep)

    def _lose(self, record: Record) -> bool:
        """Give up a run of an earlier start. False: its Terraform state cannot be rescued yet; the
        run is not lost before that, because its folder is removed then.
        """
        state = self.context.state.folder
        rescue_state(state, record)
        if is_left_behind(state, record):
            if not record.extra.get("is_left_behind"):
                self.log.error(
                    "the state of the apply cannot be copied: free some space",
                    run=record.name,
                    folder=rescued_folder(state),
                )
            record.extra["is_left_behind"] = True
            return False
        record.status = record.fate
        self.lost.append(record)
        self.log.info(
            "left by an earlier start",
            run=record.name,
            phase=record.phase,
            stage=record.stage,
            status=record.status,
        )
        return True

    def _collect_ended(self) -> None:
        """Give up runs of an earlier start that their reapers have ended meanwhile. A hello lists
        such a run as running until its state is rescued, and then as lost.
        """
        for record in self.leftovers.list_ended():
            end_all(None, record.mark(self.context.identity), LEFT_OVER_GRACE)
            if self._lose(record):
                self.leftovers.remove(record)
                self.poller.request_hello()

    # Reports to the server

    def hello(self) -> Hello:
        """Announce the agent and its runs; called in the thread of the poller."""
        listed = [
            (run.record, "finished" if run.record.phase == FINISHED else "running")
            for run in list(self.runs.values())
            if not run.is_done
        ]
        listed += [
            (record, "finished")
            for _, record in list(self.unreported.values())
            if record.phase == FINISHED
        ]
        # Read before `lost`, because the loop moves records from one list to the other.
        ending = list(self.leftovers.ending)
        lost = list(self.lost)
        listed += [(record, "running") for record in ending if record not in lost]
        listed += [(record, record.status) for record in lost]
        runs = [
            {"claim": run.claim, "generation": run.generation, "step": run.step, "status": status}
            for run, status in listed
        ]
        body = {
            "version": name_version(),
            "python": platform.python_version(),
            "platform": name_platform(),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "boot": self.context.boot,
            "runs": runs,
            "states": describe_rescued(self.context.state.folder),
        }
        answer = read_hello(self.context.client.post("hello/", body))
        self.context.limits, self.context.grace_s = answer.limits, answer.grace_s
        self.inbox.put(("reported", lost))
        self.log.info("hello", member=answer.member, pool=answer.pool, runs=len(runs))
        return answer

    def load(self) -> Json:
        return {
            "running": sum(1 for run in self.runs.values() if run.is_executing),
            "disk_free": shutil.disk_usage(self.context.base).free,
            "version": name_version(),
            "platform": name_platform(),
            "binaries": {
                name: found
                for name in ("tofu", "terraform", "git")
                for found in [shutil.which(name)]
                if found
            },
        }

    # The loop

    def run(self) -> int:
        self.recover()
        self.poller.load = self.load
        self.poller.start()
        ended_at = 0.0
        while True:
            try:
                message = self.inbox.get(timeout=TICK)
            except queue.Empty:
                message = ("", None)
            code = self._try(self._handle_message, message)
            if code is not None:
                return self._leave(code, says_goodbye=False)
            self._try(self._reap)
            self._try(self._collect_ended)
            self._try(self._end_in_time)
            self._try(self._report_again)
            self._try(self._reconcile)
            self._try(self._delete_unused_plans)
            self._try(self._collect)
            self._try(self._send_states)
            if self.is_ending and not any(run.is_executing for run in self.runs.values()):
                ended_at = ended_at or time.monotonic()
                most = LAST_WORDS if self.is_away_since is not None else LONGEST_WORDS
                left = self.unreported or self.states.list_left(set(self.runs))
                if not (self.runs or left) or (
                    time.monotonic() - ended_at > most and (left or self.is_away_since)
                ):
                    return self._leave(0, says_goodbye=True)

    def _try(self, step: Callable[..., T], *given: object) -> T | None:
        """Run a step and log its error. A full disk or a lack of processes ends no task: the next
        turn tries again.
        """
        try:
            return step(*given)
        except Exception as error:
            self.log.trace(f"{step.__name__.strip('_')} failed", error)
            return None

    def _handle_message(self, message: Message) -> int | None:
        """Handle a message; returns an exit code if the agent has to end now."""
        now = time.monotonic()
        kind, what = message
        if kind == "orders":
            self.orders, self.is_away_since, self.refused_since = what, None, None
            self.folders.lists += 1
        elif kind == "reported":
            self._report_lost(what)
        elif kind == "away":
            self.is_away_since = self.is_away_since or now
            self.refused_since = (
                (self.refused_since or now) if isinstance(what, TokenRejected) else None
            )
            if self.refused_since is not None and now - self.refused_since > REFUSED_LONG:
                self._end_all(
                    "the server refuses this agent's token: it counts its tasks as lost and may "
                    "run them elsewhere"
                )
        elif kind == "signal":
            self._handle_signal(what)
        # Unreported results stay on disk and do not keep the agent.
        if any(run.is_executing for run in self.runs.values()):
            return None
        if self.refused_since is not None and now - self.refused_since > self.give_up:
            self.log.error(
                "the server has refused this agent's token for too long: replace the token",
                url=self.context.client.host,
            )
            return 3
        if (
            self.exit_when_away
            and self.is_away_since is not None
            and now - self.is_away_since > self.exit_when_away
        ):
            self.log.info("the server is away and no task runs: this agent ends")
            return 0
        return None

    def _handle_signal(self, number: int) -> None:
        if not self.is_ending:
            self.log.info("ends when its tasks have ended", signal=number, running=len(self.runs))
            self.is_ending = self.poller.is_ending = True
            self.end_asked_at = time.monotonic()
            if number != 2:  # SIGINT does not wait
                self._abandon_unbegun()
                return
        self._end_all("the agent was ordered to end at once")

    def _end_all(self, why: str) -> None:
        for run in list(self.runs.values()):
            if run.is_executing and not run.stop.event.is_set():
                self.log.info("ended here", run=run.record.name, why=why)
                run.stop.order(why, is_quit=True)

    def _end_in_time(self) -> None:
        """Interrupt tasks in time to finish their work: the sender of TERM kills all processes
        after `end_within`.
        """
        if not self.is_ending or not self.end_within:
            return
        left = self.end_asked_at + self.end_within - time.monotonic()
        for run in list(self.runs.values()):
            if run.is_executing and left < run.stop_timeout_s + self.context.grace_s + END_MARGIN:
                run.stop.order("the agent has to end", is_quit=True)

    def _abandon_unbegun(self) -> None:
        """Give up tasks that have not started: they need the server, which may stay away."""
        for run in list(self.runs.values()):
            if run.is_executing and run.record.phase == ACCEPTED:
                run.stop.order("the agent ends", is_quit=True)

    def _report_lost(self, lost: list[Record]) -> None:
        for record in lost:
            if record not in self.lost:
                continue
            self.lost.remove(record)
            if record.phase == ACCEPTED:
                with contextlib.suppress(OSError):
                    # The server may give the run again, even with the same generation.
                    self.context.state.forget(record)
                continue
            record.phase = REPORTED
            with contextlib.suppress(OSError):  # the next start reports the run again
                self.context.state.save(record)
            if record.status == LOST:
                self._report(record)

    def _reap(self) -> None:
        for key, run in list(self.runs.items()):
            if not run.is_done:
                continue
            if run.record.phase == FINISHED:
                self.unreported[key] = time.monotonic() + REPORT_AGAIN, run.record
            del self.runs[key]
            run.join()
            run.stop.close()
            if run.record.status == NOT_HERE:
                self.not_begun[key] = time.monotonic()
            elif run.record.phase == REPORTED:
                self._sweep_old()
            elif run.record.phase != FINISHED:
                # Ended early by the agent or by this machine, with an unknown outcome.
                run.record.status = run.record.fate
                self.lost.append(run.record)
                self.poller.request_hello()

    def _sweep_old(self) -> None:
        claims = {order.claim for order in self.orders.orders} if self.orders else set()
        self.folders.sweep_old(claims | {claim for claim, _ in (*self.runs, *self.unreported)})

    def _delete_unused_plans(self) -> None:
        self.folders.delete_unused_plans(self.orders, {claim for claim, _ in self.runs})

    def _reconcile(self) -> None:
        """Start and stop runs so that they equal the last orders, which may be repeated."""
        if self.orders is None:
            return
        wanted = {(order.claim, order.generation): order for order in self.orders.orders}
        stops = set(self.orders.stop)
        for key, run in self.runs.items():
            stop = StopOrder(run.record.slot, run.record.generation)
            if run.is_executing and (key not in wanted or stop in stops):
                run.stop.order(
                    "the server ended the task"
                    if stop in stops
                    else "the server no longer lists the task"
                )
        busy = {run.record.slot for run in self.runs.values() if run.is_executing}
        for key, order in wanted.items():
            if len(busy) >= MOST_AT_ONCE:
                break
            if (
                not self.is_ending
                and order.slot not in busy
                and key not in self.runs
                and self._begin(order)
            ):
                busy.add(order.slot)
        self.stopped.report(stops, [stop for stop in stops if not self._runs_in(stop)])

    def _collect(self) -> None:
        if children.is_adopting and time.monotonic() - self.collected_at > COLLECT_EVERY:
            self.collected_at = time.monotonic()
            self.dead = collect_orphans(
                {run.record.pid for run in self.runs.values()} | children.known, self.dead
            )

    def _send_states(self) -> None:
        """Upload rescued states, after the server has received them in a hello."""
        if self.orders is not None and self.is_away_since is None:
            self.states.start(set(self.runs))

    def _runs_in(self, stop: StopOrder) -> bool:
        return any(
            run.needs_slot
            and (run.record.slot, run.record.generation) == (stop.slot, stop.generation)
            for run in self.runs.values()
        )

    def _begin(self, order: Order) -> bool:
        """Start an order unless its generation is known here, as it then has run or was given up.
        True: the run has started.
        """
        key = order.claim, order.generation
        if (
            self.context.state.get(*key) is not None
            or time.monotonic() - self.not_begun.get(key, -BEGIN_AGAIN) < BEGIN_AGAIN
        ):
            return False
        record = Record(
            order.claim, order.generation, order.step, order.slot, order.place, order.task
        )
        try:
            self._start(record, order)
        except Exception as error:
            self.log.trace("the run cannot start", error, run=record.name)
            self.not_begun[key] = time.monotonic()
            return False
        return True

    def _start(self, record: Record, order: Order | None) -> None:
        key, run = record.key, TaskThread(self.context, record, order)
        try:
            if order is not None:
                self.context.state.save(record)
            self.runs[key] = run
            run.start()
        except BaseException:
            self.runs.pop(key, None)
            run.stop.close()
            if record.phase == ACCEPTED:
                self.context.state.forget(record)
            raise

    def _report(self, record: Record) -> None:
        try:
            self._start(record, None)
        except Exception as error:
            self.log.trace("the run cannot be reported yet", error, run=record.name)
            self.unreported[record.key] = time.monotonic() + REPORT_AGAIN, record

    def _report_again(self) -> None:
        """Repeat failed reports. Their results are on disk, so these runs are not lost."""
        for key, (at, record) in list(self.unreported.items()):
            if time.monotonic() >= at:
                self._report(record)
                if key in self.runs:
                    del self.unreported[key]

    def _leave(self, code: int, says_goodbye: bool) -> int:
        self.context.quit_now.set()
        self.poller.end()
        if says_goodbye:
            try:
                if self.lost:
                    self.hello()
                    for record in list(self.lost):
                        self._report_lost([record])
                self.context.client.post("goodbye/", {}, timeout=5)
            except AgentError as error:
                self.log.info("no goodbye", error=error)
        for run in list(self.runs.values()):
            run.join(2)
        self.context.client.close()
        if self.context.base == base_elsewhere(self.context.state.folder):
            with contextlib.suppress(OSError):  # the folder may have a plan
                self.context.base.rmdir()
        why = "refused" if code else "asked" if self.is_ending else "away"
        with contextlib.suppress(OSError):  # tells the provider that this end is no crash
            write_whole(
                self.context.state.folder / "ended.json",
                json.dumps({"why": why, "pid": os.getpid()}).encode(),
            )
        self.log.info("ended", code=code)
        return code
