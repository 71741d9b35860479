"""Members and their slots: added, edited, closed, opened, heard, let go. Each function is one
short transaction.

Locks are taken in one order, pool -> member -> slots. Binding takes none of the first two:
`slot.is_open` tells it that both are willing, so whoever changes that writes it to the slots in the
same transaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

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
    list_holders_of,
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
class Holder:
    """Who keeps a member from leaving."""

    claim_id: int | None
    slot_id: int
    lane: str
    number: int
    state: str


@dataclass(frozen=True, slots=True)
class Removal:
    member_id: int
    state: str  # gone or deleting: nobody was there. Else it leaves when the holders have
    holders: tuple[Holder, ...]


def add_members(
    *, pool_id: int, declared: Sequence[Any], where: str = "members", reason: str = ""
) -> list[Member]:
    """More members for a pool, at any time; claims that are there do not notice. All of
    them or none.
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


def edit_member(*, member_id: int, reason: str = "", where: str = "", **changes: Any) -> Member:
    """Other labels, another number of slots, other ports of its own. A field that is None goes
    back to what the pool says.
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
) -> bool:
    """In a transaction that has locked pool and member. False: it is so already."""
    differences = diff_values(before.as_config(), after.as_config())
    if not differences:
        return False
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
            spec=after.own_as_stored(),
            ports=port_range(spec, after),
        )
    if before.own != after.own:
        make_slots(pool, member, spec, after, reason)
    raise_revision(pool)
    publish("slots")  # other labels may be what a claim waits for
    return True


def cordon_member(*, member_id: int, reason: str) -> Member:
    """Nothing new comes here; what is here stays. Said twice, it is so once; of one that drains,
    it is so also once that is taken back.
    """
    note = require_reason(reason)
    with transaction.atomic():
        pool, member = lock_member(member_id)
        refuse_unless_there(member)
        # One of the two alone was left by the release before.
        if not (member.is_cordoned and member.cordon_by):
            ordered = {"is_cordoned": True, "cordon_by": current_actor(), "cordon_note": note}
            shown = member.note if member.is_leaving or member.drain_until is not None else note
            change_member(
                member,
                "cordon",
                before=member.state,
                after="cordoned",
                reason=note,
                note=shown,
                **ordered,
            )
        align_slots(pool, member)
    return member


def uncordon_member(*, member_id: int, reason: str = "") -> Member:
    """Open again, as far as the pool and the member itself are willing. Not while it drains:
    whoever came then would be put out at once.
    """
    with transaction.atomic():
        pool, member = lock_member(member_id)
        refuse_unless_there(member)
        if member.drain_until is not None and not member.is_leaving:
            raise Conflict(
                f"{member.name} drains until {member.drain_until:%d %b %H:%M} UTC.",
                code="draining",
                way_out="Undrain it.",
            )
        if member.is_cordoned or member.cordon_by:
            note = member.note if member.is_leaving else ""
            opened = {"is_cordoned": False, "cordon_by": "", "cordon_note": "", "note": note}
            change_member(
                member,
                "uncordon",
                before="cordoned",
                after=member.state,
                reason=reason.strip(),
                **opened,
            )
        align_slots(pool, member)
    return member


def remove_member(*, member_id: int, reason: str) -> Removal:
    """Close a member; it goes when it is empty, at once if it is so now. Nobody is moved: the
    answer lists who is still there.
    """
    note = require_reason(reason)
    with transaction.atomic():
        pool, member = lock_member(member_id)
        if member.state == "gone":
            raise NotFound(f"Member {member.name} was already removed.")
        mark_leaving(pool, member, note)
        raise_revision(pool)
        return Removal(member.pk, member.state, view_holders(member.pk))


def cancel_member_removal(*, member_id: int, reason: str = "") -> Member:
    """Take a removal back, as long as the member has not gone."""
    with transaction.atomic():
        pool, member = lock_member(member_id)
        if pool.state != "active" and pool.state != "pending":
            raise Conflict(
                f"Pool {pool.name} is being deleted, so its members are removed.",
                way_out="Create the pool again once it is deleted.",
            )
        refuse_unless_there(member)
        if member.is_leaving:
            change_member(
                member,
                "keep",
                before="leaving",
                after=staying_state(member),
                reason=reason.strip(),
                **staying_columns(member),
            )
            raise_revision(pool)
        align_slots(pool, member)
    return member


def finish_leaving(member_id: int) -> bool:
    """The finalizer found it empty; it is looked at again here, under its lock. True: it goes."""
    with transaction.atomic():
        pool, member = lock_member(member_id)
        if not member.is_leaving:
            return False
        return delete_if_empty(pool, member) in ("deleting", "gone")


def pause_pool(*, pool_id: int, until: datetime, reason: str) -> Pool:
    """Nothing new is handed out until then; holders stay. It ends by itself. Said again, it
    counts from then on.
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
    """`only_if_over` is how a pause ends by itself: by the database's clock, and not if somebody
    has made it longer meanwhile.
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
    """Deletion begins: nothing is handed out and every member leaves when it is empty. Whoever
    calls looks after the claims. Of very many slots or members those that this transaction does not
    come to are closed by the finalizer."""
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
        # Whoever is there is ended by whoever calls; what does not come clean then is waited for as
        # long as a slot may drain, not for ever.
        members_sql.mark_all_leaving(pool=pool.pk, reason=reason, actor=current_actor())
        if is_large:
            # In pieces: nobody is bound from here on, and the finalizer closes the rest.
            align_pool(pool)
        else:
            for member in list_members_of(pool.pk):
                delete_if_empty(
                    pool, Member.objects.select_for_update(no_key=True).get(pk=member.pk)
                )
        publish("pools")
    return pool


def activate_pool(*, pool_id: int) -> Pool:
    """Its provider has been looked at: from now on it hands out slots."""
    with transaction.atomic():
        pool = lock_pool(pool_id)
        if pool.state == "pending":
            Pool.objects.filter(pk=pool.pk).update(state="active", changed_at=Now())
            pool.refresh_from_db()
            record("activate", pool_id=pool.pk, before="pending", after="active")
            align_pool(pool)
            publish("pools", "slots")
    return pool


def align_member(*, member_id: int) -> None:
    """Repair: its slots are open or closed as pool and member are willing, and they are those
    it offers.
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
    """What the provider confirmed after an operation: created and seen, or gone as it
    was wanted.
    """
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
    """The world confirmed that a draining slot is empty. False: it does not drain any more, or
    for somebody else.
    """
    with transaction.atomic():
        row = members_sql.free_drained_slot(slot=slot_id, generation=generation, actor=current_actor())
        if row is not None:
            publish("slots", "events")
    return row is not None


def view_holders(member_id: int) -> tuple[Holder, ...]:
    return tuple(
        Holder(row.claim_id, row.id, row.lane, row.number, row.state)
        for row in list_holders_of([member_id])
    )


def _lock_living_pool(pool_id: int) -> Pool:
    pool = lock_pool(pool_id)
    if pool.state in ("deleting", "gone"):
        raise Conflict(
            f"Pool {pool.name} is being deleted.",
            way_out="Wait until it is deleted, then create it again.",
        )
    return pool


def _list_fixed_of_member(before: MemberSpec, after: MemberSpec) -> list[FieldError]:
    found = []
    if before.name != after.name:
        found.append(
            FieldError(
                "name",
                f"The name of {before.name} cannot change.",
                "Add another member and remove this one.",
            )
        )
    if before.external_id != after.external_id:
        found.append(
            FieldError(
                "external_id",
                "external_id of a member cannot change.",
                "Add another member and remove this one.",
            )
        )
    return found
