"""Samples of pools, and the charts and sparklines that are drawn from them."""

from collections import namedtuple
from datetime import UTC, datetime, timedelta

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from claims.scaling.sampling import forget_minutes, take_samples
from pools.models import Sample
from project.dashboard.charts import draw_charts, draw_sparkline, spread
from project.dashboard.pool_scaling import series_of
from project.kernel.db.sql import run
from tests.dashboard.helpers import claim, make_pool

pytestmark = pytest.mark.django_db


def test_repeated_sampling_stores_one_sample_a_minute() -> None:
    pool = make_pool(members=1, slots=2)
    empty = make_pool("empty", members=0)
    claim()
    for _ in range(2):
        claim()
    for _ in range(3):
        take_samples()
    one = Sample.objects.get(pool=pool, is_hourly=False)
    assert (one.members, one.slots, one.held, one.reserved, one.waiting) == (1, 2, 2, 0, 1)
    assert Sample.objects.filter(pool=empty, slots=0, is_hourly=False).count() == 1


def test_a_finished_hour_is_averaged_into_one_hourly_sample() -> None:
    pool = make_pool()
    # Its clock stands still: an hour may end meanwhile.
    hour = run("SELECT date_trunc('hour', now()) AS this")[0].this - timedelta(hours=1)
    for minute, held in ((1, 1), (2, 3)):
        Sample.objects.create(
            pool=pool,
            at=hour + timedelta(minutes=minute),
            members=2,
            slots=4,
            held=held,
            reserved=0,
            waiting=0,
        )
    take_samples()
    Sample.objects.filter(pool=pool, is_hourly=False, at__gte=hour + timedelta(hours=1)).delete()
    take_samples()
    whole = Sample.objects.get(pool=pool, is_hourly=True)
    assert (whole.at, whole.held) == (hour, 2)


def test_old_minute_samples_are_deleted_in_batches() -> None:
    pool = make_pool()
    for days in (1, 8, 9):
        Sample.objects.create(
            pool=pool,
            at=Now() - timedelta(days=days),
            members=1,
            slots=1,
            held=0,
            reserved=0,
            waiting=0,
        )
    assert [forget_minutes(7, 1), forget_minutes(7, 10), forget_minutes(7, 10)] == [1, 1, 0]


def test_charts_need_three_samples_and_end_with_the_present_value() -> None:
    pool = make_pool()
    now = timezone.now()
    for minute in range(3):
        assert draw_charts(pool.pk, now) is None
        Sample.objects.create(
            pool=pool,
            at=now - timedelta(minutes=3 - minute),
            members=2,
            slots=4,
            held=minute,
            reserved=1,
            waiting=minute,
        )
    charts = draw_charts(pool.pk, now)
    assert charts is not None
    assert (charts.use.text, charts.wanted.text, charts.slots.text) == ("75.0 %", "5", "4")
    assert charts.edge.endswith("1000,25.0")


def test_a_sparkline_spans_the_known_samples() -> None:
    start = datetime(2026, 3, 12, 14, tzinfo=UTC)
    spark = draw_sparkline([(start, 0.0), (start + timedelta(minutes=1), 1.0)])
    assert (spark.line, spark.area) == ("M0.0,20.0 80.0,2.0", "M0.0,20 0.0,20.0 80.0,2.0 80.0,20Z")


def test_a_sparkline_is_broken_over_time_without_samples() -> None:
    start = datetime(2026, 3, 12, 14, tzinfo=UTC)
    spark = draw_sparkline(
        [(start + timedelta(minutes=minute), 0.5) for minute in (0, 1, 2, 122, 123, 160)]
    )
    assert spark.line == "M0.0,11.0 0.5,11.0 1.0,11.0M61.0,11.0 61.5,11.0M80.0,11.0h1"
    assert spark.area.count("M") == spark.area.count("Z") == 3


def test_charts_are_broken_over_time_without_samples() -> None:
    pool = make_pool()
    now = timezone.now()
    for minutes in (*range(180, 170, -1), *range(10, 0, -1)):
        values = {"members": 1, "slots": 4, "held": 1, "reserved": 1, "waiting": 0}
        Sample.objects.create(pool=pool, at=now - timedelta(minutes=minutes), **values)
    charts = draw_charts(pool.pk, now)
    assert charts is not None
    for line in (charts.edge, charts.wanted_line, charts.capacity):
        parts = [part.split() for part in line.split("M")[1:]]
        assert [(part[0].split(",")[0], part[-1].split(",")[0]) for part in parts] == [
            ("0", "50"),
            ("950", "1000"),
        ]
    for area in (charts.reserved, charts.held, charts.wanted_area):
        assert area.count("M") == area.count("Z") == 2


def test_the_scaling_chart_is_broken_over_time_without_samples() -> None:
    row = namedtuple("row", "at slots held reserved wanted")
    found = series_of([row(60, 4, 1, 0, 1), row(240, 4, 2, 0, 2), row(7260, 4, 3, 0, 3)], 180)
    assert found["at"] == [60, 240, 241, 7260]
    assert found["held"] == [1, 2, None, 3]
    assert found["slots"] == [4, 4, None, 4]


def test_chart_labels_never_overlap() -> None:
    for one, other in ((50, 50), (0, 0), (100, 99), (40, 45)):
        a, b = spread(one, other)
        assert abs(a - b) >= 12
