"""What a slot in each state has outside: listener, target, certificate, segment."""

from dataclasses import replace

import pytest

from pools.providers.base import PortTarget, PortUse
from tests.pools.providers.tencent.clb_world import Fault
from tests.pools.providers.tencent.scene import Scene, seen_at, slot, tcp, udp

SSL = PortUse("tcp_ssl", PortTarget("10.0.0.1", 443), "cert-1")
QUIC = PortUse("quic", PortTarget("10.0.0.1", 443), "cert-2")


def test_held_port_has_a_listener_with_its_protocol_and_target(scene: Scene) -> None:
    member = scene.add_member()
    slots = [slot("tcp", 30000, use=tcp("10.0.0.1", 80)), slot("udp", 30000, use=udp("10.0.0.2"))]
    report = scene.sync(member, slots)
    assert scene.shapes(member.external_id) == [
        ("TCP", 30000, 30000, (("10.0.0.1", 80),)),
        ("UDP", 30000, 30000, (("10.0.0.2", 80),)),
    ]
    seen = seen_at(report.slots, "tcp", 30000)
    assert seen.attributes["target"] == "10.0.0.1:80"
    assert seen.attributes["protocol"] == "tcp"
    assert seen.attributes["health"] == "unchecked"
    assert not seen.is_foreign


def test_reserved_port_without_a_target_keeps_its_listener(scene: Scene) -> None:
    member = scene.add_member()
    report = scene.sync(member, [slot("tcp", 30000, "reserved", tcp())])
    assert scene.shapes(member.external_id) == [("TCP", 30000, 30000, ())]
    assert "target" not in seen_at(report.slots, "tcp", 30000).attributes


def test_another_target_replaces_the_old_one_and_keeps_the_listener(scene: Scene) -> None:
    member = scene.add_member()
    first = scene.sync(member, [slot("tcp", 30000, use=tcp("10.0.0.1"))])
    second = scene.sync(member, [slot("tcp", 30000, use=tcp("10.0.0.2"))])
    assert scene.shapes(member.external_id) == [("TCP", 30000, 30000, (("10.0.0.2", 80),))]
    ids = [seen_at(each.slots, "tcp", 30000).attributes["id"] for each in (first, second)]
    assert ids[0] == ids[1]


def test_target_that_is_taken_away_leaves_the_listener(scene: Scene) -> None:
    member = scene.add_member()
    scene.sync(member, [slot("tcp", 30000, use=tcp("10.0.0.1"))])
    scene.sync(member, [slot("tcp", 30000, use=tcp())])
    assert scene.shapes(member.external_id) == [("TCP", 30000, 30000, ())]


def test_target_of_another_program_on_an_own_listener_is_removed(scene: Scene) -> None:
    member = scene.add_member()
    slots = [slot("tcp", 30000, use=tcp("10.0.0.1"))]
    scene.sync(member, slots)
    (listener,) = scene.world.balancers[member.external_id].listeners.values()
    listener.targets["10.0.0.9", 80] = "Close"
    scene.sync(member, slots)
    assert list(listener.targets) == [("10.0.0.1", 80)]


def test_draining_port_is_clean_once_its_listener_is_gone(scene: Scene) -> None:
    member = scene.add_member()
    scene.sync(member, [slot("tcp", 30000, use=tcp("10.0.0.1"))])
    draining = slot("tcp", 30000, "draining")
    assert scene.sync(member, [draining]).clean == {draining.id}
    assert scene.shapes(member.external_id) == []


@pytest.mark.parametrize("state", ["idle", "retired"])
def test_own_listener_of_a_port_without_a_claim_is_removed(scene: Scene, state: str) -> None:
    member = scene.add_member()
    scene.sync(member, [slot("tcp", 30000, use=tcp("10.0.0.1"))])
    scene.sync(member, [slot("tcp", 30000, state)])
    assert scene.shapes(member.external_id) == []


def test_own_listener_of_a_port_without_a_slot_is_removed(scene: Scene) -> None:
    member = scene.add_member()
    scene.sync(member, [slot("tcp", 30000, use=tcp()), slot("tcp", 30001, use=tcp())])
    scene.sync(member, [slot("tcp", 30001, use=tcp())])
    assert scene.shapes(member.external_id) == [("TCP", 30001, 30001, ())]


