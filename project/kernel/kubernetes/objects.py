"""Objects as the API server returns them, as JSON."""

from collections.abc import Mapping
from typing import Any

Object = Mapping[str, Any]


def name_of(found: Object) -> str:
    return str(found["metadata"]["name"])


def uid_of(found: Object) -> str:
    return str(found["metadata"].get("uid", ""))


def is_ending(found: Object) -> bool:
    return bool(found["metadata"].get("deletionTimestamp"))
