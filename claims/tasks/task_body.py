"""The body of a task as it is kept: `variables` and `env` may hold passwords, so they are sealed
beside it.

A body that was kept before they were sealed still holds them; it is read as it is, and `manage.py
reseal` seals it.
"""

import json
from collections.abc import Mapping
from typing import Any

from project.kernel.security.encryption import seal, unseal

SEALED_FIELDS = ("variables", "env")
# Stands in the body where the values were. It is no mapping, so that a process of an earlier
# release fails on it during an upgrade instead of running the task without its variables.
MARK = "sealed"


def seal_body(body: Mapping[str, Any]) -> tuple[dict[str, Any], bytes | None]:
    """The body without its values, and the values sealed; None: it has none."""
    values = {name: body[name] for name in SEALED_FIELDS if isinstance(body.get(name), Mapping)}
    if not values:
        return dict(body), None
    sealed = seal(json.dumps(values).encode())
    return {**body, **dict.fromkeys(values, MARK)}, sealed


def open_body(body: Mapping[str, Any], sealed: bytes | None) -> dict[str, Any]:
    return dict(body) if sealed is None else {**body, **json.loads(unseal(sealed))}
