"""Writes rows of members and slots. The callers are services and chores that have locked the pool
and then the member.

Named statements change the state of slots, guarded updates the state of members. Each change
records an event.
"""

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import TypedDict

from django.db.models import Max
from django.db.models.expressions import Combinable
from django.db.models.functions import Now
from psycopg.types.range import Int4Range

from pools.config.layout import ports_of, slots_of
from pools.config.placement import ranks_of
from pools.config.spec import MemberSpec, PoolSpec
from pools.lifecycle.policy import offers_slots
from pools.lifecycle.selectors import lock_member
from pools.models import Member, Pool
from pools.providers.base import explain_not_allowed, known_providers
from pools.states import MEMBER
from project.kernel.actor import current_actor
from project.kernel.db.locks import MEMBER_IDS, lock_in_transaction
from project.kernel.errors import Conflict, NotFound, Refused
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from project.kernel.outbox.operations import add_operation
from slots.members import members_sql
from slots.members.offer import SharedPorts, offer_first, places_offered
from slots.models import Slot
from slots.states import OCCUPIED

SKIPPED = 1 << 20  # ids after a restore: more than the members since a backup
AT_ONCE = 2_000  # slots that one transaction retires
LARGEST_RANK = 2**31 - 1


class Stays(TypedDict):
    """Columns that end the drain or removal of a member that stays."""

    is_leaving: bool
    drain_until: None
    drain_since: None
    drain_by: str


class StayingColumns(Stays):
    is_cordoned: bool
    note: str


STAYS: Stays = {"is_leaving": False, "drain_until": None, "drain_since": None, "drain_by": ""}


def seconds_from_now(seconds: float | None) -> Combinable | None:
    """A future time by the database's clock. None: no time."""
    return None if seconds is None else Now() + timedelta(seconds=seconds)


def heartbeat_limit(spec: PoolSpec) -> Combinable | None:
    """The time at which a member without a heartbeat goes offline. None: no heartbeat is needed."""
    return seconds_from_now(spec.liveness.heartbeat if spec.liveness else None)


def is_draining(member: Member) -> bool:
    return member.is_leaving or member.drain_until is not None


def staying_columns(member: Member) -> StayingColumns:
    """Columns that cancel the drain or removal of a member: cordoned if an operator has ordered
    it, else open.
    """
    return {**STAYS, "is_cordoned": bool(member.cordon_by), "note": member.cordon_note}


def staying_state(member: Member) -> str:
    """State of a member after `staying_columns`, for the event."""
    return "cordoned" if member.cordon_by else member.state


def lock_slot(slot_id: int) -> tuple[Pool, Member, Slot]:
    """The slot with its pool and member, which are locked. Raises NotFound."""
    found = Slot.objects.filter(pk=slot_id).values_list("member_id", flat=True).first()
    if found is None:
        raise no_such_slot(slot_id)
    pool, member = lock_member(found)
    return pool, member, Slot.objects.get(pk=slot_id)


def no_such_slot(slot_id: int) -> NotFound:
    return NotFound(f"There is no slot {slot_id}.", way_out="List the slots of the pool.")


def refuse_unless_there(member: Member) -> None:
    if member.state in ("deleting", "gone"):
        raise Conflict(
            f"Member {member.name} is {member.state}.",
            way_out="Add the member again once it is gone.",
        )


def add_member_rows(
    pool: Pool,
    spec: PoolSpec,
    declared: Sequence[MemberSpec],
    reason: str = "",
    *,
    verb: str = "add",
    ids: Sequence[int] = (),
) -> list[Member]:
    """Add members with all their slots behind the existing members, and enqueue an operation for
    each if the provider has to create it. `ids`: of members whose objects exist.
    """
    if not declared:
        return []
    if (fault := explain_not_allowed(pool.provider)) is not None:
        detail = f"Pool {pool.name} takes no new members. {fault.message}"
        raise Refused(detail, code="provider_not_allowed", way_out=fault.way_out)
    if pool.queue and not ids:
        skip_lost_ids(pool)
    last = Member.objects.filter(pool=pool).aggregate(last=Max("position"))["last"]
    first = 0 if last is None else last + 1
    # None: the settings no longer contain the class of this provider.
    provider = known_providers().get(spec.provider)
    members = Member.objects.bulk_create(
        Member(
            pk=ids[i] if ids else None,
            pool=pool,
            name=member.name,
            position=first + i,
            external_id=member.external_id,
            ports=port_range(spec, member),
            state="creating" if pool.queue else "ready",
            is_owned=provider is not None
            and provider.is_owner
            and not (provider.serves_named and member.external_id),
            spec_digest=pool.member_digest,
            spec=member.own_as_stored(),
            labels=dict(member.labels),
            deletion_cost=member.deletion_cost,
        )
        for i, member in enumerate(declared)
    )
    if spec.liveness is not None:
        Member.objects.filter(pk__in=[m.pk for m in members]).update(due_at=heartbeat_limit(spec))
    shared = SharedPorts(pool.provider, for_update=True)
    for row, member in zip(members, declared, strict=True):
        offered = offer_first(pool, spec, member, shared)
        add_slot_rows(
            pool, row, offered, ranks_of(spec.placement, row.position, offered, draw_rank)
        )
        data = {"member": member.as_config(), "slots": len(offered)}
        record(verb, pool_id=pool.pk, member_id=row.pk, after=row.state, reason=reason, data=data)
        request_sync(pool, row)
    publish("slots")
    return members


