"""Process 1 of a container: the agent runs as its child.

Process 1 adopts whatever loses its parent, and the container ends with it. So it collects what
has ended, passes signals on, and outlives an agent that was killed until the reapers of its tasks
have ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

from .process_table import PROC, list_children
from .program import START

FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
REAPER = START.partition("from {}")[2].encode()


class Init:
    def __init__(self) -> None:
        self.agent = 0  # its number, while it runs
        self.early: list[int] = []  # signals that came before it did

    def split(self) -> int | None:
        """Returns twice: None in the process that is to be the agent; in process 1 the exit
        code, once everything has ended.
        """
        before = {number: signal.signal(number, self._forward) for number in FORWARDED}
        pid = os.fork()
        if not pid:
            for number, handler in before.items():
                signal.signal(number, handler)
            return None
        self.agent = pid
        for early in self.early:
            self._forward(early, None)
        code = 0
        while self.agent or has_reapers():
            try:
                dead, status = os.waitpid(-1, 0)
            except ChildProcessError:
                break
            if dead == self.agent:
                self.agent = 0
                code = (
                    128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                )
        return code

    def _forward(self, number: int, frame: Any) -> None:
        if not self.agent:
            self.early.append(number)
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.agent, number)


def has_reapers() -> bool:
    """Other children are not waited for: what was started with `kubectl exec` may stay for ever."""
    return any(is_reaper(pid) for pid in list_children(os.getpid()))


def is_reaper(pid: int) -> bool:
    try:
        return REAPER in (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return False
