"""The process between the agent and one program of a task. It starts the program, ends it gently
and collects the processes that the program leaves. It outlives the agent: if the agent dies, it
ends the program like a cancelled one.

    agent to reaper: {"stop": {"wait_s": 600}}, after the order. The end of this pipe means that the
    agent has died.
    reaper to agent: {"began": 41} | {"error": [2, "..."]}, {"phase": "terminating"},
    {"ended": 0, "left": []}

To end a program, the reaper sends SIGINT to the program alone and waits until it has finished its
work; then it sends TERM to all remaining processes, and then KILL.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..logs.log_buffer import LogBuffer
from ..logs.masking import Masker
from .launcher import launch
from .process_table import (
    PROC,
    adopt_orphans,
    end_all,
    has_child_ended,
    ignores_interrupt,
    is_shell,
    list_children,
    list_copies,
    list_dead_children,
    list_remaining,
    list_tree,
    pause_all,
    started_at,
)

if TYPE_CHECKING:
    from .launcher import LaunchOrder
    from .program import ReaperMessage

READ_BYTES = 1 << 16
LOOK = 0.5  # seconds between two checks; the end of a child wakes the reaper at once
SHORTEST_REST = 4  # bytes of a secret
DRAIN = 2.0  # seconds for output in the pipe after all processes have ended
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # meant for the agent


class Reaper:
    def __init__(self, order: LaunchOrder, control: int, reports: int, output: int) -> None:
        self.order, self.control, self.reports, self.output = order, control, reports, output
        self.users = frozenset(order["users"])
        self.pid = 0
        self.code: int | None = None
        self.received = b""
        self.wait_s: float | None = None  # set: the program must end within this time
        self.forked: set[int] = set()  # interrupted forks of a shell that had not called exec
        self.log_buffer: LogBuffer | None = (
            None  # set: the agent has died, and the reaper keeps the log
        )
        self.secrets = [secret.encode("latin-1") for secret in order["secrets"]]
        # Set: the first output that the agent did not read, until its first line is complete.
        self.first: bytes | None = None
        self.wake_reader, wake_writer = os.pipe()
        os.set_blocking(self.wake_reader, False)
        os.set_blocking(wake_writer, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_writer)
        self.ready = select.poll()
        self.ready.register(self.wake_reader, select.POLLIN)
        self.ready.register(control, select.POLLIN)

    def run(self, out: int, err: int) -> None:
        if not self._begin(out, err):
            return
        while self.wait_s is None and not self._has_ended():
            self._listen(LOOK)
        if self.wait_s is not None:
            self._interrupt(self.wait_s)
        if list_remaining(self.pid, self.order["mark"], self.users, self._others):
            self._report({"phase": "terminating"})
        is_clean = end_all(
            self.pid,
            self.order["mark"],
            self.order["grace_s"],
            pause=self._listen,
            users=self.users,
            others=self._others,
        )
        left = (
            []
            if is_clean
            else list_remaining(self.pid, self.order["mark"], self.users, self._others)
        )
        self._collect()
        self._report({"ended": self.code, "left": [(pid, started_at(pid)) for pid in left]})
        self._close_log()

    def _begin(self, out: int, err: int) -> bool:
        adopt_orphans()
        failed, failing = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            launch(self.order, out, err, failing)
        for handle in {out, err, failing}:
            os.close(handle)
        with os.fdopen(failed, "rb") as stream:
            fault = stream.read()
        if fault:
            os.waitpid(self.pid, 0)
            self._report({"error": json.loads(fault)})
            return False
        self._report({"began": self.pid})
        return True

    def _interrupt(self, wait_s: float) -> None:
        """Send one SIGINT to each running program: a second one would make Terraform drop its
        state. Shells are stopped meanwhile, because a program that a shell starts later would not
        be interrupted, and the shell would wait for its end.
        """
        until = time.monotonic() + wait_s
        paused: set[int] = set()
        try:
            interrupted = self._list_interrupted(paused)
            for pid in interrupted:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGINT)
        finally:
            for pid in paused:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGCONT)
        while (left := until - time.monotonic()) > 0 and any(
            self._runs(pid, since) for pid, since in interrupted.items()
        ):
            self._listen(min(LOOK, left))

    def _list_interrupted(self, paused: set[int]) -> dict[int, str]:
        """Programs to interrupt, with their start. Children of a program are left out: the
        providers of Terraform end with it. A shell reacts only after its command has ended, so
        commands of shells are included.
        """
        if not PROC.is_dir():
            return {} if self._has_ended() else {self.pid: started_at(self.pid)}
        found: set[int] = set()
        fresh = self._list_roots()
        while fresh:
            found |= fresh
            shells = {pid for pid in fresh if is_shell(pid)}
            paused |= shells
            pause_all(shells)
            fresh = {child for pid in shells for child in list_children(pid)} - found
        self.forked = list_copies(paused)
        return {pid: started_at(pid) for pid in found if not ignores_interrupt(pid)}

    def _list_roots(self) -> set[int]:
        """The program and its orphans. In namespaces, the program is below a relay and an init."""
        roots = list_children(os.getpid())
        if self.order["view"] is None or self.pid not in roots:
            return roots
        inside = {pid for init in list_children(self.pid) for pid in list_children(init)}
        return (roots - {self.pid}) | (inside or {self.pid})

    def _runs(self, pid: int, since: str) -> bool:
        """Whether an interrupted process still finishes its work. A shell that starts a background
        job forks first and ignores SIGINT in the fork a moment later: a fork that ignores SIGINT by
        now has lost the signal and is not waited for.
        """
        if pid in self.forked and ignores_interrupt(pid):
            return False
        return not self._has_ended() if pid == self.pid else started_at(pid) == since != ""

    def _others(self) -> set[int]:
        return list_tree(os.getpid())

    def _has_ended(self) -> bool:
        if not PROC.is_dir() and self.code is None:
            self._collect()
            return self.code is not None
        return has_child_ended(self.pid)

    def _collect(self) -> None:
        """Collect the program, only after all processes have ended: until then its pid and group
        must not be used again.
        """
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = (
                    -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                )

    def _listen(self, seconds: float) -> None:
        """Wait, and handle orders of the agent, ended children and, after the agent's death, the
        program's output.
        """
        until = time.monotonic() + seconds
        while True:
            left = until - time.monotonic()
            readable = dict(self.ready.poll(max(0.0, left) * 1000))
            if self.wake_reader in readable:
                with contextlib.suppress(BlockingIOError):
                    os.read(self.wake_reader, READ_BYTES)
                for pid in list_dead_children() - {self.pid}:
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(pid, os.WNOHANG)
            if self.control in readable:
                self._read_control()
            if self.output in readable and not self._keep_output():
                self.ready.unregister(self.output)
            if self.wake_reader in readable or self.control in readable or left <= 0:
                return

    def _read_control(self) -> None:
        data = os.read(self.control, READ_BYTES)
        if not data:
            self.ready.unregister(self.control)
            self._on_agent_death()
            return
        self.received += data
        while b"\n" in self.received:
            line, _, self.received = self.received.partition(b"\n")
            self._stop(float(json.loads(line)["stop"]["wait_s"]))

    def _stop(self, wait_s: float) -> None:
        if self.wait_s is None:
            self.wait_s = wait_s

    def _on_agent_death(self) -> None:
        """Stop the program and keep its log. The pipes stay open, because a write to a closed pipe
        would kill the program.
        """
        self._stop(self.order["wait_s"])
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 2)
        os.close(quiet)
        with contextlib.suppress(OSError):
            self.log_buffer = LogBuffer.reopen(Path(self.order["log"]), Masker(self.secrets))
            self.log_buffer.append_line(
                "Berth: the agent has died. The program is interrupted and has "
                f"{self.wait_s:,.0f} s to end."
            )
        os.set_blocking(self.output, False)
        self.first = b""
        self.ready.register(self.output, select.POLLIN)

    def _keep_output(self) -> bool:
        """Write output of the program to the log. False: end of the output."""
        try:
            data = os.read(self.output, READ_BYTES)
        except BlockingIOError:
            return True
        if self.first is not None:
            self.first += data
            if data and b"\n" not in self.first and len(self.first) < READ_BYTES:
                return True
            written, self.first = leave_out_rest(self.first, self.secrets), None
        else:
            written = data
        if self.log_buffer is not None and written:
            self.log_buffer.write(written)
        return bool(data)

    def _close_log(self) -> None:
        if self.log_buffer is None:
            return
        os.set_blocking(self.output, False)
        until = time.monotonic() + DRAIN
        while time.monotonic() < until:
            ready = select.poll()
            ready.register(self.output, select.POLLIN)
            if ready.poll(max(0.0, until - time.monotonic()) * 1000) and not self._keep_output():
                break
        self.log_buffer.close()

    def _report(self, message: ReaperMessage) -> None:
        with contextlib.suppress(OSError):  # the agent has died
            os.write(self.reports, json.dumps(message).encode() + b"\n")


def leave_out_rest(data: bytes, secrets: list[bytes]) -> bytes:
    """The data without a first line that begins with the rest of a secret: the agent held back its
    first half, and masking does not find half a secret.
    """
    line, newline, others = data.partition(b"\n")
    rests = (secret[at:] for secret in secrets for at in range(1, len(secret) - SHORTEST_REST + 1))
    return (
        others
        if any(line.startswith(rest[: len(line)]) for rest in rests if line)
        else line + newline + others
    )


def read_line(handle: int) -> bytes:
    """Read one line; empty if the agent died before it was complete."""
    found = b""
    while not found.endswith(b"\n"):
        data = os.read(handle, READ_BYTES)
        if not data:
            return b""
        found += data
    return found


def main() -> None:
    control, reports, output, out, err, *held = map(int, sys.argv[2:])
    # `held` are locks that must stay until this process ends.
    for handle in (control, reports, output, out, err, *held):
        os.set_inheritable(handle, False)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    line = read_line(control)
    if line:
        Reaper(json.loads(line), control, reports, output).run(out, err)
