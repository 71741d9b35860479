"""The forecast of a pool from its samples, in words and in the API."""

from datetime import timedelta

import pytest
from django.utils import timezone

from pools.lifecycle.forecasts import describe_forecast, forecast_pool
from pools.models import Pool, Sample
from pools.scaling.exhaustion import ExhaustionForecast
from tests.api.conftest import Callers
from tests.api.helpers import make_pool

HOUR = 3600.0


@pytest.mark.parametrize(
    ("forecast", "text", "why"),
    [
        (
            ExhaustionForecast("fills", seconds=13_300, rate=9.2, window=6 * HOUR),
            "full in about 3 h 40 min",
            "9.2 ports per hour net, from samples of 6 h",
        ),
        (
            ExhaustionForecast("fills", seconds=130, rate=1234.4, window=1800),
            "full in about 2 min",
            "1234 ports per hour net, from samples of 30 min",
        ),
        (
            ExhaustionForecast("empties", rate=-4.0, window=HOUR),
            "not filling up",
            "−4 ports per hour net, from samples of 1 h",
        ),
        (
            ExhaustionForecast("level", rate=-0.01, window=HOUR),
            "not filling up",
            "0 ports per hour net, from samples of 1 h",
        ),
        (ExhaustionForecast("too_few"), "no forecast: fewer than 30 min of samples", ""),
        (ExhaustionForecast("full", seconds=0.0), "full", ""),
    ],
)
def test_forecast_is_said_with_the_rate_it_follows_from(
    forecast: ExhaustionForecast, text: str, why: str
) -> None:
    said = describe_forecast(forecast, "port")
    assert (said.text, said.why) == (text, why)


def sample(pool: Pool, minutes_ago: int, held: int, *, is_hourly: bool = False) -> Sample:
    at = timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=minutes_ago)
    return Sample(
        pool=pool, at=at, is_hourly=is_hourly, members=1, slots=100, held=held, reserved=1,
        waiting=0,
    )  # fmt: skip


@pytest.mark.django_db
def test_samples_by_minute_of_the_last_six_hours_count() -> None:
    pool = make_pool("one")
    Sample.objects.bulk_create(
        [sample(pool, n, 60 - n) for n in range(60)]
        + [sample(pool, 60 * n, 90, is_hourly=True) for n in range(6)]
        + [sample(pool, 361 + n, 99) for n in range(60)]
    )
    found = forecast_pool(pool.pk, used=61, slots=100)
    assert (found.kind, found.window) == ("fills", 59 * 60)
    assert found.seconds == pytest.approx(39 * 60)


def test_one_pool_in_the_api_has_its_forecast(caller: Callers) -> None:
    make_pool("one")
    root = caller("superuser")
    assert root.get("pools/one/").body["forecast"] == {
        "kind": "too_few",
        "seconds": None,
        "rate": None,
        "text": "no forecast: fewer than 30 min of samples",
    }
    assert "forecast" not in root.get("pools/").body["results"][0]
