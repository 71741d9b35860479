"""A pool on the fake CLB API: snapshots of its rows, calls of the provider, and the audit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pools.providers.base import (
    MemberReport,
    MemberSnapshot,
    Observation,
    PoolSnapshot,
    PortTarget,
    PortUse,
    SeenSlot,
    SlotSnapshot,
)
from pools.providers.tencent.client import ClbClient
from pools.providers.tencent.clients import transport_for
from pools.providers.tencent.provider import TencentProvider
from tests.pools.providers.memory_journal import MemoryJournal
from tests.pools.providers.tencent.clb_server import ClbServer
from tests.pools.providers.tencent.clb_world import ClbWorld, FakeBalancer
from tests.pools.providers.tencent.harness import FreePacer

INSTALLATION = "b1"
WRITES = (
    "CreateLoadBalancer", "DeleteLoadBalancer", "CreateListener", "DeleteLoadBalancerListeners",
    "BatchRegisterTargets", "BatchDeregisterTargets",
)  # fmt: skip
# Protocol, first port, last port, targets.
Shape = tuple[str, int, int, tuple[tuple[str, int], ...]]


def tcp(ip: str = "", port: int = 80) -> PortUse:
    return PortUse("tcp", PortTarget(ip, port) if ip else None)


def udp(ip: str = "", port: int = 80) -> PortUse:
    return PortUse("udp", PortTarget(ip, port) if ip else None)


def slot(lane: str, number: int, state: str = "held", use: PortUse | None = None) -> SlotSnapshot:
    identity = number * 10 + ("tcp", "udp").index(lane)
    return SlotSnapshot(identity, lane, number, state, generation=1, use=use)


@dataclass
class Scene:
    world: ClbWorld
    server: ClbServer
    name: str = "games"
    pool_id: int = 7
    ports: tuple[int, int] = (30000, 30999)
    segment: int = 1
    is_precreated: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    place: str = ""

    def pool(self, *members: MemberSnapshot) -> PoolSnapshot:
        given = {"region": self.world.region, "endpoint": self.server.endpoint, **self.options}
        return PoolSnapshot(
            id=self.pool_id,
            name=self.name,
            provider="tencent",
            options=given,
            members=members,
            installation=INSTALLATION,
            place=self.place,
            ports=self.ports,
            segment=self.segment,
            is_precreated=self.is_precreated,
        )

    def new_member(self, number: int = 1) -> MemberSnapshot:
        return MemberSnapshot(number, f"m{number}", "creating", is_owned=True)

    def add_member(self, number: int = 1) -> MemberSnapshot:
        """A ready member on a load balancer that Berth created."""
        member = self.new_member(number)
        report = self.sync(member)
        assert report.is_ready and report.external_id
        return replace(member, state="ready", external_id=report.external_id)

    def use_existing(self, balancer: FakeBalancer, number: int = 1) -> MemberSnapshot:
        return MemberSnapshot(number, f"m{number}", "ready", external_id=balancer.id)

    def sync(
        self, member: MemberSnapshot, slots: Iterable[SlotSnapshot] | None = None
    ) -> MemberReport:
        if slots is not None:
            member = replace(member, slots=tuple(slots))
        return TencentProvider().sync(self.pool(member), member)

    def look(self, *members: MemberSnapshot) -> Observation:
        return TencentProvider().look(self.pool(*members))

    def client(self) -> ClbClient:
        pool = self.pool()
        return ClbClient(transport_for(pool), FreePacer(), MemoryJournal(), pool, 0.0)

    def remove_strays(self, members: Sequence[int], *there: MemberSnapshot) -> None:
        TencentProvider().remove_strays(self.pool(*there), members)

    def shapes(self, balancer: str) -> list[Shape]:
        """The listeners of a load balancer that have Berth's names."""
        found = self.world.balancers[balancer].listeners.values()
        return sorted(
            (each.protocol, each.port, each.end, tuple(sorted(each.targets)))
            for each in found
            if each.name.startswith("berth-")
        )

    def audit_foreign(self, before: Mapping[str, Any], foreign: Iterable[str]) -> None:
        """No write named an object of another program, and all of them are as before."""
        names = set(foreign)
        for call in self.world.log:
            if call.action in WRITES:
                assert not names & set(_texts_in(call.parameters)), call
        after = self.world.state()
        assert {name: after[name] for name in before} == before


def _texts_in(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts_in(each)


def seen_at(slots: Iterable[SeenSlot] | None, lane: str, number: int) -> SeenSlot:
    (found,) = [each for each in slots or () if (each.lane, each.number) == (lane, number)]
    return found
