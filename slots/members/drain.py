"""Draining: a member takes nothing new, who is there may finish, and past a deadline they are
put out (P8).

It goes once it is empty, or stays, cordoned, for whoever empties it to come back to. The deadline
is the order to put out: it stands in the row, so it is carried out by whoever finds it, again until
it is done. Force is a deadline that is now. What becomes of claims then is known above
(claims.lifecycle.drain); what is taken back before that is done stays so, because both need the
member's row.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from pools.lifecycle.selectors import lock_member, spec_of
from pools.lifecycle.services import raise_revision
from pools.models import Member, Pool
from project.kernel.actor import current_actor
from project.kernel.errors import Conflict
from project.kernel.events.notify import publish
from project.kernel.validation import moment, require_future, require_reason
from slots.members import members_sql
from slots.members.services import Removal, view_holders
from slots.members.store import (
    STAYS,
    align_slots,
    change_member,
    delete_if_empty,
    refuse_unless_there,
    staying_columns,
    staying_state,
)

LONGEST = timedelta(days=30)
HANGS = 60.0  # seconds past its deadline after which a drain is worth a look
OVER = "past its deadline: what may still run there goes with it"


@dataclass(frozen=True, slots=True)
class StuckDrain:
    """A member that should be empty by now."""

    member_id: int
    name: str
    pool: str
    over_for: float  # seconds
    held: int  # slots
    draining: int
    note: str
    by: str
    pool_id: int


def drain_member(
    *,
    member_id: int,
    reason: str,
    until: datetime | None = None,
    force: bool = False,
    stays: bool | None = None,
) -> Removal:
    """Nothing new comes, and past `until` (left out: as long as the pool lets a drain take) who is
    there is put out. `force`: at once. It goes once it is empty; `stays`: it is cordoned then,
    until somebody opens it. Said again it has another deadline, reason or end; left out, the end
    stays what it was."""
    note = require_reason(reason)
    with transaction.atomic():
        pool, member = lock_member(member_id)
        refuse_unless_there(member)
        if stays is None:
            stays = is_resting(member) and pool.state != "deleting"
        if stays and pool.state == "deleting":
            raise Conflict(
                f"Pool {pool.name} is being deleted, so its members leave.",
                way_out="Drain it without staying.",
            )
        if until is not None and not force:
            require_future(until, LONGEST, "30 days", "Choose a nearer time, or cordon it.")
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
        return Removal(member.pk, member.state, view_holders(member.pk))


def undrain_member(*, member_id: int, reason: str = "") -> Member:
    """It takes claims again, as long as it has not gone; one that was cordoned apart from its drain
    is cordoned as it was. Who was put out before stays so."""
    with transaction.atomic():
        pool, member = lock_member(member_id)
        if pool.state in ("deleting", "gone"):
            raise Conflict(
                f"Pool {pool.name} is being deleted, so its members leave.",
                way_out="Make the pool anew once it is gone.",
            )
        refuse_unless_there(member)
        if is_draining(member):
            change_member(
                member,
                "undrain",
                before="draining",
                after=staying_state(member),
                reason=reason.strip(),
                **staying_columns(member),
            )
            raise_revision(pool)
            publish("pools")
        align_slots(pool, member)
    return member


def is_draining(member: Member) -> bool:
    return member.is_leaving or member.drain_until is not None


def is_resting(member: Member) -> bool:
    """It drains, and stays."""
    return member.drain_until is not None and not member.is_leaving


def finish_drain(member_id: int) -> bool:
    """The finalizer found nobody there; it is looked at again here, under its lock. What does not
    come clean is not waited for for ever: past both deadlines a member that goes takes it along.
    True: the drain is over."""
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
                slots=[row.id for row in rows], actor=current_actor(), reason=OVER
            )
        return delete_if_empty(pool, member) in ("deleting", "gone")


def list_overdue(limit: int) -> list[int]:
    """Members past their deadline that claims still hold."""
    return [row.id for row in members_sql.overdue_with_holders(limit)]


def list_finishable(limit: int) -> list[int]:
    return [row.id for row in members_sql.finishable_drains(limit)]


def lock_overdue(member_id: int) -> Any | None:
    """In the transaction that puts somebody out: the member, if its deadline has passed and
    nobody has taken it back.
    """
    return members_sql.lock_overdue(member=member_id)


def list_stuck(limit: int = 50) -> list[StuckDrain]:
    rows = members_sql.stuck_drains(limit, over=HANGS)
    return [
        StuckDrain(
            r.id, r.name, r.pool, r.over_for, r.held, r.draining, r.note, r.drain_by, r.pool_id
        )
        for r in rows
    ]


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
    # By the release before, which kept no more of it.
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
    """Under its lock, its slots closed: it stays, and somebody opens it again."""
    if not members_sql.is_member_empty(member=member.pk):
        return False
    # Somebody cordoned it apart from this: that order is not replaced by the drain's.
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
