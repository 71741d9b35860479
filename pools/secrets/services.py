"""Secrets of a pool, which tasks receive as environment variables. Encrypted at rest; only agents
receive values.

No event, error or log contains a value; they name the secret.
"""

import re
from collections.abc import Iterable

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from pools.access.permissions import no_such_pool
from pools.config.parsing import Faults
from pools.config.task_spec import OURS
from pools.lifecycle.selectors import lock_pool
from pools.models import Pool, Secret
from project.kernel.errors import Conflict, NotFound
from project.kernel.events.log import record
from project.kernel.security.encryption import key_id, seal, unseal

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
NAME_RULE = (
    "Use up to 63 letters, digits and underscores, with no digit first: the name becomes an "
    "environment variable."
)
MAX_SECRET_LENGTH = 32_000  # characters of a value: a key, a certificate with its chain
MAX_SECRETS = 200  # in one pool


def list_secrets(pool_id: int) -> QuerySet[Secret]:
    """The secrets by name, without their values."""
    return Secret.objects.filter(pool_id=pool_id).defer("ciphertext").order_by("name")


def set_secret(*, pool_id: int, name: str, value: str, reason: str = "") -> tuple[Secret, bool]:
    """Create a secret (True) or change its value (False). Tasks that start from now on receive
    the value.
    """
    check_fields(name, value)
    with transaction.atomic():
        pool = _lock_pool(pool_id)
        if Secret.objects.filter(pool=pool).exclude(name=name).count() >= MAX_SECRETS:
            raise Conflict(
                f"This pool has {MAX_SECRETS} secrets.",
                code="too_many_secrets",
                way_out="Delete a secret that no task uses.",
            )
        row, is_new = Secret.objects.update_or_create(
            pool=pool,
            name=name,
            defaults={
                "ciphertext": seal(value.encode()),
                "key_id": key_id(),
                "changed_at": Now(),
            },
        )
        row.refresh_from_db(fields=["changed_at"])
        record(
            "set_secret",
            pool_id=pool_id,
            after="added" if is_new else "changed",
            reason=reason.strip(),
            data={"secret": name},
        )
    return row, is_new


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


def check_fields(name: str, value: str) -> None:
    """Raises Invalid with every fault."""
    faults = Faults()
    if not NAME.fullmatch(name):
        faults.add("name", "This is not a valid name of a secret.", NAME_RULE)
    elif name.startswith(OURS):
        faults.add("name", f"Names with {OURS} at the start are reserved.", "Choose another name.")
    if not value or len(value) > MAX_SECRET_LENGTH or "\x00" in value:
        faults.add(
            "value",
            f"A value has 1 to {MAX_SECRET_LENGTH} characters, and no NUL.",
            "Put a longer value into a file of the source.",
        )
    faults.raise_if_any()


def _lock_pool(pool_id: int) -> Pool:
    pool = lock_pool(pool_id)
    if pool.state == "gone":
        raise no_such_pool(pool.name)
    return pool
