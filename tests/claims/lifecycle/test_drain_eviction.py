"""Claims that are left at the drain deadline are evicted, and every drain ends."""

from typing import Any

import pytest

from claims.lifecycle.chores import lose_claims
from claims.lifecycle.drain import force_drain, list_fates
from claims.tasks.approvals.reservations import reserve_parked
from slots.members.drain import finish_drain, list_stuck
from slots.members.liveness import lose_member
from slots.members.services import cordon_member, uncordon_member
from tests.claims.helpers import ask, make_pool
from tests.claims.lifecycle.drain_helpers import (
    drain,
    draining_is_over,
    event,
    finalize,
    find,
    in_hours,
    pass_deadline,
    slots_of,
)
from tests.claims.tasks.approvals.helpers import (
    again,
    agents,
    applying,
    approvals,
    begin,
    is_sound,
    member,
    planned,
    result,
    run_of,
    serve,
    sql,
    task,
    tell,
    verbs,
    workspace,
    yes,
)

pytestmark = pytest.mark.usefixtures("committed_tables")


# -- past the deadline -----------------------------------------------------------------------------


def test_no_claim_is_evicted_before_the_drain_deadline() -> None:
    agents()
    claim = begin(task())
    drain(until=in_hours(1))
    finalize()
    assert again(claim).state == "bound"


def test_an_evicted_plan_waits_again_without_counting_as_a_failure() -> None:
    agents(members=2)
    claim = begin(task())
    other = member("tf-1")
    cordon_member(member_id=other.pk, reason="so that it stays in line")
    drain()
    pass_deadline()
    finalize()
    now = again(claim)
    assert (now.state, now.step) == ("waiting", "plan")
    assert sql("SELECT attempts FROM claims_claim WHERE id = %s", claim.id) == [(0,)]
    assert (run_of(claim).outcome, run_of(claim).code) == ("lost", "put_out")
    assert slots_of() == ["draining"], "its agent is told to end it"
    assert (
        event("put_out").reason
        == "its member was drained, it plans again: tf-0, by system: kernel patch"
    )
    uncordon_member(member_id=other.pk)
    serve()
    assert again(claim).state == "bound"


def test_an_evicted_task_that_has_not_begun_waits_again() -> None:
    agents()
    claim = task()
    cordon_member(member_id=member("tf-1").pk, reason="so that it stays in line")
    drain(force=True)
    finalize()
    assert again(claim).state == "waiting"
    assert find().state == "deleting", "nothing ran, so nothing drains"


def test_an_evicted_running_apply_is_lost_and_locks_its_workspace() -> None:
    agents()
    claim = applying()
    drain(force=True)
    finalize()
    now = again(claim)
    assert (now.state, now.outcome) == ("ended", "lost")
    assert workspace().locked_at is not None
    assert (
        "was evicted during its apply: its member was drained: tf-0, by system: kernel patch"
        in workspace().lock_reason
    )


def test_an_evicted_apply_that_has_not_begun_goes_first_on_another_member() -> None:
    agents(members=2)
    claim = planned()
    yes(claim)
    drain(again(claim).slots[0].member)
    pass_deadline("tf-0")
    finalize()
    assert (again(claim).state, again(claim).step) == ("waiting", "apply")
    serve()
    assert again(claim).slots[0].member == "tf-1"


def test_an_evicted_reserved_plan_gives_up_its_slot_and_keeps_its_approvals() -> None:
    agents(members=1, approval={"needed": 2})
    claim = planned()
    yes(claim)
    drain()
    finalize()
    assert again(claim).state == "reserved"
    pass_deadline()
    finalize()
    assert (again(claim).state, approvals(claim)) == ("parked", [("ben", True)])
    assert find().state == "deleting", "its slot was clean"
    yes(claim, "eve")
    assert (again(claim).state, again(claim).step) == ("waiting", "apply")


def test_a_reserved_plan_may_be_applied_on_a_draining_member_until_the_deadline() -> None:
    agents(members=1)
    claim = planned()
    drain()
    yes(claim)
    assert (again(claim).state, again(claim).slots[0].member) == ("bound", "tf-0")
    begin(claim)
    tell(claim, result("applied"))
    finalize()
    assert again(claim).outcome == "applied"
    assert find().state == "deleting"


def test_an_evicted_reserved_plan_gets_a_slot_on_another_member() -> None:
    agents(members=2)
    claim = planned()
    drain()
    pass_deadline()
    finalize()
    reserve_parked()
    assert (again(claim).state, again(claim).slots[0].member) == ("reserved", "tf-1")


def test_an_evicted_claim_without_retry_is_lost_with_the_reason() -> None:
    make_pool(members=1)
    claim = ask()
    drain("m0", force=True)
    finalize()
    now = again(claim)
    assert (now.state, now.outcome) == ("ended", "lost")
    assert find("m0").state == "gone"
    assert "its member was drained" in event("put_out").reason


