"""Orders to evacuate a member of a pool of ports: it is cordoned, and its claims move to other
members one at a time (mover.py), while a drain would wait for them.

The row of the evacuation is locked after the member. Each move locks it too, so an order that ends
the evacuation and a move exclude each other.
"""

from django.db import transaction

from pools.lifecycle.selectors import layout_of, lock_member, spec_of
from pools.lifecycle.services import raise_revision
from pools.models import Member, Pool
from project.kernel.actor import current_actor
from project.kernel.errors import Conflict
from project.kernel.events.notify import publish
from project.kernel.validation import moment, require_reason
from slots.members import members_sql
from slots.members.store import (
    align_slots,
    change_member,
    mark_leaving,
    refuse_unless_there,
    request_sync,
)
from slots.models import Evacuation


def evacuate_member(*, member_id: int, reason: str, stays: bool = False) -> Member:
    """Cordon a member and move its claims to other members of its pool. The empty member is
    removed; with `stays` it stays, cordoned. A repeated call replaces the reason and `stays`, and
    tries the claims again that could not move.
    """
    note = require_reason(reason)
    with transaction.atomic():
        pool, member = lock_member(member_id)
        refuse_unless_there(member)
        _refuse_evacuation(pool, member)
        before = members_sql.lock_evacuation(member=member_id)
        if before is None:
            _start(member, note, stays=stays)
        else:
            Evacuation.objects.filter(pk=member_id).update(
                by=current_actor(), reason=note, stays=stays, stuck={}, failed_in_row=0,
                due_at=moment(),
            )  # fmt: skip
        change_member(
            member,
            "evacuate",
            before="evacuating" if before else member.state,
            after="evacuating",
            reason=note,
            data={"stays": stays},
            is_cordoned=True,
            cordon_by=member.cordon_by or current_actor(),
            cordon_note=member.cordon_note if member.cordon_by else note,
            note=member.note if member.is_leaving or member.drain_until else note,
        )
        align_slots(pool, member)
        raise_revision(pool)
        publish("pools")
    return member


def stop_evacuation(pool: Pool, member: Member, reason: str = "") -> bool:
    """End the evacuation of a locked member and open it again, unless it was cordoned before or
    drains. Slots that the moving claim has left drain from now on. False: there was none.
    """
    row = members_sql.lock_evacuation(member=member.pk)
    if row is None:
        return False
    end_evacuation(pool, member)
    if not row.was_cordoned:
        stays_closed = member.drain_until is not None and not member.is_leaving
        note = member.note if stays_closed or member.is_leaving else ""
        Member.objects.filter(pk=member.pk).update(
            is_cordoned=stays_closed, cordon_by="", cordon_note="", note=note
        )
        member.refresh_from_db()
    change_member(
        member,
        "stop_evacuation",
        before="evacuating",
        after="cordoned" if member.is_cordoned else member.state,
        reason=reason.strip(),
    )
    align_slots(pool, member)
    raise_revision(pool)
    publish("pools", "slots")
    return True


def finish_evacuation(member_id: int) -> bool:
    """End the evacuation of a member that is empty, checked under its lock: the member is removed,
    or stays cordoned. True: it has ended.
    """
    with transaction.atomic():
        pool, member = lock_member(member_id)
        row = members_sql.lock_evacuation(member=member_id)
        if row is None:
            return False
        is_over = member.state in ("deleting", "gone")
        if not is_over and not members_sql.is_member_empty(member=member_id):
            return False
        end_evacuation(pool, member)
        if is_over:
            return True
        change_member(
            member,
            "evacuated",
            before="evacuating",
            after="cordoned" if row.stays else "leaving",
            reason=row.reason,
        )
        if not row.stays:
            mark_leaving(pool, member, row.reason)
        raise_revision(pool)
        publish("pools")
    return True


def end_evacuation(pool: Pool, member: Member) -> None:
    """Delete the row of a locked evacuation. Slots that the moving claim has left drain."""
    if members_sql.end_evacuation(member=member.pk, limit=spec_of(pool).drain_limit):
        request_sync(pool, member)


def _start(member: Member, note: str, *, stays: bool) -> None:
    Evacuation.objects.create(
        member_id=member.pk,
        by=current_actor(),
        reason=note,
        stays=stays,
        was_cordoned=member.is_cordoned or bool(member.cordon_by),
    )


def _refuse_evacuation(pool: Pool, member: Member) -> None:
    if layout_of(pool).ports is None:
        raise Conflict(
            f"Pool {pool.name} is no pool of ports.",
            code="no_ports",
            way_out="Drain the member: its claims may finish until the deadline.",
        )
    if pool.state == "deleting":
        raise Conflict(
            f"Pool {pool.name} is being deleted, so its members leave.",
            way_out="Create the pool again once it is deleted.",
        )
    if member.lost_at is not None:
        raise Conflict(
            f"Member {member.name} is lost: its claims have lost their slots there.",
            way_out="Remove the member.",
        )
