"""The forecast of a full pool: only from enough samples with a trend."""

from collections.abc import Callable

import pytest

from pools.scaling.exhaustion import ExhaustionForecast, UsePoint, forecast_exhaustion

MINUTE, HOUR = 60.0, 3600.0


def sampled(minutes: int, use: Callable[[int], float]) -> list[UsePoint]:
    """A sample each minute, the last one at `minutes`."""
    return [UsePoint(n * MINUTE, round(use(n))) for n in range(minutes + 1)]


def test_steady_rise_is_divided_into_the_free_slots() -> None:
    points = sampled(360, lambda n: 100 + n * 9 / 60)
    found = forecast_exhaustion(points, now=360 * MINUTE, used=154, slots=187)
    assert found.kind == "fills"
    assert found.rate == pytest.approx(9, rel=0.01)
    assert found.seconds == pytest.approx(33 / 9 * HOUR, rel=0.01)
    assert found.window == 6 * HOUR


@pytest.mark.parametrize(
    ("points", "used", "slots", "kind"),
    [
        pytest.param([], 0, 0, "no_slots", id="a pool without slots"),
        pytest.param([], 5, 5, "full", id="full, whatever was sampled"),
        pytest.param([], 6, 5, "full", id="more in use than slots, after a shrink"),
        pytest.param([], 4, 5, "too_few", id="no samples"),
        pytest.param(sampled(29, lambda n: n), 29, 50, "too_few", id="29 minutes"),
        pytest.param(sampled(30, lambda n: n), 30, 50, "fills", id="30 minutes"),
        pytest.param(
            [UsePoint(n * 10 * MINUTE, n) for n in range(9)], 9, 50, "too_few", id="9 samples"
        ),
        pytest.param(
            [UsePoint(n * 10 * MINUTE, n) for n in range(10)], 9, 50, "fills", id="10 samples"
        ),
        pytest.param(sampled(360, lambda n: 20), 20, 50, "level", id="no change"),
        pytest.param(sampled(360, lambda n: n > 340), 1, 50, "level", id="one claim more"),
        pytest.param(sampled(360, lambda n: 40 - n / 10), 4, 50, "empties", id="falling"),
        pytest.param(
            sampled(360, lambda n: 20 + 15 * (n // 30 % 2) + n / 200),
            36,
            50,
            "no_trend",
            id="a small rise below large ups and downs",
        ),
        pytest.param(
            sampled(360, lambda n: 20 + 5 * (n // 30 % 2) + n / 12),
            55,
            90,
            "fills",
            id="a large rise above small ups and downs",
        ),
        pytest.param(sampled(360, lambda n: n / 100), 3, 900, "far", id="full in weeks"),
    ],
)
def test_forecast_needs_free_slots_samples_and_a_trend(
    points: list[UsePoint], used: int, slots: int, kind: str
) -> None:
    now = points[-1].at if points else 0.0
    found = forecast_exhaustion(points, now=now, used=used, slots=slots)
    assert found.kind == kind
    assert (found.seconds is not None) == (kind in ("fills", "full"))


def test_rate_of_falling_use_is_negative() -> None:
    points = sampled(60, lambda n: 60 - n)
    found = forecast_exhaustion(points, now=HOUR, used=0, slots=50)
    assert found == ExhaustionForecast("empties", rate=pytest.approx(-60), window=HOUR)


@pytest.mark.parametrize(("minutes", "kind"), [(10, "fills"), (11, "stale")])
def test_forecast_needs_a_recent_sample(minutes: int, kind: str) -> None:
    points = sampled(60, lambda n: n)
    now = HOUR + minutes * MINUTE
    assert forecast_exhaustion(points, now=now, used=60, slots=90).kind == kind
