"""Grant and withdraw roles. Each change is an event, by which open sockets update their rights."""

from django.contrib.auth.models import Group, User
from django.db import IntegrityError, transaction

from pools.access.claimants import CLAIMING, is_program, list_claimants
from pools.access.permissions import ROLES
from pools.lifecycle.selectors import LIVE
from pools.models import Grant, Pool
from pools.providers.base import kinds_with
from pools.providers.local.protection import WAY_OUT, find_protection, why_refused
from project.kernel.errors import Conflict, FieldError, NotFound, Refused, wrong_field
from project.kernel.events.log import record


def create_grant(
    *,
    role: str,
    user: User | None = None,
    group: Group | None = None,
    pool: Pool | None = None,
    reason: str = "",
) -> Grant:
    """Grant a role to a user or a group, in one pool or (None) in all pools."""
    if role not in ROLES:
        raise wrong_field(
            "role", f"There is no role {role[:40]}.", f"Choose from {', '.join(ROLES)}."
        )
    if (user is None) == (group is None):
        raise wrong_field(
            "user",
            "A grant is for one user or for one group.",
            "Name exactly one of the two.",
        )
    refuse_unprotected(role, user, group, pool)
    try:
        with transaction.atomic():
            grant = Grant.objects.create(role=role, user=user, group=group, pool=pool)
            record("grant", pool_id=grant.pool_id, after=role, reason=reason, data=about(grant))
    except IntegrityError:
        raise Conflict(
            "This grant exists already.", code="exists", way_out="No further action is needed."
        )
    grant.refresh_from_db()
    return grant


def refuse_unprotected(
    role: str, user: User | None, group: Group | None, pool: Pool | None
) -> None:
    """Raises Refused for a role that lets a second person start tasks where tasks can read Berth's
    own passwords and keys.
    """
    if role not in CLAIMING or (
        user is not None and is_program(user.username) and not user.has_usable_password()
    ):
        return
    pools = Pool.objects.filter(LIVE, provider__in=kinds_with(lambda provider: provider.runs_here))
    for each in pools.order_by("name") if pool is None else pools.filter(pk=pool.pk):
        people = User.objects.filter(is_active=True)
        new = people.filter(pk=user.pk) if user is not None else people.filter(groups=group)
        claimants = list(
            dict.fromkeys([*list_claimants(each.pk), *new.values_list("username", flat=True)[:20]])
        )
        if len(claimants) > 1 and (why := why_refused(find_protection(), claimants)):
            detail = f"In the pool {each.name}: {why}"
            field = FieldError("group" if user is None else "user", detail, WAY_OUT)
            raise Refused(detail, code="tasks_unprotected", way_out=WAY_OUT, fields=[field])


def revoke_grant(grant_id: int, *, reason: str = "") -> None:
    with transaction.atomic():
        grant = Grant.objects.select_for_update().filter(pk=grant_id).first()
        if grant is None:
            raise NotFound("There is no such grant.")
        record(
            "ungrant", pool_id=grant.pool_id, before=grant.role, reason=reason, data=about(grant)
        )
        grant.delete()


def about(grant: Grant) -> dict[str, object]:
    if grant.user is not None:
        return {"user_id": grant.user_id, "user": grant.user.get_username(), "role": grant.role}
    assert grant.group is not None
    return {"group_id": grant.group_id, "group": grant.group.name, "role": grant.role}
