"""Create and configure pools. slots/ owns members and slots, and applies each configuration in the
same transaction.
"""

from collections.abc import Callable, Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from pools.config.layout import lanes
from pools.config.spec import PoolSpec, parse_pool, read_pool
from pools.lifecycle.policy import FieldChange, diff_values, list_fixed
from pools.lifecycle.selectors import LIVE, find_pool, get_pool, lock_pool, spec_of
from pools.models import Member, Pool
from pools.providers.base import digest_of, explain_not_allowed, option_readers, provider_class
from project.kernel.errors import Conflict, FieldError, Invalid, Refused
from project.kernel.events.log import record
from project.kernel.events.notify import publish

# Applies a configuration to members and slots: (locked pool, new, previous or None). Runs in the
# caller's transaction.
ConfigListener = Callable[[Pool, PoolSpec, PoolSpec | None], None]
# Lists the faults of a new configuration, without a change: (pool or None, new).
Checker = Callable[[Pool | None, PoolSpec], list[FieldError]]

_listeners: list[ConfigListener] = []
_checkers: list[Checker] = []


def on_configuration_change(follower: ConfigListener, checker: Checker) -> None:
    """Registers the functions of slots/, because pools/ must not import slots/."""
    _listeners.append(follower)
    _checkers.append(checker)


def create_pool(config: Mapping[str, object], *, reason: str = "") -> Pool:
    """Create a pool with the members that its configuration declares, and notify claims that wait
    for its name.
    """
    spec = parse_pool(config, option_readers())
    _refuse_not_allowed(spec, config)
    provider = provider_class(spec.provider)
    with transaction.atomic():
        try:
            with transaction.atomic():
                pool = Pool.objects.create(
                    name=spec.name,
                    provider=spec.provider,
                    queue=provider.queue,
                    state="pending" if provider.queue else "active",
                    **_columns(spec),
                )
        except IntegrityError as error:
            raise _name_taken(spec.name) from error
        record(
            "create",
            pool_id=pool.pk,
            after=pool.state,
            reason=reason,
            data={"configuration": spec.as_stored()},
        )
        for follow in _listeners:
            follow(pool, spec, None)
        publish("pools", "slots")
    pool.refresh_from_db()
    return pool


def update_pool(
    pool_name: str, config: Mapping[str, object], *, revision: int | None = None, reason: str = ""
) -> Pool:
    """Replace the configuration of a pool. Listed members are created, changed and removed to match
    the list; without a list, members stay.
    """
    spec = parse_pool(config, option_readers())
    with transaction.atomic():
        pool = lock_pool(get_pool(pool_name).pk)
        _check_current(pool, revision)
        before = spec_of(pool)
        if spec.provider != before.provider:
            _refuse_not_allowed(spec, config)
        _refuse_fixed(pool, before, spec)
        changes = diff_values(before.as_stored(), spec.as_stored())
        if changes:
            _write(pool, spec, changes, reason)
        for follow in _listeners:
            follow(pool, spec, before)
        publish("pools", "slots")
    pool.refresh_from_db()
    return pool


def check_config(config: Mapping[str, object]) -> list[FieldError]:
    """Every fault of a configuration, also conflicts with the present state of the pool."""
    spec, faults = read_pool(config, option_readers())
    if spec is None:
        return faults
    pool = find_pool(spec.name)
    found = [] if pool is None else _list_conflicts(pool, spec_of(pool), spec)
    if pool is None or pool.provider != spec.provider:
        found += _list_not_allowed(spec, config)
    if pool is not None and pool.state == "deleting":
        way_out = "Wait until it is deleted, or choose another name."
        found = [FieldError("name", f"Pool {pool.name} is being deleted.", way_out)]
    for check in _checkers:
        found += check(pool, spec)
    return list(dict.fromkeys(found))


def _refuse_not_allowed(spec: PoolSpec, config: Mapping[str, object]) -> None:
    if faults := _list_not_allowed(spec, config):
        raise Invalid(fields=faults)


def _list_not_allowed(spec: PoolSpec, config: Mapping[str, object]) -> list[FieldError]:
    fault = explain_not_allowed(spec.provider)
    where = "provider.kind" if isinstance(config.get("provider"), Mapping) else "provider"
    return [] if fault is None else [FieldError(where, fault.message, fault.way_out)]


