"""A minute in which AWS throttles every call: no other pool waits, nothing is lost, and the call
budget recovers.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, connections
from django.utils import timezone

from claims.allocation.claim_view import ClaimView
from claims.lifecycle.release import release_claim
from claims.ports.backends import BackendRequest, set_backend
from pools.lifecycle.services import create_pool
from pools.models import Member
from pools.providers.aws.provider import AwsProvider
from pools.providers.pacing import SharedPacer
from project.kernel.models import Budget, Operation
from project.kernel.outbox.budgets import list_uses
from project.kernel.outbox.operations import perform_due
from project.kernel.outbox.tasks import perform
from project.kernel.outbox.turns import Turns
from slots.members.store import request_sync
from slots.models import Slot
from slots.sync.watcher import observe_pool
from tests.claims.helpers import again, ask, is_sound
from tests.claims.ports.quay import PROVIDERS, Quay, QuayProvider, make_quay, work
from tests.pools.providers.aws.conftest import cloud, scene
from tests.pools.providers.aws.elbv2_cloud import Cloud, make_buckets
from tests.pools.providers.aws.harness import SUBNETS, name_endpoints
from tests.pools.providers.aws.scene import AwsScene
from tests.waiting import PATIENCE

__all__ = ["cloud", "scene"]  # fixtures

pytestmark = pytest.mark.usefixtures("committed_tables")
MINUTE = 60


def make_due() -> None:
    Operation.objects.filter(done_at=None).update(due_at="2020-01-01T00:00:00Z")


def refill_budgets() -> None:
    """Time passes for the buckets in the database."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE kernel_budget SET filled_at = filled_at - interval '1 h'")


def route(claim: ClaimView, ip: str) -> ClaimView:
    return set_backend(claim_id=claim.id, generation=claim.generation, backend=BackendRequest(ip))


def is_ready(claim: ClaimView) -> bool:
    return all(each["is_met"] for each in again(claim).conditions)


def test_a_minute_of_throttling_delays_one_account_and_loses_nothing(
    scene: AwsScene, cloud: Cloud, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.BERTH_PROVIDERS = [*settings.BERTH_PROVIDERS, *PROVIDERS[1:]]
    QuayProvider.world = Quay()
    monkeypatch.setattr(AwsProvider, "pacer", SharedPacer())
    monkeypatch.setattr("pools.providers.aws.provider.SYNC_PATIENCE", 0.0)
    place = {"region": cloud.region, **name_endpoints(scene.address)}
    games = create_pool(
        {
            "name": "games",
            "provider": {"kind": "aws", "subnets": SUBNETS, **place},
            "slots": {"ports": "30000-30049", "shared": True},
            "members": {"max": 1, "list": ["one"]},
            "backends": {"networks": ["10.0.0.0/16"], "ports": "1-65535"},
        }
    )
    other = make_quay()
    perform_due("aws")
    observe_pool(games)
    assert Member.objects.get(pool__name="games").state == "ready"
    kept, moved = (route(ask("games", ports="80/TCP"), f"10.0.1.{n}") for n in (1, 2))
    perform_due("aws")
    assert is_ready(kept) and is_ready(moved)

    now = cloud.now
    cloud.clock = lambda: now
    cloud.buckets = make_buckets(cloud.now)
    for bucket in cloud.buckets.values():
        bucket.left, bucket.at = 0.0, cloud.now + MINUTE
    release_claim(claim_id=moved.id, generation=moved.generation)
    late = route(ask("games", ports="81/UDP"), "10.0.1.3")
    for second in range(0, MINUTE, 15):
        calls = len(cloud.log)
        perform_due("aws")
        assert len(cloud.log) <= calls + 1, "one call a lane, and the lane comes back later"
        (waiting,) = set(Operation.objects.filter(done_at=None).values_list("error_code", "queue"))
        assert waiting == ("throttled", "aws")
        assert all(each.due_at > timezone.now() for each in Operation.objects.filter(done_at=None))
        # Another pool is served at once.
        claim = route(ask("lb", ports="80/TCP"), f"10.0.2.{second}")
        work(other)
        assert is_ready(claim)
        assert (is_ready(kept), is_ready(late)) == (True, False)
        make_due()
        refill_budgets()
    assert Slot.objects.filter(state="draining", last_claim_id=moved.id).exists()
    assert list(scene_ports(cloud)) == [30000, 30001]

    cloud.advance(MINUTE + 30)
    for _ in range(5):
        make_due()
        perform_due("aws")
        refill_budgets()
    assert is_ready(kept) and is_ready(late)
    assert not Operation.objects.filter(done_at=None).exclude(error_code="").exists()
    assert not Slot.objects.filter(state="draining").exists()
    assert sorted(scene_ports(cloud)) == [30000, 30002]
    assert cloud.throttled > 0
    assert is_sound()
    games.refresh_from_db()
    budgets = AwsProvider.list_budgets({}, games.place)
    uses = list_uses(budgets.values())
    assert list(budgets) == ["read", "write", "register"]
    for budget, use in zip(budgets.values(), uses, strict=True):
        assert use.spent_today > 0
        assert use.available == budget.burst, "the budget has recovered"
    assert sum(use.throttled_today for use in uses) == cloud.throttled


def scene_ports(cloud: Cloud) -> list[int]:
    return sorted(each.port for each in cloud.listeners.values())


def test_change_of_another_pool_passes_load_balancers_that_wait_for_their_budget(
    scene: AwsScene, cloud: Cloud, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads, as hints of the relay come, and the real patience. Red without turns: a thread
    came free only after its AWS load balancers, one after the other, had waited for seconds.
    """
    settings.BERTH_PROVIDERS = [*settings.BERTH_PROVIDERS, *PROVIDERS[1:]]
    QuayProvider.world = Quay()
    place = {"region": cloud.region, **name_endpoints(scene.address)}
    create_pool(
        {
            "name": "games",
            "provider": {"kind": "aws", "subnets": SUBNETS, **place},
            "slots": {"ports": "30000-30049", "shared": True},
            "members": {"max": 4, "list": ["a", "b", "c", "d"]},
        }
    )
    make_quay()
    monkeypatch.setattr(AwsProvider, "pacer", SharedPacer())
    perform_due("aws")
    for member in Member.objects.filter(pool__name="games"):
        request_sync(member.pool, member)
    Budget.objects.update(tokens=0, filled_at=timezone.now())
    # The next read waits for 5 s, less than the patience of a sync.
    monkeypatch.setattr(AwsProvider, "pace", 0.02)
    claim = ask("lb", kind="tcp")
    backend = BackendRequest("10.0.0.1", port=80)
    set_backend(claim_id=claim.id, generation=claim.generation, backend=backend)
    turns = Turns(2, {"aws", "quay"})
    monkeypatch.setattr("project.kernel.outbox.tasks.TURNS", turns)
    with ThreadPoolExecutor(2) as threads:
        *waiting, other = [threads.submit(work_off, hint) for hint in ["aws"] * 4 + ["quay"]]
        try:
            assert other.result(PATIENCE) >= 1
            assert not waiting[0].done(), "it waits for its budget"
            assert [each.result() for each in waiting[1:]] == [0, 0, 0], "no thread for them"
        finally:
            monkeypatch.setattr(turns, "ends", lambda turn: True)
    assert is_ready(claim)


def work_off(queue: str) -> int:
    try:
        return int(perform(queue))
    finally:
        connections.close_all()
