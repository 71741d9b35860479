"""Slots as a provider sees them outside, compared with their rows. The result is kept in
`Slot.observed`; the doctor lists missing and foreign slots (I42).
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from pools.providers.base import MemberReport, MemberSnapshot, Observation, SeenSlot
from slots.models import Slot

Place = tuple[str, int]


def judge_slot(state: str, seen: SeenSlot | None) -> dict[str, object]:
    """What `Slot.observed` says of a slot. An empty place is missing only while a claim holds the
    slot.
    """
    if seen is not None:
        presence = "foreign" if seen.is_foreign else "present"
        return {**seen.attributes, "presence": presence}
    return {"presence": "missing"} if state in ("held", "reserved") else {}


def record_observed_slots(look: Observation, started: datetime) -> None:
    """Compare the slots that the look reports. A slot that changed after the look began waits for
    the next look.
    """
    seen = {each.member_id: each.slots for each in look.seen if each.slots is not None}
    if seen:
        _record(Slot.objects.filter(member_id__in=seen, changed_at__lt=started), seen)


def record_reported_slots(member: MemberSnapshot, report: MemberReport) -> None:
    """Compare the slots of a sync, in the generations that the provider got: a later holder is not
    affected.
    """
    if report.slots is not None:
        generations = {slot.id: slot.generation for slot in member.slots}
        rows = Slot.objects.filter(member_id=member.id, pk__in=generations)
        _record(
            (row for row in rows if row.generation == generations[row.pk]),
            {member.id: report.slots},
        )


def _record(rows: Iterable[Slot], seen: Mapping[int, Sequence[SeenSlot]]) -> None:
    places: dict[int, dict[Place, SeenSlot]] = {
        member_id: {(slot.lane, slot.number): slot for slot in slots}
        for member_id, slots in seen.items()
    }
    for row in rows:
        observed = judge_slot(row.state, places[row.member_id].get((row.lane, row.number)))
        if observed != row.observed:
            # The holder may have changed since the row was read.
            Slot.objects.filter(pk=row.pk, generation=row.generation, state=row.state).update(
                observed=observed
            )