def raise_revision(pool: Pool) -> None:
    """For changes outside of `update_pool`, such as a new member: members are part of the
    configuration. The caller has locked the pool.
    """
    pool.revision += 1
    Pool.objects.filter(pk=pool.pk).update(revision=pool.revision, changed_at=Now())


def _columns(spec: PoolSpec) -> dict[str, Any]:
    return {
        "lanes": lanes(spec.layout),
        "placement": spec.placement,
        "spec": spec.as_stored(),
        "min_members": spec.min_members,
        "max_members": spec.max_members,
        "member_digest": digest_of(spec),
    }


def _write(pool: Pool, spec: PoolSpec, changes: list[FieldChange], reason: str) -> None:
    provider = provider_class(spec.provider)
    before = pool.revision
    columns = _columns(spec) | {
        "provider": spec.provider,
        "queue": provider.queue,
        "revision": before + 1,
    }
    present = digest_of(spec_of(pool))
    if pool.place and provider_class(pool.provider).follow_key(
        spec_of(pool).options
    ) != provider.follow_key(spec.options):
        # The place is fixed while the pool has members, so the old place has none.
        columns["place"] = ""
    if pool.member_digest and columns["member_digest"] == present:
        # Another release may have written the same options differently: members stay current.
        columns["member_digest"] = pool.member_digest
    if columns["member_digest"] != pool.member_digest:
        # The member that stopped the roll was created from other options.
        columns |= {"roll_stopped_at": None, "roll_stop_reason": ""}
        Member.objects.filter(LIVE, pool=pool, spec_digest="", is_owned=True).update(
            spec_digest=present
        )
    Pool.objects.filter(pk=pool.pk).update(**columns, changed_at=Now())
    pool.refresh_from_db()
    record(
        "configure",
        pool_id=pool.pk,
        before=f"revision {before}"[:16],
        after=f"revision {pool.revision}"[:16],
        reason=reason,
        data={
            "changes": [{"field": c.field, "before": c.before, "after": c.after} for c in changes]
        },
    )


def _check_current(pool: Pool, revision: int | None) -> None:
    if pool.state in ("deleting", "gone"):
        raise Conflict(
            f"Pool {pool.name} is being deleted.",
            way_out="Wait until it is deleted, then create it again.",
        )
    if revision is not None and revision != pool.revision:
        raise Conflict(
            f"Pool {pool.name} has changed meanwhile: it is at revision {pool.revision}, "
            f"not {revision}.",
            code="stale_revision",
            way_out="Read it again and repeat the change.",
            revision=pool.revision,
        )


def _refuse_fixed(pool: Pool, before: PoolSpec, after: PoolSpec) -> None:
    hindrances = _list_conflicts(pool, before, after)
    if hindrances:
        limits = [e for e in hindrances if e.field == "members.max"]
        raise (Invalid if limits == hindrances else Refused)(
            code="" if limits == hindrances else "fixed", fields=hindrances
        )


def _list_conflicts(pool: Pool, before: PoolSpec, after: PoolSpec) -> list[FieldError]:
    found = []
    if pool.name != after.name:
        found.append(
            FieldError(
                "name",
                f"The name of pool {pool.name} cannot change.",
                "Create another pool and move the claims there.",
            )
        )
    members = Member.objects.filter(LIVE, pool_id=pool.pk).count()
    provider = provider_class(after.provider)
    free = (*provider.rolled, *provider.live_options)
    found += [
        FieldError(fixed.field, fixed.reason, fixed.way_out)
        for fixed in list_fixed(before.as_stored(), after.as_stored(), members, free)
    ]
    # With scaling, surplus members are removed once idle.
    if members > after.max_members and after.scaling is None:
        there = (
            f"{members} member{'s are' if members > 1 else ' is'} there, more than "
            f"{after.max_members}."
        )
        found.append(
            FieldError(
                "members.max", there, "Remove members first; each is removed once it is empty."
            )
        )
    return found


def _name_taken(name: str) -> Conflict:
    there = find_pool(name)
    if there is not None and there.state == "deleting":
        message = f"Pool {name} is being deleted."
        way_out = "Wait until it is deleted, or choose another name."
    else:
        message = f"Pool {name} already exists."
        way_out = "Choose another name, or change that pool."
    return Conflict(
        message, code="name_taken", way_out=way_out, fields=[FieldError("name", message, way_out)]
    )
