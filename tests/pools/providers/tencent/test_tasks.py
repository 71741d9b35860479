"""Writes take time. A worker waits a few seconds, and what is not confirmed is not reported."""

import time
from dataclasses import replace

import pytest

from pools.providers.tencent import writes
from pools.providers.tencent.provider import TencentProvider
from project.kernel.outbox.operations import ProviderError
from tests.pools.providers.tencent.clb_world import Fault
from tests.pools.providers.tencent.harness import forget_all
from tests.pools.providers.tencent.scene import Scene, seen_at, slot, tcp


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "WAIT", 0.3)


def test_long_task_does_not_hold_the_worker_and_is_finished_by_the_next_calls(
    scene: Scene,
) -> None:
    member = scene.add_member()
    slots = [slot("tcp", 30000, use=tcp("10.0.0.1"))]
    scene.world.is_holding = True
    begun = time.monotonic()
    report = scene.sync(member, slots)
    assert time.monotonic() - begun < 3
    assert report.again is not None
    assert "creates 1 listener" in report.why
    assert [each for each in report.slots or () if not each.is_foreign] == []
    scene.world.release_tasks()
    report = scene.sync(replace(member, outside=report.why), slots)
    assert (report.why, report.again) == ("", None)
    assert scene.shapes(member.external_id) == [("TCP", 30000, 30000, (("10.0.0.1", 80),))]


def test_port_released_while_its_listener_is_created_is_not_clean_before_the_end(
    scene: Scene,
) -> None:
    member = scene.add_member()
    scene.world.is_holding = True
    outside = scene.sync(member, [slot("tcp", 30000, use=tcp())]).why
    forget_all()  # the next call runs in another worker
    draining = slot("tcp", 30000, "draining")
    member = replace(member, outside=outside)
    assert scene.sync(member, [draining]).clean == frozenset()
    scene.world.release_tasks()
    assert scene.sync(member, [draining]).clean == {draining.id}
    assert scene.shapes(member.external_id) == []


def test_look_keeps_the_running_task_in_the_reason_of_the_member(scene: Scene) -> None:
    member = scene.add_member()
    scene.world.is_holding = True
    why = scene.sync(member, [slot("tcp", 30000, use=tcp())]).why
    (seen,) = scene.look(replace(member, outside=why)).seen
    assert seen.why == why


def test_port_released_after_a_creation_without_answer_is_not_clean_at_once(
    scene: Scene,
) -> None:
    member = scene.add_member()
    scene.world.is_holding = True
    scene.world.faults.append(Fault("CreateListener", is_after=True))
    with pytest.raises(ProviderError):
        scene.sync(member, [slot("tcp", 30000, use=tcp())])
    draining = slot("tcp", 30000, "draining")
    assert scene.sync(member, [draining]).clean == frozenset()
    scene.world.release_tasks()
    assert scene.sync(member, [draining]).clean == {draining.id}
    assert scene.shapes(member.external_id) == []


def test_write_of_another_program_is_waited_for_without_an_error(scene: Scene) -> None:
    member = scene.add_member()
    scene.world.is_holding = True
    scene.world.begin("theirs", member.external_id, lambda: None)
    slots = [slot("tcp", 30000, use=tcp("10.0.0.1"))]
    report = scene.sync(member, slots)
    assert "Another change" in report.why and report.again is not None
    scene.world.release_tasks()
    assert scene.sync(member, slots).why == ""


def test_deletion_that_still_runs_is_not_clean(scene: Scene) -> None:
    member = scene.add_member()
    scene.sync(member, [slot("tcp", 30000, use=tcp())])
    scene.world.is_holding = True
    draining = slot("tcp", 30000, "draining")
    report = scene.sync(member, [draining])
    assert report.clean == frozenset() and report.again is not None
    assert seen_at(report.slots, "tcp", 30000).attributes["protocol"] == "tcp"


def test_failed_task_is_raised_and_repeated(scene: Scene) -> None:
    member = scene.add_member()
    scene.world.failing_tasks = 1
    slots = [slot("tcp", 30000, use=tcp())]
    with pytest.raises(ProviderError, match="backend error"):
        scene.sync(member, slots)
    assert scene.sync(member, slots).why == ""
    assert scene.shapes(member.external_id) == [("TCP", 30000, 30000, ())]


def test_task_is_polled_after_the_usual_time_of_the_account(scene: Scene) -> None:
    """DescribeTaskStatus has a limit, too: a task that takes its usual time costs few calls."""
    scene.world.write_seconds = 0.15
    member = scene.add_member()
    for number in range(4):
        scene.sync(member, [slot("tcp", 30000 + each, use=tcp()) for each in range(number + 1)])
    before = scene.world.count("DescribeTaskStatus")
    scene.sync(member, [slot("tcp", 30000 + each, use=tcp()) for each in range(6)])
    assert scene.world.count("DescribeTaskStatus") - before <= 2


def test_provisioning_does_not_hold_the_worker(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pools.providers.tencent.lifecycle.PROVISIONING_WAIT", 0.1)
    scene.world.provision_seconds = 3600.0
    member = scene.new_member()
    report = scene.sync(member)
    assert report.external_id and not report.is_ready
    assert report.again is not None and report.external_id in report.why
    scene.world.balancers[report.external_id].active_at = 0.0
    assert (
        TencentProvider()
        .sync(scene.pool(), replace(member, external_id=report.external_id))
        .is_ready
    )
