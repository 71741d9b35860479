"""Few calls for many ports, and faults of single items in a call."""

import re

import pytest

from project.kernel.outbox.operations import ConflictError
from tests.pools.providers.tencent.clb_world import Fault
from tests.pools.providers.tencent.scene import Scene, seen_at, slot, tcp, udp


def many(count: int, ip: str = "10.0.0.1") -> list:  # type: ignore[type-arg]
    return [slot("tcp", 30000 + n, use=tcp(ip, 1000 + n)) for n in range(count)]


def test_fifty_ports_of_one_protocol_take_one_call_to_create_and_one_to_bind(
    scene: Scene,
) -> None:
    member = scene.add_member()
    scene.world.log.clear()
    scene.sync(member, many(50))
    assert len(scene.shapes(member.external_id)) == 50
    assert scene.world.count("CreateListener") == 1
    assert scene.world.count("BatchRegisterTargets") == 1
    assert scene.world.count("DescribeTargets") == 0, "new listeners have no targets"


def test_listeners_have_the_targets_of_their_own_ports(scene: Scene) -> None:
    """The cloud does not promise the order of the ids that CreateListener returns."""
    member = scene.add_member()
    scene.sync(member, many(7))
    assert scene.shapes(member.external_id) == [
        ("TCP", 30000 + n, 30000 + n, (("10.0.0.1", 1000 + n),)) for n in range(7)
    ]


def test_protocols_and_more_than_fifty_ports_take_calls_of_their_own(scene: Scene) -> None:
    scene.world.quotas["TOTAL_LISTENER_QUOTA"] = 200
    member = scene.add_member()
    scene.world.log.clear()
    scene.sync(member, [*many(60), slot("udp", 30000, use=udp("10.0.0.1"))])
    creations = [call for call in scene.world.log if call.action == "CreateListener"]
    sizes = [(call.parameters["Protocol"], len(call.parameters["Ports"])) for call in creations]
    assert sizes == [("TCP", 50), ("TCP", 10), ("UDP", 1)]


def test_more_than_500_targets_take_two_calls(scene: Scene) -> None:
    scene.world.quotas["TOTAL_LISTENER_QUOTA"] = 600
    member = scene.add_member()
    scene.sync(member, many(501))
    scene.world.log.clear()
    scene.sync(member, many(501, "10.0.0.2"))
    for action in ("BatchDeregisterTargets", "BatchRegisterTargets"):
        calls = [call for call in scene.world.log if call.action == action]
        assert [len(call.parameters["Targets"]) for call in calls] == [500, 1]
    assert all(targets == (("10.0.0.2", 1000 + port - 30000),) for _, port, _, targets in
               scene.shapes(member.external_id))  # fmt: skip


def test_unchanged_ports_cause_no_write(scene: Scene) -> None:
    member = scene.add_member()
    scene.sync(member, many(5))
    scene.world.log.clear()
    scene.sync(member, many(5))
    assert {call.action for call in scene.world.log} == {"DescribeListeners", "DescribeTargets"}


def test_deletions_take_twenty_listeners_a_call(scene: Scene) -> None:
    member = scene.add_member()
    scene.sync(member, many(45))
    report = scene.sync(member, [slot("tcp", 30000 + n, "draining") for n in range(45)])
    assert len(report.clean) == 45
    calls = [call for call in scene.world.log if call.action == "DeleteLoadBalancerListeners"]
    assert [len(call.parameters["ListenerIds"]) for call in calls] == [20, 20, 5]


def test_listener_that_vanishes_during_a_deletion_does_not_keep_the_others(scene: Scene) -> None:
    member = scene.add_member()
    scene.sync(member, many(4))
    balancer = scene.world.balancers[member.external_id]
    victim = next(each.id for each in balancer.listeners.values() if each.port == 30002)
    scene.world.faults.append(
        Fault("DeleteLoadBalancerListeners", None, run=lambda: balancer.listeners.pop(victim))
    )
    report = scene.sync(member, [slot("tcp", 30000 + n, "draining") for n in range(4)])
    assert len(report.clean) == 4
    assert balancer.listeners == {}


def test_refused_target_is_a_problem_of_its_port_and_the_others_are_bound(scene: Scene) -> None:
    scene.world.unreachable.add("10.9.9.9")
    member = scene.add_member()
    slots = [
        slot("tcp", 30000, use=tcp("10.9.9.9")),
        slot("tcp", 30001, use=tcp("10.0.0.1")),
        slot("udp", 30000, use=udp("10.0.0.1")),
    ]
    report = scene.sync(member, slots)
    assert [bool(targets) for _, _, _, targets in scene.shapes(member.external_id)] == [
        False,
        True,
        True,
    ]
    problem = str(seen_at(report.slots, "tcp", 30000).attributes["problem"])
    assert "10.9.9.9:80" in problem and "cannot change the target" in problem
    assert "problem" not in seen_at(report.slots, "tcp", 30001).attributes
    scene.world.unreachable.clear()
    assert scene.sync(member, slots).why == ""


