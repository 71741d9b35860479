"""Declared members. Berth records the holders of slots and changes no object outside."""

from typing import ClassVar

from pools.providers.base import (
    MemberReport,
    MemberSnapshot,
    Observation,
    PoolSnapshot,
    Provider,
    Seen,
)
from pools.providers.display import ProviderTexts


class StaticProvider(Provider):
    kind: ClassVar[str] = "static"
    texts: ClassVar[ProviderTexts] = ProviderTexts(
        choice="Berth only records who holds which slot",
        adding="Berth creates nothing: the members exist already.",
        takes_claims="They take claims at once.",
        creating="Not ready yet.",
    )

    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
        """Confirm the rows: a released slot is clean, a deleted member is gone."""
        draining = frozenset(slot.id for slot in member.slots if slot.state == "draining")
        return MemberReport(
            clean=draining, is_gone=member.state == "deleting", is_ready=member.state == "ready"
        )

    def look(self, pool: PoolSnapshot) -> Observation:
        """All declared members. Heartbeats, not this look, show whether the members are alive."""
        return Observation(tuple(Seen(member.id) for member in pool.members))
