"""Changes of members, their slots and pools. Each function is one short transaction.

Locks are taken in the order pool, member, slots. A bind locks slots only and relies on
`slot.is_open`. So every change of a pool or member that starts or stops the use of slots updates
`is_open` in the same transaction.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models.functions import Now

from pools.config.parsing import Faults
from pools.config.spec import MemberSpec, read_member, read_members
from pools.lifecycle.policy import diff_values
from pools.lifecycle.selectors import (
    list_members_of,
    lock_member,
    lock_pool,
    member_spec_of,
    spec_of,
)
from pools.lifecycle.services import raise_revision
from pools.models import Member, Pool
from project.kernel.actor import current_actor
from project.kernel.errors import Conflict, FieldError, NotFound
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from project.kernel.validation import moment, require_future, require_reason
from slots.members import members_sql, open_slots
from slots.members.open_slots import align_pool
from slots.members.store import (
    add_member_rows,
    align_slots,
    change_member,
    delete_if_empty,
    end_member,
    is_draining,
    make_slots,
    mark_leaving,
    move_member,
    port_range,
    refuse_unless_there,
    staying_columns,
    staying_state,
)
from slots.members.validate import explain_overlap, list_member_faults

LONGEST_PAUSE = timedelta(days=366)


@dataclass(frozen=True, slots=True)
class Removal:
    member_id: int
    state: str  # gone or deleting: the member was empty. Else it leaves after its holders
    holders: list[members_sql.HoldersRow]  # slots that keep the member from leaving


def add_members(
    *, pool_id: int, declared: Sequence[object], where: str = "members", reason: str = ""
) -> list[Member]:
    """Add members to a pool: all of them or, on any fault, none. Existing claims are not
    affected.
    """
    with transaction.atomic():
        pool = _lock_living_pool(pool_id)
        spec = spec_of(pool)
        faults = Faults()
        found = read_members(list(declared), where, spec.layout, faults)
        faults.found += list_member_faults(pool, spec, found, where)
        faults.raise_if_any()
        with explain_overlap(spec, found, where):
            members = add_member_rows(pool, spec, found, reason.strip())
        raise_revision(pool)
    return members


def edit_member(*, member_id: int, reason: str = "", where: str = "", **changes: object) -> Member:
    """Change labels, deletion cost, slots or ports of a member. A field that is None takes its
    default or the pool's value.
    """
    with transaction.atomic():
        pool, member = lock_member(member_id)
        refuse_unless_there(member)
        spec = spec_of(pool)
        before = member_spec_of(member, spec.layout)
        config = {k: v for k, v in (before.as_config() | changes).items() if v is not None}
        faults = Faults()
        after = read_member(config, where, spec.layout, faults)
        faults.found += _list_fixed_of_member(before, after)
        faults.raise_if_any()
        apply_member_spec(pool, member, before, after, reason=reason, where=where)
    return member


def apply_member_spec(
    pool: Pool,
    member: Member,
    before: MemberSpec,
    after: MemberSpec,
    *,
    reason: str = "",
    where: str = "",
) -> None:
    """Change a member to `after`. Pool and member are locked."""
    differences = diff_values(before.as_config(), after.as_config())
    if not differences:
        return
    spec = spec_of(pool)
    with explain_overlap(spec, [after], where, except_members=[member.pk]):
        change_member(
            member,
            "edit",
            reason=reason,
            data={
                "changes": [
                    {"field": c.field, "before": c.before, "after": c.after} for c in differences
                ]
            },
            labels=dict(after.labels),
            deletion_cost=after.deletion_cost,
            spec=after.own_as_stored(),
            ports=port_range(spec, after),
        )
    if before.own != after.own:
        make_slots(pool, member, spec, after, reason)
    raise_revision(pool)
    publish("slots")  # a claim may wait for the new labels


def cordon_member(*, member_id: int, reason: str) -> Member:
    """Cordon a member: it gets no new claims and keeps those it has. A second call has no effect.
    A draining member stays cordoned after its drain is cancelled.
    """
    note = require_reason(reason)
    with transaction.atomic():
        pool, member = lock_member(member_id)
        refuse_unless_there(member)
        # The previous release stored only one of the two columns.
        if not (member.is_cordoned and member.cordon_by):
            change_member(
                member,
                "cordon",
                before=member.state,
                after="cordoned",
                reason=note,
                note=member.note if is_draining(member) else note,
                is_cordoned=True,
                cordon_by=current_actor(),
                cordon_note=note,
            )
        align_slots(pool, member)
    return member


def uncordon_member(*, member_id: int, reason: str = "") -> Member:
    """Uncordon a member. Refused while it drains and stays, because the drain would evict new
    claims.
    """
    with transaction.atomic():
        pool, member = lock_member(member_id)
        refuse_unless_there(member)
        if member.drain_until is not None and not member.is_leaving:
            raise Conflict(
                f"{member.name} drains until {member.drain_until:%d %b %H:%M} UTC.",
                code="draining",
                way_out="Undrain the member.",
            )
        if members_sql.is_evacuating(member=member_id):
            raise Conflict(
                f"{member.name} is being evacuated: its claims move to other members.",
                code="evacuating",
                way_out="Undo the evacuation of the member.",
            )
        if member.is_cordoned or member.cordon_by:
            change_member(
                member,
                "uncordon",
                before="cordoned",
                after=member.state,
                reason=reason.strip(),
                note=member.note if member.is_leaving else "",
                is_cordoned=False,
                cordon_by="",
                cordon_note="",
            )
        align_slots(pool, member)
    return member


def remove_member(*, member_id: int, reason: str) -> Removal:
    """Close a member and remove it once it is empty, at once if possible. The result lists the
    holders that keep it.
    """
    note = require_reason(reason)
    with transaction.atomic():
        pool, member = lock_member(member_id)
        if member.state == "gone":
            raise NotFound(f"Member {member.name} was already removed.")
        mark_leaving(pool, member, note)
        raise_revision(pool)
        return report_removal(member)


def cancel_member_removal(*, member_id: int, reason: str = "") -> Member:
    """Cancel the removal of a member that is still there."""
    return take_back(member_id, "keep", "leaving", lambda member: member.is_leaving, reason)


def take_back(
    member_id: int, verb: str, state: str, is_due: Callable[[Member], bool], reason: str
) -> Member:
    """Cancel the removal or the drain (`state`) of a member, if it is due."""
    with transaction.atomic():
        pool, member = lock_member(member_id)
        if pool.state in ("deleting", "gone"):
            raise Conflict(
                f"Pool {pool.name} is being deleted, so its members leave.",
                way_out="Create the pool again once it is deleted.",
            )
        refuse_unless_there(member)
        if is_due(member):
            change_member(
                member,
                verb,
                before=state,
                after=staying_state(member),
                reason=reason.strip(),
                **staying_columns(member),
            )
            raise_revision(pool)
            publish("pools")
        align_slots(pool, member)
    return member


def finish_leaving(member_id: int) -> bool:
    """Remove a leaving member if it is empty, checked under its lock. True: it is removed."""
    with transaction.atomic():
        pool, member = lock_member(member_id)
        if not member.is_leaving:
            return False
        return delete_if_empty(pool, member) in ("deleting", "gone")


def pause_pool(*, pool_id: int, until: datetime, reason: str) -> Pool:
    """Pause a pool: it gives no slots to new claims until then, and holders stay. A repeated call
    replaces time and reason.
    """
    note = require_reason(reason)
    with transaction.atomic():
        pool = _lock_living_pool(pool_id)
        require_future(
            until, LONGEST_PAUSE, "a year", "Choose a nearer time, or remove the members."
        )
        before = "paused" if pool.paused_until else pool.state
        Pool.objects.filter(pk=pool.pk).update(
            paused_until=until, pause_reason=note, changed_at=Now()
        )
        pool.refresh_from_db()
        record(
            "pause",
            pool_id=pool.pk,
            before=before,
            after="paused",
            reason=note,
            data={"until": until},
        )
        align_pool(pool)
        publish("pools")
    return pool


def resume_pool(*, pool_id: int, reason: str = "", only_if_over: bool = False) -> Pool:
    """End a pause. With `only_if_over`, only a pause that has ended by the database's clock; an
    operator may have extended it meanwhile.
    """
    with transaction.atomic():
        pool = lock_pool(pool_id)
        if pool.paused_until is None or (only_if_over and pool.paused_until > moment()):
            return pool
        Pool.objects.filter(pk=pool.pk).update(paused_until=None, pause_reason="", changed_at=Now())
        pool.refresh_from_db()
        record("resume", pool_id=pool.pk, before="paused", after=pool.state, reason=reason.strip())
        align_pool(pool)
        publish("pools", "slots")
    return pool


def close_pool(*, pool_id: int, reason: str) -> Pool:
    """Start the deletion of a pool: it gives out no slots, and its members leave once they are
    empty. The caller ends the claims. The finalizer closes the remaining slots of a large pool.
    """
    with transaction.atomic():
        pool = lock_pool(pool_id)
        if pool.state in ("deleting", "gone"):
            return pool
        before = pool.state
        Pool.objects.filter(pk=pool.pk).update(state="deleting", changed_at=Now())
        pool.refresh_from_db()
        record("delete", pool_id=pool.pk, before=before, after="deleting", reason=reason)
        is_large = members_sql.has_slots(
            open_slots.AT_ONCE + 1, pool=pool.pk
        ) or members_sql.has_members(open_slots.MEMBERS + 1, pool=pool.pk)
        # The caller ends all claims. Slots that do not come clean delay a member only until their
        # own drain deadline.
        members_sql.mark_all_leaving(pool=pool.pk, reason=reason, actor=current_actor())
        if is_large:
            # The state of the pool already prevents binds.
            align_pool(pool)
        else:
            for member in list_members_of(pool.pk):
                delete_if_empty(
                    pool, Member.objects.select_for_update(no_key=True).get(pk=member.pk)
                )
        publish("pools")
    return pool


def activate_pool(*, pool_id: int) -> None:
    """Activate a pending pool after the first successful look at its provider."""
    with transaction.atomic():
        pool = lock_pool(pool_id)
        if pool.state == "pending":
            Pool.objects.filter(pk=pool.pk).update(state="active", changed_at=Now())
            pool.refresh_from_db()
            record("activate", pool_id=pool.pk, before="pending", after="active")
            align_pool(pool)
            publish("pools", "slots")


def align_member(*, member_id: int) -> None:
    """Repair a member: its slots become those of its configuration, open or closed as its state
    and its pool require.
    """
    with transaction.atomic():
        pool, member = lock_member(member_id)
        spec = spec_of(pool)
        if member.state in ("ready", "offline") and member.lost_at is None:
            make_slots(pool, member, spec, member_spec_of(member, spec.layout), "repaired")
        align_slots(pool, member)


def record_sync_result(
    *, member_id: int, is_gone: bool, is_ready: bool, external_id: str = ""
) -> None:
    """Store what the provider confirmed after an operation: the member exists, or is gone."""
    with transaction.atomic():
        pool, member = lock_member(member_id)
        if external_id and external_id != member.external_id:
            Member.objects.filter(pk=member.pk).update(external_id=external_id)
            member.refresh_from_db()
        if member.state == "deleting" and is_gone:
            end_member(member, "confirmed by its provider")
        elif member.state == "creating" and is_ready:
            move_member(member, "ready", "ready", reason="confirmed by its provider")
            align_slots(pool, member)


def clean_slot(*, slot_id: int, generation: int) -> bool:
    """Make a draining slot idle that was confirmed as empty. False: the slot no longer drains, or
    drains for another claim.
    """
    with transaction.atomic():
        row = members_sql.free_slot(slot=slot_id, generation=generation, actor=current_actor())
        if row is not None:
            publish("slots", "events")
    return row is not None


def report_removal(member: Member) -> Removal:
    return Removal(member.pk, member.state, members_sql.holders(members=[member.pk]))


def _lock_living_pool(pool_id: int) -> Pool:
    pool = lock_pool(pool_id)
    if pool.state in ("deleting", "gone"):
        raise Conflict(
            f"Pool {pool.name} is being deleted.",
            way_out="Wait until it is deleted, then create it again.",
        )
    return pool


def _list_fixed_of_member(before: MemberSpec, after: MemberSpec) -> list[FieldError]:
    return [
        FieldError(
            name,
            f"{name} of {before.name} cannot change.",
            "Add another member and remove this one.",
        )
        for name in ("name", "external_id")
        if getattr(before, name) != getattr(after, name)
    ]
