"""Tells the server, for the page of a task, that its program was interrupted and what the
program still has to finish.
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING

from .common.errors import AgentError, RequestRefused

if TYPE_CHECKING:
    from .executors.job import Job
    from .runner import Context

EVERY = 2.0  # seconds between two looks
MOST_NAMED = 20
LONGEST = 300


class InterruptReport(threading.Thread):
    def __init__(self, context: Context, path: str, job: Job, why: str, wait_s: float) -> None:
        super().__init__(name=f"interrupted {path}", daemon=True)
        self.context, self.path, self.job, self.why = context, path, job, why
        self.until = time.monotonic() + wait_s

    def run(self) -> None:
        """One call for each change of what is under way. A call that fails is repeated; the
        ending itself waits for none.
        """
        told = None
        try:
            while not self.job.has_ended.is_set() and not self.context.quit_now.is_set():
                waits_for = self.job.list_under_way()
                if waits_for != told:
                    told = waits_for if self._send(waits_for) else None
                self.job.has_ended.wait(EVERY)
        except RequestRefused:
            return  # a server that does not know this call
        finally:
            self.context.client.close()

    def _send(self, waits_for: list[str]) -> bool:
        left = max(0, math.ceil(self.until - time.monotonic()))
        named = [self.job.clean(each)[:LONGEST] for each in waits_for[:MOST_NAMED]]
        body = {
            "why": self.job.clean(self.why)[:LONGEST],
            "wait_s": left,
            "waits_for": named,
            "more": len(waits_for) - len(named),
        }
        try:
            self.context.client.post(f"{self.path}interrupted/", body)
        except RequestRefused:
            raise
        except AgentError:
            return False
        return True
