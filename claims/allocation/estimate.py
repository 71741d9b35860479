"""When a waiting claim will probably start: from how long claims held slots lately and how long the
present holders have held theirs.

Pure. A band, not a promise: from the time at which it is as likely as not that enough slots have
come free, to the time at which it is nine times in ten. None, with a note, where no estimate would
be honest.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import sqrt

FEWEST = 8  # hold times below which nothing is said
NINE_IN_TEN = 1.2816  # standard deviations
FURTHEST = 30 * 86400.0
SAMPLE = 200  # holders looked at one by one; more of them say the same
POINTS = 48  # of the curve that all who wait in a line are read from


@dataclass(frozen=True, slots=True)
class Band:
    """Seconds from now."""

    start: float | None  # as likely as not
    end: float | None  # nine times in ten
    note: str = ""


class HoldTimes:
    """How long claims held slots lately, sorted once for many questions."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self.seconds = sorted(max(0.0, s) for s in seconds)
        self.mean = sum(self.seconds) / len(self.seconds) if self.seconds else 0.0

    def ends_within(self, age: float, more: float) -> float:
        """Chance that a hold of this age ends within so many seconds more. One older than all we
        have seen tells nothing: 0.
        """
        n = len(self.seconds)
        outlived = bisect_right(self.seconds, age)
        left = n - outlived
        return 0.0 if left == 0 else (bisect_right(self.seconds, age + more) - outlived) / left


class Forecast:
    """How many of the present holders will have gone by when: one curve for all who wait for
    their slots.

    `ages`: of the holds that will end by themselves; each stands for `weight` of them where only a
    sample was read.
    """

    def __init__(self, ages: Sequence[float], holds: HoldTimes, *, weight: float = 1.0) -> None:
        self.holds = holds
        self.note = ""
        self._times: list[float] = []
        if len(holds.seconds) < FEWEST:
            self.note = f"no estimate: fewer than {FEWEST} claims ended recently"
            return
        living = [age for age in ages if age < holds.seconds[-1]]
        if not living:
            self.note = (
                "no estimate: its slots are held for unusually long"
                if ages
                else "depends on which slots become free"
            )
            return
        if len(living) > SAMPLE:
            weight *= len(living) / SAMPLE
            living = living[:: -(-len(living) // SAMPLE)]
        # Ends a second, once those ahead have taken what came free.
        self._rate = weight * len(living) / max(holds.mean, 1e-3)
        self._draw(living, weight)

    def _draw(self, ages: Sequence[float], weight: float) -> None:
        longest = max(self.holds.seconds[-1], 1e-3)
        self._times = [longest * (i / POINTS) ** 2 for i in range(POINTS + 1)]
        self._means, self._variances = [], []
        for more in self._times:
            chances = [self.holds.ends_within(age, more) for age in ages]
            # Slots that came free are taken by those ahead and end in their turn.
            turns = self._rate * max(0.0, more - self.holds.mean)
            self._means.append(weight * sum(chances) + turns)
            self._variances.append(weight * sum(p * (1 - p) for p in chances) + turns)

    def start(self, need: int) -> Band:
        """`need`: how many slots must come free first; those who go ahead take theirs."""
        if need <= 0:
            return Band(0.0, 0.0)
        if not self._times:
            return Band(None, None, self.note)
        start, end = self._when(need, 0.0), self._when(need, NINE_IN_TEN)
        return (
            Band(None, None, "no estimate: too far ahead")
            if start > FURTHEST
            else Band(start, min(max(start, end), FURTHEST))
        )

    def _when(self, need: int, deviations: float) -> float:
        """The first moment at which the expected number of ends, less so many standard
        deviations, reaches what is needed.
        """
        ended = list(
            accumulate(
                (
                    m - deviations * sqrt(v)
                    for m, v in zip(self._means, self._variances, strict=True)
                ),
                max,
            )
        )
        at = bisect_left(ended, need)
        if at == len(ended):
            return self._beyond(need, deviations)
        if at == 0:
            return 0.0
        share = (need - ended[at - 1]) / (ended[at] - ended[at - 1])
        return self._times[at - 1] + share * (self._times[at] - self._times[at - 1])

    def _beyond(self, need: int, deviations: float) -> float:
        """Past the curve slots come free at an even rate: m + x - d * sqrt(v + x) = need, for x
        more ends.
        """
        lacking = need - self._means[-1]
        d, v = deviations, self._variances[-1]
        root = (d + sqrt(d * d + 4 * max(0.0, lacking + v))) / 2  # of the quadratic in sqrt(v + x)
        return self._times[-1] + max(0.0, root * root - v) / self._rate


def estimate_start(
    need: int, ages: Sequence[float], holds: HoldTimes, *, weight: float = 1.0
) -> Band:
    return Forecast(ages, holds, weight=weight).start(need)
