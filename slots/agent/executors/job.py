"""Runs the programs of one task: one after the other, each below a reaper of its own, watched
until nothing of it is left.
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
from typing import Any, Callable

from ..common.errors import AgentError, Stopped, TaskFailed
from ..common.state import RUNNING, Record, State
from ..logs.log_buffer import LogBuffer
from ..logs.masking import as_bytes, mask_text, sort_secrets, spell
from ..processes.isolation import Isolation
from ..processes.process_table import MARK, children, end_all, list_remaining, started_at
from ..processes.program import Program
from ..processes.users import User
from ..server.protocol import WorkOrder
from ..workdir.environment import isolated_tmp, task_environment
from ..workdir.folders import Folder
from .progress import Progress

PIECE = 1 << 16
TAIL = 1 << 16
LOOK_MS = 200
DRAIN = 2.0  # for what is left in the pipe once nobody can write to it
SHORT_WAIT = 60.0  # seconds from SIGINT to TERM for what is no apply
CPU_GRACE = 5
# Values that are also masked as programs write them for others: each costs dozens of searches.
MOST_SPELLED = 100


class Cancellation:
    """One run is told to end, from another thread."""

    def __init__(self) -> None:
        self.reason = ""
        self.is_quit = False  # because the agent ends, which is nothing the server asked for
        self.event = threading.Event()
        self.ear, self.mouth = os.pipe()

    def tell(self, reason: str, is_quit: bool = False) -> None:
        if not self.event.is_set():
            self.reason, self.is_quit = reason, is_quit
            self.event.set()
            os.write(self.mouth, b".")

    def check(self) -> None:
        if self.event.is_set():
            raise Stopped(self.reason)

    def close(self) -> None:
        os.close(self.ear)
        os.close(self.mouth)


class Job:
    def __init__(
        self,
        work: WorkOrder,
        record: Record,
        state: State,
        folder: Folder,
        user: User | None,
        spool: LogBuffer,
        secrets: list[bytes],
        mark: str,
        grace: float,
        stop: Cancellation,
    ) -> None:
        self.work, self.record, self.state, self.folder, self.user = (
            work,
            record,
            state,
            folder,
            user,
        )
        self.spool, self.secrets, self.mark, self.grace, self.stop = (
            spool,
            secrets,
            mark,
            grace,
            stop,
        )
        self.deadline = time.monotonic() + work.timeout_s
        self.tail = b""
        self.output = hashlib.sha256()
        self.isolation: Isolation | None = None
        # A program was interrupted: why, and seconds that it has.
        self.announce: Callable[[str, float], None] | None = None
        self.has_ended = threading.Event()
        self.progress: Progress | None = None  # of an apply by Terraform, from its begin on
        self.adopt_folder()

    def adopt_folder(self) -> None:
        self.cwd = self.folder.source
        self.environment = {**task_environment(self.work, self.folder, self.user), MARK: self.mark}

    def say(self, text: str) -> None:
        self.spool.say(text)

    def clean(self, text: str) -> str:
        return mask_text(text, self.secrets)

    def hide(self, values: list[str]) -> None:
        """From now on they are masked like secrets, in the log and in what people are shown
        of the plan.
        """
        fully, others = values[:MOST_SPELLED], values[MOST_SPELLED:]
        self.secrets = sort_secrets([*self.secrets, *spell(fully), *map(as_bytes, others)])
        self.spool.hide(self.secrets)

    def check_time(self) -> None:
        self.stop.check()
        if time.monotonic() > self.deadline:
            raise TaskFailed("timeout", f"It ran longer than {self.work.timeout_s:,.0f} s.")

    def run(
        self,
        argv: list[str],
        stage: str,
        env: dict[str, str] | None = None,
        stdout_to: Path | None = None,
        most: int = 0,
        cwd: Path | None = None,
    ) -> int:
        """The program's exit code. Its output goes into the log; with `stdout_to` only what it
        says on stderr does.
        """
        self.stop.check()
        self.tail, self.output = b"", hashlib.sha256()
        with contextlib.ExitStack() as stack:
            target = (
                stack.enter_context(
                    open(
                        os.open(
                            stdout_to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
                        ),
                        "wb",
                    )
                )
                if stdout_to
                else None
            )
            program = Program(target, [self.user.lock] if self.user and self.user.lock >= 0 else [])
            stack.callback(program.close)
            self._write_down(program, stage)
            wait_s = self._wait_of(stage)
            environment = {**self.environment, **(env or {})}
            if self.isolation:
                environment.update(isolated_tmp(environment, self.folder))
            order = {
                "argv": argv,
                "env": environment,
                "cwd": str(cwd or self.cwd),
                "uid": self.user.uid if self.user else None,
                "gid": self.user.gid if self.user else None,
                "view": self._view(argv[0], environment),
                "users": sorted(self._users),
                "limits": self._limits(),
                "mark": self.mark,
                "wait_s": wait_s,
                "grace_s": self.grace,
                "secrets": [secret.decode("latin-1") for secret in self.secrets],
                "log": str(self.spool.folder),
            }
            try:
                program.begin(order)
                why = self._watch(program, wait_s, stdout_to, most)
            except OSError as error:
                raise TaskFailed("killed", f"The agent cannot run it: {error}.") from error
            finally:
                self._end_what_is_left(program, wait_s)
            if why is not None:
                raise why
            return self._judge(program.code)

    def shell(self, command: str, stage: str, env: dict[str, str]) -> int:
        return self.run(["/bin/sh", "-c", command], stage, env)

    def _wait_of(self, stage: str) -> float:
        """Seconds that a program has from its SIGINT on. Only an apply leaves something half
        done outside.
        """
        return (
            self.work.stop_timeout_s
            if stage == "apply"
            else min(self.work.stop_timeout_s, SHORT_WAIT)
        )

    def _write_down(self, program: Program, stage: str) -> None:
        """Before the program may begin: an agent that dies from here on knows that it ran,
        and where.
        """
        process = program.process
        self.record.phase, self.record.stage = RUNNING, stage
        self.record.pid, self.record.pid_start = process.pid, started_at(process.pid)
        try:
            self.state.save(self.record)
        except OSError as error:
            raise TaskFailed(
                "disk_full", f"The agent's disk takes no more: {error.strerror}."
            ) from error

    def _view(self, program: str, env: dict[str, str]) -> dict[str, Any] | None:
        """What the program sees of this machine; None: all of it."""
        folder = self.folder
        parts = (folder.source, folder.home, folder.tmp, folder.out)
        return self.isolation.view(parts, folder.tmp, env, program) if self.isolation else None

    def _limits(self) -> list[tuple[str, int, int]]:
        limits = [("RLIMIT_CORE", 0, 0)]
        if self.work.cpu_s:
            limits.append(("RLIMIT_CPU", self.work.cpu_s, self.work.cpu_s + CPU_GRACE))
        if self.work.memory_bytes:
            # What is reserved and never touched counts as address space but not as data: programs
            # in Go reserve a lot.
            limits.append(("RLIMIT_DATA", self.work.memory_bytes, self.work.memory_bytes))
            limits.append(
                (
                    "RLIMIT_AS",
                    self.work.memory_bytes + (4 << 30),
                    self.work.memory_bytes + (4 << 30),
                )
            )
        return limits

    def _watch(
        self, program: Program, wait_s: float, stdout_to: Path | None, most: int
    ) -> AgentError | None:
        """Until the program has ended, with all that it started. Returns why it was made to end."""
        ready = select.poll()
        for handle in (program.output, program.said, self.stop.ear):
            ready.register(handle, select.POLLIN | select.POLLHUP)
        os.set_blocking(program.output, False)
        why: AgentError | None = None
        while not program.is_over:
            if why is None:
                why = self._why_end(stdout_to, most)
                if why is not None:
                    ready.unregister(self.stop.ear)  # it stays readable
                    self._log_interrupted(why, wait_s)
                    program.end(wait_s)
            readable = dict(ready.poll(LOOK_MS))
            if program.output in readable and not self._read(program.output):
                ready.unregister(program.output)
            if program.said in readable or program.has_said_more:
                program.hear(self._on_reaper_message)
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
        said = str(why).rstrip(".")
        self.say(
            f"Berth: {said}. The program is interrupted and has {wait_s:,.0f} s to finish "
            "what it began."
        )
        if self.announce is not None:
            self.announce(said, wait_s)

    def list_under_way(self) -> list[str]:
        """What an interrupted apply still has to finish."""
        return (
            [f"{address} ({verb})" for address, verb in list(self.progress.under_way.items())]
            if self.progress
            else []
        )

    def _on_reaper_message(self, heard: dict[str, Any]) -> None:
        if heard.get("phase") == "terminating":
            self.say("Berth: processes are left, which are terminated now.")

    def _end_what_is_left(self, program: Program, wait_s: float) -> None:
        """All of it, also where the reaper was killed; then what it has said last."""
        if not program.is_over:
            program.end(wait_s)
        while not program.is_over:
            self._listen(program.output, LOOK_MS / 1000)
            program.hear(self._on_reaper_message)
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
        """Not even KILL ends them: they wait for a disk or a network that does not answer.
        Whoever needs the slot is told.
        """
        children.give_up(left)
        self.record.extra["left"] = [*self.record.extra.get("left", ()), *map(list, left)]
        self.say(
            f"Berth: {len(left)} of its processes cannot be ended. Its slot waits until "
            "they are gone."
        )

    def _listen(self, pipe: int, seconds: float) -> None:
        """What it says while it is told to end: who cannot write cannot end."""
        until = time.monotonic() + seconds
        os.set_blocking(pipe, False)
        ready = select.poll()
        ready.register(pipe, select.POLLIN)
        while (left := until - time.monotonic()) > 0:
            if ready.poll(left * 1000) and not self._read(pipe):
                time.sleep(max(0.0, until - time.monotonic()))

    def _drain(self, pipe: int) -> None:
        """What is left in the pipe. Where something cannot be ended, it holds the pipe open."""
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
            data = os.read(pipe, PIECE)
        except BlockingIOError:
            return True
        if data:
            self._take(data)
        return bool(data)

    def _take(self, data: bytes) -> None:
        self.output.update(data)
        self.tail = (self.tail + data)[-TAIL:]
        self.spool.write(data)
        if self.progress is not None:
            self.progress.feed(data)

    def _judge(self, code: int | None) -> int:
        self.stop.check()
        if code is None:
            raise TaskFailed("killed", "Its process cannot be ended.")
        number = -code if code < 0 else code - 128
        if self.work.cpu_s and number == signal.SIGXCPU:
            raise TaskFailed(
                "timeout", f"It used more than {self.work.cpu_s:,} s of processor time.", code
            )
        if code != 0 and self.work.memory_bytes and is_out_of_memory(self.tail):
            raise TaskFailed(
                "out_of_memory",
                f"It needs more than its {self.work.memory_bytes / 1e6:,.0f} MB of memory.",
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
            raise TaskFailed("killed", f"It was ended by {name}{why}.", code)
        return code


def is_out_of_memory(tail: bytes) -> bool:
    text = tail[-8000:].lower()
    return any(
        sign in text
        for sign in (
            b"out of memory",
            b"cannot allocate memory",
            b"memoryerror",
            b"bad_alloc",
            b"std::bad_alloc",
        )
    )
