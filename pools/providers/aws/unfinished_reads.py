"""Targets that a sync has read before its call budget was exhausted."""

import math
import time
from collections.abc import Iterable

from pools.providers.aws.inventory import SeenTarget
from pools.providers.aws.plan import WantedPort

UNFINISHED_AGE = 20.0  # seconds


class UnfinishedReads:
    """The targets that a sync has read and corrected before its call budget was exhausted. The next
    sync of the member goes on behind them. Without this, workers that share the budget would all
    read the first targets of their load balancers again and again. A sync that ends forgets them.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[WantedPort | None, tuple[SeenTarget, ...], float]] = {}

    def find(self, group: str, want: WantedPort | None) -> tuple[SeenTarget, ...] | None:
        """The targets of a group, if they were right for this port a few seconds ago."""
        wanted, targets, at = self._kept.get(group, (None, (), -math.inf))
        is_fresh = wanted == want and time.monotonic() - at < UNFINISHED_AGE
        return targets if is_fresh else None

    def keep(self, group: str, want: WantedPort | None, targets: tuple[SeenTarget, ...]) -> None:
        self._kept[group] = want, targets, time.monotonic()

    def drop(self, groups: Iterable[str]) -> None:
        for group in groups:
            self._kept.pop(group, None)

    def clear(self) -> None:
        """For tests, whose clouds use the same ARNs."""
        self._kept.clear()


UNFINISHED = UnfinishedReads()
