"""Formats numbers and times for people: a space before the unit, at most two units.

`times.js` formats durations by the same rules, because the browser updates them.
"""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise

UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def duration(seconds: float) -> str:
    """'4 s', '2 min 4 s', '2 h 3 min', '3 d 4 h'."""
    whole = max(0, math.floor(seconds))
    for (size, unit), (smaller, sub) in pairwise(UNITS):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit} {rest} {sub}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def wait(seconds: float) -> str:
    """A waiting time, with tenths below ten seconds: '0.1 s', '4.2 s', '2 min 4 s'."""
    if seconds < 0.1:
        return "0.1 s"
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)


def coarse(seconds: float) -> str:
    """The first unit of the duration, for 'ago': '2 h'."""
    return " ".join(duration(seconds).split(" ")[:2])


def brief(seconds: float) -> str:
    """A duration that fits the cell of a slot: '41 s', '3 min', '2:46' (hours), '4 d'."""
    whole = max(0, math.floor(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 86400:
        return f"{whole // 3600}:{whole % 3600 // 60:02d}"
    return f"{whole // 86400} d"


def span(low: float, high: float) -> str:
    """An estimate as a range: '6–18 min', '40 s–3 min', '1–2 h'."""
    low, high = max(0.0, low), max(0.0, high)
    for size, unit in UNITS:
        if high >= size * (2 if unit in ("h", "d") else 1) or unit == "s":
            bottom, top = int(low // size), math.ceil(high / size)
            if bottom == 0 and unit != "s" and low >= 1:
                return f"{brief(low)}–{top} {unit}"
            return f"{bottom}–{top} {unit}" if bottom != top else f"{top} {unit}"
    raise AssertionError("the last unit always answers")


def number(value: float) -> str:
    return f"{value:,}"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} %"


def plural(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def sentence(parts: Sequence[str], last: str = "and") -> str:
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} {last} {parts[-1]}"


def exact(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def rfc3339(moment: datetime) -> str:
    """The format of times in the API."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def iso(moment: datetime) -> str:
    """The format of times in pages, with milliseconds: the browser counts from them."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