def test_an_evicted_claim_with_retry_waits_again() -> None:
    make_pool(members=1)
    claim = ask(retry=True)
    drain("m0", force=True)
    finalize()
    assert again(claim).state == "waiting"


def test_an_evicted_claim_for_several_slots_is_lost_without_replacements() -> None:
    make_pool(members=["m0", "m1"], slots=2)
    claim = ask(size=3)
    assert {s.member for s in claim.slots} == {"m0", "m1"}
    drain("m1", force=True)
    finalize()
    assert again(claim).outcome == "lost", "one place more is not there"


def test_an_evicted_claim_for_several_slots_moves_to_free_slots() -> None:
    make_pool(members=["m0", "m1", "m2"], slots=2)
    claim = ask(size=3)
    drain("m1", force=True)
    finalize()
    now = again(claim)
    assert (now.state, {s.member for s in now.slots}) == ("bound", {"m0", "m2"})
    assert now.generation > claim.generation
    assert find("m1").state == "gone"
    assert is_sound()


def test_a_forced_drain_evicts_all_claims_before_it_returns() -> None:
    agents(slots=("any", "plan", "plan"), members=1)
    plans = [begin(task(workspace="", what="plan")) for _ in range(2)]
    force_drain(member_id=member().pk, reason="it burns")
    assert [again(c).state for c in plans] == ["waiting", "waiting"]
    assert event("force_drain").reason == "it burns"
    assert verbs(plans[0])[-1] == "put_out"


def test_the_listed_fates_are_what_a_forced_drain_does() -> None:
    agents(slots=("any", "any", "any", "plan"), members=1)
    claims = [
        begin(task(workspace="a")),
        applying(workspace="b"),
        planned(workspace="c"),
        task(workspace="", what="plan"),
    ]
    kept = list_fates([member().pk])[member().pk]
    assert [k.row.id for k in kept] == [c.id for c in claims]
    assert [(k.fate.to, k.fate.outcome) for k in kept] == [
        ("waiting", ""),
        ("ended", "lost"),
        ("parked", ""),
        ("waiting", ""),
    ]
    force_drain(member_id=member().pk, reason="it burns")
    assert [(again(c).state, again(c).outcome or "") for c in claims] == [
        (k.fate.to, k.fate.outcome) for k in kept
    ]


# -- always ends -----------------------------------------------------------------------------------


def test_slots_that_never_come_clean_leave_with_their_member_after_the_limit() -> None:
    agents(members=1)
    begin(task())
    drain(force=True)
    finalize()
    assert (find().state, slots_of()) == ("ready", ["draining"])
    draining_is_over()
    finalize()
    assert (find().state, slots_of()) == ("deleting", ["retired"])
    assert is_sound()


def test_a_member_past_its_deadline_waits_for_slots_within_their_drain_limit() -> None:
    agents(members=1)
    begin(task())
    drain(force=True)
    finalize()
    assert not finish_drain(member().pk)
    assert slots_of() == ["draining"]


def test_an_offline_member_is_drained_by_force() -> None:
    agents(members=1, liveness={"heartbeat": "2m", "lost": "never"})
    claim = begin(task())
    sql("UPDATE pools_member SET state = 'offline'")
    drain(force=True)
    finalize()
    draining_is_over()
    finalize()
    assert again(claim).state == "waiting"
    assert find().state == "deleting"


def test_a_lost_draining_member_leaves_and_its_claim_is_retried() -> None:
    agents(members=2)
    claim = begin(task())
    drain()
    lose_member(member_id=member().pk, reason="offline for 10 min")
    lose_claims()
    finalize()
    assert (again(claim).state, find().state) == ("blocked", "deleting")


def test_an_eviction_that_fails_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agents(slots=("any", "plan"), members=1)
    first, second = (begin(task(workspace="", what="plan")) for _ in range(2))
    drain(force=True)
    from_here = put_out_of(first.id, monkeypatch)
    with pytest.raises(RuntimeError, match="not this one"):
        finalize()
    assert (again(first).state, again(second).state) == ("bound", "waiting")
    from_here.undo()
    finalize()
    assert again(first).state == "waiting"


def put_out_of(claim: int, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    def refuse(held: Any, *args: Any, **kwargs: Any) -> Any:
        if held.claim.id == claim:
            raise RuntimeError("not this one")
        return meet(held, *args, **kwargs)

    meet = __import__("claims.lifecycle.drain", fromlist=["apply_fate"]).apply_fate
    monkeypatch.setattr("claims.lifecycle.drain.apply_fate", refuse)
    return monkeypatch


def test_a_drain_past_its_deadline_is_reported_as_stuck() -> None:
    agents(members=1)
    begin(task())
    drain()
    assert list_stuck() == []
    sql("UPDATE pools_member SET drain_until = now() - interval '5 min'")
    stuck = list_stuck()[0]
    assert (stuck.name, stuck.pool, stuck.held, stuck.note) == ("tf-0", "tf", 1, "kernel patch")
    assert 299 < stuck.over_for < 400
