"""Types and checks of parsed JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict

if TYPE_CHECKING:
    from typing import TypeGuard

Json = Dict[str, object]


def as_dict(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def is_count(value: object) -> TypeGuard[int]:
    """Whether the value is an integer of at least 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
