"""A share of requests for each caller: a token bucket in the memory of the web process. Nothing is written anywhere.

Each web process has buckets of its own, so a caller that reaches several of them has a share in each.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

from django.conf import settings

from project.kernel.errors import TooMany

DEFAULT_PER_MINUTE = 6000
MOST_BUCKETS = 10_000  # the one not used for longest is forgotten first: most likely it is full again


class Buckets:
    def __init__(self, per_minute: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.size = max(1.0, per_minute)
        self.rate = self.size / 60.0
        self._clock = clock
        self._lock = threading.Lock()
        self._levels: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # caller -> what was left, and when

    def take(self, caller: Hashable) -> float:
        """One request. 0: go on. Else the seconds until there is one left; a refused request takes nothing."""
        now = self._clock()
        with self._lock:
            left, then = self._levels.pop(caller, (self.size, now))
            left = min(self.size, left + (now - then) * self.rate)
            wait = 0.0 if left >= 1.0 else (1.0 - left) / self.rate
            self._levels[caller] = (left if wait else left - 1.0, now)
            if len(self._levels) > MOST_BUCKETS:
                self._levels.popitem(last=False)
        return wait

    def is_known(self, caller: Hashable) -> bool:
        return caller in self._levels


_buckets: Buckets | None = None


def per_minute() -> float:
    return float(getattr(settings, "BERTH_REQUESTS_PER_MINUTE", DEFAULT_PER_MINUTE))


def buckets() -> Buckets:
    global _buckets
    if _buckets is None or _buckets.size != max(1.0, per_minute()):
        _buckets = Buckets(per_minute())
    return _buckets


def count_request(caller: Hashable) -> None:
    """Raises TooMany once the share is used up. The others have buckets of their own and notice nothing."""
    if wait := buckets().take(caller):
        raise TooMany(
            f"More than {per_minute():.0f} requests a minute.",
            retry_after=wait,
            way_out="Wait as long as Retry-After says, or put many claims into one bulk call, which counts as one.",
        )
