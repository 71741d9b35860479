"""One generation on this agent: from its order until the server has its log, its files and its
result. Each in a thread of its own.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

from .common.errors import (
    AgentError,
    RequestRefused,
    ServerUnavailable,
    Stopped,
    TaskFailed,
    TokenRejected,
)
from .common.log import Journal
from .common.state import FINISHED, LAUNCHING, LOST, REPORTED, Record, State
from .executors import command, terraform
from .executors.job import Cancellation, Job
from .executors.outcome import LONGEST_REASON, StepOutcome
from .executors.state_rescue import is_left_behind
from .interrupted import InterruptReport
from .logs.log_buffer import LogBuffer
from .logs.log_upload import LogUploader
from .logs.masking import Masker, spell
from .processes.isolation import Isolation
from .processes.users import TaskUsers, User
from .reporting import Reporter
from .server.client import BerthClient, RetryDelay
from .server.protocol import Order, UploadLimits, WorkOrder, read_work
from .workdir.folders import Folder, remove, rescued_file

LAST_WORDS = 5.0  # seconds for the log of what the agent ends itself
NOT_HERE = "not_here"
EXECUTORS: dict[str, dict[str, Callable[[Job, BerthClient], StepOutcome]]] = {
    "command": {"plan": command.plan, "apply": command.apply},
    "terraform": {"plan": terraform.plan, "apply": terraform.apply},
}


@dataclass
class Context:
    """What all runs of one agent share."""

    client: BerthClient
    state: State
    base: Path  # of the tasks' folders
    users: TaskUsers
    boot: str
    identity: str
    journal: Journal
    wake: Callable[[], None]
    limits: UploadLimits = field(default_factory=UploadLimits)
    isolation: Isolation | None = None
    grace_s: float = 20.0
    # Nothing is reported any more: this process ends.
    quit_now: threading.Event = field(default_factory=threading.Event)


class TaskThread(threading.Thread):
    def __init__(self, context: Context, record: Record, order: Order | None) -> None:
        """Without an order it only reports what an earlier start of the agent left."""
        super().__init__(name=f"run {record.name}", daemon=True)
        self.context, self.record, self.order = context, record, order
        self.stop = Cancellation()
        self.is_executing = order is not None
        self.stop_timeout_s = 0.0
        self.is_done = False
        self.mark = f"{record.claim}.{record.generation}.{context.identity}"

    @property
    def needs_slot(self) -> bool:
        """Its program runs, or its state is on the way to the server: a slot that is free lets
        the member be removed.
        """
        state = self.context.state.folder
        has_state = rescued_file(state, self.record.name).is_file() or is_left_behind(
            state, self.record
        )
        return self.is_executing or (not self.is_done and has_state)

    def run(self) -> None:
        journal, record = self.context.journal, self.record
        try:
            if self.order is not None:
                self._begin_and_execute(self.order)
            if record.phase == FINISHED:
                Reporter(self.context, record).report()
            elif record.status == LOST:
                Reporter(self.context, record).report_lost()
        except OSError as error:
            journal.error("run failed on this machine", run=record.name, error=error)
        except Exception as error:  # the others go on; this one is taken up again by the next start
            journal.trace("run failed", run=record.name, error=error)
        finally:
            self.is_executing = False
            self.is_done = True
            self.context.client.close()
            self.context.wake()

    def _begin_and_execute(self, order: Order) -> None:
        work = self._begin(order)
        if work is None:
            return
        self.stop_timeout_s = work.stop_timeout_s
        self.record.phase = LAUNCHING
        self.context.state.save(self.record)
        user = self.context.users.take()
        try:
            self._execute(work, user)
        finally:
            self.context.users.release(user)
            self.is_executing = False
            self.context.wake()

    def _begin(self, order: Order) -> WorkOrder | None:
        """Asks what to do, and says that it begins. None: it is not to begin (any more), and
        nothing has.
        """
        context, record, backoff = self.context, self.record, RetryDelay()
        while not context.quit_now.is_set():
            try:
                self.stop.check()
                work = read_work(context.client.get(record.path), order, context.limits)
                self.stop.check()
                context.client.post(f"{record.path}started/", {"boot": context.boot})
                if self.stop.is_quit:
                    return None  # nothing has run, and the server is told so
                context.journal.note(
                    "started",
                    run=record.name,
                    step=record.step,
                    place=record.place,
                    executor=work.executor,
                )
                return work
            except (ServerUnavailable, TokenRejected) as error:
                delay = backoff.next()
                context.journal.note(
                    "cannot begin yet", run=record.name, error=error, again_s=round(delay, 1)
                )
                self.stop.event.wait(delay)
            except (RequestRefused, Stopped) as error:
                if self.stop.is_quit and isinstance(error, Stopped):
                    # It may have been said to begin, with the answer lost: the server is told that
                    # nothing has run.
                    return None
                context.journal.note("not begun", run=record.name, reason=error)
                # Nothing has run: should the order stand, it may be taken up again.
                context.state.forget(record)
                record.phase, record.status = REPORTED, NOT_HERE
                return None
        return None

    def _execute(self, work: WorkOrder, user: User | None) -> None:
        context, record = self.context, self.record
        secrets = spell([*work.secrets.values(), context.client.token])
        spool = LogBuffer(
            context.state.spools / record.name,
            work.limits.log_head_bytes,
            work.limits.log_tail_bytes,
            Masker(secrets),
        )
        shipper = LogUploader(
            context.client,
            f"{record.path}log/",
            spool,
            context.limits.chunk_bytes,
            context.quit_now,
            context.journal.saying(record.name),
        )
        shipper.start()
        folder = Folder(context.base / record.name)
        try:
            job = Job(
                work,
                record,
                context.state,
                folder,
                user,
                spool,
                secrets,
                self.mark,
                context.grace_s,
                self.stop,
            )
            job.isolation = context.isolation
            job.announce = lambda why, wait_s: InterruptReport(
                context, record.path, job, why, wait_s
            ).start()
            try:
                made = self._perform(job)
            finally:
                job.has_ended.set()
            made.reason = job.clean(made.reason)[:LONGEST_REASON]
            if made.reason:
                spool.say(f"Berth: {made.reason}")
        finally:
            spool.end()
        folder.lock()
        if self.stop.is_quit and made.outcome == "cancelled":
            shipper.join(LAST_WORDS)
            return  # no result: half of it may have happened. The loop tells what became of it
        if made.outcome not in ("planned", "no_changes"):
            made.has_plan = made.has_json = False
        record.phase, record.digest, record.has_plan, record.has_json = (
            FINISHED,
            made.digest,
            made.has_plan,
            made.has_json,
        )
        record.extra["folder"] = job.folder.top.name
        totals = {
            "next": 0,
            "bytes": spool.written + spool.left_out,
            "lines": spool.count_lines(),
            "left_out": spool.left_out,
        }
        left = len(record.extra.get("left") or ())
        record.result = {
            **made.as_result(),
            "log": totals,
            **({"left_running": left} if left else {}),
        }
        self._save_result()
        context.journal.note(
            "ended", run=record.name, outcome=made.outcome, code=made.code, reason=made.reason
        )
        self.is_executing = False
        context.wake()
        shipper.join()
        record.log_next = shipper.next
        spool.close()

    def _perform(self, job: Job) -> StepOutcome:
        work = job.work
        try:
            if work.missing:
                raise TaskFailed(
                    "secret_missing", f"The pool has no secret {', '.join(work.missing)}."
                )
            if work.step == "apply" and work.plan is None:
                raise TaskFailed("source_refused", "There is no approved plan to apply.")
            return EXECUTORS[work.executor][work.step](job, self.context.client)
        except Stopped as error:
            return StepOutcome(
                "cancelled",
                code="killed",
                reason=add_progress(job, f"It was ended before it was done: {error}."),
            )
        except TaskFailed as error:
            if self.stop.event.is_set():
                reason = add_progress(job, f"It was ended before it was done: {self.stop.reason}.")
                return StepOutcome("cancelled", code="killed", reason=reason)
            return StepOutcome(
                error.outcome, error.exit_code, error.code, add_progress(job, error.reason)
            )
        except OSError as error:
            is_full = error.errno in (28, 122)  # no space, no quota
            what = f"The agent's disk: {error}" if is_full else f"The agent cannot do it: {error}"
            return StepOutcome("failed", code="disk_full" if is_full else "killed", reason=what)
        except AgentError as error:
            return StepOutcome("failed", code="source_failed", reason=str(error))

    def _save_result(self) -> None:
        """A full disk must not make us forget what has run: then the largest of it goes first."""
        try:
            self.context.state.save(self.record)
        except OSError:
            shutil.rmtree(self.context.state.spools / self.record.name, ignore_errors=True)
            if not self.record.has_plan:
                remove(self.context.base / self.record.name)
            with contextlib.suppress(OSError):  # known here, and reported, while this process lives
                self.context.state.save(self.record)


def add_progress(job: Job, reason: str) -> str:
    """How much of an apply was done stands behind the reason, which is cut to leave
    room for that.
    """
    if job.progress is None:
        return reason
    said = job.clean(job.progress.describe())
    reason = job.clean(reason)
    room = LONGEST_REASON - len(said) - 2
    short = reason if len(reason) <= room else f"{reason[: room - 1]}…"
    return f"{short if short.endswith(('.', '…')) else f'{short}.'} {said}"
