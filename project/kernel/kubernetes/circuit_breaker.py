"""A cluster that does not answer is left alone for a moment, so that it costs little and holds
up nobody else.
"""

import threading
import time

from project.kernel.outbox.operations import ProviderError, Throttled

TRIP = 3  # failures in a row after which a cluster is left alone for a moment
LONGEST_PAUSE = 30.0
TRIAL = 13.0  # seconds that the one who tries may take


class Breaker:
    """A cluster that does not answer costs each process one try now and then, not each of a
    hundred operations its timeout.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._until = 0.0
        self._error = ProviderError()

    def enter(self) -> None:
        with self._lock:
            if self._failures < TRIP:
                return
            left = self._until - time.monotonic()
            if left > 0:
                raise type(self._error)(str(self._error), retry_after=round(left + 0.5, 1))
            # This call tries, the others wait for what becomes of it.
            self._until = time.monotonic() + TRIAL

    def leave(self, error: ProviderError | None) -> None:
        with self._lock:
            if error is None or type(error) not in (ProviderError, Throttled):
                self._failures = 0
                return
            self._failures += 1
            self._error = error
            pause = min(2.0 ** max(0, self._failures - TRIP), LONGEST_PAUSE)
            self._until = time.monotonic() + max(pause, error.retry_after or 0.0)
