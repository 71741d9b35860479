"""Rows of members and slots, made and moved. For services and finalization only: the caller has
locked pool, then member.

Slot states change by named statements, member states by guarded updates; each says what it did
in an event.
"""

import random
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from django.db.models import Max
from django.db.models.expressions import Combinable
from django.db.models.functions import Now
from psycopg.types.range import Int4Range

from pools.config.layout import ports_of, slots_of
from pools.config.placement import ranks_of
from pools.config.spec import MemberSpec, PoolSpec
from pools.lifecycle.policy import offers_slots
from pools.models import Member, Pool
from pools.providers.base import explain_not_allowed, known_providers
from pools.states import MEMBER
from project.kernel.actor import current_actor
from project.kernel.errors import Conflict, Refused
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from project.kernel.outbox.operations import add_operation
from slots.members import members_sql
from slots.states import OCCUPIED

PIECE = 2_000  # slots that go in one transaction, where they are very many
LARGEST_RANK = 2**31 - 1
STAYS: dict[str, Any] = {
    "is_leaving": False,
    "drain_until": None,
    "drain_since": None,
    "drain_by": "",
}


def seconds_from_now(seconds: float) -> Combinable:
    """A moment by the database's clock."""
    return Now() + timedelta(seconds=seconds)


def staying_columns(member: Member) -> dict[str, Any]:
    """Columns of a member that neither drains nor leaves any more: cordoned as somebody ordered
    it, if somebody has, else open.
    """
    return STAYS | {"is_cordoned": bool(member.cordon_by), "note": member.cordon_note}


def staying_state(member: Member) -> str:
    """What an event says that such a member is then."""
    return "cordoned" if member.cordon_by else member.state


def refuse_unless_there(member: Member) -> None:
    if member.state in ("deleting", "gone"):
        raise Conflict(
            f"Member {member.name} is {member.state}.", way_out="Add it anew once it is gone."
        )


def add_member_rows(
    pool: Pool, spec: PoolSpec, declared: Sequence[MemberSpec], reason: str = ""
) -> list[Member]:
    """Members with all their slots, behind those that are there. A provider that has to act
    first gets an operation for each.
    """
    if not declared:
        return []
    if (fault := explain_not_allowed(pool.provider)) is not None:
        detail = f"Pool {pool.name} takes no new members. {fault.message}"
        raise Refused(detail, code="provider_not_allowed", way_out=fault.way_out)
    last = Member.objects.filter(pool=pool).aggregate(last=Max("position"))["last"]
    first = 0 if last is None else last + 1
    # None: its class was taken out of the settings, the pool is still there.
    provider = known_providers().get(spec.provider)
    members = Member.objects.bulk_create(
        Member(
            pool=pool,
            name=member.name,
            position=first + i,
            external_id=member.external_id,
            ports=port_range(spec, member),
            state="creating" if pool.queue else "ready",
            is_owned=provider is not None and provider.is_owner,
            spec_digest=pool.member_digest,
            spec=member.own_as_stored(),
            labels=dict(member.labels),
        )
        for i, member in enumerate(declared)
    )
    if spec.liveness is not None:
        Member.objects.filter(pk__in=[m.pk for m in members]).update(
            due_at=seconds_from_now(spec.liveness.heartbeat)
        )
    for row, member in zip(members, declared, strict=True):
        offered = slots_of(spec.layout, member.own)
        add_slot_rows(
            pool, row, offered, ranks_of(spec.placement, row.position, offered, draw_rank)
        )
        about = {"member": member.as_config(), "slots": len(offered)}
        record("add", pool_id=pool.pk, member_id=row.pk, after=row.state, reason=reason, data=about)
        request_sync(pool, row)
    publish("slots")
    return members


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


def align_slots(pool: Pool, member: Member) -> bool:
    """Open the member's slots or close them, as pool and member are willing now: I8 holds again.
    True: capacity opened.
    """
    if not member_offers_slots(pool, member):
        members_sql.close_member(member=member.pk)
        return False
    is_opened = bool(members_sql.open_member(member=member.pk))
    if is_opened:
        publish("slots")
    return is_opened


def make_slots(
    pool: Pool, member: Member, spec: PoolSpec, declared: MemberSpec, reason: str = ""
) -> bool:
    """The slots of a member become what it offers now. A number that is withdrawn must be free:
    nothing is moved silently.
    """
    offered = slots_of(spec.layout, declared.own)
    rows = {(r.lane, r.number): r for r in members_sql.lock_slots(member=member.pk)}
    withdrawn = [
        row for place, row in rows.items() if place not in set(offered) and row.state != "retired"
    ]
    held = [row for row in withdrawn if row.state in OCCUPIED]
    if held:
        raise Refused(
            f"{len(held)} of the slots to be withdrawn from {member.name} are in use.",
            code="in_use",
            way_out="Wait until they are free, or release them first.",
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
    return bool(withdrawn or again or missing)


def rank_slots(member: Member, placement: str) -> None:
    rows = members_sql.lock_slots(member=member.pk)
    in_order = sorted(rows, key=lambda r: (r.number, r.lane))
    ranks = ranks_of(placement, member.position, [(r.lane, r.number) for r in in_order], draw_rank)
    members_sql.rank_slots(slots=[r.id for r in in_order], ranks=ranks)


def move_member(
    member: Member, state: str, verb: str, *, reason: str = "", data: Any = None, **columns: Any
) -> None:
    """One declared move of a member, guarded by the state it was read in, under its lock."""
    before = member.state
    if before == state or not MEMBER.may(before, state):
        raise Conflict(
            f"Member {member.name} is {before}, it can't become {state}.",
            way_out="Look at it again.",
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
        data=data,
    )


def change_member(
    member: Member,
    verb: str,
    *,
    before: str = "",
    after: str = "",
    reason: str = "",
    data: Any = None,
    **columns: Any,
) -> None:
    """Columns of a member other than its state."""
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
    """Where the provider has something to do outside: it is asked to make the member equal to
    its rows, after the commit.
    """
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
    """Of operations: one writer at a time for a member. The statements write the same name."""
    return f"member:{member_id}"


def delete_if_empty(pool: Pool, member: Member) -> str:
    """A member that leaves and is empty goes: closed, found empty, `deleting`, in one
    transaction. Answers its state.
    """
    if member.state not in ("creating", "ready", "offline"):
        return member.state
    if pool.state == "deleting" and pool.unaligned_at is not None:
        return member.state  # its slots are being closed, in pieces
    members_sql.close_member(member=member.pk)
    if not members_sql.is_member_empty(member=member.pk):
        return member.state
    if pool.state == "deleting" and len(members_sql.retire_some(PIECE, member=member.pk)) == PIECE:
        return member.state  # the next piece in a transaction of its own
    move_member(member, "deleting", "delete", reason=member.note, due_at=None)
    if pool.queue:
        request_sync(pool, member)
    else:
        end_member(member)
    return member.state


def mark_leaving(pool: Pool, member: Member, reason: str) -> None:
    """In a transaction that has locked pool and member."""
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
    """It is gone: nothing of it is left outside."""
    members_sql.retire_free(member=member.pk)
    lose_unsaved_states(member, reason)
    move_member(member, "gone", "gone", reason=reason, due_at=None, drain_until=None)
    publish("pools")


def lose_unsaved_states(member: Member, reason: str) -> None:
    """The member is gone, and the only copies of these states with it."""
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
                "Wait until the agent has uploaded it. If it never will, discard the state on the "
                "page of its claim."
            ),
        )


def list_holders_of(member_ids: Iterable[int]) -> list[Any]:
    return members_sql.holders(members=list(member_ids))
