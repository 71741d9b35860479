"""Pause of calls to a cluster that does not answer."""

import threading
import time

from project.kernel.outbox.operations import ProviderError, Throttled

TRIP = 3  # failures in a row until the breaker opens
LONGEST_PAUSE = 30.0
TRIAL = 13.0  # seconds that the trial call of an open breaker may take


class Breaker:
    """Without it, each of a hundred operations would wait for the timeout of a silent cluster. An
    open breaker lets one trial call through after each pause.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._until = 0.0
        self._error = ProviderError()

    def enter(self) -> None:
        """Raises the last error while the breaker is open."""
        with self._lock:
            if self._failures < TRIP:
                return
            left = self._until - time.monotonic()
            if left > 0:
                raise type(self._error)(str(self._error), retry_after=round(left + 0.5, 1))
            self._until = time.monotonic() + TRIAL  # this call is the trial, other calls wait

    def leave(self, error: ProviderError | None) -> None:
        with self._lock:
            if error is None or type(error) not in (ProviderError, Throttled):
                self._failures = 0
                return
            self._failures += 1
            self._error = error
            pause = min(2.0 ** max(0, self._failures - TRIP), LONGEST_PAUSE)
            self._until = time.monotonic() + max(pause, error.retry_after or 0.0)
