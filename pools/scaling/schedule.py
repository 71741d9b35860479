"""Weekly windows in local time that set other limits or a freeze. Pure: the moment is an argument.

A window belongs to the day on which it starts, also when it ends on the next day. When clocks
change, a skipped local time counts as if it had not been skipped, and a repeated local time means
the first of the two. So windows that meet leave no gap and do not overlap.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True, slots=True)
class Window:
    start: time
    end: time  # not after the start: on the next day; equal: a whole day
    zone: str
    days: tuple[str, ...] = DAYS
    name: str = ""
    low: int | None = None
    high: int | None = None

    @property
    def words(self) -> str:
        days = "" if self.days == DAYS else f"{', '.join(self.days)} "
        return (
            f"{self.name + ': ' if self.name else ''}"
            f"{days}{self.start:%H:%M}–{self.end:%H:%M} {self.zone}"
        )


def open_at(window: Window, now: datetime) -> tuple[datetime, datetime] | None:
    """Start and end of the window's occurrence that is open at this moment, or None."""
    today = now.astimezone(ZoneInfo(window.zone)).date()
    for day in (today, today - timedelta(days=1)):
        found = on_day(window, day)
        if found is not None and found[0] <= now < found[1]:
            return found
    return None


def on_day(window: Window, day: date) -> tuple[datetime, datetime] | None:
    """Start and end of the occurrence that begins on this local day, or None."""
    if DAYS[day.weekday()] not in window.days:
        return None
    zone = ZoneInfo(window.zone)
    last = day if window.end > window.start else day + timedelta(days=1)
    return datetime.combine(day, window.start, zone).astimezone(UTC), datetime.combine(
        last, window.end, zone
    ).astimezone(UTC)


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One occurrence of a window."""

    window: Window
    start: datetime
    end: datetime


def list_occurrences(
    windows: Sequence[Window], first: datetime, last: datetime
) -> list[Occurrence]:
    """The occurrences of all windows that overlap the span between two moments, in order."""
    found = []
    for window in windows:
        zone = ZoneInfo(window.zone)
        day, until_day = (
            first.astimezone(zone).date() - timedelta(days=1),
            last.astimezone(zone).date(),
        )
        while day <= until_day:
            span = on_day(window, day)
            if span is not None and span[0] < last and span[1] > first:
                found.append(Occurrence(window, *span))
            day += timedelta(days=1)
    return sorted(found, key=lambda each: (each.start, each.end))


def find_open(
    windows: Sequence[Window], now: datetime, lifted: Collection[datetime] = ()
) -> tuple[Window, datetime] | None:
    """The first open window of the list, with its end. Windows that began at one of the moments
    in `lifted` are skipped. None: no window is open.
    """
    for window in windows:
        if (found := open_at(window, now)) is not None and found[0] not in lifted:
            return window, found[1]
    return None
