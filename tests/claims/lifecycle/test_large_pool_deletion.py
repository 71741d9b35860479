"""A pool with many slots is deleted in pieces, and no claim is bound from the start of it."""

from typing import Any

import pytest

from claims import claims_sql
from claims.lifecycle.chores import end_claims_of_deleted_pools
from claims.lifecycle.pool_deletion import delete_pool
from claims.models import Claim
from pools.models import Member, Pool
from project.kernel.models import Event
from slots.members import members_sql, open_slots, store
from slots.members.chores import end_pools, finish_drains, finish_leaving_members
from slots.members.open_slots import align_pool_fully, align_remaining
from slots.members.services import finish_leaving
from slots.models import Slot
from tests.claims.allocation.queues.test_paused_pool import (
    EACH,
    MEMBERS,
    big,
    held,
    open_now,
    take_gates,
)
from tests.claims.helpers import again, ask, is_sound
from tests.slots.helpers import is_consistent

pytestmark = pytest.mark.usefixtures("tables")


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_slots, "AT_ONCE", 10)
    monkeypatch.setattr(open_slots, "MEMBERS", 2)
    monkeypatch.setattr(store, "AT_ONCE", 5)


def finalize() -> None:
    end_claims_of_deleted_pools()
    align_remaining()
    finish_drains()
    finish_leaving_members()
    end_pools()


def state_of(pool: Pool) -> str:
    return Pool.objects.get(pk=pool.pk).state


def states() -> set[str]:
    return set(Member.objects.values_list("state", flat=True))


def test_deleting_a_large_pool_closes_some_slots_and_the_finalizer_the_rest() -> None:
    pool = big()
    delete_pool("lab", reason="moved")
    assert 0 < open_now() < MEMBERS * EACH
    assert (state_of(pool), states()) == ("deleting", {"ready"})
    assert (
        sorted(Event.objects.filter(verb="remove").values_list("before", "after", "reason"))
        == [("ready", "leaving", "moved")] * MEMBERS
    )
    assert set(Member.objects.values_list("is_leaving", "note")) == {(True, "moved")}
    assert align_pool_fully(pool.pk) > 2
    assert (open_now(), is_consistent()) == (0, True)
    for _ in range(4):
        finalize()
    assert (state_of(pool), states(), set(Slot.objects.values_list("state", flat=True))) == (
        "gone",
        {"gone"},
        {"retired"},
    )
    assert is_sound()


def test_a_transaction_of_a_large_deletion_takes_at_most_one_piece() -> None:
    big()
    delete_pool("lab")
    before = open_now()
    finish_leaving_members()
    finish_drains()
    assert (open_now(), states()) == (before, {"ready"}), "they are closed in pieces first"
    align_remaining()
    finish_leaving(Member.objects.order_by("id")[0].pk)
    assert Slot.objects.filter(state="retired").count() == store.AT_ONCE


def by_name(claim_id: int, pool: Pool) -> None:
    slot = Slot.objects.filter(pool=pool, is_open=True, state="idle")[0]
    claims_sql.hand_over(claim=claim_id, slots=[slot.pk], actor="t", reason="")


def in_line(claim_id: int, pool: Pool) -> None:
    shape = Claim.objects.get(pk=claim_id).shape_id
    lane = pool.lanes[0]
    claims_sql.bind_batch(1, shapes=[shape], pool=pool.pk, lane=lane, queue="", actor="t")


@pytest.mark.parametrize("with_gate", [True, False], ids=["gate", "no gate"])
@pytest.mark.parametrize("bind", [by_name, in_line])
def test_no_waiting_claim_is_bound_between_the_pieces_of_a_deletion(
    bind: Any, with_gate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even by a bind that read the pool before its deletion. Red without the gate."""
    pool = big()
    claims = [ask(selector={"row": "4"}, size=EACH), ask(selector={"row": "4"})]
    assert [again(claim).state for claim in claims] == ["bound", "waiting"]
    monkeypatch.setattr("claims.lifecycle.pool_deletion.finish_deleting", lambda *_, **__: False)
    delete_pool("lab", cascade=True)
    assert open_now() > EACH
    if not with_gate:
        take_gates(monkeypatch)
    bind(claims[1].id, pool)
    assert held() - EACH == (0 if with_gate else 1)


def test_claims_of_a_large_pool_end_with_its_deletion() -> None:
    pool = big()
    claims = [ask() for _ in range(15)]
    delete_pool("lab", cascade=True)
    assert {again(claim).outcome for claim in claims} == {"cancelled"}
    assert Claim.objects.exclude(state="ended").count() == 0
    for _ in range(4):
        finalize()
    assert state_of(pool) == "gone"


def test_a_small_pool_is_deleted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_slots, "AT_ONCE", MEMBERS * EACH)
    monkeypatch.setattr(open_slots, "MEMBERS", 200)
    monkeypatch.setattr(store, "AT_ONCE", 2_000)
    pool = big()
    delete_pool("lab")
    assert (open_now(), states()) == (0, {"gone"})
    end_pools()
    assert state_of(pool) == "gone"


def test_the_statement_retires_at_most_as_many_slots_as_it_is_given() -> None:
    pool = big()
    delete_pool("lab")
    align_pool_fully(pool.pk)
    one = Member.objects.get(name="m0").pk
    assert len(members_sql.retire_some(5, member=one)) == 5
    assert Slot.objects.filter(state="retired").count() == 5