def skip_lost_ids(pool: Pool) -> None:
    """After a restore, the database has forgotten the latest ids. A new member with such an id
    would take over the object outside that has the marks of this id.
    """
    if members_sql.lacks_member_ids(pool=pool.pk):
        lock_in_transaction(MEMBER_IDS, "ids")
        members_sql.skip_member_ids(count=SKIPPED)


def add_slot_rows(
    pool: Pool, member: Member, offered: Sequence[tuple[str, int]], ranks: Sequence[int]
) -> None:
    if offered:
        members_sql.add_slots(
            pool=pool.pk,
            member=member.pk,
            lanes=[lane for lane, _ in offered],
            numbers=[number for _, number in offered],
            ranks=list(ranks),
            is_open=member_offers_slots(pool, member),
        )


def draw_rank() -> int:
    return random.randint(0, LARGEST_RANK)


def port_range(spec: PoolSpec, member: MemberSpec) -> Int4Range | None:
    span = ports_of(spec.layout, member.own)
    return None if span is None else Int4Range(span[0], span[1] + 1)


def member_offers_slots(pool: Pool, member: Member) -> bool:
    return offers_slots(
        pool_state=pool.state,
        is_paused=pool.paused_until is not None or pool.frozen_until is not None,
        member_state=member.state,
        is_cordoned=member.is_cordoned,
        is_leaving=member.is_leaving,
    )


def align_slots(pool: Pool, member: Member) -> None:
    """Open or close the member's slots, as pool and member require (I8)."""
    if not member_offers_slots(pool, member):
        members_sql.close_member(member=member.pk)
    elif members_sql.open_member(member=member.pk):
        publish("slots")


def make_slots(
    pool: Pool, member: Member, spec: PoolSpec, declared: MemberSpec, reason: str
) -> None:
    """Make the member's slots equal to its configuration. Refused while a withdrawn slot is in
    use.
    """
    rows = {(r.lane, r.number): r for r in members_sql.lock_slots(member=member.pk)}
    states = {place: row.state for place, row in rows.items()}
    shared = SharedPorts(pool.provider, for_update=True)
    offered = slots_of(spec.layout, declared.own, **shared.limits_for(member.pk, states))
    withdrawn = [
        row for place, row in rows.items() if place not in set(offered) and row.state != "retired"
    ]
    held = [row for row in withdrawn if row.state in OCCUPIED]
    if held:
        raise Refused(
            f"{len(held)} of the slots to be withdrawn from {member.name} are in use.",
            code="in_use",
            way_out="Wait until these slots are free, or release their claims first.",
            holders=[
                {
                    "claim_id": row.claim_id,
                    "slot_id": row.id,
                    "lane": row.lane,
                    "number": row.number,
                }
                for row in held
            ],
        )
    offered = places_offered(member, spec.layout, declared.own, states, shared)
    withdrawn = [
        row for place, row in rows.items() if place not in set(offered) and row.state != "retired"
    ]
    ranks = dict(
        zip(offered, ranks_of(spec.placement, member.position, offered, draw_rank), strict=True)
    )
    missing = [place for place in offered if place not in rows]
    again = [
        rows[place].id for place in offered if place in rows and rows[place].state == "retired"
    ]
    if withdrawn:
        members_sql.retire_slots(
            slots=[row.id for row in withdrawn],
            actor=current_actor(),
            reason=reason,
        )
    if again:
        members_sql.offer_slots(slots=again, actor=current_actor(), reason=reason)
    add_slot_rows(pool, member, missing, [ranks[place] for place in missing])
    align_slots(pool, member)
    if missing or again:
        publish("slots")


