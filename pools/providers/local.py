"""Agents as processes on this machine: started, found again after a restart of everything, and ended with all that they started."""

from typing import ClassVar

from pools.providers.base import Look, MemberReport, MemberSnapshot, PoolSnapshot, Provider, Seen


class LocalProvider(Provider):
    kind: ClassVar[str] = "local"
    queue: ClassVar[str] = "local"
    is_owner: ClassVar[bool] = True
    has_agents: ClassVar[bool] = True
    look_every: ClassVar[float] = 5.0

    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
        return MemberReport()

    def look(self, pool: PoolSnapshot) -> Look:
        return Look(tuple(Seen(member.id) for member in pool.members))
