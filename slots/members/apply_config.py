"""Applies a changed pool configuration to members and slots, in the transaction of the change.

`pools.lifecycle.services` calls the functions that the last line registers.
"""

from pools.config.spec import MemberSpec, PoolSpec
from pools.lifecycle.policy import diff_values, is_one_of
from pools.lifecycle.selectors import LIVE, layout_of, member_spec_of
from pools.lifecycle.services import on_configuration_change, raise_revision
from pools.models import Member, Pool
from pools.providers.base import known_providers
from project.kernel.errors import FieldError, Invalid
from slots.members import members_sql
from slots.members.open_slots import align_pool
from slots.members.services import apply_member_spec
from slots.members.store import (
    add_member_rows,
    change_member,
    heartbeat_limit,
    make_slots,
    mark_leaving,
    move_member,
    rank_slots,
    request_sync,
    staying_columns,
    staying_state,
)
from slots.members.validate import explain_overlap, list_overlaps, list_owned

WHERE = "members.list"
WHY = "no longer in the configuration"


def apply_pool_config(pool: Pool, spec: PoolSpec, before: PoolSpec | None) -> None:
    """Expects the pool to be locked and to store `spec` already."""
    if faults := list_conflicts(pool, spec):
        raise Invalid(fields=faults)
    if spec.declared is not None:
        _make_members(pool, spec, spec.declared)
    if before is None:
        return
    members = _lock_members(pool)
    if before.layout != spec.layout:
        for member in members:
            make_slots(
                pool,
                member,
                spec,
                member_spec_of(member, spec.layout),
                "the configuration of its pool",
            )
    if before.placement != spec.placement:
        for member in members:
            rank_slots(member, spec.placement)
    allowed = before.allowed_certificates
    # Targets that the pool does not allow any more are removed.
    is_refusing = before.backends != spec.backends or allowed != spec.allowed_certificates
    if is_refusing or _changes_members(before, spec):
        for member in members:
            request_sync(pool, member)
    if before.liveness != spec.liveness:
        _restart_timers(pool, members, spec)


def _changes_members(before: PoolSpec, spec: PoolSpec) -> bool:
    """Whether options changed that existing members follow."""
    provider = known_providers().get(spec.provider)
    live = () if provider is None else provider.live_options
    changes = diff_values(before.options, spec.options)
    return any(is_one_of(change.field, live) for change in changes)


def list_conflicts(pool: Pool | None, spec: PoolSpec) -> list[FieldError]:
    """Faults of the members that a configuration declares. Changes no row."""
    if spec.declared is None:
        return []
    there = {} if pool is None else {m.name: m for m in Member.objects.filter(LIVE, pool=pool)}
    found = []
    for i, declared in enumerate(spec.declared):
        member = there.get(declared.name)
        if member is not None and member.state == "deleting":
            found.append(
                FieldError(
                    f"{WHERE}[{i}].name",
                    f"{declared.name} is being removed.",
                    "Wait until it is gone.",
                )
            )
        elif (
            member is not None
            and member.external_id != declared.external_id
            and (declared.external_id or not member.is_owned)
        ):
            found.append(
                FieldError(
                    f"{WHERE}[{i}].external_id",
                    f"external_id of {declared.name} cannot change.",
                    "Choose another name: the old member is then removed.",
                )
            )
    names = {d.name for d in spec.declared}
    staying = _list_staying(pool, [m for m in there.values() if m.name not in names])
    if len(staying) + len(spec.declared) > spec.max_members:
        names_left = ", ".join(sorted(m.name for m in staying)[:5])
        found.append(
            FieldError(
                WHERE,
                f"{len(spec.declared)} members are declared and {len(staying)} are still being "
                f"removed; members.max is {spec.max_members}.",
                f"Raise members.max, or wait until {names_left} is removed.",
            )
        )
    # Members that are removed at once free their ports. The parser compares the declared members.
    known = [m.pk for m in there.values() if m not in staying]
    found += list_owned(spec, spec.declared, WHERE, there)
    return found + list_overlaps(spec, spec.declared, WHERE, except_members=known)


def _list_staying(pool: Pool | None, leaving: list[Member]) -> list[Member]:
    """Undeclared members that cannot be removed at once: they have holders, or the provider has to
    remove them outside.
    """
    if pool is None or not leaving:
        return []
    held = {row.member_id for row in members_sql.holders(members=[m.pk for m in leaving])}
    return [m for m in leaving if m.pk in held or pool.queue]


def _make_members(pool: Pool, spec: PoolSpec, declared: tuple[MemberSpec, ...]) -> None:
    """Make the members of the pool equal to the list. Removals come first, to free names and
    ports.
    """
    there = {m.name: m for m in _lock_members(pool)}
    names = {d.name for d in declared}
    changed = False
    for name, member in there.items():
        if name not in names and not member.is_leaving and member.state != "deleting":
            mark_leaving(pool, member, WHY)
            changed = True
    for each in declared:
        existing = there.get(each.name)
        if existing is None:
            continue
        if existing.is_leaving:
            change_member(
                existing,
                "keep",
                before="leaving",
                after=staying_state(existing),
                **staying_columns(existing),
            )
            changed = True
        apply_member_spec(
            pool, existing, member_spec_of(existing, layout_of(pool)), each, where=WHERE
        )
    new = [each for each in declared if each.name not in there]
    with explain_overlap(spec, new, WHERE):
        add_member_rows(pool, spec, new)
    if changed or (new and there):
        raise_revision(pool)
    align_pool(pool)


def _lock_members(pool: Pool) -> list[Member]:
    return list(
        Member.objects.select_for_update(no_key=True).filter(LIVE, pool=pool).order_by("id")
    )


def _restart_timers(pool: Pool, members: list[Member], spec: PoolSpec) -> None:
    """Restart the heartbeat timers, because heartbeats may have been off until now. Without
    `liveness`, offline members of a pool without a provider come back online.
    """
    kept = [m for m in members if m.state in ("ready", "offline") and m.lost_at is None]
    Member.objects.filter(pk__in=[m.pk for m in kept]).update(due_at=heartbeat_limit(spec))
    if spec.liveness is None and not pool.queue:
        for member in kept:
            if member.state == "offline":
                reason = "its pool no longer expects heartbeats"
                move_member(member, "ready", "online", reason=reason, due_at=None)
        align_pool(pool)


on_configuration_change(apply_pool_config, list_conflicts)
