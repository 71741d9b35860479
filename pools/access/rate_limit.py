"""Rate limits of callers: token buckets in the memory of the web process, without a database query.

Several web processes exchange their counts (`pools/access/shared_rate_limit.py`), so that a caller
has one limit for all of them.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache

from django.conf import settings

from project.kernel.errors import TooMany
from project.kernel.security.client_address import counted_address

# Time in which an unknown token is not looked up again if its address is over the limit.
UNKNOWN_SECONDS = 10.0
# The least recently used bucket is dropped first, because it is most likely full again.
MOST_BUCKETS = 10_000


class Buckets:
    def __init__(self, per_minute: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.size = max(1.0, per_minute)
        self.rate = self.size / 60.0
        self._clock = clock
        self._lock = threading.Lock()
        self._taken: dict[str, int] = {}  # counts to send to the other processes
        # Caller -> requests left, and the time of that count.
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def count(self, caller: str) -> float:
        """Count one request. Returns 0, or the seconds until a request is left; a rejected
        request is not counted.
        """
        now = self._clock()
        with self._lock:
            left = self._refill(caller, now)
            wait = self._wait_for(left)
            self._store(caller, left if wait else left - 1.0, now)
            if not wait and len(self._taken) < MOST_BUCKETS:
                self._taken[caller] = self._taken.get(caller, 0) + 1
        return wait

    def forget_taken(self) -> dict[str, int]:
        """Requests counted here since the last call, by caller."""
        with self._lock:
            taken, self._taken = self._taken, {}
        return taken

    def subtract_remote(self, taken: Mapping[str, int]) -> None:
        """Subtract requests that other processes counted. The debt of a caller is at most its
        limit for one minute.
        """
        now = self._clock()
        with self._lock:
            for caller, count in taken.items():
                self._store(caller, max(self._refill(caller, now) - count, -self.size), now)

    def wait_of(self, caller: str) -> float:
        """Seconds until a request is left; 0: one is left. Counts no request."""
        with self._lock:
            return self._wait_for(self._refill(caller, self._clock()))

    def is_known(self, caller: str) -> bool:
        return caller in self._levels

    def _refill(self, caller: str, now: float) -> float:
        left, then = self._levels.get(caller, (self.size, now))
        return min(self.size, left + (now - then) * self.rate)

    def _wait_for(self, left: float) -> float:
        return 0.0 if left >= 1.0 else (1.0 - left) / self.rate

    def _store(self, caller: str, left: float, now: float) -> None:
        self._levels[caller] = (left, now)
        self._levels.move_to_end(caller)
        if len(self._levels) > MOST_BUCKETS:
            self._levels.popitem(last=False)


# A changed limit makes new buckets.
_of_callers = lru_cache(1)(Buckets)
_of_strangers = lru_cache(1)(Buckets)


def per_minute() -> float:
    return float(settings.BERTH_REQUESTS_PER_MINUTE)


def buckets() -> Buckets:
    return _of_callers(per_minute())


def count_request(caller: str) -> None:
    """Raises TooMany once the caller is over its rate limit."""
    if wait := buckets().count(caller):
        raise TooMany(
            f"More than {per_minute():.0f} requests a minute.",
            retry_after=wait,
            way_out=(
                "Wait as long as Retry-After says, or put many claims into one bulk call, which "
                "counts as one."
            ),
        )


def anonymous_buckets() -> Buckets:
    return _of_strangers(float(settings.BERTH_STRANGERS_PER_MINUTE))


def refuse_repeated(address: str, token: str) -> None:
    """Before the lookup of a token, given as hash: raises TooMany if the token was unknown a moment
    ago and its address has sent too many unknown tokens. A valid token is never rejected for the
    calls of other programs at its address, because it was never unknown.
    """
    counted = counted_address(address)
    if counted and (wait := anonymous_buckets().wait_of(counted)) and _unknown.has(token):
        raise too_many_unknown(wait)


@contextmanager
def limit_caller(token: str, address: str, count_call: Callable[[str], None]) -> Iterator[bool]:
    """Counts a call of a token, given as hash, with `count_call`: a known caller before the block
    looks the token up, so that a caller beyond its rate limit is rejected without a query, and
    another caller after it. Yields whether the call is counted already.
    """
    is_known = buckets().is_known(token)
    if is_known:
        count_call(token)
    else:
        refuse_repeated(address, token)
    yield is_known
    if not is_known:
        count_call(token)


def count_unknown(address: str, token: str) -> None:
    """Count an unknown token, given as hash. Raises TooMany once its address has sent too many."""
    _unknown.add(token)
    if (counted := counted_address(address)) and (wait := anonymous_buckets().count(counted)):
        raise too_many_unknown(wait)


def too_many_unknown(wait: float) -> TooMany:
    return TooMany(
        "Too many unknown tokens come from this address.",
        code="too_many_unknown",
        retry_after=wait,
        way_out="Send a valid token: valid tokens are not rejected.",
    )


class UnknownTokens:
    """Hashes of unknown tokens, for a few seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, float] = OrderedDict()

    def add(self, token: str) -> None:
        with self._lock:
            self._seen[token] = self._clock()
            self._seen.move_to_end(token)
            if len(self._seen) > MOST_BUCKETS:
                self._seen.popitem(last=False)

    def has(self, token: str) -> bool:
        seen = self._seen.get(token)
        return seen is not None and self._clock() - seen < UNKNOWN_SECONDS


_unknown = UnknownTokens()
