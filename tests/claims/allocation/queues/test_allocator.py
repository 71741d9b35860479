"""The allocator serves waiting claims in order when slots become free."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import transaction

from claims import claims_sql
from claims.allocation.bulk import create_claims
from claims.allocation.claim_view import ClaimView
from claims.allocation.queues import allocator, queue_reasons
from claims.allocation.queues.allocator import BATCH, allocate
from claims.allocation.requests.policy import STRICT_AFTER
from claims.lifecycle.cancel import cancel_claim
from claims.lifecycle.update import prioritise_claim
from claims.models import Claim, Shape
from slots.members.services import add_members, cordon_member, uncordon_member
from slots.models import Slot
from tests.claims.helpers import (
    again,
    age,
    ask,
    held,
    is_sound,
    let_go,
    make_pool,
    member,
    places,
    serve,
    sql,
    wish,
)

pytestmark = pytest.mark.usefixtures("tables")


def states(*claims: object) -> list[str]:
    return [again(claim).state for claim in claims]  # type: ignore[arg-type]


def test_claims_are_served_by_rank_and_then_by_age_across_queues() -> None:
    make_pool("tf", slots=["any", "any"], members=1)
    first = ask("tf", kind="plan_and_apply", size=2)
    old = ask("tf", kind="plan")
    late = ask("tf", kind="plan_and_apply")
    urgent = ask("tf", kind="plan", priority=3)
    approved = ask("tf", kind="plan_and_apply")
    sql("UPDATE claims_claim SET rank = 0 WHERE id = %s", approved.id)
    let_go(first)
    assert serve() == 2
    assert states(approved, urgent, old, late) == ["bound", "bound", "waiting", "waiting"]
    let_go(again(urgent))
    serve()
    assert states(old, late) == ["bound", "waiting"]


def test_plans_take_plan_slots_before_they_compete_for_any_slots() -> None:
    pool = make_pool("tf", slots=["any", "plan", "plan"], members=[], most=1)
    plans = [ask("tf", kind="plan") for _ in range(3)]
    both = ask("tf", kind="plan_and_apply")
    add_members(pool_id=pool.pk, declared=["a"])
    serve()
    assert [places(again(claim))[0][1] for claim in plans[:2]] == ["plan", "plan"]
    assert states(plans[2], both) == ["bound", "waiting"], "the oldest of the rest"


def test_seven_hundred_claims_are_served_as_far_as_slots_go() -> None:
    pool = make_pool(slots=500, members=[], most=1)
    claims = create_claims([wish() for _ in range(700)])
    add_members(pool_id=pool.pk, declared=["a"])
    assert serve() == 500
    left = set(Claim.objects.filter(state="waiting").values_list("id", flat=True))
    assert [claim.id in left for claim in claims] == [False] * 500 + [True] * 200  # type: ignore[union-attr]
    assert is_sound()


def test_rows_read_by_a_step_depend_on_free_slots_and_a_batch_of_each_queue() -> None:
    """Rows as the database counts them. Two queues share the free slots; the slots of a third queue
    are held.
    """
    make_pool("tf", slots=["any", "any"], members=10)
    make_pool("taken")
    holders = [ask("tf", kind="plan_and_apply") for _ in range(20)]
    ask("taken")
    read = {}
    for waiting, more in ((20, 10), (2_020, 1_000)):
        add_waiting(more)
        serve()
        # Otherwise plans could follow the counts of an earlier test.
        sql("ANALYZE claims_claim, claims_shape, slots_slot")
        for free in (1, 20):
            read[free, waiting] = count_rows_read(holders[:free])
    each_slot = (read[20, 20] - read[1, 20]) / 19
    assert 1 <= each_slot < 20
    assert read[20, 2_020] - read[1, 2_020] == read[20, 20] - read[1, 20]
    assert read[1, 2_020] <= read[1, 20] + 2 * BATCH


def add_waiting(count: int) -> None:
    """Adds so many claims to each of three queues."""
    for pool, kind in (("tf", "plan"), ("tf", "plan_and_apply"), ("taken", "")):
        body = {"kind": kind} if kind else {}
        create_claims([wish(pool, **body) for _ in range(count)])


def count_rows_read(holders: list[ClaimView]) -> int:
    """Rows that a step reads after these holders have released their slots."""
    with released(holders):
        before = sql(READ)[0][0]
        step = allocate()
        read = int(sql(READ)[0][0] - before)
    assert step.bound == len(holders)
    return read


@contextmanager
def released(holders: list[ClaimView]) -> Iterator[None]:
    """The holders have released their slots; rolls back."""
    with transaction.atomic():
        for holder in holders:
            let_go(holder)
        yield
        transaction.set_rollback(True)


def test_rows_read_to_find_queues_do_not_depend_on_free_slots() -> None:
    make_pool("tf", slots=["any", "plan"], members=20)
    holders = [ask("tf", kind="plan") for _ in range(40)]
    create_claims([wish("tf", kind=kind) for kind in ("plan", "plan_and_apply")])
    sql("ANALYZE claims_claim, claims_shape, slots_slot")
    read = []
    for free in (holders[-1:], holders):
        with released(free):
            before = sql(READ)[0][0]
            assert len(claims_sql.queues_with_work(stale=3600.0)) == 2
            read.append(int(sql(READ)[0][0] - before))
    assert read[0] < 20
    assert read[1] <= read[0] + 1, "one free slot of each lane"


READ = (
    "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) "
    "FROM pg_stat_xact_user_tables"
)


def test_a_smaller_claim_passes_one_that_does_not_fit() -> None:
    make_pool(slots=4)
    holders = [ask() for _ in range(4)]
    big = ask(size=3)
    small = ask()
    let_go(holders[0])
    assert serve() == 1
    assert states(big, small) == ["waiting", "bound"]
    assert Shape.objects.get(size=3).wait_reason == {"code": "full", "passable": False}
    for claim in holders[1:]:
        let_go(claim)
    assert serve() == 1
    assert states(big) == ["bound"]
    assert is_sound()


def test_a_claim_that_waits_over_ten_minutes_is_not_passed() -> None:
    make_pool(slots=4)
    holders = [ask() for _ in range(4)]
    big = ask(size=3)
    serve()
    small = ask()
    age(big, STRICT_AFTER + 1)
    let_go(holders[0])
    assert serve() == 0
    wait = again(small, explain=True).wait
    assert wait is not None
    assert (wait.code, wait.blockers) == ("behind_head", [big.id])
    assert ask().state == "waiting", "nor does a new one pass"
    urgent = ask(priority=1)
    assert urgent.state == "bound", "a better rank does"
    let_go(urgent)
    for claim in holders[1:3]:
        let_go(claim)
    assert serve() == 1
    assert states(big, small) == ["bound", "waiting"]


def test_a_strict_head_blocks_only_its_own_lanes() -> None:
    make_pool("eu", slots={"ports": "30000-30003", "protocols": ["tcp", "udp"], "quota": 8})
    tcp = [ask("eu", kind="tcp") for _ in range(3)]
    big = ask("eu", kind="tcp", size=2)
    assert big.state == "waiting"
    age(big, STRICT_AFTER + 1)
    serve()
    assert ask("eu", kind="udp").state == "bound"
    assert ask("eu", kind="tcp").state == "waiting"
    let_go(tcp[0])
    serve()
    assert states(big) == ["bound"]


def test_a_claim_that_no_member_could_serve_blocks_no_other() -> None:
    make_pool(members=2)
    gpu = ask(selector={"gpu": "t4"})
    ghost = ask(pools=["lab", "ghost"])
    age(gpu, 10 * STRICT_AFTER)
    age(ghost, 10 * STRICT_AFTER)
    serve()
    assert ask().state == "bound"
    assert ask().state == "bound"
    assert Shape.objects.get(terms__has_key="selector").wait_reason == {
        "code": "no_member_with_labels",
        "passable": True,
    }


def test_a_claim_is_served_when_a_member_with_its_labels_is_added() -> None:
    pool = make_pool(members=1, most=2)
    gpu = ask(selector={"gpu": "t4"})
    assert serve() == 0
    add_members(pool_id=pool.pk, declared=[{"name": "g", "labels": {"gpu": "t4"}}])
    assert serve() == 1
    assert places(again(gpu)) == [("g", "slot", 0)]


def test_each_step_serves_the_first_claim_of_a_queue_for_two_slots() -> None:
    pool = make_pool(slots=2, members=[], most=3)
    claims = [ask(size=2) for _ in range(3)]
    add_members(pool_id=pool.pk, declared=["a", "b", "c"])
    for served in (1, 2, 3):
        assert allocate().bound == 1
        assert states(*claims) == ["bound"] * served + ["waiting"] * (3 - served)
    assert allocate().bound == 0


def test_single_and_larger_claims_are_served_in_order_of_age() -> None:
    pool = make_pool(slots=4, members=[], most=1)
    before, big, after = ask(), ask(size=2), [ask(), ask()]
    add_members(pool_id=pool.pk, declared=["a"])
    serve()
    assert states(before, big, *after) == ["bound", "bound", "bound", "waiting"]


def test_a_claim_over_two_pools_is_served_when_both_have_room() -> None:
    make_pool("eu")
    make_pool("us")
    holder = ask("us")
    both = ask(pools=["eu", "us"])
    assert serve() == 0
    small = ask("eu")
    assert (small.state, serve(), again(small).state) == ("waiting", 1, "bound"), (
        "it is passed in the pool where there is room"
    )
    let_go(holder)
    assert serve() == 0
    let_go(again(Claim.objects.get(shape__pools=["eu"])))  # type: ignore[arg-type]
    assert serve() == 1
    assert states(both) == ["bound"]


def test_a_cordon_keeps_a_claim_waiting_and_an_uncordon_serves_it() -> None:
    make_pool(members=1)
    cordon_member(member_id=member("m0").pk, reason="disk")
    claim = ask()
    assert claim.wait is not None
    assert (claim.wait.code, claim.wait.unblock) == ("no_member_willing", ["m0 is uncordoned"])
    assert serve() == 0
    uncordon_member(member_id=member("m0").pk)
    assert serve() == 1


def test_a_queue_without_a_free_slot_is_not_tried_again_at_once() -> None:
    make_pool()
    ask()
    create_claims([wish() for _ in range(50)])
    serve()
    shape = Shape.objects.get()
    assert (shape.wait_reason, shape.tried_at is not None) == (
        {"code": "full", "passable": False},
        True,
    )
    before = let_time_pass()
    serve()
    assert tried_at() == before


def let_time_pass() -> list[Any]:
    """The clock of the database stands still in a test that rolls back, so the last try is moved
    into the past.
    """
    sql("UPDATE claims_shape SET tried_at = tried_at - interval '1 ms'")
    return tried_at()


def tried_at() -> list[Any]:
    return sql("SELECT id, tried_at FROM claims_shape WHERE tried_at IS NOT NULL ORDER BY id")


def test_an_unchanged_wait_reason_is_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue with a free slot is tried in each step; without SETTLED each step wrote its row."""
    monkeypatch.setattr(queue_reasons, "SETTLED", 3600.0)
    make_pool(slots=2)
    ask()
    ask(size=2)
    serve()
    tried: list[int] = []
    bind = allocator.bind_claim

    def noted(claim: int, *given: Any, **more: Any) -> bool:
        tried.append(claim)
        return bind(claim, *given, **more)

    monkeypatch.setattr(allocator, "bind_claim", noted)
    code = "SELECT wait_reason->>'code' FROM claims_shape WHERE size = 2"
    assert sql(code) == [("not_enough",)]
    before = let_time_pass()
    serve()
    assert (len(tried), len(before), tried_at()) == (1, 1, before)
    monkeypatch.setattr(queue_reasons, "SETTLED", 0.0)
    serve()
    assert tried_at() != before, "once it has settled"


