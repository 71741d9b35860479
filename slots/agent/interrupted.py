"""Reports to the server, for the page of a task, that its program was interrupted and which changes
it still has to finish.
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

EVERY = 2.0  # seconds between two checks
MOST_NAMED = 20
MAX_TEXT_LENGTH = 300


class InterruptReport(threading.Thread):
    def __init__(self, context: Context, path: str, job: Job, why: str, wait_s: float) -> None:
        super().__init__(name=f"interrupted {path}", daemon=True)
        self.context, self.path, self.job, self.why = context, path, job, why
        self.until = time.monotonic() + wait_s

    def run(self) -> None:
        """Send one report for each change of the list. A failed call is repeated; the end of the
        program never waits for a report.
        """
        sent = None
        try:
            while not self.job.has_ended.is_set() and not self.context.quit_now.is_set():
                waits_for = self.job.list_under_way()
                if waits_for != sent:
                    sent = waits_for if self._send(waits_for) else None
                self.job.has_ended.wait(EVERY)
        except RequestRefused:
            return  # an older server without this call
        finally:
            self.context.client.close()

    def _send(self, waits_for: list[str]) -> bool:
        left = max(0, math.ceil(self.until - time.monotonic()))
        named = [self.job.clean(each)[:MAX_TEXT_LENGTH] for each in waits_for[:MOST_NAMED]]
        body = {
            "why": self.job.clean(self.why)[:MAX_TEXT_LENGTH],
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
