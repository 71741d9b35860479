"""Process 1 of a container, with the agent as its child.

Process 1 adopts all orphans, and the container ends with it. So it collects ended processes,
forwards signals, and outlives a killed agent until the reapers of its tasks have ended.
"""

from __future__ import annotations

import contextlib
import os
import signal

from .isolation import FORWARDED
from .process_table import list_children, read_proc
from .program import START

REAPER = START.partition("from {}")[2].encode()


class Init:
    def __init__(self) -> None:
        self.agent = 0  # pid, while the agent runs
        self.early: list[int] = []  # signals before the agent was started

    def split(self) -> int | None:
        """Fork. Returns None in the child, which becomes the agent, and in process 1 the exit code
        after all processes have ended.
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

    def _forward(self, number: int, frame: object) -> None:
        if not self.agent:
            self.early.append(number)
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.agent, number)


def has_reapers() -> bool:
    """Whether reapers run. Other children may stay for ever, like those of `kubectl exec`."""
    return any(REAPER in read_proc(pid, "cmdline") for pid in list_children(os.getpid()))