def test_stale_target_that_stays_bound_keeps_its_port_from_another_target(scene: Scene) -> None:
    member = scene.add_member()
    scene.sync(member, [slot("tcp", 30000, use=tcp("10.0.0.1"))])
    scene.world.unreachable.add("10.0.0.1")
    report = scene.sync(member, [slot("tcp", 30000, use=tcp("10.0.0.2"))])
    assert scene.shapes(member.external_id) == [("TCP", 30000, 30000, (("10.0.0.1", 80),))]
    assert "10.0.0.1:80" in str(seen_at(report.slots, "tcp", 30000).attributes["problem"])


def test_target_that_stays_bound_to_a_draining_port_is_the_failure(scene: Scene) -> None:
    scene.is_precreated = True
    member = scene.add_member()
    scene.sync(member, [slot("tcp", 30000, use=tcp("10.0.0.1"))])
    scene.world.unreachable.add("10.0.0.1")
    report = scene.sync(member, [slot("tcp", 30000, "draining")])
    assert isinstance(report.failure, ConflictError)
    assert "10.0.0.1:80" in str(seen_at(report.slots, "tcp", 30000).attributes["problem"])


def test_failed_deletion_is_the_failure_after_the_other_ports_were_served(scene: Scene) -> None:
    member = scene.add_member()
    scene.sync(member, [slot("tcp", 30000, use=tcp()), slot("tcp", 30001, use=tcp())])
    draining = slot("tcp", 30000, "draining")
    slots = [draining, slot("tcp", 30001, use=tcp("10.0.0.1"))]
    scene.world.faults.append(
        Fault("DeleteLoadBalancerListeners", "OperationDenied", "it is locked", times=3)
    )
    report = scene.sync(member, slots)
    assert report.clean == frozenset()
    assert "it is locked" in report.why
    assert scene.shapes(member.external_id)[1] == ("TCP", 30001, 30001, (("10.0.0.1", 80),))
    again = scene.sync(member, slots)
    assert "it is locked" in str(again.failure)
    assert "it is locked" in str(seen_at(again.slots, "tcp", 30000).attributes["problem"])
    scene.world.faults.clear()
    assert scene.sync(member, slots).clean == {draining.id}


def test_quota_of_listeners_is_filled_and_the_rest_is_a_problem(scene: Scene) -> None:
    scene.world.quotas["TOTAL_LISTENER_QUOTA"] = 10
    member = scene.add_member()
    report = scene.sync(member, many(12))
    assert [shape[1] for shape in scene.shapes(member.external_id)] == list(range(30000, 30010))
    problem = str(seen_at(report.slots, "tcp", 30011).attributes["problem"])
    assert "TOTAL_LISTENER_QUOTA" in problem


def test_port_that_another_program_takes_meanwhile_is_a_problem_of_its_slot(scene: Scene) -> None:
    member = scene.add_member()
    scene.world.faults.append(
        Fault(
            "CreateListener",
            None,
            run=lambda: scene.world.add_listener(member.external_id, "TCP", 30003) and None,
        )
    )
    report = scene.sync(member, many(6))
    assert [shape[1] for shape in scene.shapes(member.external_id)] == [
        30000, 30001, 30002, 30004, 30005,
    ]  # fmt: skip
    seen = seen_at(report.slots, "tcp", 30003)
    assert seen.is_foreign
    assert "Berth did not create" in str(seen.attributes["problem"])


def test_foreign_segment_blocks_each_slot_that_it_overlaps(scene: Scene) -> None:
    member = scene.add_member()
    scene.world.add_listener(member.external_id, "TCP", 29990, end=30001)
    report = scene.sync(member, many(3))
    assert [shape[1] for shape in scene.shapes(member.external_id)] == [30002]
    assert all(seen_at(report.slots, "tcp", port).is_foreign for port in (29990, 30000, 30001))


def test_problem_of_a_port_that_stays_refused_keeps_its_text(scene: Scene) -> None:
    """Each answer has another request id. A text that changes would cause an event each time."""
    member = scene.add_member()
    scene.world.faults.append(Fault("CreateListener", "OperationDenied", "it is locked", times=2))
    slots = [slot("tcp", 30000, use=tcp())]
    first, second = (
        seen_at(scene.sync(member, slots).slots, "tcp", 30000).attributes["problem"]
        for _ in range(2)
    )
    assert "it is locked" in str(first)
    assert first == second


def test_task_that_fails_again_has_an_equal_text(scene: Scene) -> None:
    member = scene.add_member()
    scene.world.failing_tasks = 4  # each sync tries twice
    texts = []
    for _ in range(2):
        texts.append(str(scene.sync(member, [slot("tcp", 30000, use=tcp())]).failure))
    assert "backend error" in texts[0]
    assert texts[0] == texts[1]


def test_request_id_of_a_refused_call_is_in_the_log(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    member = scene.add_member()
    scene.world.faults.append(Fault("CreateListener", "OperationDenied", "it is locked"))
    with caplog.at_level("INFO"):
        scene.sync(member, [slot("tcp", 30000, use=tcp())])
    assert re.search(r"CreateListener .*OperationDenied.* request [0-9a-f-]{36}", caplog.text)
