"""A member takes nothing new, who is there may finish, and past its deadline they are put out: it always ends, and it is taken back until
it has (P8, R9)."""

from datetime import timedelta
from typing import Any

import pytest

from claims.finalization import look_at_due_claims, lose_claims
from claims.selectors import view_claim
from claims.services.draining import force_drain, list_kept
from claims.services.reserving import reserve_parked
from claims.services.tasks import confirm_stopped
from pools.models import Member
from pools.providers.base import MemberReport
from pools.selectors import config_of, get_pool
from project.kernel.errors import Conflict, Invalid
from project.kernel.models import Event
from project.kernel.requiring import moment
from slots.draining import LONGEST, list_stuck, settle_drain, undrain_member
from slots.liveness import lose_member
from slots.models import Slot
from slots.performers import settle_report
from slots.selectors import snapshot_of
from slots.services import add_members, close_pool, cordon_member, keep_member, remove_member, uncordon_member
from tests.claims.kit import ask, make_pool
from tests.deciding.kit import (
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
from tests.draining.kit import drain, draining_is_over, finalize, find, in_hours, pass_deadline, slots_of

pytestmark = pytest.mark.usefixtures("tables")


def is_closed(name: str = "tf-0") -> bool:
    return not Slot.objects.filter(member__name=name, is_open=True).exists()


def event(verb: str) -> Event:
    return Event.objects.filter(verb=verb).latest("id")


# -- ordered --------------------------------------------------------------------------------------------------------------------------


def test_it_closes_and_says_who_is_there_and_until_when() -> None:
    agents(drain={"limit": "30m"})
    claim = begin(task())
    before = moment()
    removal = drain()
    now = find()
    assert [h.claim_id for h in removal.holders] == [claim.id]
    assert (now.is_leaving, now.note, now.drain_by, removal.state) == (True, "kernel patch", "system", "ready")
    assert now.drain_until is not None
    assert timedelta(minutes=30) <= now.drain_until - before < timedelta(minutes=31)
    assert is_closed()
    assert (event("drain").before, event("drain").after, event("drain").reason) == ("ready", "draining", "kernel patch")


def test_an_empty_one_goes_at_once() -> None:
    agents()
    assert drain().state == "deleting"


def test_a_static_one_is_gone_at_once() -> None:
    make_pool(members=2)
    assert drain("m0").state == "gone"


def test_it_goes_by_itself_when_the_last_has_ended() -> None:
    agents()
    claim = begin(task())
    drain()
    finalize()
    assert find().state == "ready"
    tell(claim, result("no_changes"))
    finalize()
    assert find().state == "deleting"
    assert view_claim(claim.id).outcome == "planned"


def test_another_deadline_another_reason() -> None:
    agents()
    begin(task())
    drain(until=in_hours(1))
    first = find()
    drain(until=in_hours(5), reason="takes longer")
    now = find()
    assert first.drain_until and now.drain_until and now.drain_until > first.drain_until
    assert (now.note, now.drain_since) == ("takes longer", first.drain_since)
    drain(reason="as before")
    assert find().drain_until == now.drain_until


@pytest.mark.parametrize(("until", "what"), [(-1.0, "has passed"), (LONGEST.total_seconds() / 3600 + 1, "30 days")], ids=["past", "far"])
def test_a_deadline_that_cannot_be(until: float, what: str) -> None:
    agents()
    with pytest.raises(Invalid) as caught:
        drain(until=in_hours(until))
    assert caught.value.fields[0].field == "until"
    assert what in caught.value.fields[0].message
    assert find().drain_until is None


def test_a_reason_is_needed() -> None:
    agents()
    with pytest.raises(Invalid) as caught:
        drain(reason=" ")
    assert caught.value.fields[0].field == "reason"
    assert not find().is_leaving


def test_one_that_has_gone_is_not_drained() -> None:
    agents()
    drain()
    with pytest.raises(Conflict, match="is deleting"):
        drain()


def test_what_was_to_be_removed_may_get_a_deadline() -> None:
    agents()
    begin(task())
    remove_member(member_id=member().pk, reason="sold")
    assert find().drain_until is None
    drain(reason="sold, and hurry")
    assert find().drain_until is not None


# -- taken back -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("take_back", [undrain_member, keep_member], ids=["undrain", "keep"])
def test_taken_back_it_takes_claims_again_and_nobody_notices(take_back: Any) -> None:
    agents(slots=("any", "plan"))
    claim = begin(task())
    drain()
    take_back(member_id=member().pk)
    now = find()
    assert (now.is_leaving, now.drain_until, now.drain_since, now.drain_by, now.note) == (False, None, None, "", "")
    assert not is_closed()
    assert again(claim).generation == claim.generation
    assert Slot.objects.filter(is_open=True, state="idle", member=now).count() == 1


def test_who_was_put_out_stays_so_when_it_is_taken_back() -> None:
    agents(members=1)
    claim = begin(task())
    drain()
    pass_deadline()
    finalize()
    undrain_member(member_id=member().pk)
    assert again(claim).state == "waiting"
    assert slots_of() == ["draining"]
    confirm_stopped(member(), [(slot.pk, slot.generation) for slot in Slot.objects.all()])
    serve()
    assert again(claim).state == "bound"


def test_a_cordon_from_before_is_still_there_after_it() -> None:
    agents()
    begin(task())
    cordon_member(member_id=member().pk, reason="disk")
    drain()
    undrain_member(member_id=member().pk)
    assert find().is_cordoned
    assert is_closed()


def test_said_of_one_that_does_not_drain_it_changes_nothing() -> None:
    agents()
    undrain_member(member_id=member().pk)
    assert not Event.objects.filter(verb="undrain").exists()


def test_of_a_pool_that_is_deleted_nobody_stays() -> None:
    pool = agents()
    begin(task())
    close_pool(pool_id=pool.pk, reason="over")
    with pytest.raises(Conflict, match="being deleted"):
        undrain_member(member_id=member().pk)
    with pytest.raises(Conflict, match="being deleted"):
        drain(stays=True)


# -- stays ----------------------------------------------------------------------------------------------------------------------------


def test_drained_it_may_stay_closed_until_somebody_opens_it() -> None:
    agents()
    claim = begin(task())
    drain(stays=True)
    finalize()
    assert find().drain_until is not None
    tell(claim, result("no_changes"))
    finalize()
    now = find()
    assert (now.state, now.is_cordoned, now.is_leaving, now.drain_until, now.note) == ("ready", True, False, None, "kernel patch")
    assert event("drained").after == "cordoned"
    uncordon_member(member_id=now.pk)
    assert not is_closed()


def test_one_that_would_stay_and_is_taken_back_is_open() -> None:
    agents()
    begin(task())
    drain(stays=True)
    undrain_member(member_id=member().pk)
    assert not find().is_cordoned


def test_while_it_drains_it_is_not_uncordoned() -> None:
    """Open with a deadline, it would take claims only to put them out."""
    agents()
    begin(task())
    drain(stays=True)
    with pytest.raises(Conflict, match="tf-0 drains") as refused:
        uncordon_member(member_id=member().pk)
    assert "Undrain" in refused.value.way_out
    assert (find().is_cordoned, is_closed()) == (True, True)


@pytest.mark.parametrize("again", [drain, lambda **more: force_drain(member_id=member().pk, **more)], ids=["deadline", "force"])
def test_said_again_without_its_end_it_stays_as_it_was_wished(again: Any) -> None:
    """Another deadline by somebody who knows nothing of it removes no member that is to stay."""
    agents()
    begin(task())
    drain(stays=True)
    again(reason="sooner")
    assert (find().is_leaving, find().is_cordoned, find().note) == (False, True, "sooner")


def test_by_force_it_drains_also_where_one_claim_cannot_be_dealt_with_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ordered and written down: the finalizer goes on with it, and whoever ordered it hears that it is so."""

    def fail(**_: Any) -> bool:
        raise RuntimeError("a broken claim")

    agents()
    begin(task())
    with monkeypatch.context() as patch:
        patch.setattr("claims.services.draining.put_out", fail)
        removal = force_drain(member_id=member().pk, reason="now")
    assert (removal.state, find().is_leaving, len(removal.holders)) == ("ready", True, 1)
    finalize()
    assert "held" not in slots_of()


def test_from_staying_to_going_and_back() -> None:
    agents()
    begin(task())
    drain(stays=True)
    drain(stays=False)
    assert (find().is_leaving, find().is_cordoned) == (True, False)
    drain(stays=True)
    assert (find().is_leaving, find().is_cordoned) == (False, True)


def test_one_that_stays_waits_for_what_does_not_come_clean() -> None:
    """It is to be used again: only a word of its agent, or its loss, says that nothing runs there."""
    agents()
    begin(task())
    drain(stays=True, force=True)
    finalize()
    draining_is_over()
    finalize()
    assert (find().state, slots_of()) == ("ready", ["draining"])
    slot = Slot.objects.get(member=member())
    confirm_stopped(member(), [(slot.pk, slot.generation)])
    finalize()
    assert (find().is_cordoned, find().drain_until) == (True, None)


# -- past the deadline ----------------------------------------------------------------------------------------------------------------


def test_before_the_deadline_nobody_is_put_out() -> None:
    agents()
    claim = begin(task())
    drain(until=in_hours(1))
    finalize()
    assert again(claim).state == "bound"


def test_a_plan_goes_back_into_its_line_and_that_is_no_failure() -> None:
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
    assert event("put_out").reason == "its member was drained, it plans again: tf-0, by system: kernel patch"
    uncordon_member(member_id=other.pk)
    serve()
    assert again(claim).state == "bound"


def test_one_whose_task_has_not_begun_goes_back_too() -> None:
    agents()
    claim = task()
    cordon_member(member_id=member("tf-1").pk, reason="so that it stays in line")
    drain(force=True)
    finalize()
    assert again(claim).state == "waiting"
    assert find().state == "deleting", "nothing ran, so nothing drains"


def test_an_apply_that_has_begun_is_lost_and_its_workspace_locked() -> None:
    agents()
    claim = applying()
    drain(force=True)
    finalize()
    now = again(claim)
    assert (now.state, now.outcome) == ("ended", "lost")
    assert workspace().locked_at is not None
    assert "was put out while it applied: its member was drained: tf-0, by system: kernel patch" in workspace().lock_reason


def test_an_apply_that_has_not_begun_goes_on_elsewhere_first_in_line() -> None:
    agents(members=2)
    claim = planned()
    yes(claim)
    drain(again(claim).slots[0].member)
    pass_deadline("tf-0")
    finalize()
    assert (again(claim).state, again(claim).step) == ("waiting", "apply")
    serve()
    assert again(claim).slots[0].member == "tf-1"


def test_a_plan_that_waits_for_a_person_keeps_its_slot_until_then_and_its_plan_after() -> None:
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


def test_it_may_be_approved_and_applied_there_until_the_deadline() -> None:
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


def test_it_gets_a_slot_elsewhere_where_its_pool_keeps_one() -> None:
    agents(members=2)
    claim = planned()
    drain()
    pass_deadline()
    finalize()
    reserve_parked()
    assert (again(claim).state, again(claim).slots[0].member) == ("reserved", "tf-1")


def test_what_a_person_holds_is_lost_and_says_why() -> None:
    make_pool(members=1)
    claim = ask()
    drain("m0", force=True)
    finalize()
    now = again(claim)
    assert (now.state, now.outcome) == ("ended", "lost")
    assert find("m0").state == "gone"
    assert "its member was drained" in event("put_out").reason


def test_what_may_be_tried_again_stands_in_line_again() -> None:
    make_pool(members=1)
    claim = ask(retry=True)
    drain("m0", force=True)
    finalize()
    assert again(claim).state == "waiting"


def test_of_several_slots_those_here_are_replaced() -> None:
    make_pool(members=["m0", "m1"], slots=2)
    claim = ask(size=3)
    assert {s.member for s in claim.slots} == {"m0", "m1"}
    drain("m1", force=True)
    finalize()
    assert again(claim).outcome == "lost", "one place more is not there"


def test_of_several_slots_those_here_move_if_as_many_are_free() -> None:
    make_pool(members=["m0", "m1", "m2"], slots=2)
    claim = ask(size=3)
    drain("m1", force=True)
    finalize()
    now = again(claim)
    assert (now.state, {s.member for s in now.slots}) == ("bound", {"m0", "m2"})
    assert now.generation > claim.generation
    assert find("m1").state == "gone"
    assert is_sound()


def test_force_ends_all_before_it_answers() -> None:
    agents(slots=("any", "plan", "plan"), members=1)
    plans = [begin(task(workspace="", what="plan")) for _ in range(2)]
    force_drain(member_id=member().pk, reason="it burns")
    assert [again(c).state for c in plans] == ["waiting", "waiting"]
    assert event("force_drain").reason == "it burns"
    assert verbs(plans[0])[-1] == "put_out"


def test_what_it_would_end_is_said_before() -> None:
    agents(slots=("any", "any", "any", "plan"), members=1)
    claims = [begin(task(workspace="a")), applying(workspace="b"), planned(workspace="c"), task(workspace="", what="plan")]
    kept = list_kept([member().pk])[member().pk]
    assert [k.row.id for k in kept] == [c.id for c in claims]
    assert [(k.fate.to, k.fate.outcome) for k in kept] == [("waiting", ""), ("ended", "lost"), ("parked", ""), ("waiting", "")]
    force_drain(member_id=member().pk, reason="it burns")
    assert [(again(c).state, again(c).outcome or "") for c in claims] == [(k.fate.to, k.fate.outcome) for k in kept]


# -- always ends ----------------------------------------------------------------------------------------------------------------------


def test_what_never_comes_clean_goes_with_its_member() -> None:
    agents(members=1)
    begin(task())
    drain(force=True)
    finalize()
    assert (find().state, slots_of()) == ("ready", ["draining"])
    draining_is_over()
    finalize()
    assert (find().state, slots_of()) == ("deleting", ["retired"])
    assert is_sound()


def test_a_slot_that_drains_in_time_is_waited_for_also_past_the_members_deadline() -> None:
    agents(members=1)
    begin(task())
    drain(force=True)
    finalize()
    assert not settle_drain(member().pk)
    assert slots_of() == ["draining"]


def test_a_silent_one_is_emptied_all_the_same() -> None:
    agents(members=1, liveness={"heartbeat": "2m", "lost": "never"})
    claim = begin(task())
    sql("UPDATE pools_member SET state = 'offline'")
    drain(force=True)
    finalize()
    draining_is_over()
    finalize()
    assert again(claim).state == "waiting"
    assert find().state == "deleting"


def test_one_that_is_lost_while_it_drains_goes_with_what_was_there() -> None:
    agents(members=2)
    claim = begin(task())
    drain()
    lose_member(member_id=member().pk, reason="offline for 10 min")
    lose_claims()
    finalize()
    assert (again(claim).state, find().state) == ("blocked", "deleting")


def test_a_claim_that_cannot_be_dealt_with_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
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

    meet = __import__("claims.services.draining", fromlist=["meet_fate"]).meet_fate
    monkeypatch.setattr("claims.services.draining.meet_fate", refuse)
    return monkeypatch


def test_one_that_hangs_is_said() -> None:
    agents(members=1)
    begin(task())
    drain()
    assert list_stuck() == []
    sql("UPDATE pools_member SET drain_until = now() - interval '5 min'")
    stuck = list_stuck()[0]
    assert (stuck.name, stuck.pool, stuck.held, stuck.note) == ("tf-0", "tf", 1, "kernel patch")
    assert 299 < stuck.over_for < 400


# -- beside others --------------------------------------------------------------------------------------------------------------------


def test_a_restart_is_not_ordered_and_what_leaves_is_in_no_file() -> None:
    agents(members=2)
    begin(task())
    drain()
    assert [m["name"] for m in config_of(get_pool("tf"))["members"]["list"]] == ["tf-1"]


def test_one_that_stays_is_in_the_file() -> None:
    agents(members=2)
    begin(task())
    drain(stays=True)
    assert [m["name"] for m in config_of(get_pool("tf"))["members"]["list"]] == ["tf-0", "tf-1"]


def test_its_name_is_free_again_once_it_has_gone() -> None:
    agents(members=2)
    drain()
    found = snapshot_of(member().pk)
    assert found is not None
    settle_report(found[1], MemberReport(is_gone=True))
    add_members(pool_id=get_pool("tf").pk, declared=[{"name": "tf-0"}])
    assert Member.objects.filter(name="tf-0").count() == 2


def test_what_waits_for_a_person_has_its_own_deadline_too() -> None:
    agents(members=1, approval={"expires": "1h"})
    claim = planned()
    drain(until=in_hours(5))
    sql("UPDATE claims_claim SET expires_at = now() - interval '1 s', due_at = now() WHERE id = %s", claim.id)
    look_at_due_claims()
    finalize()
    assert again(claim).outcome == "expired"
    assert find().state == "deleting"
