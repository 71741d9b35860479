"""Agents that an operator declares and starts on other machines, each with a token of its own.
Agents connect to Berth; Berth never connects to agents.
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

PATIENCE = 300.0  # seconds between two calls; the agent's first heartbeat makes the member ready


class AgentsProvider(Provider):
    kind: ClassVar[str] = "agents"
    queue: ClassVar[str] = "default"
    has_agents: ClassVar[bool] = True
    texts: ClassVar[ProviderTexts] = ProviderTexts(
        choice="an operator starts them elsewhere, each with a token",
        adding="You start each agent: the member’s page shows a token and the commands.",
        takes_claims="They take claims once their agents have connected.",
        creating="Its agent has not connected yet. Create a token and start the agent.",
    )

    @classmethod
    def describe_creation(cls, why: str) -> str:
        """The next step of the operator, because no outside system starts the agent."""
        return cls.texts.creating

    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
        """Confirm the removal of a member, whose token is rejected from then on. The agent itself
        reports draining slots as clean.
        """
        if member.state == "deleting":
            return MemberReport(is_gone=True)
        return MemberReport(
            is_ready=member.state == "ready", again=PATIENCE if member.state == "creating" else None
        )

    def look(self, pool: PoolSnapshot) -> Observation:
        """All declared members. Heartbeats, not this look, show whether their agents are alive."""
        return Observation(tuple(_observe(member) for member in pool.members))


def _observe(member: MemberSnapshot) -> Seen:
    is_here = member.state != "creating"
    return Seen(
        member.id, is_ready=is_here, why="" if is_here else "its agent has not connected yet"
    )
