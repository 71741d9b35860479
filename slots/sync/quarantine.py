"""Quarantine: a slot that no claim gets until a person ends that, for example because a foreign
object keeps coming back to its place. A claim that holds the slot keeps it.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from pools.models import Member, Pool
from project.kernel.actor import current_actor
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from project.kernel.validation import require_reason
from slots.members import members_sql
from slots.members.store import align_slots, lock_slot, refuse_unless_there
from slots.models import Quarantine, Slot


@dataclass(frozen=True, slots=True)
class QuarantinedSlot:
    slot_id: int
    member_id: int
    member: str
    lane: str
    number: int
    claim_id: int | None  # it keeps the slot
    reason: str
    by: str
    since: datetime


def quarantine_slot(*, slot_id: int, reason: str) -> bool:
    """Take a slot out of allocation. False: it is in quarantine already."""
    note = require_reason(reason)
    with transaction.atomic():
        pool, member, slot = lock_slot(slot_id)
        refuse_unless_there(member)
        if not members_sql.quarantine_slot(
            slot=slot_id, pool=pool.pk, reason=note, by=current_actor()
        ):
            return False
        _record(pool, member, slot, "quarantine", note)
    return True


def end_quarantine(*, slot_id: int, reason: str) -> bool:
    """Offer a slot again, as far as pool and member offer slots. False: it is in no quarantine."""
    with transaction.atomic():
        pool, member, slot = lock_slot(slot_id)
        if not members_sql.end_quarantine(slot=slot_id):
            return False
        align_slots(pool, member)
        _record(pool, member, slot, "end_quarantine", reason.strip())
        publish("slots")
    return True


def list_quarantined(pool_ids: Collection[int]) -> list[QuarantinedSlot]:
    """In the order of members and numbers. Slots of members that are gone are left out."""
    facts = {each.slot_id: each for each in Quarantine.objects.filter(pool_id__in=pool_ids)}
    rows = Slot.objects.filter(pk__in=facts).exclude(member__state="gone").select_related("member")
    return [
        QuarantinedSlot(
            slot_id=row.pk,
            member_id=row.member_id,
            member=row.member.name,
            lane=row.lane,
            number=row.number,
            claim_id=row.claim_id,
            reason=facts[row.pk].reason,
            by=facts[row.pk].by_user,
            since=facts[row.pk].at,
        )
        for row in rows.order_by("pool", "member__position", "member", "number", "lane")
    ]


def find_quarantine(slot_id: int) -> Quarantine | None:
    return Quarantine.objects.filter(slot_id=slot_id).first()


def _record(pool: Pool, member: Member, slot: Slot, verb: str, reason: str) -> None:
    record(verb, pool_id=pool.pk, member_id=member.pk, slot_id=slot.pk, reason=reason)
