"""Calls within the limits of the account, shared by all workers, and a storm of throttles."""

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from django.db import connections

from pools.providers.pacing import SharedPacer
from pools.providers.tencent.client import BURST, RATE
from pools.providers.tencent.provider import TencentProvider
from project.kernel.models import Budget
from project.kernel.outbox.budgets import list_uses
from project.kernel.outbox.operations import Postponed, Throttled
from tests.pools.providers.tencent.clb_server import CALLS_PER_SECOND
from tests.pools.providers.tencent.clb_world import ClbWorld, Fault
from tests.pools.providers.tencent.harness import EmptyPacer, serve
from tests.pools.providers.tencent.scene import Scene, slot, tcp, udp

SLOTS = [
    *(slot("tcp", 30000 + n, use=tcp("10.0.0.1", 1000 + n)) for n in range(12)),
    *(slot("udp", 30000 + n, use=udp("10.0.0.1", 1000 + n)) for n in range(4)),
]


@pytest.fixture
def strict() -> Iterator[Scene]:
    """The cloud counts calls, and Berth paces them by the database."""
    world = ClbWorld(calls_per_second=CALLS_PER_SECOND)
    with serve(world) as server:
        yield Scene(world, server)


@pytest.mark.usefixtures("committed_tables")
def test_workers_share_the_budget_of_the_account_and_are_not_throttled(strict: Scene) -> None:
    members = [strict.add_member(number) for number in range(1, 7)]
    TencentProvider.pacer = SharedPacer()
    errors: list[Exception] = []

    def work(index: int) -> None:
        try:
            for _ in range(8):
                with suppress(Postponed):
                    strict.sync(members[index], SLOTS)
        except Exception as error:
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(members))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert [call for call in strict.world.log if call.code] == []
    assert all(len(strict.shapes(member.external_id)) == 16 for member in members)


def test_rate_stays_below_the_limit_of_the_cloud() -> None:
    assert RATE < CALLS_PER_SECOND
    assert BURST <= CALLS_PER_SECOND


@pytest.mark.usefixtures("committed_tables")
def test_throttled_call_is_counted_in_the_bucket_of_its_action(scene: Scene) -> None:
    member = scene.add_member()
    TencentProvider.pacer = SharedPacer()
    scene.world.faults.append(Fault("CreateListener", "RequestLimitExceeded"))
    with pytest.raises(Throttled):
        scene.sync(member, SLOTS)
    scene.sync(member, SLOTS)
    budgets = TencentProvider.list_budgets({}, scene.look().place)
    uses = dict(zip(budgets, list_uses(budgets.values()), strict=True))
    assert {action: use.throttled_today for action, use in uses.items() if use.throttled_today} == {
        "CreateListener": 1
    }
    assert uses["CreateListener"].spent_today == scene.world.count("CreateListener")
    assert {each.key for each in Budget.objects.all()} <= {each.key for each in budgets.values()}


def test_used_up_budget_postpones_a_sync_without_an_error_and_fails_a_look(scene: Scene) -> None:
    member = scene.add_member()
    TencentProvider.pacer = EmptyPacer()
    with pytest.raises(Postponed):
        scene.sync(member, SLOTS)
    with pytest.raises(Throttled) as caught:
        scene.look(member)
    assert caught.value.retry_after == pytest.approx(60.0)
    assert TencentProvider().check(scene.pool()) == []


def test_storm_of_throttles_loses_no_work(scene: Scene) -> None:
    """Every call is throttled for a while; the work begins where it stopped."""
    member = scene.add_member()
    scene.world.faults.append(Fault("*", "RequestLimitExceeded", times=1000))
    for _ in range(5):
        before = len(scene.world.log)
        with pytest.raises(Throttled) as caught:
            scene.sync(member, SLOTS)
        assert caught.value.retry_after and caught.value.retry_after >= 1
        assert len(scene.world.log) == before + 1, "the sync ends at its first call"
    with pytest.raises(Throttled):
        scene.look(member)
    scene.world.faults.clear()
    assert scene.sync(member, SLOTS).why == ""
    assert len(scene.shapes(member.external_id)) == 16


def test_throttle_in_the_middle_keeps_what_was_done(scene: Scene) -> None:
    member = scene.add_member()
    scene.world.faults.append(Fault("BatchRegisterTargets", "RequestLimitExceeded"))
    with pytest.raises(Throttled):
        scene.sync(member, SLOTS)
    creations = scene.world.count("CreateListener")
    scene.sync(member, SLOTS)
    assert scene.world.count("CreateListener") == creations
    assert all(targets for _, _, _, targets in scene.shapes(member.external_id))


def test_throttle_while_a_task_is_watched_keeps_the_number_of_the_task(scene: Scene) -> None:
    member = scene.add_member()
    scene.world.faults.append(Fault("DescribeTaskStatus", "RequestLimitExceeded"))
    report = scene.sync(member, SLOTS)
    assert "task" in report.why and report.again is not None
    assert scene.sync(member, SLOTS).why == ""
