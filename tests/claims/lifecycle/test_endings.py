"""Heartbeats, losses and pool deletions end only the claims that they concern."""

import pytest

from claims.lifecycle.chores import check_due_claims, end_claims_of_deleted_pools, lose_claims
from claims.lifecycle.lost_member import lose_claim
from claims.lifecycle.update import record_claim_heartbeat, resize_claim
from claims.models import Claim
from pools.models import Pool
from project.kernel.models import Event
from slots.members.chores import end_pools
from slots.members.liveness import lose_member, record_heartbeat
from slots.members.services import close_pool
from tests.claims.helpers import again, ask, elapse, let_go, make_pool, member, sql

pytestmark = pytest.mark.usefixtures("tables")


def test_a_heartbeat_before_a_resize_still_counts() -> None:
    make_pool(slots=2, lease={"heartbeat": "2m"})
    claim = ask(size=2)
    elapse(claim, 100)
    record_claim_heartbeat(claim_id=claim.id, generation=claim.generation)
    elapse(claim, 100)
    resize_claim(claim_id=claim.id, generation=claim.generation, size=1)
    check_due_claims()
    assert again(claim).state == "bound"
    elapse(claim, 20)
    check_due_claims()
    assert again(claim).outcome == "silent"


def test_a_heartbeat_before_the_bind_does_not_count() -> None:
    make_pool(lease={"heartbeat": "2m"})
    claim = ask()
    sql(
        "INSERT INTO claims_lease (claim_id, generation, at) VALUES (%s, %s, now() - "
        "interval '1 h')",
        claim.id,
        claim.generation,
    )
    check_due_claims()
    assert again(claim).state == "bound"


def test_a_claim_bound_after_its_member_came_back_is_not_lost() -> None:
    make_pool(members=1)
    first = ask()
    lose_member(member_id=member("m0").pk, reason="silent")
    let_go(first)
    record_heartbeat(member_id=member("m0").pk)
    second = ask()
    assert second.state == "bound"
    assert not lose_claim(claim_id=second.id, member_id=member("m0").pk), (
        "found lost before it came back"
    )
    assert again(second).state == "bound"


def test_a_lost_apply_locks_its_workspace_and_blocks_all_waiting_claims(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("claims.workspaces.services.CHUNK", 2)
    make_pool("tf", slots=["any"])
    claim = ask("tf", task="plan_and_apply", workspace="net")
    waiting = [ask("tf", task="plan", workspace="net") for _ in range(5)]
    sql("INSERT INTO claims_plan (claim_id, generation, digest) VALUES (%s, 1, 'x')", claim.id)
    sql(
        "UPDATE claims_claim SET step = 'apply', approved_plan_id = (SELECT id "
        "FROM claims_plan) WHERE id = %s",
        claim.id,
    )
    lose_member(member_id=member("m0").pk, reason="gone")
    lose_claims()
    assert {again(each).state for each in waiting} == {"blocked"}
    assert Event.objects.get(verb="lock").data == {"workspace": "net"}


def test_a_pool_being_deleted_is_gone_after_its_waiting_claims_are_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = make_pool(members=0)
    for _ in range(3):
        ask()
    close_pool(pool_id=pool.pk, reason="moved")
    end_pools()
    assert Pool.objects.get().state == "deleting", "somebody waits for it still"
    end_claims_of_deleted_pools()
    end_pools()
    assert Pool.objects.get().state == "gone"
    assert set(Claim.objects.values_list("outcome", flat=True)) == {"cancelled"}
    later = ask()
    end_claims_of_deleted_pools()
    assert again(later).state == "waiting", "for a new one of this name"
