"""Reading what a person or program wrote, field by field, keeping every fault. Pure: it knows
mappings, not pools.

A reader answers the value, or None (or the default) after it has noted a fault; so the caller reads
on and all faults come at once.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from pools.config.durations import format_duration, parse_duration
from project.kernel.errors import LONGEST_NAME, MOST_FIELDS, FieldError, Invalid

MISSING: Any = object()
LONGEST_SHOWN = 60
MOST_KEPT = MOST_FIELDS + 1  # faults; the last one says that there are more
MOST_UNKNOWN = 20  # fields that are named; what was meant by each takes a while to find out


@dataclass(slots=True)
class Faults:
    found: list[FieldError] = field(default_factory=list)
    count: int = 0

    def add(self, where: str, message: str, way_out: str = "") -> None:
        """Keeps as many as an answer names; the others only count."""
        self.count += 1
        if len(self.found) < MOST_KEPT:
            self.found.append(FieldError(where, message, way_out))
        else:
            self.found[-1] = FieldError(
                "", "Many more fields are wrong and not listed here.", "Mend these first."
            )

    def raise_if_any(self) -> None:
        if self.found:
            raise Invalid(fields=self.found)


def field_path(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def show_value(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"


def suggest_names(name: object, known: Collection[str], what: str = "Known") -> str:
    """The way out of a name that is not known: the one that was probably meant, else
    all of them.
    """
    close = get_close_matches(str(name), sorted(known), n=1, cutoff=0.6)
    return f"Did you mean {close[0]}?" if close else f"{what}: {', '.join(sorted(known))}."


def read_mapping(
    value: Any, where: str, known: Collection[str], faults: Faults, required: Iterable[str] = ()
) -> Mapping[str, Any]:
    """A mapping with none but these fields. What is unknown is named, and left out of
    the answer.
    """
    if not isinstance(value, Mapping):
        faults.add(
            where,
            f"This is {kind_of(value)}, not an object with fields.",
            f"Known fields: {', '.join(sorted(known))}.",
        )
        return {}
    unknown = [name for name in value if name not in known]
    for name in unknown[:MOST_UNKNOWN]:
        faults.add(
            field_path(where, str(name)[:LONGEST_NAME]),
            "No such field.",
            suggest_names(str(name)[:LONGEST_NAME], known, "Known fields"),
        )
    if len(unknown) > MOST_UNKNOWN:
        faults.add(
            where,
            f"{len(unknown) - MOST_UNKNOWN} more fields are not known.",
            f"Known fields: {', '.join(sorted(known))}.",
        )
    for name in required:
        if value.get(name) is None:
            faults.add(field_path(where, name), "This field is missing.")
    return {k: v for k, v in value.items() if k in known}


def kind_of(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "yes or no"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, list | tuple):
        return "a list"
    return "a mapping" if isinstance(value, Mapping) else type(value).__name__


def read_integer(
    values: Mapping[str, Any],
    where: str,
    name: str,
    faults: Faults,
    low: int,
    high: int,
    default: Any = None,
) -> Any:
    value = values.get(name)
    if value is None:
        return default
    return read_number(value, field_path(where, name), faults, low, high, default)


def read_number(
    value: Any, where: str, faults: Faults, low: int, high: int, default: Any = None
) -> Any:
    if isinstance(value, bool) or not isinstance(value, int):
        faults.add(
            where, f"{show_value(value)} is not a whole number.", f"Use one from {low} to {high}."
        )
    elif not low <= value <= high:
        faults.add(where, f"{show_value(value)} is out of range.", f"Use one from {low} to {high}.")
    else:
        return value
    return default


def read_text(
    values: Mapping[str, Any],
    where: str,
    name: str,
    faults: Faults,
    longest: int,
    default: str = "",
) -> str:
    value = values.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        faults.add(
            field_path(where, name), f"This is {kind_of(value)}, not text.", "Put it in quotes."
        )
        return default
    value = value.strip()
    if len(value) > longest:
        faults.add(
            field_path(where, name),
            f"{len(value)} characters are too many.",
            f"Use {longest} at most.",
        )
        return default
    if "\x00" in value:
        faults.add(field_path(where, name), "It contains a NUL character.", "Take it out.")
        return default
    return value


def read_choice(
    values: Mapping[str, Any],
    where: str,
    name: str,
    faults: Faults,
    known: Collection[str],
    default: str,
) -> str:
    value = values.get(name)
    if value is None:
        return default
    if not isinstance(value, str) or value not in known:
        faults.add(
            field_path(where, name),
            f"{show_value(value)} is not known here.",
            suggest_names(value, known),
        )
        return default
    return value


def read_flag(values: Mapping[str, Any], where: str, name: str, faults: Faults) -> bool:
    value = values.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    faults.add(
        field_path(where, name),
        f"{show_value(value)} is neither true nor false.",
        "Use true or false.",
    )
    return False


def read_duration(
    values: Mapping[str, Any],
    where: str,
    name: str,
    faults: Faults,
    low: float,
    high: float,
    default: float | None = None,
) -> float | None:
    value = values.get(name)
    if value is None:
        return default
    between = f"from {format_duration(low)} to {format_duration(high)}"
    if not isinstance(value, str):
        faults.add(
            field_path(where, name),
            f"{show_value(value)} has no unit.",
            f"Write a length of time {between}, like 30s, 2m or 8h.",
        )
        return default
    seconds = parse_duration(value)
    if seconds is None:
        faults.add(
            field_path(where, name),
            f"{show_value(value)} is not a length of time.",
            f"Write one {between}, like 30s, 2m or 8h.",
        )
    elif not low <= seconds <= high:
        faults.add(
            field_path(where, name), f"{show_value(value)} is out of range.", f"Use one {between}."
        )
    else:
        return seconds
    return default


def read_name(value: Any, where: str, faults: Faults, pattern: re.Pattern[str], rule: str) -> str:
    if isinstance(value, str) and pattern.fullmatch(value):
        return value
    if value is None or value == "":
        faults.add(where, "A name is missing.", rule)
    else:
        faults.add(where, f"{show_value(value)} is not a name.", rule)
    return ""


@dataclass(frozen=True, slots=True)
class Texts:
    """What names with values are, where somebody writes them."""

    are: str  # "labels are"
    example: str
    many: str
    most: int
    longest: int
    fault_of: Callable[[Any], tuple[str, str] | None]  # of a name: what is wrong, and the way out


def read_texts(value: Any, where: str, faults: Faults, texts: Texts) -> dict[str, str]:
    """Text for text: a number or a yes would be written differently by the next person."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        faults.add(
            where,
            f"This is {kind_of(value)}; {texts.are} names with values.",
            f"Write it like {texts.example}.",
        )
        return {}
    if len(value) > texts.most:
        faults.add(where, f"{len(value)} {texts.many} are too many.", f"Use {texts.most} at most.")
        return {}
    found: dict[str, str] = {}
    for name, text in value.items():
        if (fault := texts.fault_of(name)) is not None:
            faults.add(field_path(where, show_value(name)), *fault)
        elif not isinstance(text, str):
            faults.add(
                field_path(where, name), f"This is {kind_of(text)}, not text.", "Put it in quotes."
            )
        elif len(text) > texts.longest or "\x00" in text:
            faults.add(
                field_path(where, name),
                "This value is too long or holds a NUL character.",
                f"Use {texts.longest} characters at most.",
            )
        else:
            found[name] = text
    return found


def read_labels(value: Any, where: str, faults: Faults, most: int = 64) -> dict[str, str]:
    return read_texts(
        value,
        where,
        faults,
        Texts("labels are", "{zone: eu-1}", "labels", most, 255, _fault_of_label),
    )


def _fault_of_label(name: Any) -> tuple[str, str] | None:
    return (
        None
        if isinstance(name, str) and LABEL.fullmatch(name)
        else ("This is not a label's name.", LABEL_RULE)
    )


LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?")
LABEL_RULE = (
    "Up to 63 letters, digits, dots, dashes, underscores and slashes; the first and last a "
    "letter or digit."
)
