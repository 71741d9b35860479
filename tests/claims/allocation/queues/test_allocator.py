"""The allocator serves waiting claims in order when slots become free."""

import pytest
from django.db import transaction

from claims.allocation.bulk import create_claims
from claims.allocation.claim_view import ClaimView
from claims.allocation.queues.allocator import BATCH, allocate
from claims.allocation.requests.policy import STRICT_AFTER
from claims.lifecycle.cancel import cancel_claim
from claims.lifecycle.update import prioritise_claim
from claims.models import Claim, Shape
from pools.models import Pool
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


def test_rows_read_by_a_step_depend_on_free_slots_not_on_waiting_claims() -> None:
    """Rows read by the step, as the database counts them: 2,000 more that wait cost no more than
    a few pages of them.
    """
    make_pool()
    first = ask()
    create_claims([wish() for _ in range(20)])
    few = rows_read(first)
    second = again(Claim.objects.get(state="bound"))  # type: ignore[arg-type]
    for _ in range(2):
        create_claims([wish() for _ in range(1000)])
    many = rows_read(second)
    assert many < few + 400


def rows_read(holder: ClaimView) -> int:
    # Else plans may be made by what was counted a test ago, or before claims came.
    sql("ANALYZE claims_claim, claims_shape, slots_slot")
    serve()
    let_go(holder)
    with transaction.atomic():
        before = sql(READ)[0][0]
        step = allocate()
        read = int(sql(READ)[0][0] - before)
    assert step.bound == 1
    return read


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


def test_all_claims_of_a_queue_for_two_slots_are_served_in_one_step() -> None:
    pool = make_pool(slots=2, members=[], most=3)
    claims = [ask(size=2) for _ in range(3)]
    add_members(pool_id=pool.pk, declared=["a", "b", "c"])
    assert serve() == 3
    assert states(*claims) == ["bound"] * 3


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


def test_an_unchanged_wait_reason_is_not_written_again() -> None:
    make_pool()
    ask()
    create_claims([wish() for _ in range(50)])
    serve()
    shape = Shape.objects.get()
    assert (shape.wait_reason, shape.tried_at is not None) == (
        {"code": "full", "passable": False},
        True,
    )
    tried = shape.tried_at
    serve()
    shape.refresh_from_db()
    assert shape.tried_at == tried, "nothing new to say"


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
    first = Pool.objects.get().scale_requested_at
    assert first is not None
    serve()
    assert Pool.objects.get().scale_requested_at == first


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
