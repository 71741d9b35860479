"""Deletion of a pool with many members, with a claim in two pools, and with a claim that fails."""

import pytest

from claims.allocation.create import create_claim
from claims.lifecycle import pool_deletion
from claims.lifecycle.pool_deletion import delete_pool, finish_deleting
from pools.models import Member, Pool
from project.kernel.errors import Conflict
from slots.members import open_slots
from slots.members.chores import end_pools, finish_leaving_members
from slots.members.open_slots import align_remaining
from tests.claims.helpers import again, ask, make_pool, sql, wish

pytestmark = pytest.mark.usefixtures("tables")


def test_a_pool_of_many_members_is_deleted_by_the_finalizer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_slots, "MEMBERS", 3)
    make_pool(members=8)
    delete_pool("lab")
    assert set(Member.objects.values_list("state", "is_leaving")) == {("ready", True)}
    align_remaining()
    finish_leaving_members()
    end_pools()
    assert (
        Pool.objects.get(name="lab").state,
        set(Member.objects.values_list("state", flat=True)),
    ) == ("gone", {"gone"})


def test_a_claim_that_backs_off_counts_in_its_second_pool() -> None:
    make_pool("a")
    pool = make_pool("b")
    ask("a")  # its only slot
    claim = create_claim(wish(pools=["a", "b"]))
    sql(
        "UPDATE claims_claim SET state = 'blocked', due_at = now() + interval '60 s' "
        "WHERE id = %s AND state = 'waiting'",
        claim.id,
    )
    with pytest.raises(Conflict, match="has 1 claim"):
        delete_pool("b")
    assert again(claim).state == "blocked"
    delete_pool("b", cascade=True)
    finish_deleting(pool.pk)
    assert again(claim).outcome == "cancelled"


def test_a_claim_that_cannot_be_ended_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = make_pool(members=3)
    first, *others = [ask() for _ in range(3)]
    end = pool_deletion._end

    def fail(claim_id: int, why: str) -> None:
        if claim_id == first.id:
            raise RuntimeError("a bug")
        end(claim_id, why)

    monkeypatch.setattr(pool_deletion, "_end", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        delete_pool("lab", cascade=True)
    assert [again(claim).outcome for claim in (first, *others)] == ["", "cancelled", "cancelled"]
    monkeypatch.undo()
    finish_deleting(pool.pk)
    assert again(first).outcome == "cancelled"
