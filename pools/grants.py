"""Roles given and taken back. Each is an event, by which open sockets learn that somebody may do more or less from now on."""

from typing import Any

from django.contrib.auth.models import Group, User
from django.db import IntegrityError, transaction

from pools.access import ROLES
from pools.models import Grant, Pool
from project.kernel.errors import Conflict, FieldError, Invalid, NotFound
from project.kernel.events import record


def give_grant(*, role: str, user: User | None = None, group: Group | None = None, pool: Pool | None = None, reason: str = "") -> Grant:
    """A role for a user or a group, in one pool or (no pool) in all of them."""
    if role not in ROLES:
        raise Invalid(fields=[FieldError("role", f"There is no role {role[:40]}.", f"Choose from {', '.join(ROLES)}.")])
    if (user is None) == (group is None):
        raise Invalid(fields=[FieldError("user", "A grant is for one user or for one group.", "Name exactly one of the two.")])
    try:
        with transaction.atomic():
            grant = Grant.objects.create(role=role, user=user, group=group, pool=pool)
            record("grant", pool_id=grant.pool_id, after=role, reason=reason, data=about(grant))
    except IntegrityError:
        raise Conflict("This grant exists already.", code="exists", way_out="Nothing is left to do.")
    grant.refresh_from_db()
    return grant


def withdraw_grant(grant_id: int, *, reason: str = "") -> None:
    with transaction.atomic():
        grant = Grant.objects.select_for_update().filter(pk=grant_id).first()
        if grant is None:
            raise NotFound("There is no such grant.")
        record("ungrant", pool_id=grant.pool_id, before=grant.role, reason=reason, data=about(grant))
        grant.delete()


def about(grant: Grant) -> dict[str, Any]:
    if grant.user is not None:
        return {"user_id": grant.user_id, "user": grant.user.get_username(), "role": grant.role}
    assert grant.group is not None
    return {"group_id": grant.group_id, "group": grant.group.name, "role": grant.role}
