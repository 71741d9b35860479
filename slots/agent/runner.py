"""Runs one order in a thread, until the server has its log, files and result."""

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
from .common.log import AgentLog
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

LAST_WORDS = 5.0  # seconds for the log of a run that the agent ends itself
NOT_HERE = "not_here"
EXECUTORS: dict[str, dict[str, Callable[[Job, BerthClient], StepOutcome]]] = {
    "command": {"plan": command.plan, "apply": command.apply},
    "terraform": {"plan": terraform.plan, "apply": terraform.apply},
}


@dataclass
class Context:
    """Settings and objects that all runs of one agent share."""

    client: BerthClient
    state: State
    base: Path  # the folder with the folders of tasks
    users: TaskUsers
    boot: str
    identity: str
    log: AgentLog
    wake: Callable[[], None]
    limits: UploadLimits = field(default_factory=UploadLimits)
    isolation: Isolation | None = None
    grace_s: float = 20.0
    quit_now: threading.Event = field(default_factory=threading.Event)  # the process ends


class TaskThread(threading.Thread):
    def __init__(self, context: Context, record: Record, order: Order | None) -> None:
        """Without an order, the thread only reports a run of an earlier start of the agent."""
        super().__init__(name=f"run {record.name}", daemon=True)
        self.context, self.record, self.order = context, record, order
        self.stop = Cancellation()
        self.is_executing = order is not None
        self.stop_timeout_s = 0.0
        self.is_done = False
        self.mark = record.mark(context.identity)

    @property
    def needs_slot(self) -> bool:
        """Whether the program runs or its state is not uploaded yet. A free slot would let the
        member be removed.
        """
        state = self.context.state.folder
        has_state = rescued_file(state, self.record.name).is_file() or is_left_behind(
            state, self.record
        )
        return self.is_executing or (not self.is_done and has_state)

    def run(self) -> None:
        log, record = self.context.log, self.record
        try:
            if self.order is not None:
                self._begin_and_execute(self.order)
            if record.phase == FINISHED:
                Reporter(self.context, record).report()
            elif record.status == LOST:
                Reporter(self.context, record).report_lost()
        except OSError as error:
            log.error("run failed on this machine", run=record.name, error=error)
        except Exception as error:  # other runs go on; the next start repeats the report
            log.trace("run failed", run=record.name, error=error)
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
        user = self.context.users.acquire()
        try:
            self._execute(work, user)
        finally:
            self.context.users.release(user)
            self.is_executing = False
            self.context.wake()

    def _begin(self, order: Order) -> WorkOrder | None:
        """Fetch the work and report its start. None: the run does not start, and no program has
        run.
        """
        context, record, backoff = self.context, self.record, RetryDelay()
        while not context.quit_now.is_set():
            try:
                self.stop.check()
                work = read_work(context.client.get(record.path), order, context.limits)
                self.stop.check()
                context.client.post(f"{record.path}started/", {"boot": context.boot})
                if self.stop.is_quit:
                    return None  # the loop reports that no program has run
                context.log.info(
                    "started",
                    run=record.name,
                    step=record.step,
                    place=record.place,
                    executor=work.executor,
                )
                return work
            except (ServerUnavailable, TokenRejected) as error:
                delay = backoff.next()
                context.log.info(
                    "cannot begin yet", run=record.name, error=error, again_s=round(delay, 1)
                )
                self.stop.event.wait(delay)
            except (RequestRefused, Stopped) as error:
                if self.stop.is_quit and isinstance(error, Stopped):
                    # The server may have received the start, so the loop reports that no program
                    # has run.
                    return None
                context.log.info("not begun", run=record.name, reason=error)
                # No program has run, so a repeated order may start the run again.
                context.state.forget(record)
                record.phase, record.status = REPORTED, NOT_HERE
                return None
        return None

    def _execute(self, work: WorkOrder, user: User | None) -> None:
        context, record = self.context, self.record
        secrets = spell([*work.secrets.values(), context.client.token])
        log_buffer = LogBuffer(
            context.state.log_folders / record.name,
            work.limits.log_head_bytes,
            work.limits.log_tail_bytes,
            Masker(secrets),
        )
        shipper = LogUploader(
            context.client,
            f"{record.path}log/",
            log_buffer,
            context.limits.chunk_bytes,
            context.quit_now,
            context.log.bind(record.name),
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
                log_buffer,
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
                result = self._perform(job)
            finally:
                job.has_ended.set()
            result.reason = job.clean(result.reason)[:LONGEST_REASON]
            if result.reason:
                log_buffer.append_line(f"Berth: {result.reason}")
        finally:
            log_buffer.end()
        folder.lock()
        if self.stop.is_quit and result.outcome == "cancelled":
            shipper.join(LAST_WORDS)
            return  # no result: the apply may be incomplete. The loop reports the run as lost
        is_planned = result.outcome in ("planned", "no_changes")
        record.phase, record.digest = FINISHED, result.digest
        record.has_plan = result.has_plan and is_planned
        record.has_json = result.has_json and is_planned
        record.extra["folder"] = job.folder.top.name
        totals = {
            "next": 0,
            "bytes": log_buffer.written + log_buffer.left_out,
            "lines": log_buffer.count_lines(),
            "left_out": log_buffer.left_out,
        }
        left = len(record.extra.get("left") or ())
        record.result = {
            **result.as_result(),
            "log": totals,
            **({"left_running": left} if left else {}),
        }
        self._save_result()
        context.log.info(
            "ended", run=record.name, outcome=result.outcome, code=result.code, reason=result.reason
        )
        self.is_executing = False
        context.wake()
        shipper.join()
        record.log_next = shipper.next
        log_buffer.close()

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
                reason=add_progress(job, f"The task was ended early: {error}."),
            )
        except TaskFailed as error:
            if self.stop.event.is_set():
                reason = add_progress(job, f"The task was ended early: {self.stop.reason}.")
                return StepOutcome("cancelled", code="killed", reason=reason)
            return StepOutcome(
                error.outcome, error.exit_code, error.code, add_progress(job, error.reason)
            )
        except OSError as error:
            is_full = error.errno in (28, 122)  # no space, no quota
            what = f"The agent's disk: {error}" if is_full else f"The agent failed: {error}"
            return StepOutcome("failed", code="disk_full" if is_full else "killed", reason=what)
        except AgentError as error:
            return StepOutcome("failed", code="source_failed", reason=str(error))

    def _save_result(self) -> None:
        """Save the record. On a full disk, remove the log and the folder first, because the record
        of a run must not be lost.
        """
        try:
            self.context.state.save(self.record)
        except OSError:
            shutil.rmtree(self.context.state.log_folders / self.record.name, ignore_errors=True)
            if not self.record.has_plan:
                remove(self.context.base / self.record.name)
            with contextlib.suppress(OSError):  # this process still reports the run
                self.context.state.save(self.record)


def add_progress(job: Job, reason: str) -> str:
    """Append the progress of an apply to the reason, which is cut to fit."""
    if job.progress is None:
        return reason
    progress = job.clean(job.progress.describe())
    reason = job.clean(reason)
    room = LONGEST_REASON - len(progress) - 2
    short = reason if len(reason) <= room else f"{reason[: room - 1]}…"
    return f"{short if short.endswith(('.', '…')) else f'{short}.'} {progress}"
