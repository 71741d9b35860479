"""Foreign listeners on the members of port pools. Each takes its number, and a place in the quota
of its member, also outside of the pool's range.
"""

from collections.abc import Iterable, Mapping

from django.db import transaction

from pools.lifecycle.selectors import layout_of, lock_member, member_spec_of, spec_of
from pools.models import Member
from slots.members.offer import SharedPorts, places_offered
from slots.members.store import make_slots
from slots.models import Slot

REASON = "its number or its place in the quota has a foreign listener"

Place = tuple[str, int]  # lane and number


def record_foreign_listeners(seen: Mapping[int, Iterable[Place]]) -> None:
    """Withdraw the free slots for which the foreign listeners leave no room, and offer slots again
    once the listeners are gone. Slots that claims use do not change. A listener of another member
    on the same address is not foreign.
    """
    known = {m.pk: m for m in Member.objects.select_related("pool").filter(pk__in=seen)}
    shared: dict[str, SharedPorts] = {}
    for member_id, member in known.items():
        if layout_of(member.pool).ports is None:
            continue
        found, ports = sorted(seen[member_id]), None
        if found:
            provider = member.pool.provider
            ports = shared[provider] = shared.get(provider) or SharedPorts(provider)
            found = sorted(set(found) - ports.list_others(member_id))
        before = [(lane, number) for lane, number in member.foreign_listeners]
        # A claim may have left a slot that the quota has no room for.
        if found != before or (found and ports and _differs(member, ports)):
            _change(member_id, found)


def _differs(member: Member, ports: SharedPorts) -> bool:
    rows = Slot.objects.filter(member_id=member.pk).exclude(state="retired")
    places = {(row.lane, row.number): row.state for row in rows}
    layout = layout_of(member.pool)
    own = member_spec_of(member, layout).own
    return set(places) != set(places_offered(member, layout, own, places, ports))


def _change(member_id: int, found: list[Place]) -> None:
    with transaction.atomic():
        pool, member = lock_member(member_id)
        spec = spec_of(pool)
        if member.state not in ("creating", "ready", "offline"):
            return
        member.foreign_listeners = found
        member.save(update_fields=["foreign_listeners"])
        if member.lost_at is None:
            declared = member_spec_of(member, spec.layout)
            make_slots(pool, member, spec, declared, REASON if found else "its place is free again")
