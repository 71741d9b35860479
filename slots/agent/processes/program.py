"""One program of a task, seen from the agent: started through its reaper, told to end,
and heard of.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Any, Callable, Iterable

from ..common.errors import TaskFailed
from .process_table import children

PIECE = 1 << 16
NOT_FOUND, NOT_ALLOWED = 2, 13  # errno
PACKAGE = __name__.rpartition(".")[0]  # an older zipimport sets __package__ later
# Where the package is imported from: a folder, or the one file.
ROOT = Path(__file__).resolve().parents[len(PACKAGE.split("."))]
START = "import sys; sys.path.insert(0, sys.argv[1]); from {}.reaper import main; main()"


class Program:
    def __init__(self, target: IO[bytes] | None, held: Iterable[int] = ()) -> None:
        """Starts the reaper, which does nothing before `begin`. `held`: locks that last as long
        as it lives.
        """
        self.received = b""
        self.is_over = False  # it has ended, with all that it started, or its reaper has
        self.code: int | None = None
        # What not even KILL ends. None: the reaper did not say.
        self.left: list[tuple[int, str]] | None = None
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            order, control = os.pipe()
            said, saying = os.pipe()
            self.output, out = os.pipe()
            for handle in (order, saying, out):
                theirs.callback(os.close, handle)
            for handle in (control, said, self.output):
                ours.callback(os.close, handle)
            self.control, self.said = control, said
            passed = [order, saying, self.output, target.fileno() if target else out, out, *held]
            try:
                self.process = children.start(
                    [*python(), "-c", START.format(PACKAGE), str(ROOT), *map(str, passed)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=passed,
                    cwd="/",
                    env={"PATH": os.environ.get("PATH", os.defpath)},
                )
            except OSError as error:
                raise TaskFailed(
                    "killed", f"The agent cannot start a process: {error.strerror}."
                ) from error
            self.handles = ours.pop_all()

    def begin(self, order: dict[str, Any]) -> None:
        self._write(order)
        while not self.is_over:
            heard = self._hear()
            if "began" in heard:
                return
            if "error" in heard:
                number, text = heard["error"]
                raise TaskFailed(
                    "command_not_found", f"{order['argv'][0]} {why_not(number, text)}.", 127
                )

    def end(self, wait_s: float) -> None:
        """One SIGINT, and so long to finish what it began."""
        with contextlib.suppress(OSError):
            self._write({"stop": {"wait_s": wait_s}})

    def hear(self, tell: Callable[[dict[str, Any]], None]) -> None:
        """What the reaper has said. Waits where it has said nothing."""
        while True:
            heard = self._hear()
            if heard:
                tell(heard)
            if "ended" in heard:
                self.code, self.left = (
                    heard["ended"],
                    [(pid, since) for pid, since in heard["left"]],
                )
                self.is_over = True
            if self.is_over or not self.has_said_more:
                return

    @property
    def has_said_more(self) -> bool:
        """What came with what was heard last: the pipe is not readable for it."""
        return b"\n" in self.received

    def close(self) -> None:
        self.handles.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
            children.forget(self.process.pid)

    def _hear(self) -> dict[str, Any]:
        while not self.has_said_more:
            data = os.read(self.said, PIECE)
            if not data:
                self.is_over = True
                return {}
            self.received += data
        line, _, self.received = self.received.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def _write(self, words: dict[str, Any]) -> None:
        data = json.dumps(words).encode() + b"\n"
        while data:
            data = data[os.write(self.control, data) :]


def python() -> list[str]:
    """This one, without anything that the environment or its folders add."""
    prefix = ["-X", f"pycache_prefix={sys.pycache_prefix}"] if sys.pycache_prefix else []
    return [sys.executable, "-I", "-S", "-B", *prefix]


def why_not(number: int, text: str) -> str:
    if number == NOT_FOUND:
        return "is not on this agent"
    return (
        "may not be run by the task's user" if number == NOT_ALLOWED else f"does not start: {text}"
    )
