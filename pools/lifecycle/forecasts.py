"""Reads the samples of a pool for the forecast of `pools/scaling/exhaustion.py`, and words it."""

from dataclasses import dataclass
from datetime import timedelta

from pools.models import Sample
from pools.scaling.exhaustion import WINDOW, ExhaustionForecast, UsePoint, forecast_exhaustion
from project.kernel.ui import formatting
from project.kernel.validation import moment

REASONS = {
    "full": "full",
    "level": "not filling up",
    "empties": "not filling up",
    "far": "full in more than 7 days",
    "no_trend": "no forecast: use goes up and down without a trend",
    "too_few": "no forecast: fewer than 30 min of samples",
    "stale": "no forecast: the last sample is older than 10 min",
    "no_slots": "no forecast: no member offers a slot",
}


@dataclass(frozen=True, slots=True)
class ForecastText:
    text: str
    why: str  # the rate from which it follows; empty: the text says it all


def forecast_pool(pool_id: int, *, used: int, slots: int) -> ExhaustionForecast:
    """`used` and `slots`: the pool's present counts."""
    now = moment()
    samples = Sample.objects.filter(
        pool_id=pool_id, is_hourly=False, at__gte=now - timedelta(seconds=WINDOW)
    )
    rows = samples.order_by("at").values_list("at", "held", "reserved")
    points = [UsePoint(at.timestamp(), held + reserved) for at, held, reserved in rows]
    return forecast_exhaustion(points, now=now.timestamp(), used=used, slots=slots)


def describe_forecast(forecast: ExhaustionForecast, noun: str) -> ForecastText:
    """`noun`: what a slot of the pool is, in the singular."""
    text = REASONS.get(forecast.kind, "")
    if forecast.kind == "fills" and forecast.seconds is not None:
        text = f"full in about {formatting.duration(round_time(forecast.seconds))}"
    if forecast.rate is None:
        return ForecastText(text, "")
    rate = f"{forecast.rate:.0f}" if abs(forecast.rate) >= 10 else f"{forecast.rate:.1f}"
    rate = "0" if float(rate) == 0 else rate.removesuffix(".0").replace("-", "−")
    window = formatting.duration(round_time(forecast.window))
    return ForecastText(text, f"{rate} {noun}s per hour net, from samples of {window}")


def round_time(seconds: float) -> float:
    """A time as exact as an estimate is: to 10 minutes from an hour on, else to the minute."""
    step = 3600 if seconds >= 86400 else 600 if seconds >= 3600 else 60
    return max(step, round(seconds / step) * step)
