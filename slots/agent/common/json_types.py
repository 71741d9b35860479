"""Types and checks of parsed JSON."""

from __future__ import annotations

from typing import Dict

Json = Dict[str, object]


def as_dict(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def as_count(value: object) -> int | None:
    """The value if it is an integer of at least 0."""
    return value if type(value) is int and value >= 0 else None
