"""Agents that somebody declares and starts elsewhere, each with a token of its own. They call
us; we never reach out to them.
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

PATIENCE = 300.0  # seconds: nothing here makes an agent come, its first word makes it ready


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
        """Always what a person has to do: nothing outside brings the agent."""
        return cls.texts.creating

    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
        """A slot that drains is clean once the agent says that nothing runs there. One that is
        to go goes: its token opens nothing.
        """
        if member.state == "deleting":
            return MemberReport(is_gone=True)
        return MemberReport(
            is_ready=member.state == "ready", again=PATIENCE if member.state == "creating" else None
        )

    def look(self, pool: PoolSnapshot) -> Observation:
        """They are there because they were declared. Whether they are alive their heartbeats
        say, not this look.
        """
        return Observation(tuple(_observe(member) for member in pool.members))


def _observe(member: MemberSnapshot) -> Seen:
    is_here = member.state != "creating"
    return Seen(member.id, is_ready=is_here, why="" if is_here else "its agent has not come yet")
