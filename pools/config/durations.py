"""Lengths of time as text: 30s, 2m, 8h, 1d, 1h30m. Pure."""

import re

SECOND, MINUTE, HOUR, DAY = 1.0, 60.0, 3600.0, 86400.0
UNITS = {"d": DAY, "h": HOUR, "m": MINUTE, "s": SECOND, "ms": 0.001}
PART = re.compile(r"(\d+(?:\.\d+)?)(ms|d|h|m|s)")
WHOLE = re.compile(rf"(?:{PART.pattern})+", re.ASCII)
LONGEST_TEXT = 40


def parse_duration(text: str) -> float | None:
    """Seconds; None: not a length of time. A number needs a unit, because it could mean seconds or
    minutes.
    """
    text = text.strip().replace(" ", "")
    if len(text) > LONGEST_TEXT or not WHOLE.fullmatch(text):
        return None
    return sum(float(number) * UNITS[unit] for number, unit in PART.findall(text))


def format_duration(seconds: float) -> str:
    """The shortest text that parses to the same, to the millisecond."""
    left = round(seconds * 1000)
    parts = []
    for unit, size in UNITS.items():
        count, left = divmod(left, round(size * 1000))
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
