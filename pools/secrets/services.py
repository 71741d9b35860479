"""Secrets of a pool, which tasks receive as environment variables. Encrypted at rest; only agents
receive values.

No event, error or log contains a value; they name the secret.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models.functions import Now

from pools.config.task_spec import OURS
from pools.models import Pool, Secret
from project.kernel.errors import Conflict, FieldError, Invalid, NotFound
from project.kernel.events.log import record
from project.kernel.security.encryption import key_id, seal, unseal

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
NAME_RULE = (
    "Use up to 63 letters, digits and underscores, with no digit first: the name becomes an "
    "environment variable."
)
LONGEST = 32_000  # characters of a value: a key, a certificate with its chain
MOST = 200  # in one pool


@dataclass(frozen=True, slots=True)
class SecretView:
    name: str
    changed_at: datetime


def list_secrets(pool_id: int) -> list[SecretView]:
    return [
        SecretView(row.name, row.changed_at)
        for row in Secret.objects.filter(pool_id=pool_id).order_by("name")
    ]


def set_secret(*, pool_id: int, name: str, value: str, reason: str = "") -> tuple[SecretView, bool]:
    """Create a secret (True) or change its value (False). Tasks that start from now on receive
    the value.
    """
    if faults := list_faults(name, value):
        raise Invalid(fields=faults)
    sealed, number = seal(value.encode()), key_id()
    with transaction.atomic():
        pool = _lock_pool(pool_id)
        row = Secret.objects.filter(pool=pool, name=name).first()
        if row is None and Secret.objects.filter(pool=pool).count() >= MOST:
            raise Conflict(
                f"This pool has {MOST} secrets.",
                code="too_many_secrets",
                way_out="Delete a secret that no task uses.",
            )
        if row is None:
            row = Secret.objects.create(pool=pool, name=name, ciphertext=sealed, key_id=number)
            is_new = True
        else:
            Secret.objects.filter(pk=row.pk).update(
                ciphertext=sealed, key_id=number, changed_at=Now()
            )
            is_new = False
        row.refresh_from_db(fields=["changed_at"])
        record(
            "set_secret",
            pool_id=pool_id,
            after="added" if is_new else "changed",
            reason=reason.strip(),
            data={"secret": name},
        )
    return SecretView(name, row.changed_at), is_new


def delete_secret(*, pool_id: int, name: str, reason: str = "") -> None:
    """Delete a secret. Tasks that name it fail from now on."""
    with transaction.atomic():
        _lock_pool(pool_id)
        deleted, _ = Secret.objects.filter(pool_id=pool_id, name=name).delete()
        if not deleted:
            raise NotFound(
                f"This pool has no secret {name[:63]}.", way_out="Look at the list of its secrets."
            )
        record("delete_secret", pool_id=pool_id, reason=reason.strip(), data={"secret": name})


def read_secrets(pool_id: int, names: Iterable[str]) -> dict[str, str | None]:
    """Values by name, for the agent of a task. None: the pool has no secret of that name."""
    wanted = list(names)
    if not wanted:
        return {}
    rows = {row.name: row for row in Secret.objects.filter(pool_id=pool_id, name__in=wanted)}
    return {
        name: unseal(bytes(rows[name].ciphertext)).decode() if name in rows else None
        for name in wanted
    }


def list_faults(name: str, value: object) -> list[FieldError]:
    faults = []
    if not NAME.fullmatch(name):
        faults.append(FieldError("name", "This is not a valid name of a secret.", NAME_RULE))
    elif name.startswith(OURS):
        faults.append(
            FieldError(
                "name", f"Names with {OURS} at the start are reserved.", "Choose another name."
            )
        )
    if not isinstance(value, str):
        faults.append(FieldError("value", "This is not a text.", "Put it in quotes."))
    elif not value or len(value) > LONGEST or "\x00" in value:
        faults.append(
            FieldError(
                "value",
                f"A value has 1 to {LONGEST} characters, and no NUL.",
                "Put a longer value into a file of the source.",
            )
        )
    return faults


def _lock_pool(pool_id: int) -> Pool:
    pool = (
        Pool.objects.select_for_update(no_key=True).filter(pk=pool_id).exclude(state="gone").first()
    )
    if pool is None:
        raise NotFound("There is no such pool.", way_out="Look at the list of pools.")
    return pool
