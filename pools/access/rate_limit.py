"""A share of requests for each caller: a token bucket in the memory of the web process, without a
word to the database.

Where there are several web processes they tell each other what was taken
(`pools/access/shared_rate_limit.py`): a caller has one share in all of them.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping

from django.conf import settings

from project.kernel.errors import TooMany
from project.kernel.security.client_address import counted_address

DEFAULT_PER_MINUTE = 6000
ANONYMOUS_PER_MINUTE = 300  # tokens that nobody knows, from one address
# In which a token that was unknown is not looked up again, where its address sends too many.
UNKNOWN_SECONDS = 10.0
# The one not used for longest is forgotten first: most likely it is full again.
MOST_BUCKETS = 10_000


class Buckets:
    def __init__(self, per_minute: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.size = max(1.0, per_minute)
        self.rate = self.size / 60.0
        self._clock = clock
        self._lock = threading.Lock()
        self._taken: dict[str, int] = {}  # since the other processes were told
        # Caller -> what was left, and when.
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> float:
        """One request. 0: go on. Else the seconds until there is one left; a refused request
        takes nothing.
        """
        now = self._clock()
        with self._lock:
            left, then = self._levels.pop(caller, (self.size, now))
            left = min(self.size, left + (now - then) * self.rate)
            wait = 0.0 if left >= 1.0 else (1.0 - left) / self.rate
            self._levels[caller] = (left if wait else left - 1.0, now)
            if not wait and len(self._taken) < MOST_BUCKETS:
                self._taken[caller] = self._taken.get(caller, 0) + 1
            if len(self._levels) > MOST_BUCKETS:
                self._levels.popitem(last=False)
        return wait

    def forget_taken(self) -> dict[str, int]:
        """What was taken here and told nobody yet."""
        with self._lock:
            taken, self._taken = self._taken, {}
        return taken

    def note_elsewhere(self, taken: Mapping[str, int]) -> None:
        """What other processes have given out. More than is left becomes a debt, a whole
        share at most.
        """
        now = self._clock()
        with self._lock:
            for caller, count in taken.items():
                left, then = self._levels.pop(caller, (self.size, now))
                left = min(self.size, left + (now - then) * self.rate)
                self._levels[caller] = (max(left - count, -self.size), now)
            while len(self._levels) > MOST_BUCKETS:
                self._levels.popitem(last=False)

    def wait_of(self, caller: str) -> float:
        """Seconds until there is one left; 0: there is one. Takes nothing."""
        now = self._clock()
        with self._lock:
            left, then = self._levels.get(caller, (self.size, now))
        left += (now - then) * self.rate
        return 0.0 if left >= 1.0 else (1.0 - left) / self.rate

    def is_known(self, caller: str) -> bool:
        return caller in self._levels


_buckets: Buckets | None = None
_anonymous: Buckets | None = None


def per_minute() -> float:
    return float(getattr(settings, "BERTH_REQUESTS_PER_MINUTE", DEFAULT_PER_MINUTE))


def buckets() -> Buckets:
    global _buckets
    if _buckets is None or _buckets.size != max(1.0, per_minute()):
        _buckets = Buckets(per_minute())
    return _buckets


def count_request(caller: str) -> None:
    """Raises TooMany once the share is used up. The others have buckets of their own and
    notice nothing.
    """
    if wait := buckets().take(caller):
        raise TooMany(
            f"More than {per_minute():.0f} requests a minute.",
            retry_after=wait,
            way_out=(
                "Wait as long as Retry-After says, or put many claims into one bulk call, which "
                "counts as one."
            ),
        )


def anonymous_buckets() -> Buckets:
    global _anonymous
    size = max(1.0, float(getattr(settings, "BERTH_STRANGERS_PER_MINUTE", ANONYMOUS_PER_MINUTE)))
    if _anonymous is None or _anonymous.size != size:
        _anonymous = Buckets(size)
    return _anonymous


def refuse_repeated(address: str, token: str) -> None:
    """Before the database is asked. Refuses a token (its hash) that the database did not know a
    moment ago, if its address has sent too many of those. A valid token is never refused for what
    others of its address send: it was never unknown."""
    counted = counted_address(address)
    if counted and (wait := anonymous_buckets().wait_of(counted)) and _unknown.has(token):
        raise too_many_unknown(wait)


def count_unknown(address: str, token: str) -> None:
    """The database does not know this token (its hash). Raises TooMany once the address has sent
    too many of those.
    """
    _unknown.add(token)
    if (counted := counted_address(address)) and (wait := anonymous_buckets().take(counted)):
        raise too_many_unknown(wait)


def too_many_unknown(wait: float) -> TooMany:
    return TooMany(
        "Too many unknown tokens come from this address.",
        code="too_many_unknown",
        retry_after=wait,
        way_out="Send a token that exists: it is not refused.",
    )


class UnknownTokens:
    """Hashes of tokens that the database did not know, for a few seconds."""

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
