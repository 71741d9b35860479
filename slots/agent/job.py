"""Runs the programs of one task: one after the other, each in a session of its own, watched until nothing of it is left."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pkgutil
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any, Callable

from .environment import task_environment
from .errors import Stopped, TaskFailed
from .folders import Folder
from .isolation import Isolation
from .masking import as_bytes, mask_text, sort_secrets, spell
from .processes import MARK, children, end_all, has_ended, list_tree, started_at, who_is_left
from .spool import Spool
from .state import RUNNING, Record, State
from .users import User
from .wire import Work

PIECE = 1 << 16
TAIL = 1 << 16
LOOK_MS = 200
DRAIN = 2.0  # for what is left in the pipe once nobody can write to it
START = 20.0  # for a program to begin
CPU_GRACE = 5
NOT_FOUND, NOT_ALLOWED = 2, 13  # errno
MOST_SPELLED = 100  # values that are also masked as programs write them for others: each costs dozens of searches


class Stop:
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
        work: Work,
        record: Record,
        state: State,
        folder: Folder,
        user: User | None,
        spool: Spool,
        secrets: list[bytes],
        mark: str,
        grace: float,
        stop: Stop,
    ) -> None:
        self.work, self.record, self.state, self.folder, self.user = work, record, state, folder, user
        self.spool, self.secrets, self.mark, self.grace, self.stop = spool, secrets, mark, grace, stop
        self.deadline = time.monotonic() + work.timeout_s
        self.tail = b""
        self.output = hashlib.sha256()
        self.isolation: Isolation | None = None
        self.adopt_folder()

    def adopt_folder(self) -> None:
        self.cwd = self.folder.source
        self.environment = {**task_environment(self.work, self.folder, self.user), MARK: self.mark}

    def say(self, text: str) -> None:
        self.spool.say(text)

    def clean(self, text: str) -> str:
        return mask_text(text, self.secrets)

    def hide(self, values: list[str]) -> None:
        """From now on they are masked like secrets, in the log and in what people are shown of the plan."""
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
        """The program's exit code. Its output goes into the log; with `stdout_to` only what it says on stderr does."""
        self.stop.check()
        self.tail, self.output = b"", hashlib.sha256()
        with contextlib.ExitStack() as stack:
            target = (
                stack.enter_context(open(os.open(stdout_to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb"))
                if stdout_to
                else None
            )
            process, pipe, go, said = self._prepare(stack, target)
            self._write_down(process, stage)
            order = {
                "argv": argv,
                "env": {**self.environment, **(env or {})},
                "cwd": str(cwd or self.cwd),
                "uid": self.user.uid if self.user else None,
                "gid": self.user.gid if self.user else None,
                "parent": os.getpid(),
                "view": self._view(argv[0], {**self.environment, **(env or {})}),
                "limits": self._limits(),
            }
            try:
                with os.fdopen(go, "wb") as stream:
                    stream.write(json.dumps(order).encode() + b"\n")
                self._check_begin(said, argv[0])
                self._watch(process, pipe, stdout_to, most)
            except OSError as error:
                raise TaskFailed("killed", f"The agent cannot run it: {error}.") from error
            finally:
                is_clean = self._end(process, pipe, self._grace_left(process))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(5)
                    children.forget(process.pid)
                if not is_clean:
                    self._note_left(process)
            return self._judge(process.returncode)

    def shell(self, command: str, stage: str, env: dict[str, str]) -> int:
        return self.run(["/bin/sh", "-c", command], stage, env)

    def _prepare(self, stack: contextlib.ExitStack, target: IO[bytes] | None) -> tuple[subprocess.Popen[bytes], int, int, int]:
        ready, go = os.pipe()
        said, saying = os.pipe()
        pipe, out = os.pipe()
        stack.callback(os.close, pipe)
        stack.callback(os.close, said)
        try:
            process = children.start(
                [sys.executable, "-I", "-S", "-c", launcher_text(), str(ready), str(saying)],
                stdin=subprocess.DEVNULL,
                stdout=target or out,
                stderr=out,
                pass_fds=(ready, saying),
                cwd="/",
                env={MARK: self.mark, "PATH": os.environ.get("PATH", os.defpath)},
            )
        except OSError as error:
            os.close(go)
            raise TaskFailed("killed", f"The agent cannot start a process: {error.strerror}.") from error
        finally:
            for handle in (ready, saying, out):
                os.close(handle)
        return process, pipe, go, said

    def _write_down(self, process: subprocess.Popen[bytes], stage: str) -> None:
        """Before the program may begin: an agent that dies from here on knows that it ran, and where."""
        self.record.phase, self.record.stage = RUNNING, stage
        self.record.pid, self.record.pid_start = process.pid, started_at(process.pid)
        try:
            self.state.save(self.record)
        except OSError as error:
            process.kill()
            process.wait()
            children.forget(process.pid)
            raise TaskFailed("disk_full", f"The agent's disk takes no more: {error.strerror}.") from error

    def _check_begin(self, said: int, name: str) -> None:
        ready = select.poll()
        ready.register(said, select.POLLIN | select.POLLHUP)
        data = os.read(said, 4096) if ready.poll(START * 1000) else b""
        if not data:
            return  # closed: the program took the launcher's place
        number, text = json.loads(data)
        reason = (
            "is not on this agent"
            if number == NOT_FOUND
            else "may not be run by the task's user"
            if number == NOT_ALLOWED
            else f"does not start: {text}"
        )
        raise TaskFailed("command_not_found", f"{name} {reason}.", 127)

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
            # What is reserved and never touched counts as address space but not as data: programs in Go reserve a lot.
            limits.append(("RLIMIT_DATA", self.work.memory_bytes, self.work.memory_bytes))
            limits.append(("RLIMIT_AS", self.work.memory_bytes + (4 << 30), self.work.memory_bytes + (4 << 30)))
        return limits

    def _watch(self, process: subprocess.Popen[bytes], pipe: int, stdout_to: Path | None, most: int) -> None:
        ready = select.poll()
        ready.register(pipe, select.POLLIN | select.POLLHUP)
        ready.register(self.stop.ear, select.POLLIN)
        os.set_blocking(pipe, False)
        is_open, drain_until = True, 0.0
        while is_open or not has_ended(process):
            now = time.monotonic()
            self.check_time()
            if most and stdout_to and stdout_to.stat().st_size > most:
                raise TaskFailed("plan_too_large", f"The plan as JSON has more than {most:,} bytes.")
            if drain_until and now > drain_until:
                return
            readable = dict(ready.poll(LOOK_MS))
            if pipe in readable:
                data = read_some(pipe)
                if data:
                    self._take(data)
                elif data is not None:
                    ready.unregister(pipe)
                    is_open = False
            if not drain_until and has_ended(process):
                self._end(process, pipe, self.grace)  # the background, too
                drain_until = time.monotonic() + DRAIN

    def _end(self, process: subprocess.Popen[bytes], pipe: int, grace: float) -> bool:
        """It and all that it started. Its number is its own until it is waited for."""
        others = self._others(process)
        return end_all(process.pid, self.mark, grace, pause=lambda seconds: self._listen(pipe, seconds), users=self._users, others=others)

    @property
    def _users(self) -> frozenset[int]:
        return frozenset({self.user.uid} if self.user and self.user.is_its_own else ())

    def _others(self, process: subprocess.Popen[bytes]) -> Callable[[], set[int]]:
        """Below it, while its program lives; below us, of programs that have ended."""
        return lambda: list_tree(process.pid) | children.list_strays()

    def _note_left(self, process: subprocess.Popen[bytes]) -> None:
        """Not even KILL ends them: they wait for a disk or a network that does not answer. Whoever needs the slot is told."""
        left = who_is_left(process.pid, self.mark, self._users, self._others(process))
        found = [(pid, started_at(pid)) for pid in left]
        children.give_up(found)
        self.record.extra["left"] = [*self.record.extra.get("left", ()), *map(list, found)]
        self.say(f"Berth: {len(left)} of its processes cannot be ended. Its slot waits until they are gone.")

    def _listen(self, pipe: int, seconds: float) -> None:
        """What it says while it is told to end: who cannot write cannot end."""
        until = time.monotonic() + seconds
        os.set_blocking(pipe, False)
        ready = select.poll()
        ready.register(pipe, select.POLLIN)
        while True:
            left = until - time.monotonic()
            if left <= 0:
                return
            data = read_some(pipe) if ready.poll(left * 1000) else None
            if data:
                self._take(data)
            else:
                time.sleep(max(0.0, until - time.monotonic()))

    def _take(self, data: bytes) -> None:
        self.output.update(data)
        self.tail = (self.tail + data)[-TAIL:]
        self.spool.write(data)

    def _grace_left(self, process: subprocess.Popen[bytes]) -> float:
        return min(self.grace, 1.0) if has_ended(process) else self.grace

    def _judge(self, code: int | None) -> int:
        self.stop.check()
        if code is None:
            raise TaskFailed("killed", "Its process cannot be ended.")
        number = -code if code < 0 else code - 128
        if self.work.cpu_s and number == signal.SIGXCPU:
            raise TaskFailed("timeout", f"It used more than {self.work.cpu_s:,} s of processor time.", code)
        if code != 0 and self.work.memory_bytes and is_out_of_memory(self.tail):
            raise TaskFailed("out_of_memory", f"It needs more than its {self.work.memory_bytes / 1e6:,.0f} MB of memory.", code)
        if code < 0:
            name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
            why = ", probably because the machine is short of memory" if number == signal.SIGKILL else ""
            raise TaskFailed("killed", f"It was ended by {name}{why}.", code)
        return code


def read_some(pipe: int) -> bytes | None:
    """Empty at the end; None: nothing there now."""
    try:
        return os.read(pipe, PIECE)
    except BlockingIOError:
        return None


def is_out_of_memory(tail: bytes) -> bool:
    text = tail[-8000:].lower()
    return any(sign in text for sign in (b"out of memory", b"cannot allocate memory", b"memoryerror", b"bad_alloc", b"std::bad_alloc"))


def launcher_text() -> str:
    data = [pkgutil.get_data(__package__, name) for name in ("isolation.py", "launcher.py")]
    return "\n".join(text.decode() for text in data if text is not None)