def test_listener_of_a_claim_with_an_unknown_use_stays_as_it_is(scene: Scene) -> None:
    member = scene.add_member()
    scene.sync(member, [slot("tcp", 30000, use=tcp("10.0.0.1"))])
    scene.sync(member, [slot("tcp", 30000), slot("udp", 30000)])
    assert scene.shapes(member.external_id) == [("TCP", 30000, 30000, (("10.0.0.1", 80),))]


def test_certificate_belongs_to_listeners_of_tcp_ssl_and_quic(scene: Scene) -> None:
    member = scene.add_member()
    scene.sync(member, [slot("tcp", 30000, use=SSL), slot("udp", 30000, use=QUIC)])
    found = scene.world.balancers[member.external_id].listeners.values()
    assert {(each.protocol, each.certificate) for each in found} == {
        ("TCP_SSL", "cert-1"),
        ("QUIC", "cert-2"),
    }


def test_another_certificate_replaces_the_listener_on_the_same_port(scene: Scene) -> None:
    member = scene.add_member()
    scene.sync(member, [slot("tcp", 30000, use=SSL)])
    scene.sync(member, [slot("tcp", 30000, use=replace(SSL, certificate="cert-2"))])
    (found,) = scene.world.balancers[member.external_id].listeners.values()
    assert (found.port, found.certificate) == (30000, "cert-2")
    assert list(found.targets) == [("10.0.0.1", 443)]


@pytest.mark.parametrize("certificate", ["", "cert-missing"])
def test_missing_certificate_is_a_problem_of_its_port_alone(scene: Scene, certificate: str) -> None:
    member = scene.add_member()
    wrong = replace(SSL, certificate=certificate)
    report = scene.sync(
        member, [slot("tcp", 30000, use=wrong), slot("tcp", 30001, use=tcp("10.0.0.1"))]
    )
    assert scene.shapes(member.external_id) == [("TCP", 30001, 30001, (("10.0.0.1", 80),))]
    assert "certificate" in str(seen_at(report.slots, "tcp", 30000).attributes["problem"])
    assert "problem" not in seen_at(report.slots, "tcp", 30001).attributes
    assert "certificate" in report.why


@pytest.mark.parametrize("code", ["FailedOperation.UnheardOf", "BrandNewRefusal"])
def test_unknown_refusal_of_one_listener_does_not_stop_the_others(scene: Scene, code: str) -> None:
    member = scene.add_member()
    ports = [slot("tcp", 30000 + n, use=tcp(f"10.0.0.{n + 1}")) for n in range(4)]
    # All four, then the first two, then the first one.
    scene.world.faults.append(Fault("CreateListener", code, times=3))
    report = scene.sync(member, ports)
    assert [port for _, port, _, _ in scene.shapes(member.external_id)] == [30001, 30002, 30003]
    assert code in str(seen_at(report.slots, "tcp", 30000).attributes["problem"])
    assert scene.sync(member, ports).why == ""
    assert len(scene.shapes(member.external_id)) == 4


def test_missing_certificate_heals_once_it_exists(scene: Scene) -> None:
    member = scene.add_member()
    slots = [slot("tcp", 30000, use=replace(SSL, certificate="cert-9"))]
    scene.sync(member, slots)
    scene.world.certificates.add("cert-9")
    report = scene.sync(member, slots)
    assert report.why == ""
    assert scene.shapes(member.external_id) == [("TCP_SSL", 30000, 30000, (("10.0.0.1", 443),))]


@pytest.mark.parametrize(("use", "lane"), [(SSL, "tcp"), (QUIC, "udp")])
def test_encrypted_listener_blocks_the_plain_one_before_and_after_a_restart(
    scene: Scene, use: PortUse, lane: str
) -> None:
    """Two pools with overlapping ranges on one load balancer."""
    balancer = scene.world.add_balancer()
    member = scene.use_existing(balancer)
    other = replace(scene, name="other", pool_id=8)
    second = scene.use_existing(balancer, 2)
    scene.sync(member, [slot(lane, 30000, use=use)])
    before = scene.shapes(balancer.id)
    for _ in range(2):  # each call reads the cloud again, as a restarted worker does
        report = other.sync(second, [slot(lane, 30000, use=PortUse(lane))])
        seen = seen_at(report.slots, lane, 30000)
        assert seen.is_foreign
        assert "Port 30000" in str(seen.attributes["problem"])
        assert scene.shapes(balancer.id) == before


