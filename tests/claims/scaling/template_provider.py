"""A provider that makes members from a template, as a cluster makes pods; it records the template
of each member, and some templates never work.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from pools.config.fields import Fields, Option
from pools.config.parsing import Described
from pools.providers.base import (
    MemberReport,
    MemberSnapshot,
    Observation,
    PoolSnapshot,
    Provider,
    Seen,
)


@dataclass
class Foundry:
    # Member -> incarnation and template it was made from.
    things: dict[int, tuple[int, str]] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)  # templates whose members are never ready
    made: list[tuple[int, int, str]] = field(default_factory=list)


class MoldProvider(Provider):
    kind: ClassVar[str] = "mold"
    queue: ClassVar[str] = "mold"
    is_owner: ClassVar[bool] = True
    option_fields: ClassVar[Fields] = Fields(
        {
            name: Option(Described({}), "")
            for name in (
                "template",
                "place",
            )
        }
    )
    rolled: ClassVar[tuple[str, ...]] = ("template",)
    world: ClassVar[Foundry] = Foundry()

    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
        if member.state == "deleting":
            self.world.things.pop(member.id, None)
            return MemberReport(is_gone=True)
        template = str(self._options(pool).get("template", ""))
        if self.world.things.get(member.id, (0, ""))[0] != member.incarnation:
            self.world.things[member.id] = (member.incarnation, template)
            self.world.made.append((member.id, member.incarnation, template))
        clean = frozenset(slot.id for slot in member.slots if slot.state == "draining")
        return MemberReport(
            clean=clean, is_ready=self._is_ready(member), external_id=f"thing-{member.id}"
        )

    def look(self, pool: PoolSnapshot) -> Observation:
        there = [m for m in pool.members if m.id in self.world.things]
        return Observation(tuple(self._see(m) for m in there))

    def _see(self, member: MemberSnapshot) -> Seen:
        is_ready = self._is_ready(member)
        why = "" if is_ready else self.world.broken[self.world.things[member.id][1]]
        return Seen(member.id, is_ready=is_ready, external_id=f"thing-{member.id}", why=why)

    def _is_ready(self, member: MemberSnapshot) -> bool:
        return self.world.things[member.id][1] not in self.world.broken

    @staticmethod
    def _options(pool: PoolSnapshot) -> Mapping[str, object]:
        return pool.options
