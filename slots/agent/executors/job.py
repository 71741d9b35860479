"""Runs the programs of one task one after the other, each below its own reaper, until all of its
processes have ended.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from ..common.errors import AgentError, Stopped, TaskFailed
from ..common.state import RUNNING, Record, State, open_private
from ..logs.log_buffer import LogBuffer
from ..logs.masking import as_bytes, mask_text, sort_secrets, spell
from ..processes.isolation import Isolation, View
from ..processes.process_table import MARK, children, end_all, list_remaining, started_at
from ..processes.program import Program, ReaperMessage
from ..processes.users import User
from ..server.protocol import WorkOrder
from ..workdir.environment import isolated_tmp, task_environment
from ..workdir.folders import Folder
from .progress import Progress

if TYPE_CHECKING:
    from ..processes.launcher import LaunchOrder

READ_BYTES = 1 << 16
TAIL = 1 << 16
LOOK_MS = 200
DRAIN = 2.0  # seconds for output in the pipe after all processes have ended
SHORT_WAIT = 60.0  # seconds from SIGINT to TERM for programs other than an apply
CPU_GRACE = 5
# Values that are also masked in their encoded forms; each costs dozens of searches.
MOST_SPELLED = 100
OUT_OF_MEMORY = (b"out of memory", b"cannot allocate memory", b"memoryerror", b"bad_alloc")


class Cancellation:
    """An order to end a run, given by another thread."""

    def __init__(self) -> None:
        self.reason = ""
        self.is_quit = False  # the agent ends; the server did not order it
        self.event = threading.Event()
        self.wake_reader, self.wake_writer = os.pipe()  # readable after the order

    def order(self, reason: str, is_quit: bool = False) -> None:
        if not self.event.is_set():
            self.reason, self.is_quit = reason, is_quit
            self.event.set()
            os.write(self.wake_writer, b".")

    def check(self) -> None:
        if self.event.is_set():
            raise Stopped(self.reason)

    def close(self) -> None:
        os.close(self.wake_reader)
        os.close(self.wake_writer)


class Job:
    def __init__(
        self,
        work: WorkOrder,
        record: Record,
        state: State,
        folder: Folder,
        user: User | None,
        log_buffer: LogBuffer,
        secrets: list[bytes],
        mark: str,
        grace: float,
        stop: Cancellation,
    ) -> None:
        self.work, self.record, self.state = work, record, state
        self.folder, self.user, self.log_buffer = folder, user, log_buffer
        self.secrets, self.mark, self.grace, self.stop = secrets, mark, grace, stop
        self.deadline = time.monotonic() + work.timeout_s
        self.tail = b""
        self.output = hashlib.sha256()
        self.isolation: Isolation | None = None
        # Called when a program is interrupted, with the reason and the seconds that it has.
        self.announce: Callable[[str, float], None] | None = None
        self.has_ended = threading.Event()
        self.progress: Progress | None = None  # of an apply by Terraform
        self.adopt_folder()

    def adopt_folder(self) -> None:
        self.cwd = self.folder.source
        self.environment = {**task_environment(self.work, self.folder, self.user), MARK: self.mark}

    def log_line(self, text: str) -> None:
        self.log_buffer.append_line(text)

    def clean(self, text: str) -> str:
        return mask_text(text, self.secrets)

    def hide(self, values: list[str]) -> None:
        """Mask these values like secrets from now on, in the log and in the plan as JSON."""
        fully, literally = values[:MOST_SPELLED], values[MOST_SPELLED:]
        self.secrets = sort_secrets([*self.secrets, *spell(fully), *map(as_bytes, literally)])
        self.log_buffer.hide(self.secrets)

    def check_time(self) -> None:
        self.stop.check()
        if time.monotonic() > self.deadline:
            raise TaskFailed("timeout", f"The task ran longer than {self.work.timeout_s:,.0f} s.")

    def run(
        self,
        argv: list[str],
        stage: str,
        env: dict[str, str] | None = None,
        stdout_to: Path | None = None,
        most: int = 0,
        cwd: Path | None = None,
    ) -> int:
        """Run a program and return its exit code. Its output goes into the log; with `stdout_to`,
        only stderr does.
        """
        self.stop.check()
        self.tail, self.output = b"", hashlib.sha256()
        with contextlib.ExitStack() as stack:
            target = stack.enter_context(open_private(stdout_to)) if stdout_to else None
            program = Program(target, [self.user.lock] if self.user and self.user.lock >= 0 else [])
            stack.callback(program.close)
            self._write_down(program, stage)
            wait_s = self._wait_of(stage)
            environment = {**self.environment, **(env or {})}
            if self.isolation:
                environment.update(isolated_tmp(environment, self.folder))
            view = self._view(argv[0], environment)
            order: LaunchOrder = {
                "argv": argv,
                "env": environment,
                "cwd": str(cwd or self.cwd),
                "uid": self.user.uid if self.user else None,
                "gid": self.user.gid if self.user else None,
                "view": view._asdict() if view else None,
                "users": sorted(self._users),
                "limits": self._limits(),
                "mark": self.mark,
                "wait_s": wait_s,
                "grace_s": self.grace,
                "secrets": [secret.decode("latin-1") for secret in self.secrets],
                "log": str(self.log_buffer.folder),
            }
            try:
                program.begin(order)
                why = self._watch(program, wait_s, stdout_to, most)
            except OSError as error:
                raise TaskFailed("killed", f"The agent cannot run {argv[0]}: {error}.") from error
            finally:
                self._end_what_is_left(program, wait_s)
            if why is not None:
                raise why
            return self._judge(program.code)

    def shell(self, command: str, stage: str, env: dict[str, str]) -> int:
        return self.run(["/bin/sh", "-c", command], stage, env)

    def _wait_of(self, stage: str) -> float:
        """Seconds that a program has after its SIGINT. Only an interrupted apply would leave
        resources half created.
        """
        return (
            self.work.stop_timeout_s
            if stage == "apply"
            else min(self.work.stop_timeout_s, SHORT_WAIT)
        )

    def _write_down(self, program: Program, stage: str) -> None:
        """Save the process before the program starts, so that an agent that is restarted knows
        that it ran.
        """
        process = program.process
        self.record.phase, self.record.stage = RUNNING, stage
        self.record.pid, self.record.pid_start = process.pid, started_at(process.pid)
        try:
            self.state.save(self.record)
        except OSError as error:
            raise TaskFailed(
                "disk_full", f"The agent cannot write to its disk: {error.strerror}."
            ) from error

    def _view(self, program: str, env: dict[str, str]) -> View | None:
        """The view of the program in its namespaces; None without isolation."""
        folder = self.folder
        parts = (folder.source, folder.home, folder.tmp, folder.out)
        return self.isolation.view(parts, folder.tmp, env, program) if self.isolation else None

    def _limits(self) -> list[tuple[str, int, int]]:
        limits = [("RLIMIT_CORE", 0, 0)]
        if self.work.cpu_s:
            limits.append(("RLIMIT_CPU", self.work.cpu_s, self.work.cpu_s + CPU_GRACE))
        if self.work.memory_bytes:
            # Programs in Go reserve much memory without using it. Reserved memory counts as address
            # space, but not as data.
            most, space = self.work.memory_bytes, self.work.memory_bytes + (4 << 30)
            limits += [("RLIMIT_DATA", most, most), ("RLIMIT_AS", space, space)]
        return limits

    def _watch(
        self, program: Program, wait_s: float, stdout_to: Path | None, most: int
    ) -> AgentError | None:
        """Wait until the program and all its processes have ended. Returns why the agent ended the
        program, or None.
        """
        ready = select.poll()
        for handle in (program.output, program.reports, self.stop.wake_reader):
            ready.register(handle, select.POLLIN | select.POLLHUP)
        os.set_blocking(program.output, False)
        why: AgentError | None = None
        while not program.is_over:
            if why is None:
                why = self._why_end(stdout_to, most)
                if why is not None:
                    ready.unregister(self.stop.wake_reader)  # else poll returns at once
                    self._log_interrupted(why, wait_s)
                    program.end(wait_s)
            readable = dict(ready.poll(LOOK_MS))
            if program.output in readable and not self._read(program.output):
                ready.unregister(program.output)
            if program.reports in readable or program.has_message:
                program.read_messages(self._on_reaper_message)
        return why

    def _why_end(self, stdout_to: Path | None, most: int) -> AgentError | None:
        try:
            self.check_time()
        except (Stopped, TaskFailed) as error:
            return error
        if most and stdout_to and stdout_to.stat().st_size > most:
            return TaskFailed("plan_too_large", f"The plan as JSON has more than {most:,} bytes.")
        return None

    def _log_interrupted(self, why: AgentError, wait_s: float) -> None:
        reason = str(why).rstrip(".")
        self.log_line(
            f"Berth: {reason}. The program is interrupted and has {wait_s:,.0f} s to finish "
            "what it began."
        )
        if self.announce is not None:
            self.announce(reason, wait_s)

    def list_under_way(self) -> list[str]:
        """Changes that an interrupted apply still has to finish."""
        under_way = list(self.progress.under_way.items()) if self.progress else []
        return [f"{address} ({verb})" for address, verb in under_way]

    def _on_reaper_message(self, message: ReaperMessage) -> None:
        if message.get("phase") == "terminating":
            self.log_line("Berth: the remaining processes are terminated now.")

    def _end_what_is_left(self, program: Program, wait_s: float) -> None:
        """End all remaining processes, also if the reaper was killed, and read the rest of the
        output.
        """
        if not program.is_over:
            program.end(wait_s)
        while not program.is_over:
            self._listen(program.output, LOOK_MS / 1000)
            program.read_messages(self._on_reaper_message)
        if program.left is None:
            program.process.wait()
            mark, users, others = self.mark, self._users, children.list_strays
            is_clean = end_all(
                None,
                mark,
                self.grace,
                pause=partial(self._listen, program.output),
                users=users,
                others=others,
            )
            left = [] if is_clean else list_remaining(None, mark, users, others)
            program.left = [(pid, started_at(pid)) for pid in left]
        self._drain(program.output)
        if program.left:
            self._record_left(program.left)

    @property
    def _users(self) -> frozenset[int]:
        return frozenset({self.user.uid} if self.user and self.user.is_its_own else ())

    def _record_left(self, left: list[tuple[int, str]]) -> None:
        """Record processes that not even KILL ended, because they wait for a disk or a network. The
        agent does not report the slot as stopped before they have ended.
        """
        children.give_up(left)
        self.record.extra["left"] = [*self.record.extra.get("left", ()), *map(list, left)]
        self.log_line(
            f"Berth: {len(left)} processes of the task cannot be ended. Its slot stays in use "
            "until they have ended."
        )

    def _listen(self, pipe: int, seconds: float) -> None:
        """Read output for a while. A program that cannot write its output cannot end."""
        until = time.monotonic() + seconds
        os.set_blocking(pipe, False)
        ready = select.poll()
        ready.register(pipe, select.POLLIN)
        while (left := until - time.monotonic()) > 0:
            if ready.poll(left * 1000) and not self._read(pipe):
                time.sleep(max(0.0, until - time.monotonic()))

    def _drain(self, pipe: int) -> None:
        """Read the rest of the output. The time is limited, because a process that cannot be ended
        keeps the pipe open.
        """
        until = time.monotonic() + DRAIN
        os.set_blocking(pipe, False)
        ready = select.poll()
        ready.register(pipe, select.POLLIN)
        while (left := until - time.monotonic()) > 0 and ready.poll(left * 1000):
            if not self._read(pipe):
                return

    def _read(self, pipe: int) -> bool:
        """False at the end."""
        try:
            data = os.read(pipe, READ_BYTES)
        except BlockingIOError:
            return True
        if data:
            self._record_output(data)
        return bool(data)

    def _record_output(self, data: bytes) -> None:
        self.output.update(data)
        self.tail = (self.tail + data)[-TAIL:]
        self.log_buffer.write(data)
        if self.progress is not None:
            self.progress.feed(data)

    def _judge(self, code: int | None) -> int:
        self.stop.check()
        if code is None:
            raise TaskFailed("killed", "The process of the task cannot be ended.")
        number = -code if code < 0 else code - 128
        if self.work.cpu_s and number == signal.SIGXCPU:
            raise TaskFailed(
                "timeout", f"The task used more than {self.work.cpu_s:,} s of processor time.", code
            )
        if code != 0 and self.work.memory_bytes and is_out_of_memory(self.tail):
            raise TaskFailed(
                "out_of_memory",
                f"The task needs more than its {self.work.memory_bytes / 1e6:,.0f} MB of memory.",
                code,
            )
        if code < 0:
            name = (
                signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
            )
            why = (
                ", probably because the machine is short of memory"
                if number == signal.SIGKILL
                else ""
            )
            raise TaskFailed("killed", f"The task was ended by {name}{why}.", code)
        return code


def is_out_of_memory(tail: bytes) -> bool:
    text = tail[-8000:].lower()
    return any(sign in text for sign in OUT_OF_MEMORY)
