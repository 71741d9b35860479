"""When a waiting claim will probably start: from how long claims held slots lately and how long the present holders have held theirs.

Pure. A band, not a promise: from the time at which it is as likely as not that enough slots have come free, to the time at which it is
nine times in ten. None, with a note, where no estimate would be honest.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt

FEWEST = 8  # hold times below which nothing is said
NINE_IN_TEN = 1.2816  # standard deviations
FURTHEST = 30 * 86400.0


@dataclass(frozen=True, slots=True)
class Band:
    """Seconds from now."""

    start: float | None  # as likely as not
    end: float | None  # nine times in ten
    note: str = ""


class Holds:
    """How long claims held slots lately, sorted once for many questions."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self.seconds = sorted(max(0.0, s) for s in seconds)
        self.mean = sum(self.seconds) / len(self.seconds) if self.seconds else 0.0

    def ends_within(self, age: float, more: float) -> float:
        """Chance that a hold of this age ends within so many seconds more. One older than all we have seen tells nothing: 0."""
        n = len(self.seconds)
        outlived = bisect_right(self.seconds, age)
        left = n - outlived
        return 0.0 if left == 0 else (bisect_right(self.seconds, age + more) - outlived) / left


def estimate_start(need: int, ages: Sequence[float], holds: Holds, *, weight: float = 1.0) -> Band:
    """`need`: how many slots must come free first (those who go ahead take theirs). `ages`: of the present holds that will end by
    themselves; each stands for `weight` of them where only a sample was read."""
    if need <= 0:
        return Band(0.0, 0.0)
    if len(holds.seconds) < FEWEST:
        return Band(None, None, "too few claims have ended here lately")
    living = [age for age in ages if age < holds.seconds[-1]]
    if not living:
        return Band(None, None, "its slots are held longer than any lately" if ages else "depends on what becomes free")
    if holds.mean <= 0:
        return Band(0.0, 0.0)
    start, end = (_when(need, living, holds, weight, deviations) for deviations in (0.0, NINE_IN_TEN))
    return Band(None, None, "further away than can be said") if start == inf else Band(start, min(end, FURTHEST))


def _when(need: int, ages: Sequence[float], holds: Holds, weight: float, deviations: float) -> float:
    """The first moment at which the expected number of ends, less so many standard deviations, reaches what is needed."""

    def ended(more: float) -> float:
        chances = [holds.ends_within(age, more) for age in ages]
        mean = weight * sum(chances)
        variance = weight * sum(p * (1 - p) for p in chances)
        # Slots that came free are taken by those ahead and end in their turn.
        turns = max(0.0, more - holds.mean) / holds.mean
        return mean + weight * len(ages) * turns - deviations * sqrt(variance + weight * len(ages) * turns)

    low, high = 0.0, max(1.0, holds.mean)
    while ended(high) < need:
        low, high = high, high * 2
        if high > FURTHEST:
            return inf
    for _ in range(24):
        middle = (low + high) / 2
        if ended(middle) < need:
            low = middle
        else:
            high = middle
        if high - low < max(0.5, 0.01 * high):
            break
    return high
