"""A reserved plan keeps, loses, regains or changes its slot, and its apply runs near its plan."""

import pytest

from claims.allocation.claim_view import ClaimView, Wait
from claims.allocation.selectors import view_claim
from claims.controllers import Allocator
from claims.lifecycle.chores import check_due_claims, lose_claims
from claims.tasks.approvals.reservations import move_reserved, plan_again
from claims.tasks.plans.selectors import list_pending
from claims.workspaces.services import lock_workspace, unlock_workspace
from pools.models import Member
from slots.members.liveness import lose_member, mark_back_online, take_offline
from slots.members.services import cordon_member, finish_leaving, remove_member
from slots.models import Slot
from tests.claims.tasks.approvals.helpers import (
    again,
    agents,
    approvals,
    begin,
    code_of,
    digest,
    events,
    is_sound,
    member,
    member_of,
    pass_time,
    plan_of,
    planned,
    result,
    row,
    serve,
    sql,
    states,
    task,
    tell,
    verbs,
    workspace,
    ws,
    yes,
)

pytestmark = pytest.mark.usefixtures("tables")


def where(claim: object) -> str:
    found = again(claim).slots  # type: ignore[arg-type]
    return found[0].member if found else ""


def again_explained(claim: ClaimView) -> Wait:
    found = view_claim(claim.id, explain=True).wait
    assert found is not None
    return found


def step() -> None:
    Allocator().step()


def lose(name: str) -> None:
    lose_member(member_id=member(name).pk, reason="gone")
    lose_claims()


# -- S11: a place again ----------------------------------------------------------------------------


def test_a_plan_on_a_lost_member_is_reserved_elsewhere_with_its_approvals() -> None:
    agents(approval={"needed": 2})
    claim = planned()
    yes(claim)
    # The clock of the database stands still in this test: a new deadline would equal the first.
    sql("UPDATE claims_claim SET expires_at = expires_at - interval '1 min'")
    before = row(claim)
    lose("tf-0")
    now = row(claim)
    assert (now.state, now.is_seeking, now.expires_at) == ("parked", True, before.expires_at)
    step()
    now = row(claim)
    assert (now.state, where(claim), now.is_seeking, now.expires_at) == (
        "reserved",
        "tf-1",
        False,
        before.expires_at,
    )
    assert now.generation > before.generation
    assert approvals(claim) == [("ben", True)]
    assert yes(claim, "eve").state == "bound"
    assert is_sound()


def test_the_hold_is_counted_from_the_reservation_of_the_slot() -> None:
    """Not from the last return of the member. A move to another member starts a new count."""
    agents()
    claim = planned()
    pass_time(claim, 3 * 3600)
    sql("UPDATE slots_slot SET changed_at = now()")
    assert kept(claim) > 3 * 3600 - 60
    lose("tf-0")
    step()
    assert where(claim) == "tf-1"
    assert kept(claim) < 3600


def kept(claim: ClaimView) -> float:
    found = {pending.claim_id: pending.held_for for pending in list_pending(None)}[claim.id]
    assert found is not None
    return found


def test_a_plan_without_a_slot_asks_for_capacity_and_takes_the_next_slot() -> None:
    agents(members=2)
    claim = planned()
    busy = task(workspace="busy")
    assert (where(claim), where(busy)) == ("tf-0", "tf-1")
    lose("tf-0")
    sql("UPDATE pools_pool SET scale_requested_at = NULL")
    step()
    assert again(claim).state == "parked"
    assert sql("SELECT scale_requested_at IS NOT NULL FROM pools_pool") == [(True,)]
    begin(busy)
    tell(busy, result("failed"))
    step()
    assert (again(claim).state, where(claim)) == ("reserved", "tf-1")
    assert verbs(claim)[-1] == "reserve_again"


def test_a_parked_plan_returns_to_its_member_when_there_is_room() -> None:
    agents(slots=["any", "any"])
    claim = planned()
    lose("tf-0")
    mark_back_online(member_id=member("tf-0").pk)
    step()
    assert where(claim) == "tf-0"


