"""The stored body of a task. `variables` and `env` may hold passwords, so a separate column keeps
them encrypted.

Bodies of older releases still hold both in plain text. They stay readable, and `manage.py reseal`
encrypts them.
"""

import json
from collections.abc import Mapping
from typing import Any

from project.kernel.security.encryption import seal, unseal

SEALED_FIELDS = ("variables", "env")
# Replaces the values in the body. The mark is no mapping, so that a process of an earlier release
# fails on it during an upgrade instead of running the task without its variables.
MARK = "sealed"


def seal_body(body: Mapping[str, object]) -> tuple[dict[str, object], bytes | None]:
    """The body without its values, and the encrypted values; None if the body has no values."""
    values = {name: body[name] for name in SEALED_FIELDS if isinstance(body.get(name), Mapping)}
    if not values:
        return dict(body), None
    sealed = seal(json.dumps(values).encode())
    return {**body, **dict.fromkeys(values, MARK)}, sealed


def open_body(body: Mapping[str, object], sealed: bytes | None) -> dict[str, Any]:
    return dict(body) if sealed is None else {**body, **json.loads(unseal(sealed))}
