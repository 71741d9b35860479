"""A provider of load balancers for tests, over a world in memory: it makes listeners equal to the
uses of the ports, and reports them with their targets and health.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from pools.lifecycle.services import create_pool
from pools.models import Pool
from pools.providers.base import (
    MemberReport,
    MemberSnapshot,
    Observation,
    PoolSnapshot,
    PortTarget,
    PortUse,
    Provider,
    Seen,
    SeenSlot,
)
from project.kernel.outbox.operations import perform_due
from slots.sync.watcher import observe_pool

Place = tuple[int, str, int]  # member, lane and number
NETWORKS = {"networks": ["10.0.0.0/16", "2001:db8::/32"], "ports": "1-65535"}


@dataclass
class Quay:
    listeners: dict[Place, PortUse] = field(default_factory=dict)
    health: str = "healthy"  # of listeners with a target
    problems: dict[int, str] = field(default_factory=dict)  # by number
    missing: set[int] = field(default_factory=set)  # numbers without a listener
    is_checked: bool = True
    host: str = "lb.example"
    given: list[PortUse | None] = field(default_factory=list)  # of each held port
    made: set[int] = field(default_factory=set)  # ids of the members that exist


class QuayProvider(Provider):
    kind: ClassVar[str] = "quay"
    queue: ClassVar[str] = "quay"
    is_owner: ClassVar[bool] = True
    world: ClassVar[Quay] = Quay()

    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
        world = self.world
        world.made.add(member.id)
        for slot in member.slots:
            place = (member.id, slot.lane, slot.number)
            if slot.state in ("held", "reserved"):
                world.given.append(slot.use)
                if slot.use is not None:
                    world.listeners[place] = slot.use
            elif pool.is_precreated and slot.state != "retired":
                world.listeners[place] = PortUse(slot.lane)
            else:
                world.listeners.pop(place, None)
        return MemberReport(
            clean=frozenset(slot.id for slot in member.slots if slot.state == "draining"),
            is_gone=member.state == "deleting",
            is_ready=True,
            external_id=f"lb-{member.id}",
            addresses=(f"{member.name}.{world.host}",),
            slots=self.see(member.id),
        )

    def see(self, member: int) -> tuple[SeenSlot, ...]:
        world = self.world
        found = []
        for (owner, lane, number), use in world.listeners.items():
            if owner != member or number in world.missing:
                continue
            seen: dict[str, object] = {"id": f"{lane}-{number}", "protocol": use.protocol}
            if use.target is not None:
                seen["target"] = write(use.target)
            if not world.is_checked:
                seen["health"] = "unchecked"
            elif use.target is not None:
                seen["health"] = world.health
            if number in world.problems:
                seen["problem"] = world.problems[number]
            found.append(SeenSlot(lane, number, seen))
        return tuple(found)

    def look(self, pool: PoolSnapshot) -> Observation:
        return Observation(
            tuple(
                Seen(m.id, external_id=m.external_id, slots=self.see(m.id))
                for m in pool.members
                if m.id in self.world.made
            )
        )


def write(target: PortTarget) -> str:
    return f"[{target.ip}]:{target.port}" if ":" in target.ip else f"{target.ip}:{target.port}"


PROVIDERS = (
    "pools.providers.static.provider.StaticProvider",
    "tests.claims.ports.quay.QuayProvider",
)


def make_quay(name: str = "lb", members: Any = 1, **more: Any) -> Pool:
    """`members`: how many, or the field of the configuration."""
    slots = more.pop("slots", {"ports": "30000-30009", "protocols": ["tcp", "udp"]})
    pool = create_pool(
        {
            "name": name,
            "provider": "quay",
            "slots": slots,
            "backends": NETWORKS,
            "certificates": ["cert-1", "cert-2"],
            "members": {"list": [f"{name}{i}" for i in range(members)]}
            if isinstance(members, int)
            else members,
            **more,
        }
    )
    work(pool)
    return pool


def work(*pools: Pool) -> None:
    """The workers perform all that is due, and the watcher looks at the pools."""
    while perform_due("quay"):
        pass
    for pool in pools:
        observe_pool(Pool.objects.get(pk=pool.pk))
