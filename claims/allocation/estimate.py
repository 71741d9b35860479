"""Estimates when a waiting claim starts, from recent hold times and the ages of the present holds.

Pure. An estimate is a band: it begins when enough slots are free with a probability of one half,
and ends when the probability is nine in ten. Where the data allow no estimate, a note says why.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import sqrt

FEWEST = 8  # hold times that an estimate needs
NINE_IN_TEN = 1.2816  # standard deviations
FURTHEST = 30 * 86400.0
SAMPLE = 200  # holders that are computed one by one; a larger sample changes little
POINTS = 48  # of the curve that serves all claims of a queue


@dataclass(frozen=True, slots=True)
class Band:
    """Seconds from now."""

    start: float | None  # probability one half
    end: float | None  # probability nine in ten
    note: str = ""

    @property
    def span(self) -> tuple[float, float] | None:
        return None if self.start is None or self.end is None else (self.start, self.end)


class HoldTimes:
    """Recent hold times, sorted once for many questions."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self.seconds = sorted(max(0.0, s) for s in seconds)
        self.mean = sum(self.seconds) / len(self.seconds) if self.seconds else 0.0

    def ends_within(self, age: float, more: float) -> float:
        """Probability that a hold of this age ends within `more` seconds. 0 for a hold that is
        older than all recent ones.
        """
        n = len(self.seconds)
        outlived = bisect_right(self.seconds, age)
        left = n - outlived
        return 0.0 if left == 0 else (bisect_right(self.seconds, age + more) - outlived) / left


class Forecast:
    """Expected number of ended holds over time: one curve for all claims of a queue.

    `ages`: of the holds that end by themselves. If only a sample was read, each age stands for
    `weight` holds.
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
        # Ends per second, once the claims ahead have taken the released slots.
        self._rate = weight * len(living) / max(holds.mean, 1e-3)
        self._draw(living, weight)

    def _draw(self, ages: Sequence[float], weight: float) -> None:
        longest = max(self.holds.seconds[-1], 1e-3)
        self._times = [longest * (i / POINTS) ** 2 for i in range(POINTS + 1)]
        self._means, self._variances = [], []
        for more in self._times:
            chances = [self.holds.ends_within(age, more) for age in ages]
            # Claims ahead take the released slots, and their holds end in turn.
            turns = self._rate * max(0.0, more - self.holds.mean)
            self._means.append(weight * sum(chances) + turns)
            self._variances.append(weight * sum(p * (1 - p) for p in chances) + turns)

    def start(self, need: int) -> Band:
        """`need`: the number of slots that must be released first, for the claims ahead too."""
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
        """The first moment at which the expected number of ends, less `deviations` standard
        deviations, reaches `need`.
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
        """Past the curve slots are released at an even rate. Solves m + x - d * sqrt(v + x) = need
        for x more ends.
        """
        lacking = need - self._means[-1]
        d, v = deviations, self._variances[-1]
        root = (d + sqrt(d * d + 4 * max(0.0, lacking + v))) / 2  # of the quadratic in sqrt(v + x)
        return self._times[-1] + max(0.0, root * root - v) / self._rate


def estimate_start(
    need: int, ages: Sequence[float], holds: HoldTimes, *, weight: float = 1.0
) -> Band:
    return Forecast(ages, holds, weight=weight).start(need)
