"""What the claims of a port pool want of their listeners. Slots know no claims, so the claims
register the function that reads it.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from pools.config.layout import ENCRYPTED
from pools.providers.base import MemberSnapshot, PoolSnapshot, PortUse, default_certificate

# The uses of held and reserved slots by the id of the slot. A slot that it leaves out is left as it
# is outside.
UseReader = Callable[[Collection[int]], Mapping[int, PortUse]]

_readers: list[UseReader] = []


def register_use_reader(reader: UseReader) -> UseReader:
    _readers.append(reader)
    return reader


def read_uses(slots: Collection[int]) -> dict[int, PortUse]:
    """The uses of held and reserved ports by the id of the slot, as their claims name them."""
    uses: dict[int, PortUse] = {}
    for read in _readers if slots else ():
        uses |= read(slots)
    return uses


def read_pool_uses(pool: PoolSnapshot, slots: Collection[int]) -> Mapping[int, PortUse]:
    """The uses of ports of a pool, with the certificate of the pool where a claim names none."""
    uses = read_uses(slots)
    if certificate := default_certificate(pool.provider, pool.options):
        for slot, use in uses.items():
            if use.protocol in ENCRYPTED and not use.certificate:
                uses[slot] = replace(use, certificate=certificate)
    return uses


def with_uses(pool: PoolSnapshot, member: MemberSnapshot) -> MemberSnapshot:
    """The member with the use of each held and reserved port. Reads only for pools of ports."""
    if pool.ports is None:
        return member
    uses = read_pool_uses(
        pool, [slot.id for slot in member.slots if slot.state in ("held", "reserved")]
    )
    slots = tuple(
        replace(slot, use=uses[slot.id]) if slot.id in uses else slot for slot in member.slots
    )
    return replace(member, slots=slots)
