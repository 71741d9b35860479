"""S1 to S7 with pools of ports: a pool grows when it runs out of ports, and never beyond its
maximum.
"""

from typing import Any

import pytest
from django.db import connection

from claims.allocation import scale_request
from claims.allocation.bulk import create_claims
from claims.allocation.scale_request import request_scaling
from claims.models import Claim
from claims.scaling.scaler import scale_pools
from pools.models import Decision, Member, Pool
from project.kernel.outbox.operations import QuotaExceeded
from slots.models import Slot
from tests.claims.helpers import again, ask, is_sound, let_go, serve, wish
from tests.claims.parallel_processes import together
from tests.claims.ports.quay import PROVIDERS, Quay, QuayProvider, make_quay, work

pytestmark = pytest.mark.usefixtures("committed_tables")
SIXTY = ",".join(f"{1000 + i}/{'UDP' if i % 5 == 0 else 'TCP'}" for i in range(60))
SHARED = {"ports": "30000-32767", "shared": True, "quota": 50}
APART = {"ports": "30000-32767", "protocols": ["tcp", "udp"], "quota": 50}


@pytest.fixture(autouse=True)
def _world(settings: Any) -> None:
    settings.BERTH_PROVIDERS = PROVIDERS
    QuayProvider.world = Quay()


def make_scaled(high: int = 4, slots: Any = SHARED) -> Pool:
    return make_quay(
        slots=slots,
        members={"min": 0, "max": high},
        scaling={"policy": "on_demand", "cooldown": {"up": "0s", "down": "0s"}},
    )


def cycle(pool: Pool) -> None:
    """The allocator, the scaler, the workers and the watcher, once each."""
    serve()
    scale_pools([pool.pk])
    with connection.cursor() as cursor:
        cursor.execute("UPDATE kernel_operation SET due_at = now() WHERE done_at IS NULL")
    work(pool)
    serve()


def balancers(pool: Pool) -> int:
    return Member.objects.filter(pool=pool).exclude(state="gone").count()


@pytest.mark.parametrize("slots", [SHARED, APART], ids=["shared", "apart"])
def test_one_claim_of_sixty_ports_is_served_by_load_balancers_of_fifty(slots: Any) -> None:
    """S4: also if its only failure is absorbed."""
    pool = make_scaled(slots=slots)
    ask("lb", kind="tcp")
    cycle(pool)
    cycle(pool)
    pool.refresh_from_db()
    assert (balancers(pool), pool.absorb_until is not None) == (1, True), "absorbs one request"
    claim = ask("lb", ports=SIXTY)
    pool.refresh_from_db()
    assert claim.state == "waiting"
    assert (pool.scale_requested_at, pool.absorb_until) == (None, None), "it was absorbed"
    for _ in range(4):
        cycle(pool)
    assert again(claim).state == "bound"
    assert len(again(claim).slots) == 60
    assert balancers(pool) <= 3
    assert is_sound()


def test_ten_thousand_failing_claims_make_one_request_and_one_wake_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S1. Red without `scale_requested_at IS NULL` in request_scale: each call woke the scaler."""
    pool = make_scaled()
    woken = list[str]()
    monkeypatch.setattr(scale_request, "publish", lambda *topics: woken.extend(topics))
    for _ in range(10):
        create_claims([wish("lb", kind="tcp") for _ in range(980)])
    for _ in range(200):
        ask("lb", ports="80/TCP,53/UDP")
    assert Claim.objects.filter(state="waiting").count() == 10_000
    serve()
    assert woken == ["pools"]
    scale_pools([pool.pk])
    assert balancers(pool) == 1, "one member a cycle"


def test_two_scalers_stay_within_the_maximum() -> None:
    """S5. Created and coming load balancers count."""
    pool = make_scaled(high=2)
    for _ in range(5):
        ask("lb", ports=SIXTY.partition(",1050/")[0])
    serve()

    def scale(k: int) -> None:
        for _ in range(10):
            request_scaling([pool.pk])
            scale_pools([pool.pk])

    together(*[scale] * 3)
    assert balancers(pool) == 2
    work(pool)
    serve()
    assert Claim.objects.filter(state="bound").count() == 2
    assert is_sound()


def test_raising_the_maximum_serves_the_claims_that_wait() -> None:
    """S6: a request that cannot be met is cleared, and the claim says why it waits."""
    pool = make_scaled(high=1)
    first = ask("lb", ports=SIXTY.partition(",1050/")[0])
    second = ask("lb", ports="80/TCP,53/UDP")
    for _ in range(3):
        cycle(pool)
    pool.refresh_from_db()
    assert pool.scale_requested_at is None
    assert (again(first).state, again(second).state) == ("bound", "waiting")
    wait = again(second, explain=True).wait
    assert wait is not None
    assert wait.text.startswith("80/TCP: ")
    assert "The maximum of members goes from 1 to 2" in wait.unblock
    Pool.objects.filter(pk=pool.pk).update(
        max_members=2, spec={**pool.spec, "members": {**pool.spec["members"], "max": 2}}
    )
    for _ in range(3):
        cycle(pool)
    assert again(second).state == "bound"


def test_a_failed_create_keeps_the_request_and_its_load_balancer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S7: the operation is tried again, and no second load balancer is made meanwhile."""
    pool = make_scaled()
    claim = ask("lb", ports="80/TCP,53/UDP")
    sync = QuayProvider.sync

    def fail(self: QuayProvider, *given: Any) -> Any:
        raise QuotaExceeded("no load balancer is left in this account")

    monkeypatch.setattr(QuayProvider, "sync", fail)
    for _ in range(3):
        cycle(pool)
    pool.refresh_from_db()
    assert (balancers(pool), pool.scale_requested_at is not None) == (1, True)
    assert Member.objects.get().outside == "no load balancer is left in this account"
    monkeypatch.setattr(QuayProvider, "sync", sync)
    cycle(pool)
    assert again(claim).state == "bound"
    assert balancers(pool) == 1


def test_a_lane_that_is_full_makes_the_pool_grow_though_another_lane_is_free() -> None:
    pool = make_scaled(slots={"ports": "30000-30009", "precreate": {"tcp": 10, "udp": 2}})
    ask("lb", kind="udp", size=2)
    cycle(pool)
    cycle(pool)
    assert Slot.objects.filter(state="idle", lane="tcp", is_open=True).count() == 10
    claim = ask("lb", ports="80/TCP,53/UDP")
    for _ in range(3):
        cycle(pool)
    assert again(claim).state == "bound"
    assert balancers(pool) == 2


def test_idle_load_balancers_leave_once_no_claim_waits() -> None:
    pool = make_scaled()
    claim = ask("lb", ports="80/TCP,53/UDP")
    for _ in range(2):
        cycle(pool)
    let_go(again(claim))
    cycle(pool)
    with connection.cursor() as cursor:
        for table, column in (("slots_slot", "changed_at"), ("pools_member", "state_at")):
            cursor.execute(f"UPDATE {table} SET {column} = {column} - interval '1 h'")
    cycle(pool)
    cycle(pool)
    assert balancers(pool) == 0
    assert Decision.objects.filter(delta=-1).count() == 1
