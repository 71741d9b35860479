"""Schedule windows by local time: weekdays, midnight, and both clock changes."""

from datetime import UTC, datetime, time

import pytest

from pools.scaling import Window, find_open
from pools.scaling.schedule import open_at

BERLIN = "Europe/Berlin"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def until(window: Window, now: datetime) -> datetime | None:
    found = open_at(window, now)
    return None if found is None else found[1]


def window(start: str, end: str, *days: str, zone: str = BERLIN) -> Window:
    return Window(
        time.fromisoformat(start),
        time.fromisoformat(end),
        zone,
        days or Window.__dataclass_fields__["days"].default,
    )


@pytest.mark.parametrize(
    ("moment", "is_open"),
    [
        ("2026-03-12T07:59:59+01:00", False),
        ("2026-03-12T08:00:00+01:00", True),
        ("2026-03-12T19:59:59+01:00", True),
        ("2026-03-12T20:00:00+01:00", False),
        ("2026-03-12T08:00:00+00:00", True),
    ],
)
def test_window_is_open_from_its_start_to_its_end(moment, is_open):
    assert (until(window("08:00", "20:00"), at(moment)) is not None) == is_open


@pytest.mark.parametrize(
    ("moment", "is_open"),
    [
        ("2026-03-13T22:00:00+01:00", True),  # Friday
        ("2026-03-14T05:59:00+01:00", True),  # Saturday, but it began on Friday
        ("2026-03-14T06:00:00+01:00", False),
        ("2026-03-14T22:30:00+01:00", False),
        ("2026-03-13T05:00:00+01:00", False),  # it would have begun on Thursday
    ],
)
def test_window_across_midnight_belongs_to_the_day_of_its_start(moment, is_open):
    assert (until(window("22:00", "06:00", "fri"), at(moment)) is not None) == is_open


def test_open_window_reports_its_end():
    assert until(window("22:00", "06:00"), at("2026-03-13T23:00+01:00")) == at(
        "2026-03-14T06:00+01:00"
    )
    assert until(window("00:00", "00:00"), at("2026-03-13T00:00+01:00")) == at(
        "2026-03-14T00:00+01:00"
    ), "a whole day"


def test_night_window_is_an_hour_shorter_in_spring():
    """2026-03-29: after 01:59:59 CET comes 03:00:00 CEST."""
    night = window("22:00", "06:00")
    assert until(night, at("2026-03-29T01:30+01:00")) == at("2026-03-29T06:00+02:00")
    assert until(night, at("2026-03-29T03:00+02:00")) == at("2026-03-29T06:00+02:00")
    assert until(night, at("2026-03-29T06:00+02:00")) is None


def test_adjacent_windows_meet_at_a_start_that_the_clock_skips():
    first, second = window("01:00", "02:30"), window("02:30", "05:00")
    for minute in range(0, 240, 5):
        moment = datetime.fromtimestamp(at("2026-03-29T01:00+01:00").timestamp() + 60 * minute, UTC)
        assert sum(until(w, moment) is not None for w in (first, second)) == (
            1 if moment < at("2026-03-29T05:00+02:00") else 0
        )


def test_night_window_is_an_hour_longer_in_autumn():
    """2026-10-25: after 02:59:59 CEST comes 02:00:00 CET."""
    night = window("22:00", "06:00")
    ends = at("2026-10-25T06:00+01:00")
    assert until(night, at("2026-10-25T02:30+02:00")) == ends
    assert until(night, at("2026-10-25T02:30+01:00")) == ends
    assert (ends - at("2026-10-24T22:00+02:00")).total_seconds() == 9 * 3600


def test_ambiguous_clock_time_means_the_first_one():
    first, second = window("01:00", "02:30"), window("02:30", "05:00")
    assert until(first, at("2026-10-25T02:29+02:00")) == at("2026-10-25T02:30+02:00")
    assert until(first, at("2026-10-25T02:15+01:00")) is None
    assert until(second, at("2026-10-25T02:15+01:00")) is not None


def test_first_open_window_of_the_list_counts():
    day, night = window("08:00", "20:00"), window("00:00", "00:00")
    assert find_open([day, night], at("2026-03-12T12:00+01:00")) == (
        day,
        at("2026-03-12T20:00+01:00"),
    )
    found = find_open([day, night], at("2026-03-12T21:00+01:00"))
    assert found is not None and found[0] == night
    assert find_open([day], at("2026-03-12T21:00+01:00")) is None
