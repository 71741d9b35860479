"""Two workers that serve one member at once. The lane prevents it, but a lease may end while a
worker is frozen, and then both go on.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier, get_ident
from typing import Any

import pytest

from pools.providers.aws.account import Account
from pools.providers.base import MemberReport, MemberSnapshot
from tests.pools.providers.aws.elbv2_cloud import Cloud
from tests.pools.providers.aws.scene import AwsScene, make_port, slot_at


def run_two(scene: AwsScene, *members: MemberSnapshot) -> list[MemberReport]:
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(scene.sync, members))


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch) -> dict[str, Barrier]:
    """The calls before whose first use each worker waits for the other. Later uses do not wait: a
    worker registers its target again if the other one has deregistered it by then.
    """
    found: dict[str, Barrier] = {}
    waited: set[tuple[int, str]] = set()
    call = Account.call

    def meet(self: Account, operation: str, **params: Any) -> Any:
        worker = (get_ident(), operation)
        if (barrier := found.get(operation)) and worker not in waited:
            waited.add(worker)
            barrier.wait(timeout=30)
        return call(self, operation, **params)

    monkeypatch.setattr(Account, "call", meet)
    return found


def test_both_create_the_same_listener_with_success_and_there_is_one(
    scene: AwsScene, cloud: Cloud, meeting: dict[str, Barrier]
) -> None:
    member = scene.declare(make_port(30000))
    meeting |= {"CreateTargetGroup": Barrier(2), "CreateListener": Barrier(2)}
    first, second = run_two(scene, member, member)
    creates = [call for call in cloud.log if call.action == "CreateListener"]
    assert [call.outcome for call in creates] == ["", ""], "both succeed"
    assert slot_at(first, 30000) == slot_at(second, 30000)
    assert scene.ports() == {30000: ("TCP", "10.0.0.10:8080", "")}
    scene.audit()


def test_both_create_the_load_balancer_and_there_is_one(
    scene: AwsScene, cloud: Cloud, meeting: dict[str, Barrier]
) -> None:
    creating = scene.member(state="creating")
    meeting["CreateLoadBalancer"] = Barrier(2)
    first, second = run_two(scene, creating, creating)
    assert first.external_id == second.external_id
    assert cloud.made["CreateLoadBalancer"] == 1
    scene.audit()


def test_worker_with_old_rows_is_corrected_by_the_next_sync(
    scene: AwsScene, meeting: dict[str, Barrier]
) -> None:
    """The late worker registers the backend of the former claim at the same time."""
    old = scene.declare(make_port(30000))
    new = replace(old, slots=(make_port(30000, target="10.0.0.20:80"),))
    meeting |= {"RegisterTargets": Barrier(2)}
    run_two(scene, old, new)
    meeting.clear()
    scene.sync(new)
    assert scene.ports() == {30000: ("TCP", "10.0.0.20:80", "")}
    scene.audit()


def test_two_installations_that_want_one_port_get_one_listener_and_one_refusal(
    scene: AwsScene, meeting: dict[str, Barrier]
) -> None:
    member = scene.declare(make_port(30000))
    meeting["CreateListener"] = Barrier(2)
    results = []
    with ThreadPoolExecutor(2) as threads:
        calls = [
            threads.submit(scene.sync, member, installation=name) for name in ("b-test", "b-copy")
        ]
        for each in calls:
            error = each.result().failure
            results.append("served" if error is None else type(error).__name__)
    assert sorted(results) == ["ConflictError", "served"]
