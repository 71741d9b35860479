"""When a pool has no free slot left, from the recorded use of the last hours. Pure: samples and the
present counts are arguments.

The net rate is the slope of a line through the samples (least squares), and the forecast divides
the free slots by the rate. A rise that is smaller than the usual ups and downs is no trend.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

WINDOW = 6 * 3600.0  # seconds of samples that count
FEWEST = 10  # samples
SHORTEST = 30 * 60.0  # seconds between the first and the last sample
OLDEST = 10 * 60.0  # seconds since the last sample
FARTHEST = 7 * 86400.0  # seconds: a later end is no forecast, because use follows the week
LEAST_RISE = 1.0  # slots over the whole window; less is level

Kind = Literal[
    "full", "fills", "level", "empties", "no_trend", "far", "too_few", "stale", "no_slots"
]


@dataclass(frozen=True, slots=True)
class UsePoint:
    """One sample: seconds of any clock, and the slots in use then."""

    at: float
    used: int


@dataclass(frozen=True, slots=True)
class ExhaustionForecast:
    kind: Kind
    seconds: float | None = None  # until the pool is full, where it fills
    rate: float | None = None  # slots per hour, net; None: unknown
    window: float = 0.0  # seconds of samples that the rate is from


def forecast_exhaustion(
    points: Sequence[UsePoint], *, now: float, used: int, slots: int
) -> ExhaustionForecast:
    """`points`: in the order of their time. `used` and `slots`: the counts at `now`."""
    if slots <= 0:
        return ExhaustionForecast("no_slots")
    window = points[-1].at - points[0].at if points else 0.0
    if used >= slots:
        return ExhaustionForecast("full", seconds=0.0, window=window)
    if len(points) < FEWEST or window < SHORTEST:
        return ExhaustionForecast("too_few", window=window)
    if now - points[-1].at > OLDEST:
        return ExhaustionForecast("stale", window=window)
    slope, noise = fit_line(points)
    rate, rise = slope * 3600, slope * window
    if abs(rise) < LEAST_RISE:
        return ExhaustionForecast("level", rate=rate, window=window)
    if abs(rise) < 2 * noise:
        return ExhaustionForecast("no_trend", rate=rate, window=window)
    if slope < 0:
        return ExhaustionForecast("empties", rate=rate, window=window)
    seconds = (slots - used) / slope
    if seconds > FARTHEST:
        return ExhaustionForecast("far", rate=rate, window=window)
    return ExhaustionForecast("fills", seconds=seconds, rate=rate, window=window)


def fit_line(points: Sequence[UsePoint]) -> tuple[float, float]:
    """Slope in slots per second, and the standard deviation of the samples from the line."""
    count = len(points)
    middle = sum(point.at for point in points) / count
    mean = sum(point.used for point in points) / count
    spread = sum((point.at - middle) ** 2 for point in points)
    slope = sum((point.at - middle) * (point.used - mean) for point in points) / spread
    rest = sum((point.used - mean - slope * (point.at - middle)) ** 2 for point in points)
    return slope, (rest / count) ** 0.5
