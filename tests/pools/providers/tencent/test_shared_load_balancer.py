"""A load balancer that the user owns, two pools on it, and listeners of other programs."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from pools.providers.base import MemberSnapshot
from project.kernel.outbox.operations import Misconfigured
from tests.pools.providers.tencent.clb_world import FakeBalancer
from tests.pools.providers.tencent.scene import Scene, Shape, seen_at, slot, tcp, udp


@dataclass
class Shared:
    first: Scene
    second: Scene
    balancer: FakeBalancer
    member: MemberSnapshot
    other: MemberSnapshot
    before: dict[str, Any]  # listeners of other programs

    def shapes_of(self, member: MemberSnapshot) -> list[Shape]:
        return sorted(
            (each.protocol, each.port, each.end, tuple(each.targets))
            for each in self.balancer.listeners.values()
            if f"-m{member.id}-" in each.name
        )

    def foreign(self) -> dict[str, Any]:
        return {
            name: (each.protocol, each.port, each.name, dict(each.targets))
            for name, each in self.balancer.listeners.items()
            if not each.name.startswith("berth-")
        }


@pytest.fixture
def shared(scene: Scene) -> Iterator[Shared]:
    world = scene.world
    balancer = world.add_balancer({"owner": "web"})
    world.add_listener(balancer.id, "HTTPS", 443)
    world.add_listener(balancer.id, "TCP", 30001, name="TKE-LISTENER")
    second = replace(scene, name="voice", pool_id=8)
    shared = Shared(
        scene,
        second,
        balancer,
        scene.use_existing(balancer, 1),
        second.use_existing(balancer, 2),
        {},
    )
    shared.before = shared.foreign()
    yield shared
    assert shared.foreign() == shared.before, "listeners of other programs stay as they are"
    assert balancer.id in world.balancers and balancer.tags == {"owner": "web"}


def test_pools_and_other_programs_leave_each_other_alone(shared: Shared) -> None:
    shared.first.sync(shared.member, [slot("tcp", 30000, use=tcp("10.0.0.1"))])
    shared.second.sync(shared.other, [slot("udp", 31000, use=udp("10.0.0.2"))])
    report = shared.first.sync(shared.member, [slot("tcp", 30000, use=tcp("10.0.0.1"))])
    assert shared.shapes_of(shared.member) == [("TCP", 30000, 30000, (("10.0.0.1", 80),))]
    assert shared.shapes_of(shared.other) == [("UDP", 31000, 31000, (("10.0.0.2", 80),))]
    foreign = {(each.lane, each.number) for each in report.slots or () if each.is_foreign}
    assert foreign == {("tcp", 443), ("tcp", 30001), ("udp", 31000)}


def test_deletion_of_one_pool_removes_its_own_listeners_only(shared: Shared) -> None:
    shared.first.sync(shared.member, [slot("tcp", 30000, use=tcp("10.0.0.1"))])
    shared.second.sync(shared.other, [slot("udp", 31000, use=udp("10.0.0.2"))])
    kept = shared.shapes_of(shared.other)
    report = shared.first.sync(replace(shared.member, state="deleting", slots=()))
    assert report.is_gone
    assert shared.shapes_of(shared.member) == []
    assert shared.shapes_of(shared.other) == kept


def test_port_of_another_program_is_a_problem_of_its_slot(shared: Shared) -> None:
    report = shared.first.sync(shared.member, [slot("tcp", 30001, use=tcp("10.0.0.1"))])
    seen = seen_at(report.slots, "tcp", 30001)
    assert seen.is_foreign
    assert "TKE-LISTENER" in str(seen.attributes["problem"])


def test_listener_with_a_copied_name_is_foreign(shared: Shared) -> None:
    shared.first.sync(shared.member, [slot("tcp", 30000, use=tcp())])
    (own,) = [each for each in shared.balancer.listeners.values() if each.port == 30000]
    copy = shared.first.world.add_listener(shared.balancer.id, "TCP", 30005, name=own.name)
    report = shared.first.sync(shared.member, [slot("tcp", 30000, "idle")])
    assert seen_at(report.slots, "tcp", 30005).is_foreign
    assert list(shared.balancer.listeners.values())[-1] is copy
    del shared.balancer.listeners[copy.id]


def test_listener_of_another_installation_is_foreign(shared: Shared) -> None:
    shared.first.sync(shared.member, [slot("tcp", 30000, use=tcp())])
    (own,) = [each for each in shared.balancer.listeners.values() if each.port == 30000]
    own.name = own.name.replace(own.name.split("-")[1], "0" * 12)
    report = shared.first.sync(shared.member, [slot("tcp", 30000, "idle")])
    assert seen_at(report.slots, "tcp", 30000).is_foreign
    assert own.id in shared.balancer.listeners


def test_look_reports_foreign_listeners_outside_of_the_range_too(shared: Shared) -> None:
    (seen,) = shared.first.look(shared.member).seen
    assert {(each.lane, each.number, each.is_foreign) for each in seen.slots or ()} == {
        ("tcp", 443, True),
        ("tcp", 30001, True),
    }
    assert seen.addresses == ("203.0.113.1",)


def test_new_member_on_an_existing_load_balancer_is_ready_without_a_change(
    shared: Shared,
) -> None:
    creating = replace(shared.member, state="creating")
    report = shared.first.sync(creating)
    assert report.is_ready
    assert report.addresses == ("203.0.113.1",)
    assert shared.first.world.count("CreateLoadBalancer", "CreateListener") == 0


def test_existing_load_balancer_that_is_missing_or_classic_is_a_named_error(
    shared: Shared,
) -> None:
    creating = replace(shared.member, state="creating")
    with pytest.raises(Misconfigured, match="has no load balancer lb-nowhere"):
        shared.first.sync(replace(creating, external_id="lb-nowhere"))
    classic = shared.first.world.add_balancer(forward=0)
    with pytest.raises(Misconfigured, match="classic"):
        shared.first.sync(replace(creating, external_id=classic.id))
    with pytest.raises(Misconfigured, match="names no load balancer"):
        shared.first.sync(replace(creating, external_id=""))
