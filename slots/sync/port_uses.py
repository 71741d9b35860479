"""What the claims of a port pool want of their listeners. Slots know no claims, so the claims
register the function that reads it.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from pools.providers.base import MemberSnapshot, PoolSnapshot, PortUse

# The uses of held and reserved slots by the id of the slot. A slot that it leaves out is left as it
# is outside.
UseReader = Callable[[Collection[int]], Mapping[int, PortUse]]

_readers: list[UseReader] = []


def register_use_reader(reader: UseReader) -> UseReader:
    _readers.append(reader)
    return reader


def read_uses(slots: Collection[int]) -> Mapping[int, PortUse]:
    """The uses of held and reserved ports by the id of the slot."""
    uses: dict[int, PortUse] = {}
    for read in _readers if slots else ():
        uses |= read(slots)
    return uses


def with_uses(pool: PoolSnapshot, member: MemberSnapshot) -> MemberSnapshot:
    """The member with the use of each held and reserved port. Reads only for pools of ports."""
    if pool.ports is None:
        return member
    uses = read_uses([slot.id for slot in member.slots if slot.state in ("held", "reserved")])
    slots = tuple(
        replace(slot, use=uses[slot.id]) if slot.id in uses else slot for slot in member.slots
    )
    return replace(member, slots=slots)