def test_an_approved_apply_gets_a_slot_before_a_parked_plan() -> None:
    agents(members=2)
    keeps, approved = planned(workspace="a"), planned(workspace="b")
    yes(approved)
    lose("tf-0")
    lose("tf-1")
    assert (row(keeps).is_seeking, row(approved).state, row(approved).rank) == (True, "waiting", 0)
    sql("UPDATE claims_claim SET rank = 1 WHERE id = %s", keeps.id)
    mark_back_online(member_id=member("tf-0").pk)
    step()
    assert (again(approved).state, again(keeps).state) == ("bound", "parked")


def test_a_plan_stops_seeking_a_slot_after_the_hold_of_the_pool() -> None:
    agents(approval={"hold": "30m"})
    claim = planned()
    lose("tf-0")
    assert row(claim).is_seeking
    pass_time(claim, 1801)
    check_due_claims()
    assert not row(claim).is_seeking
    step()
    assert again(claim).state == "parked"


def test_a_wait_beside_a_reserved_plan_names_the_plan_and_its_age() -> None:
    agents(members=1)
    claim, beside, behind = planned(), task(workspace="other"), task()
    pass_time(claim, 7200)
    full, busy = again_explained(beside), again_explained(behind)
    assert full.text == "The only any slot is taken: 1 reserved (for 2 h)"
    assert f"Claim {claim.id} is approved or rejected" in full.unblock
    assert (full.facts["undecided"], full.facts["kept_s"] >= 7200) == ([claim.id], True)
    assert (busy.code, busy.unblock, busy.start_note) == (
        "workspace_busy",
        [f"Claim {claim.id} is approved or rejected"],
        "depends on a person",
    )


# -- A13: near the plan ----------------------------------------------------------------------------


def test_an_apply_without_a_slot_runs_on_the_member_of_its_plan() -> None:
    agents(members=3, approval={"hold": "0s"})
    fill = task(workspace="busy")
    claim = planned()
    assert plan_of(claim).member_id == member("tf-1").pk
    begin(fill)
    tell(fill, result("failed"))
    yes(claim)
    step()
    assert where(claim) == "tf-1", "tf-0 is free, too, and stands before it"
    assert is_sound()


def test_an_apply_whose_member_is_full_runs_elsewhere_with_the_saved_plan() -> None:
    agents(members=2, approval={"hold": "0s"})
    claim = planned()
    other = task(workspace="busy")
    assert where(other) == "tf-0"
    yes(claim)
    step()
    assert where(claim) == "tf-1"
    assert bytes(plan_of(claim).digest) == digest()


# -- R9: a member that leaves ----------------------------------------------------------------------


def test_a_plan_on_a_leaving_member_may_be_approved_and_applied() -> None:
    agents(members=1)
    claim = planned()
    removal = remove_member(member_id=member().pk, reason="old")
    assert [h.claim_id for h in removal.holders] == [claim.id]
    assert not finish_leaving(member().pk)
    assert yes(claim).state == "bound"
    begin(claim)
    assert not finish_leaving(member().pk)
    tell(claim, result("applied"))
    finish_leaving(member().pk)
    assert Member.objects.get().state == "deleting"


def test_a_plan_on_a_cordoned_member_may_be_approved_there() -> None:
    agents(members=1)
    claim = planned()
    cordon_member(member_id=member().pk, reason="disk")
    assert yes(claim).state == "bound"
    assert where(claim) == "tf-0"


def test_a_plan_approved_on_an_offline_member_is_applied_when_it_is_back() -> None:
    agents(members=1)
    claim = planned()
    take_offline(member_id=member().pk, reason="silent")
    assert yes(claim).state == "bound"
    mark_back_online(member_id=member().pk)
    begin(claim)
    assert tell(claim, result("applied")).outcome == "applied"


# -- move ------------------------------------------------------------------------------------------


def test_a_moved_plan_keeps_its_plan_approvals_and_deadline() -> None:
    agents(approval={"needed": 2})
    claim = planned()
    yes(claim)
    sql("UPDATE claims_claim SET expires_at = expires_at - interval '1 min'")
    deadline = row(claim).expires_at
    moved = move_reserved(claim_id=claim.id, reason="tf-0 is slow")
    assert (moved.state, moved.slots[0].member, approvals(claim)) == (
        "reserved",
        "tf-1",
        [("ben", True)],
    )
    assert (moved.expires_at, plan_of(claim).is_stale) == (deadline, False)
    assert verbs(claim)[-2:] == ["leave", "reserve_again"]
    assert events("leave")[0].reason == "tf-0 is slow"
    assert is_sound()


