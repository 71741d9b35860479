"""Windows of the week by the clock on the wall: other limits, or a freeze. Pure: the moment is an argument.

A window belongs to the day on which it starts, also when it ends on the next one. Both clock changes: a time that the clock skips counts
as if it had not been skipped, one that it shows twice means the first; so windows that meet leave no gap and do not overlap.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
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
        return f"{self.name + ': ' if self.name else ''}{days}{self.start:%H:%M}–{self.end:%H:%M} {self.zone}"


def until(window: Window, now: datetime) -> datetime | None:
    """When the window that is open at this moment ends; None: it is not open."""
    zone = ZoneInfo(window.zone)
    today = now.astimezone(zone).date()
    for day in (today, today - timedelta(days=1)):
        if DAYS[day.weekday()] not in window.days:
            continue
        last = day if window.end > window.start else day + timedelta(days=1)
        start = datetime.combine(day, window.start, zone).astimezone(UTC)
        end = datetime.combine(last, window.end, zone).astimezone(UTC)
        if start <= now < end:
            return end
    return None


def find_open(windows: Sequence[Window], now: datetime) -> tuple[Window, datetime] | None:
    """The first in the list that is open, with its end."""
    for window in windows:
        if (end := until(window, now)) is not None:
            return window, end
    return None
