"""Caches slow reads for a time in proportion to their cost."""

import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

COST_SHARE = 20.0  # a read is cached for this multiple of the time that it took
WORTH_KEEPING = 0.02  # seconds; faster reads are not cached
MOST_CACHED = 1000

T = TypeVar("T")


class SlowReads(Generic[T]):
    """Cache of the slow reads of one kind."""

    def __init__(self) -> None:
        self.cached: dict[Hashable, tuple[float, T]] = {}

    def get(self, key: Hashable, read: Callable[[], T]) -> T:
        known = self.cached.get(key)
        started = time.monotonic()
        if known is not None and known[0] > started:
            return known[1]
        found = read()
        cost = time.monotonic() - started
        if cost >= WORTH_KEEPING:
            if len(self.cached) > MOST_CACHED:
                self.cached.clear()
            self.cached[key] = (started + cost * COST_SHARE, found)
        return found