def test_a_queue_tried_25_seconds_ago_is_tried_again() -> None:
    make_pool()
    ask()
    ask()
    serve()
    sql("UPDATE claims_shape SET tried_at = now() - interval '25 s'")
    serve()
    assert sql("SELECT tried_at > now() - interval '5 s' FROM claims_shape") == [(True,)]


def test_capacity_is_requested_once_for_repeated_failures() -> None:
    make_pool()
    ask()
    for _ in range(3):
        ask()
    requested = "SELECT scale_requested_at FROM pools_pool"
    sql("UPDATE pools_pool SET scale_requested_at = scale_requested_at - interval '1 min'")
    first = sql(requested)
    assert first != [(None,)]
    sql("UPDATE claims_shape SET tried_at = NULL")
    ask()
    serve()
    assert sql(requested) == first


@pytest.mark.usefixtures("committed_tables")
def test_a_batch_never_exceeds_its_limit() -> None:
    pool = make_pool(slots=3 * BATCH, members=[], most=1)
    create_claims([wish() for _ in range(3 * BATCH)])
    add_members(pool_id=pool.pk, declared=["a"])
    serve()
    sizes = sql("SELECT count(*) FROM kernel_event WHERE verb = 'bind' GROUP BY tx")
    assert sizes == [(BATCH,)] * 3


def test_a_claim_cancelled_in_its_queue_is_skipped() -> None:
    make_pool()
    first, a, b = ask(), ask(), ask()
    cancel_claim(claim_id=a.id)
    prioritise_claim(claim_id=b.id, priority=-5)
    let_go(first)
    serve()
    assert states(a, b) == ["ended", "bound"]
    assert (held(), Slot.objects.count()) == (1, 1)
