"""The field of a dialog that takes a length of time."""

from pools.config.durations import format_duration, parse_duration
from project.kernel.errors import wrong_field
from project.kernel.ui.confirm import ConfirmInput, Field


def length_field(value: str, name: str = "for", label: str = "Duration") -> Field:
    return Field(name, label, value=value, help="A length of time: 30m, 2h, 1d", is_needed=True)


def read_length(given: ConfirmInput, longest: float, name: str = "for") -> float:
    """Seconds, from 1 to `longest`."""
    text = given.values[name]
    seconds = parse_duration(text)
    if seconds is None or not 1 <= seconds <= longest:
        way_out = f"Write one from 1s to {format_duration(longest)}, like 30m, 2h or 1d."
        raise wrong_field(name, f"{text[:40]} is not a length of time.", way_out)
    return seconds
