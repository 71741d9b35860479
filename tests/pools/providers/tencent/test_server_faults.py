"""A server error at one port does not keep the other ports of its load balancer waiting."""

import pytest

from pools.providers.base import SlotSnapshot
from tests.pools.providers.tencent.clb_world import ClbWorld, Fault
from tests.pools.providers.tencent.scene import Scene, seen_at, slot, tcp

CODE = "InternalError"
PORTS = range(30000, 30008)


def slots_of(*numbers: int, state: str = "held") -> list[SlotSnapshot]:
    return [slot("tcp", number, state, use=tcp("10.0.0.1", number)) for number in numbers]


def served(scene: Scene, balancer: str) -> list[int]:
    return [port for _, port, _, targets in scene.shapes(balancer) if targets]


@pytest.mark.parametrize("port", [30000, 30005])
@pytest.mark.parametrize("action", ["CreateListener", "BatchRegisterTargets"])
def test_lasting_server_error_of_one_port_does_not_stop_the_others(
    scene: Scene, world: ClbWorld, action: str, port: int
) -> None:
    """Red while a server error ended the sync."""
    member = scene.add_member()
    world.faults.append(Fault(action, CODE, times=999, port=port))
    for _ in range(2):
        report = scene.sync(member, slots_of(*PORTS))
        assert served(scene, member.external_id) == [each for each in PORTS if each != port]
        assert CODE in str(report.failure or report.why)
        for each in PORTS:
            problem = str(seen_at(report.slots, "tcp", each).attributes.get("problem", ""))
            assert (CODE in problem) is (each == port)
    world.faults.clear()
    report = scene.sync(member, slots_of(*PORTS))
    assert served(scene, member.external_id) == list(PORTS)
    assert report.failure is None and not report.why
    assert "problem" not in seen_at(report.slots, "tcp", port).attributes


def test_ports_drain_beside_a_port_with_a_server_error(scene: Scene, world: ClbWorld) -> None:
    """Also a port without a listener, which no write of this sync can bring back."""
    member = scene.add_member()
    scene.sync(member, slots_of(30000, 30001))
    world.faults.append(Fault("CreateListener", CODE, times=999, port=30005))
    draining = slots_of(30001, 30002, state="draining")
    report = scene.sync(member, [*slots_of(30000, 30005), *draining])
    assert report.clean == {each.id for each in draining}
    assert served(scene, member.external_id) == [30000]


def test_port_whose_creation_may_still_take_effect_is_not_clean(
    scene: Scene, world: ClbWorld
) -> None:
    member = scene.add_member()
    world.faults.append(Fault("CreateListener", CODE, port=30005))
    scene.sync(member, slots_of(30005))
    (draining,) = slots_of(30005, state="draining")
    assert scene.sync(member, [draining]).clean == frozenset()


def test_failed_deletion_of_one_listener_does_not_keep_the_others(
    scene: Scene, world: ClbWorld
) -> None:
    member = scene.add_member()
    scene.sync(member, slots_of(*PORTS))
    world.faults.append(Fault("DeleteLoadBalancerListeners", CODE, times=999, port=30003))
    draining = slots_of(*PORTS, state="draining")
    report = scene.sync(member, draining)
    assert report.clean == {each.id for each in draining if each.number != 30003}
    assert CODE in str(seen_at(report.slots, "tcp", 30003).attributes["problem"])


def test_server_error_that_took_effect_leaves_one_listener_for_each_port(
    scene: Scene, world: ClbWorld
) -> None:
    member = scene.add_member()
    world.faults.append(Fault("CreateListener", CODE, is_after=True))
    scene.sync(member, slots_of(*PORTS))
    scene.sync(member, slots_of(*PORTS))
    assert served(scene, member.external_id) == list(PORTS)


def test_write_that_fails_for_three_ports_is_not_tried_for_the_others(
    scene: Scene, world: ClbWorld
) -> None:
    """The next sync begins with these, so that three lasting faults do not hide the others."""
    member = scene.add_member()
    for port in (30000, 30001, 30002):
        world.faults.append(Fault("CreateListener", CODE, times=999, port=port))
    world.log.clear()
    report = scene.sync(member, slots_of(*PORTS))
    assert scene.shapes(member.external_id) == []
    assert world.count("CreateListener") <= 8  # of 15 with all halves
    assert [each.number for each in report.slots or ()] == [30000, 30001, 30002]
    scene.sync(member, slots_of(*PORTS))
    assert served(scene, member.external_id) == list(PORTS[3:])


def test_each_port_has_its_turn_beside_six_lasting_faults(scene: Scene, world: ClbWorld) -> None:
    """Red while a sync remembered the faults of the sync before it only."""
    member = scene.add_member()
    for port in PORTS[:6]:
        world.faults.append(Fault("CreateListener", CODE, times=999, port=port))
    for _ in range(4):
        scene.sync(member, slots_of(*PORTS))
    assert served(scene, member.external_id) == list(PORTS[6:])


def test_outage_of_the_api_ends_the_sync_without_blame(scene: Scene, world: ClbWorld) -> None:
    member = scene.add_member()
    world.faults.append(Fault("*", CODE, times=999))
    with pytest.raises(Exception, match=CODE):
        scene.sync(member, slots_of(*PORTS))
