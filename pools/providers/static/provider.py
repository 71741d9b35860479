"""Members that somebody declares. Nothing is created outside and nothing is cleaned there: Berth
keeps the ledger.
"""

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
        """What is in the ledger is so: whoever has let go is gone."""
        draining = frozenset(slot.id for slot in member.slots if slot.state == "draining")
        return MemberReport(
            clean=draining, is_gone=member.state == "deleting", is_ready=member.state == "ready"
        )

    def look(self, pool: PoolSnapshot) -> Observation:
        """They are there because they were declared. Whether they are alive their heartbeats
        say, not this look.
        """
        return Observation(tuple(Seen(member.id) for member in pool.members))