def test_a_plan_without_a_free_slot_moves_only_from_a_leaving_member() -> None:
    agents(members=1)
    claim = planned()
    assert code_of(lambda: move_reserved(claim_id=claim.id, reason="x")) == "no_place"
    assert (again(claim).state, where(claim)) == ("reserved", "tf-0")
    remove_member(member_id=member().pk, reason="old")
    assert move_reserved(claim_id=claim.id, reason="x").state == "parked"
    assert row(claim).is_seeking
    finish_leaving(member().pk)
    assert Member.objects.get().state == "deleting"


def test_only_a_plan_with_a_reserved_slot_can_be_moved() -> None:
    agents(approval={"hold": "0s"})
    assert code_of(lambda: move_reserved(claim_id=planned().id, reason="x")) == "not_reserved"
    assert (
        code_of(lambda: move_reserved(claim_id=task(workspace="b").id, reason="x")) == "not_pending"
    )
    assert (
        code_of(lambda: move_reserved(claim_id=planned(workspace="c").id, reason=" ")) == "invalid"
    )


# -- plan again ------------------------------------------------------------------------------------


def test_planning_again_in_a_reserved_slot_discards_plan_and_approvals() -> None:
    agents(approval={"needed": 2})
    claim = planned()
    yes(claim)
    again_ = plan_again(claim_id=claim.id, reason="main has moved")
    assert (again_.state, again_.step, where(claim)) == ("bound", "plan", "tf-0")
    assert plan_of(claim).is_stale
    begin(claim)
    tell(claim, result(text="another"))
    assert approvals(claim) == []
    assert code_of(lambda: yes(claim)) == "plan_changed"
    assert yes(claim, text="another").state == "reserved"
    assert is_sound()


def test_planning_again_on_a_cordoned_member_moves_to_another() -> None:
    agents()
    claim = planned()
    cordon_member(member_id=member_of(claim).pk, reason="disk")
    assert plan_again(claim_id=claim.id, reason="x").state == "waiting"
    serve()
    assert (again(claim).step, where(claim)) == ("plan", "tf-1")


def test_planning_again_without_a_slot_resets_step_rank_and_approval() -> None:
    agents(members=1, approval={"hold": "0s"})
    claim = planned()
    assert plan_again(claim_id=claim.id, reason="x").state == "waiting"
    serve()
    begin(claim)
    tell(claim, result())
    busy = task(workspace="busy")
    assert again(busy).state == "bound"
    yes(claim)
    assert (row(claim).step, row(claim).rank) == ("apply", 0)
    plan_again(claim_id=claim.id, reason="x")
    now = row(claim)
    assert (now.step, now.rank, now.approved_plan_id, now.state) == ("plan", 100, None, "waiting")
    assert code_of(lambda: plan_again(claim_id=claim.id, reason="x")) == "not_pending"


def test_planning_again_in_a_locked_workspace_blocks_the_claim() -> None:
    agents()
    claim = planned()
    lock_workspace(workspace_id=ws("net"), reason="x")
    assert plan_again(claim_id=claim.id, reason="x").state == "blocked"
    assert states() == {"idle": 2}
    unlock_workspace(workspace_id=ws("net"))
    serve()
    assert again(claim).state == "bound"


def test_a_queued_apply_is_blocked_while_its_workspace_is_locked() -> None:
    agents(members=1, approval={"hold": "0s"})
    claim = planned()
    task(workspace="busy")
    yes(claim)
    lock_workspace(workspace_id=ws("net"), reason="x")
    assert again(claim).state == "blocked"
    plan_again(claim_id=claim.id, reason="x")
    assert (row(claim).step, row(claim).state) == ("plan", "blocked")
    unlock_workspace(workspace_id=ws("net"))
    assert again(claim).state == "waiting"
    assert workspace().locked_at is None


def test_moves_and_losses_leave_every_claim_with_one_slot() -> None:
    agents(members=3, slots=["any", "any"])
    claims = [planned(workspace=f"w{i}") for i in range(4)]
    move_reserved(claim_id=claims[0].id, reason="x")
    plan_again(claim_id=claims[1].id, reason="x")
    yes(claims[2])
    lose("tf-1")
    step()
    step()
    assert Slot.objects.filter(claim_id__isnull=False).count() == 4
    assert is_sound()
