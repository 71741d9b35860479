"""Writes take time. A worker waits a few seconds, and what is not confirmed is not reported."""

from dataclasses import replace
from typing import Any

import pytest

from pools.providers.tencent import writes
from pools.providers.tencent.client import ClbClient
from pools.providers.tencent.provider import TencentProvider
from project.kernel.outbox.operations import ProviderError
from project.kernel.outbox.turns import until
from tests.pools.providers.tencent.clb_world import Fault
from tests.pools.providers.tencent.harness import forget_all, journal_of_test
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
    report = scene.sync(member, slots)
    assert report.again is not None
    assert "creates 1 listener" in report.why
    assert [each for each in report.slots or () if not each.is_foreign] == []
    scene.world.release_tasks()
    report = scene.sync(replace(member, outside=report.why), slots)
    assert (report.why, report.again) == ("", None)
    assert scene.shapes(member.external_id) == [("TCP", 30000, 30000, (("10.0.0.1", 80),))]


def test_long_task_gives_its_thread_to_a_queue_that_has_none(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "WAIT", 600.0)
    member = scene.add_member()
    scene.world.is_holding = True
    with until(lambda: True):
        report = scene.sync(member, [slot("tcp", 30000, use=tcp("10.0.0.1"))])
    assert "creates 1 listener" in report.why
    assert report.again is not None


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


class Killed(BaseException):
    """The worker dies: no handler of an Exception runs."""


@pytest.mark.parametrize("is_killed", [False, True], ids=["unanswered", "killed"])
def test_another_worker_knows_of_a_creation_whose_answer_is_lost(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    """Red while each process remembered its own writes: the port was clean, and the listener came
    later.
    """
    member = scene.add_member()
    scene.world.is_holding = True
    with monkeypatch.context() as patch:
        if is_killed:
            create = ClbClient.create_listeners

            def die(*given: Any) -> None:
                create(*given)
                raise Killed

            patch.setattr(ClbClient, "create_listeners", die)
        else:
            scene.world.faults.append(Fault("CreateListener", is_after=True))
        with pytest.raises(Killed if is_killed else ProviderError):
            scene.sync(member, [slot("tcp", 30000, use=tcp())])
    forget_all()  # the next calls run in another worker
    draining = slot("tcp", 30000, "draining")
    report = scene.sync(member, [draining])
    assert (report.clean, report.again is not None) == (frozenset(), True)
    scene.world.release_tasks()
    assert scene.sync(member, [draining]).clean == {draining.id}
    assert scene.shapes(member.external_id) == []


def test_creation_that_never_arrived_keeps_its_port_for_a_while_only(scene: Scene) -> None:
    member = scene.add_member()
    scene.world.faults.append(Fault("CreateListener"))
    with pytest.raises(ProviderError):
        scene.sync(member, [slot("tcp", 30000, use=tcp())])
    draining = slot("tcp", 30000, "draining")
    assert scene.sync(member, [draining]).clean == frozenset()
    journal_of_test().pass_time()
    assert scene.sync(member, [draining]).clean == {draining.id}


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "InternalError"])
def test_failed_call_does_not_lose_the_number_of_a_running_task(scene: Scene, code: str) -> None:
    """Red while the number was in the reason of the member only, which the error replaces."""
    member = scene.add_member()
    scene.world.is_holding = True
    scene.sync(member, [slot("tcp", 30000, use=tcp())])
    scene.world.faults.append(Fault("DescribeListeners", code))
    draining = slot("tcp", 30000, "draining")
    with pytest.raises(ProviderError):
        scene.sync(member, [draining])
    journal_of_test().pass_time()
    forget_all()
    assert scene.sync(member, [draining]).clean == frozenset()
    scene.world.release_tasks()
    assert scene.sync(member, [draining]).clean == {draining.id}
    assert scene.shapes(member.external_id) == []


def test_refused_write_leaves_no_doubt(scene: Scene) -> None:
    member = scene.add_member()
    scene.world.faults.append(Fault("CreateListener", "LimitExceeded"))
    scene.sync(member, [slot("tcp", 30000, use=tcp())])
    draining = slot("tcp", 30000, "draining")
    assert scene.sync(member, [draining]).clean == {draining.id}


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


def test_task_that_fails_twice_is_the_failure_and_repeated(scene: Scene) -> None:
    member = scene.add_member()
    scene.world.failing_tasks = 2
    slots = [slot("tcp", 30000, use=tcp())]
    assert "backend error" in str(scene.sync(member, slots).failure)
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
