"""Drains of members (P8).

A draining member gets no new claims. Its claims may finish until the deadline and are evicted
afterwards (claims.lifecycle.drain). An empty member is removed, or stays cordoned. The deadline is
a column of the member, so any finalizer evicts, and repeats the eviction until the member is empty.
A forced drain has an immediate deadline. Undrain and eviction both lock the member's row, so a
drain that is cancelled first evicts no claim.
"""

from datetime import datetime, timedelta

from django.db import transaction

from pools.lifecycle.selectors import lock_member, spec_of
from pools.lifecycle.services import raise_revision
from pools.models import Member, Pool
from project.kernel.actor import current_actor
from project.kernel.errors import Conflict
from project.kernel.events.notify import publish
from project.kernel.validation import moment, require_future, require_reason
from slots.members import members_sql
from slots.members.services import Removal, report_removal, take_back
from slots.members.store import (
    STAYS,
    align_slots,
    change_member,
    delete_if_empty,
    is_draining,
    refuse_unless_there,
)

MAX_DRAIN = timedelta(days=30)
STUCK_AFTER = 60.0  # seconds past its deadline after which a drain counts as stuck
OVERDUE = "the drain deadline has passed; work that may still run there ends with the member"


def drain_member(
    *,
    member_id: int,
    reason: str,
    until: datetime | None = None,
    force: bool = False,
    stays: bool | None = None,
) -> Removal:
    """Drain a member, or change the deadline, reason or end of its drain.

    `until` is the deadline; without it the drain limit of the pool applies. `force` makes the
    deadline immediate. An empty member is removed; with `stays` it is cordoned instead. Without
    `stays`, a repeated call keeps the end that was ordered before.
    """
    note = require_reason(reason)
    with transaction.atomic():
        pool, member = lock_member(member_id)
        refuse_unless_there(member)
        if stays is None:
            is_resting = member.drain_until is not None and not member.is_leaving
            stays = is_resting and pool.state != "deleting"
        if stays and pool.state == "deleting":
            raise Conflict(
                f"Pool {pool.name} is being deleted, so its members leave.",
                way_out="Drain the member without 'stays'.",
            )
        if until is not None and not force:
            require_future(
                until, MAX_DRAIN, "30 days", "Choose a nearer time, or cordon the member."
            )
        _start(
            pool,
            member,
            note,
            _deadline(pool, member, until, force=force),
            force=force,
            stays=stays,
        )
        if member.is_leaving:
            delete_if_empty(pool, member)
        else:
            _finish_if_empty(member)
        return report_removal(member)


def undrain_member(*, member_id: int, reason: str = "") -> Member:
    """Cancel the drain of a member that is still there. A member that was also cordoned by order
    stays cordoned. Claims that were evicted stay evicted.
    """
    return take_back(member_id, "undrain", "draining", is_draining, reason)


def finish_drain(member_id: int) -> bool:
    """End the drain of a member that is empty, checked under its lock. True: the drain has ended.

    A leaving member also ends when only slots are left that do not come clean, once the deadlines
    of the member and of these slots have passed.
    """
    with transaction.atomic():
        pool, member = lock_member(member_id)
        if member.drain_until is None or member.state in ("deleting", "gone"):
            return False
        if not member.is_leaving:
            return _finish_if_empty(member)
        rows = members_sql.occupied(member=member.pk)
        if rows:
            if member.drain_until > moment() or not all(
                row.state == "draining" and row.is_overdue for row in rows
            ):
                return False
            members_sql.retire_slots(
                slots=[row.id for row in rows], actor=current_actor(), reason=OVERDUE
            )
        return delete_if_empty(pool, member) in ("deleting", "gone")


def list_stuck() -> list[members_sql.StuckDrainsRow]:
    return members_sql.stuck_drains(50, over=STUCK_AFTER)


def _deadline(pool: Pool, member: Member, until: datetime | None, *, force: bool) -> datetime:
    now = moment()
    if force:
        return now
    if until is not None:
        return until
    return member.drain_until or now + timedelta(seconds=spec_of(pool).drain_limit)


def _start(
    pool: Pool, member: Member, note: str, until: datetime, *, force: bool, stays: bool
) -> None:
    # The previous release stored a cordon without its actor.
    if member.is_cordoned and not member.cordon_by and not is_draining(member):
        Member.objects.filter(pk=member.pk).update(cordon_by="system", cordon_note=member.note)
        member.refresh_from_db()
    change_member(
        member,
        "force_drain" if force else "drain",
        before="draining" if is_draining(member) else member.state,
        after="draining",
        reason=note,
        data={"until": until, "stays": stays},
        drain_until=until,
        drain_by=current_actor(),
        drain_since=member.drain_since or moment(),
        note=note,
        is_leaving=not stays,
        is_cordoned=stays or bool(member.cordon_by),
    )
    align_slots(pool, member)
    raise_revision(pool)
    publish("pools")


def _finish_if_empty(member: Member) -> bool:
    """Cordon the member if it is empty. Expects its row locked and its slots closed."""
    if not members_sql.is_member_empty(member=member.pk):
        return False
    # An order to cordon the member is kept; else the drain's actor and reason become the order.
    ordered = (
        {"note": member.cordon_note}
        if member.cordon_by
        else {"cordon_by": member.drain_by or current_actor(), "cordon_note": member.note}
    )
    change_member(
        member,
        "drained",
        before="draining",
        after="cordoned",
        reason=member.note,
        **STAYS,
        **ordered,
    )
    publish("pools")
    return True