def rank_slots(member: Member, placement: str) -> None:
    rows = members_sql.lock_slots(member=member.pk)
    in_order = sorted(rows, key=lambda r: (r.number, r.lane))
    ranks = ranks_of(placement, member.position, [(r.lane, r.number) for r in in_order], draw_rank)
    members_sql.rank_slots(slots=[r.id for r in in_order], ranks=ranks)


def move_member(
    member: Member, state: str, verb: str, *, reason: str = "", **columns: object
) -> None:
    """Change the state of a locked member, guarded by the state that was read. Refused if the
    state machine does not declare the change.
    """
    before = member.state
    if before == state or not MEMBER.may(before, state):
        raise Conflict(
            f"Member {member.name} is {before} and cannot become {state}.",
            way_out="Reload the member.",
        )
    Member.objects.filter(pk=member.pk, state=before).update(
        state=state, state_at=Now(), changed_at=Now(), **columns
    )
    member.refresh_from_db()
    record(
        verb,
        pool_id=member.pool_id,
        member_id=member.pk,
        before=before,
        after=state,
        reason=reason,
    )


def change_member(
    member: Member,
    verb: str,
    *,
    before: str = "",
    after: str = "",
    reason: str = "",
    data: object = None,
    **columns: object,
) -> None:
    """Change columns of a member other than its state, with an event."""
    Member.objects.filter(pk=member.pk).update(changed_at=Now(), **columns)
    member.refresh_from_db()
    record(
        verb,
        pool_id=member.pool_id,
        member_id=member.pk,
        before=before,
        after=after,
        reason=reason,
        data=data,
    )


def request_sync(pool: Pool, member: Member, *, delay: float = 0.0) -> None:
    """Enqueue a sync of the member for after the commit, if the provider has a queue."""
    if pool.queue:
        add_operation(
            queue=pool.queue,
            lane=lane_of(member.pk),
            kind="sync",
            pool_id=pool.pk,
            member_id=member.pk,
            delay=delay,
        )


def lane_of(member_id: int) -> str:
    """Lane of the member's operations, which run one at a time. statements.sql builds the same
    name.
    """
    return f"member:{member_id}"


def delete_if_empty(pool: Pool, member: Member) -> str:
    """Close a leaving member, check that it is empty and make it `deleting`, in one transaction.
    Returns the member's state.
    """
    if member.state not in ("creating", "ready", "offline"):
        return member.state
    if pool.state == "deleting" and pool.unaligned_at is not None:
        return member.state  # the finalizer is still closing slots of the pool
    members_sql.close_member(member=member.pk)
    if not members_sql.is_member_empty(member=member.pk):
        return member.state
    may_be_large = pool.state == "deleting"
    if may_be_large and len(members_sql.retire_some(AT_ONCE, member=member.pk)) == AT_ONCE:
        return member.state  # another transaction retires the next slots
    move_member(member, "deleting", "delete", reason=member.note, due_at=None)
    if pool.queue:
        request_sync(pool, member)
    else:
        end_member(member)
    return member.state


def mark_leaving(pool: Pool, member: Member, reason: str) -> None:
    """Mark a member as leaving and remove it if it is empty. Pool and member are locked."""
    if member.state in ("deleting", "gone"):
        return
    if not member.is_leaving:
        change_member(
            member,
            "remove",
            before=member.state,
            after="leaving",
            reason=reason,
            is_leaving=True,
            note=reason,
        )
    delete_if_empty(pool, member)


def end_member(member: Member, reason: str = "") -> None:
    """Mark a member as gone, after the outside was confirmed as empty."""
    members_sql.retire_free(member=member.pk)
    lose_unsaved_states(member, reason)
    move_member(member, "gone", "gone", reason=reason, due_at=None, drain_until=None)
    publish("pools")


def lose_unsaved_states(member: Member, reason: str) -> None:
    """Record that Terraform states are lost, because only the agent of this member had them."""
    lost = members_sql.lose_unsaved(
        member=member.pk,
        pool=member.pool_id,
        actor=current_actor(),
        reason=reason or "its member is gone",
    )
    if lost:
        publish("events")


def refuse_unsaved(member: Member) -> None:
    if rows := members_sql.unsaved_of(members=[member.pk]):
        claims = ", ".join(str(row.claim_id) for row in rows[:5])
        raise Conflict(
            f"The agent of {member.name} has the only copy of the Terraform state of "
            f"claim {claims}.",
            code="unsaved_state",
            way_out=(
                "Wait until the agent has uploaded the state. If the agent will not return, "
                "discard the state on the page of its claim."
            ),
        )
