"""The agent's side of one program of a task: starts the program through its reaper, sends the order
to end and reads the reaper's messages.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Callable, Iterable, Mapping, TypedDict

from ..common.errors import TaskFailed
from .process_table import children

if TYPE_CHECKING:
    from .launcher import LaunchOrder

READ_BYTES = 1 << 16
NOT_FOUND, NOT_ALLOWED = 2, 13  # errno
PACKAGE = __name__.rpartition(".")[0]  # an older zipimport sets __package__ later
# The folder or the one-file agent from which the package is imported.
ROOT = Path(__file__).resolve().parents[len(PACKAGE.split("."))]
START = "import sys; sys.path.insert(0, sys.argv[1]); from {}.reaper import main; main()"


class ReaperMessage(TypedDict, total=False):
    """A message of the reaper, see reaper.py."""

    began: int
    error: tuple[int, str]
    phase: str
    ended: int | None
    left: list[tuple[int, str]]


class Program:
    def __init__(self, target: IO[bytes] | None, held: Iterable[int] = ()) -> None:
        """Start the reaper, which waits for `begin`. It keeps the descriptors `held`, which are
        locks, open until it ends.
        """
        self.received = b""
        self.is_over = False  # the program and all its processes have ended, or the reaper has
        self.code: int | None = None
        # Processes that not even KILL ended. None: the reaper did not report.
        self.left: list[tuple[int, str]] | None = None
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            order, control = os.pipe()
            reports, reporter = os.pipe()
            self.output, out = os.pipe()
            for handle in (order, reporter, out):
                theirs.callback(os.close, handle)
            for handle in (control, reports, self.output):
                ours.callback(os.close, handle)
            self.control, self.reports = control, reports
            passed = [order, reporter, self.output, target.fileno() if target else out, out, *held]
            try:
                self.process = children.start(
                    [*python(), "-c", START.format(PACKAGE), str(ROOT), *map(str, passed)],
                    pass_fds=passed,
                    env={"PATH": os.environ.get("PATH", os.defpath)},
                )
            except OSError as error:
                raise TaskFailed(
                    "killed", f"The agent cannot start a process: {error.strerror}."
                ) from error
            self.handles = ours.pop_all()

    def begin(self, order: LaunchOrder) -> None:
        self._write(order)
        while not self.is_over:
            message = self._read_message()
            if "began" in message:
                return
            if "error" in message:
                number, text = message["error"]
                raise TaskFailed(
                    "command_not_found",
                    f"{order['argv'][0]} {describe_failure(number, text)}.",
                    127,
                )

    def end(self, wait_s: float) -> None:
        """Interrupt the program; it has `wait_s` to finish its work."""
        with contextlib.suppress(OSError):
            self._write({"stop": {"wait_s": wait_s}})

    def read_messages(self, handle: Callable[[ReaperMessage], None]) -> None:
        """Handle all received messages of the reaper; waits for the first."""
        while True:
            message = self._read_message()
            if message:
                handle(message)
            if "ended" in message:
                self.code = message["ended"]
                self.left = [(pid, since) for pid, since in message["left"]]
                self.is_over = True
            if self.is_over or not self.has_message:
                return

    @property
    def has_message(self) -> bool:
        """Whether a message was received already, so that the pipe need not be readable."""
        return b"\n" in self.received

    def close(self) -> None:
        self.handles.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
            children.forget(self.process.pid)

    def _read_message(self) -> ReaperMessage:
        while not self.has_message:
            data = os.read(self.reports, READ_BYTES)
            if not data:
                self.is_over = True
                return {}
            self.received += data
        line, _, self.received = self.received.partition(b"\n")
        found: ReaperMessage = json.loads(line)
        return found

    def _write(self, message: Mapping[str, object]) -> None:
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self.control, data) :]


def python() -> list[str]:
    """This Python, isolated from the environment and from site packages."""
    prefix = ["-X", f"pycache_prefix={sys.pycache_prefix}"] if sys.pycache_prefix else []
    return [sys.executable, "-I", "-S", "-B", *prefix]


def describe_failure(number: int, text: str) -> str:
    if number == NOT_FOUND:
        return "is not on this agent"
    return (
        "may not be run by the task's user" if number == NOT_ALLOWED else f"does not start: {text}"
    )
