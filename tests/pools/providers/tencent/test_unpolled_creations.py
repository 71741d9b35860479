"""Creations of listeners are not polled: the load balancer accepts one write at a time, and the
list of its listeners tells which creations succeeded.
"""

from collections.abc import Sequence

import pytest

from pools.providers.tencent import writes
from project.kernel.outbox.operations import Throttled
from tests.pools.providers.tencent.clb_world import Fault
from tests.pools.providers.tencent.harness import forget_all, journal_of_test
from tests.pools.providers.tencent.scene import Scene, Shape, slot, tcp, udp

BUSY = "FailedOperation.ResourceInOperating"
SLOTS = [slot("tcp", 30000, use=tcp("10.0.0.1")), slot("udp", 30000, use=udp("10.0.0.1"))]
WANTED: Sequence[Shape] = [
    ("TCP", 30000, 30000, (("10.0.0.1", 80),)),
    ("UDP", 30000, 30000, (("10.0.0.1", 80),)),
]


def learn(scene: Scene, seconds: float) -> None:
    """This process knows how long tasks take."""
    known = writes.TaskTimes(early=seconds, done=seconds)
    writes._task_times[scene.client().account, "creates"] = known


def test_creation_that_another_write_follows_is_not_polled(scene: Scene) -> None:
    member = scene.add_member()
    learn(scene, 0.05)
    assert scene.sync(member, SLOTS).why == ""
    assert scene.shapes(member.external_id) == WANTED
    assert scene.world.count("CreateListener") == 2
    assert scene.world.count("DescribeTaskStatus") == 1, "the task that binds targets"


def test_last_write_of_a_sync_is_polled(scene: Scene) -> None:
    member = scene.add_member()
    learn(scene, 0.05)
    scene.sync(member, [slot("tcp", 30000, use=tcp())])
    assert scene.world.count("DescribeTaskStatus") == 1
    assert journal_of_test().tasks == {}


def test_write_that_comes_too_early_waits_for_the_task_before(scene: Scene) -> None:
    member = scene.add_member()
    learn(scene, 0.05)
    scene.world.faults.append(Fault("CreateListener", BUSY, skip=1))
    assert scene.sync(member, SLOTS).why == ""
    assert scene.shapes(member.external_id) == WANTED
    assert scene.world.count("CreateListener") == 3
    assert scene.world.count("DescribeTaskStatus") == 2, "the task before is polled, too"


def test_list_that_comes_too_early_is_read_again_after_the_task(scene: Scene) -> None:
    member = scene.add_member()
    learn(scene, 0.05)
    scene.world.is_holding = True
    lists = scene.world.count("DescribeListeners")
    # The task ends after the first list and before its poll is answered.
    scene.world.faults.append(Fault("DescribeTaskStatus", code=None, run=scene.world.release_tasks))
    assert scene.sync(member, SLOTS[:1]).why == ""
    assert scene.shapes(member.external_id) == WANTED[:1]
    assert scene.world.count("CreateListener") == 1
    assert scene.world.count("DescribeListeners") - lists == 3


def test_unpolled_creation_that_failed_is_repeated(scene: Scene) -> None:
    member = scene.add_member()
    learn(scene, 0.05)
    scene.world.failing_tasks = 1
    assert scene.sync(member, SLOTS).why == ""
    assert scene.shapes(member.external_id) == WANTED


def test_creation_that_fails_again_is_the_failure(scene: Scene) -> None:
    member = scene.add_member()
    learn(scene, 0.05)
    scene.world.failing_tasks = 1000
    assert "backend error" in str(scene.sync(member, SLOTS).failure)


def test_worker_leaves_an_unpolled_creation_that_runs_long_to_the_next_call(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "WAIT", 0.3)
    member = scene.add_member()
    learn(scene, 0.05)
    scene.world.is_holding = True
    report = scene.sync(member, SLOTS)
    assert "creates 1 listener" in report.why and report.again is not None
    (task,) = journal_of_test().tasks.values()
    assert writes.find_task(report.why) == task
    scene.world.release_tasks()
    assert scene.sync(member, SLOTS).why == ""
    assert scene.shapes(member.external_id) == WANTED


def test_throttled_creation_leaves_the_number_of_the_task_before(scene: Scene) -> None:
    member = scene.add_member()
    learn(scene, 0.05)
    scene.world.is_holding = True
    scene.world.faults.append(Fault("CreateListener", "RequestLimitExceeded", skip=1))
    with pytest.raises(Throttled):
        scene.sync(member, SLOTS)
    assert list(journal_of_test().tasks.values()) == list(scene.world.tasks)[-1:]
    forget_all()  # the next call runs in another worker
    scene.world.release_tasks()
    assert scene.sync(member, SLOTS).why == ""
    assert scene.shapes(member.external_id) == WANTED


@pytest.mark.parametrize("code", ["LimitExceeded", "InvalidParameter"])
def test_refused_last_creation_leaves_no_doubt_of_the_one_before(scene: Scene, code: str) -> None:
    member = scene.add_member()
    learn(scene, 0.05)
    scene.world.faults.append(Fault("CreateListener", code, skip=1))
    slots = [slot("tcp", 30000, use=tcp()), slot("udp", 30000, use=udp())]
    assert scene.sync(member, slots).why != ""
    assert scene.shapes(member.external_id) == [("TCP", 30000, 30000, ())]
    assert journal_of_test().tasks == {}
