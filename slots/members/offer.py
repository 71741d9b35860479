"""Lane and number of the slots that a member offers: those of its configuration, beside foreign
listeners, and beside the ports of other members on the same address.
"""

from collections.abc import Collection, Mapping
from typing import TypedDict

from pools.config.layout import Layout, OwnSlots, ports_of, segments_of, slots_of
from pools.config.spec import MemberSpec, PoolSpec
from pools.models import Member, Pool
from pools.providers.base import known_providers
from project.kernel.db.locks import SHARED_PORTS, lock_in_transaction
from project.kernel.errors import Refused
from slots.members import members_sql
from slots.states import OCCUPIED

Place = tuple[str, int]  # lane and number


class OfferLimits(TypedDict):
    """Arguments of `slots_of` about the members that share an address."""

    taken: Collection[Place]
    kept: Collection[Place]


def shares_address(provider: str) -> bool:
    """Whether members of this provider listen on one address."""
    known = known_providers().get(provider)
    return known is not None and known.shares_address()


class SharedPorts:
    """The ports of the members of a provider, if all of them listen on one address. A member keeps
    the ports that it offers, and a new member gets the next ones.
    """

    def __init__(self, provider: str, *, for_update: bool = False) -> None:
        self.is_shared = shares_address(provider)
        if self.is_shared and for_update:
            lock_in_transaction(SHARED_PORTS, provider)
        self.rows = members_sql.shared_ports(provider=provider) if self.is_shared else []

    def list_others(self, member_id: int | None) -> set[Place]:
        """Lane and number of the ports of all other members."""
        return {
            (row.lane, row.number + i)
            for row in self.rows
            if row.member_id != member_id
            for i in range(row.step)
        }

    def limits_for(self, member_id: int, states: Mapping[Place, str]) -> OfferLimits:
        if not self.is_shared:
            return {"taken": (), "kept": ()}
        used = {place for place, state in states.items() if state in OCCUPIED}
        kept = [place for place, state in states.items() if state != "retired"]
        return {"taken": self.list_others(member_id) - used, "kept": kept}


def places_offered(
    member: Member,
    layout: Layout,
    own: OwnSlots,
    states: Mapping[Place, str],
    shared: SharedPorts,
) -> list[Place]:
    """Lane and number of the slots of a member, beside the foreign listeners that its provider
    sees. `states`: of its present slots; those that claims use stay.
    """
    seen = [(lane, number) for lane, number in member.foreign_listeners]
    occupied = [place for place, state in states.items() if state in OCCUPIED] if seen else []
    limits = shared.limits_for(member.pk, states)
    return slots_of(layout, own, seen=seen, occupied=occupied, **limits)


def offer_first(pool: Pool, spec: PoolSpec, member: MemberSpec, shared: SharedPorts) -> list[Place]:
    """The first slots of a new member, whose rows do not exist yet."""
    if not shared.is_shared:
        return slots_of(spec.layout, member.own)
    others = SharedPorts(pool.provider).list_others(None)  # also of members of this call
    if offered := slots_of(spec.layout, member.own, taken=others):
        return offered
    first, last = ports_of(spec.layout, member.own) or (0, 0)
    raise Refused(
        f"{member.name} would offer no port: other members of {pool.provider} pools use all of "
        f"{first}-{last} on the address that they share.",
        code="no_free_ports",
        way_out="Choose a wider range of ports, or give each member an address of its own.",
    )


def count_hosted(provider: str, layout: Layout, lanes: Collection[str], each: int) -> int | None:
    """How many more members, with so many slots each, the range of a pool has ports for. None: the
    members share no address.
    """
    span, shared = ports_of(layout), SharedPorts(provider)
    if not shared.is_shared or span is None or layout.ports is None:
        return None
    numbers = segments_of(*span, layout.ports.segment)
    used = sum(
        row.lane in lanes and span[0] - row.step < row.number <= span[1] for row in shared.rows
    )
    declared = sum(span[0] <= port <= span[1] for port in layout.ports.foreign)
    free = (len(numbers) - declared) * len(lanes) - used
    return max(0, -(-free // max(1, each)))