def test_claim_of_another_protocol_waits_for_the_removal_of_the_old_listener(
    scene: Scene,
) -> None:
    member = scene.add_member()
    scene.sync(member, [slot("tcp", 30000, use=SSL)])
    scene.sync(member, [slot("tcp", 30000, use=tcp("10.0.0.3"))])
    assert scene.shapes(member.external_id) == [("TCP", 30000, 30000, (("10.0.0.3", 80),))]


def test_segment_is_one_listener_with_its_last_port(scene: Scene) -> None:
    scene.segment, scene.ports = 1001, (30000, 65535)
    member = scene.add_member()
    numbers = [30000, 31001, 30000 + 34 * 1001]
    report = scene.sync(member, [slot("udp", each, use=udp("10.0.0.1", each)) for each in numbers])
    assert scene.shapes(member.external_id) == [
        ("UDP", each, each + 1000, (("10.0.0.1", each),)) for each in numbers
    ]
    assert seen_at(report.slots, "udp", 31001).attributes["end"] == 32001
    creations = [call for call in scene.world.log if call.action == "CreateListener"]
    assert [len(call.parameters["Ports"]) for call in creations] == [1, 1, 1]


def test_ipv6_target_is_shown_in_brackets_and_known_in_every_notation(scene: Scene) -> None:
    member = scene.add_member()
    slots = [slot("tcp", 30000, use=tcp("2001:DB8:0::1"))]
    report = scene.sync(member, slots)
    assert seen_at(report.slots, "tcp", 30000).attributes["target"] == "[2001:db8::1]:80"
    writes = scene.world.count("BatchRegisterTargets", "BatchDeregisterTargets")
    scene.sync(member, slots)
    assert scene.world.count("BatchRegisterTargets", "BatchDeregisterTargets") == writes


def test_precreated_port_keeps_its_listener_and_loses_its_target(scene: Scene) -> None:
    scene.is_precreated = True
    member = scene.add_member()
    held = [slot("tcp", 30000, use=tcp("10.0.0.1")), slot("tcp", 30001, "idle")]
    scene.sync(member, held)
    assert [shape[:2] for shape in scene.shapes(member.external_id)] == [
        ("TCP", 30000),
        ("TCP", 30001),
    ]
    draining = slot("tcp", 30000, "draining")
    report = scene.sync(member, [draining, slot("tcp", 30001, "idle")])
    assert report.clean == {draining.id}
    assert scene.shapes(member.external_id) == [
        ("TCP", 30000, 30000, ()),
        ("TCP", 30001, 30001, ()),
    ]
    assert scene.world.count("DeleteLoadBalancerListeners") == 0


def test_member_with_precreated_listeners_is_ready_once_all_exist(scene: Scene) -> None:
    scene.is_precreated = True
    slots = tuple(slot(lane, 30000 + n, "idle") for n in range(25) for lane in ("tcp", "udp"))
    member = replace(scene.new_member(), slots=slots)
    report = scene.sync(member)
    assert report.is_ready
    assert len(scene.shapes(report.external_id)) == 50


def test_encrypted_claim_on_precreated_listeners_is_a_problem(scene: Scene) -> None:
    scene.is_precreated = True
    member = scene.add_member()
    report = scene.sync(member, [slot("tcp", 30000, use=SSL)])
    assert "pre-created" in str(seen_at(report.slots, "tcp", 30000).attributes["problem"])


def test_health_of_checked_listeners_is_that_of_the_cloud(scene: Scene) -> None:
    scene.options = {"health_check": True}
    member = scene.add_member()
    slots = [slot("tcp", 30000, use=tcp("10.0.0.1"))]
    assert seen_at(scene.sync(member, slots).slots, "tcp", 30000).attributes["health"] == "initial"
    (listener,) = scene.world.balancers[member.external_id].listeners.values()
    for detail, health in (("Alive", "healthy"), ("Dead", "unhealthy")):
        listener.targets["10.0.0.1", 80] = detail
        seen = seen_at(scene.sync(member, slots).slots, "tcp", 30000)
        assert seen.attributes["health"] == health
        (looked,) = scene.look(member).seen
        assert seen_at(looked.slots, "tcp", 30000).attributes["health"] == health
