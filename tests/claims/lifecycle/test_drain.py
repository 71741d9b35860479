"""A draining member takes no new claims while its claims finish; it leaves or stays cordoned."""

from datetime import timedelta
from typing import Any

import pytest

from claims.allocation.selectors import view_claim
from claims.lifecycle.chores import check_due_claims
from claims.lifecycle.drain import force_drain
from claims.tasks.runs.services import confirm_stopped
from pools.lifecycle.selectors import config_of, get_pool
from pools.models import Member
from pools.providers.base import MemberReport
from project.kernel.errors import Conflict, Invalid
from project.kernel.models import Event
from project.kernel.validation import moment
from slots.members.drain import MAX_DRAIN, undrain_member
from slots.members.selectors import snapshot_of
from slots.members.services import (
    add_members,
    cancel_member_removal,
    close_pool,
    cordon_member,
    remove_member,
    uncordon_member,
)
from slots.models import Slot
from slots.sync.performers import record_report
from tests.claims.helpers import make_pool
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
    begin,
    member,
    planned,
    result,
    serve,
    sql,
    task,
    tell,
)

pytestmark = pytest.mark.usefixtures("tables")


def is_closed(name: str = "tf-0") -> bool:
    return not Slot.objects.filter(member__name=name, is_open=True).exists()


# -- ordered ---------------------------------------------------------------------------------------


def test_a_drain_closes_the_member_and_names_its_claims_and_deadline() -> None:
    agents(drain={"limit": "30m"})
    claim = begin(task())
    before = moment()
    removal = drain()
    now = find()
    assert [h.claim_id for h in removal.holders] == [claim.id]
    assert (now.is_leaving, now.note, now.drain_by, removal.state) == (
        True,
        "kernel patch",
        "system",
        "ready",
    )
    assert now.drain_until is not None
    assert timedelta(minutes=30) <= now.drain_until - before < timedelta(minutes=31)
    assert is_closed()
    assert (event("drain").before, event("drain").after, event("drain").reason) == (
        "ready",
        "draining",
        "kernel patch",
    )


def test_an_empty_member_is_deleted_at_once() -> None:
    agents()
    assert drain().state == "deleting"


def test_an_empty_static_member_is_gone_at_once() -> None:
    make_pool(members=2)
    assert drain("m0").state == "gone"


def test_a_draining_member_leaves_when_its_last_claim_ends() -> None:
    agents()
    claim = begin(task())
    drain()
    finalize()
    assert find().state == "ready"
    tell(claim, result("no_changes"))
    finalize()
    assert find().state == "deleting"
    assert view_claim(claim.id).outcome == "planned"


def test_a_repeated_drain_changes_deadline_or_reason() -> None:
    agents()
    begin(task())
    drain(until=in_hours(1))
    # The clock of the database stands still in this test.
    sql("UPDATE pools_member SET drain_since = drain_since - interval '1 min'")
    first = find()
    drain(until=in_hours(5), reason="takes longer")
    now = find()
    assert first.drain_until and now.drain_until and now.drain_until > first.drain_until
    assert (now.note, now.drain_since) == ("takes longer", first.drain_since)
    drain(reason="as before")
    assert find().drain_until == now.drain_until


@pytest.mark.parametrize(
    ("until", "what"),
    [(-1.0, "has passed"), (MAX_DRAIN.total_seconds() / 3600 + 1, "30 days")],
    ids=["past", "far"],
)
def test_a_drain_deadline_past_or_too_far_is_refused(until: float, what: str) -> None:
    agents()
    with pytest.raises(Invalid) as caught:
        drain(until=in_hours(until))
    assert caught.value.fields[0].field == "until"
    assert what in caught.value.fields[0].message
    assert find().drain_until is None


def test_a_drain_requires_a_reason() -> None:
    agents()
    with pytest.raises(Invalid) as caught:
        drain(reason=" ")
    assert caught.value.fields[0].field == "reason"
    assert not find().is_leaving


def test_a_member_being_deleted_cannot_be_drained() -> None:
    agents()
    drain()
    with pytest.raises(Conflict, match="is deleting"):
        drain()


def test_a_leaving_member_may_get_a_drain_deadline() -> None:
    agents()
    begin(task())
    remove_member(member_id=member().pk, reason="sold")
    assert find().drain_until is None
    drain(reason="sold, and hurry")
    assert find().drain_until is not None


# -- taken back ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "take_back", [undrain_member, cancel_member_removal], ids=["undrain", "keep"]
)
def test_an_undrained_member_is_open_again_and_keeps_its_claims(take_back: Any) -> None:
    agents(slots=("any", "plan"))
    claim = begin(task())
    drain()
    take_back(member_id=member().pk)
    now = find()
    assert (now.is_leaving, now.drain_until, now.drain_since, now.drain_by, now.note) == (
        False,
        None,
        None,
        "",
        "",
    )
    assert not is_closed()
    assert again(claim).generation == claim.generation
    assert Slot.objects.filter(is_open=True, state="idle", member=now).count() == 1


def test_an_undrain_does_not_bring_evicted_claims_back() -> None:
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


def test_an_undrain_keeps_an_earlier_cordon() -> None:
    agents()
    begin(task())
    cordon_member(member_id=member().pk, reason="disk")
    drain()
    undrain_member(member_id=member().pk)
    assert find().is_cordoned
    assert is_closed()


def test_an_undrain_of_a_member_that_does_not_drain_changes_nothing() -> None:
    agents()
    undrain_member(member_id=member().pk)
    assert not Event.objects.filter(verb="undrain").exists()


def test_no_member_of_a_pool_being_deleted_can_be_undrained_or_stay() -> None:
    pool = agents()
    begin(task())
    close_pool(pool_id=pool.pk, reason="over")
    with pytest.raises(Conflict, match="being deleted"):
        undrain_member(member_id=member().pk)
    with pytest.raises(Conflict, match="being deleted"):
        drain(stays=True)


# -- stays -----------------------------------------------------------------------------------------


def test_a_drained_member_that_stays_is_cordoned_until_uncordoned() -> None:
    agents()
    claim = begin(task())
    drain(stays=True)
    finalize()
    assert find().drain_until is not None
    tell(claim, result("no_changes"))
    finalize()
    now = find()
    assert (now.state, now.is_cordoned, now.is_leaving, now.drain_until, now.note) == (
        "ready",
        True,
        False,
        None,
        "kernel patch",
    )
    assert event("drained").after == "cordoned"
    uncordon_member(member_id=now.pk)
    assert not is_closed()


def test_an_undrain_of_a_member_that_would_stay_opens_it() -> None:
    agents()
    begin(task())
    drain(stays=True)
    undrain_member(member_id=member().pk)
    assert not find().is_cordoned


def test_a_draining_member_cannot_be_uncordoned() -> None:
    """Open with a deadline, it would take claims only to put them out."""
    agents()
    begin(task())
    drain(stays=True)
    with pytest.raises(Conflict, match="tf-0 drains") as refused:
        uncordon_member(member_id=member().pk)
    assert "Undrain" in refused.value.way_out
    assert (find().is_cordoned, is_closed()) == (True, True)


@pytest.mark.parametrize(
    "again",
    [drain, lambda **more: force_drain(member_id=member().pk, **more)],
    ids=["deadline", "force"],
)
def test_a_repeated_drain_without_an_end_keeps_the_wish_to_stay(again: Any) -> None:
    """A second drain without `stays` removes no member that is to stay."""
    agents()
    begin(task())
    drain(stays=True)
    again(reason="sooner")
    assert (find().is_leaving, find().is_cordoned, find().note) == (False, True, "sooner")


@pytest.mark.usefixtures("committed_tables")
def test_a_forced_drain_is_recorded_although_one_eviction_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The drain is committed: the finalizer continues it, and the operator gets the state of the
    drain.
    """

    def fail(**_: Any) -> bool:
        raise RuntimeError("a broken claim")

    agents()
    begin(task())
    with monkeypatch.context() as patch:
        patch.setattr("claims.lifecycle.drain.evict_claim", fail)
        removal = force_drain(member_id=member().pk, reason="now")
    assert (removal.state, find().is_leaving, len(removal.holders)) == ("ready", True, 1)
    finalize()
    assert "held" not in slots_of()


def test_a_drain_may_change_between_staying_and_leaving() -> None:
    agents()
    begin(task())
    drain(stays=True)
    drain(stays=False)
    assert (find().is_leaving, find().is_cordoned) == (True, False)
    drain(stays=True)
    assert (find().is_leaving, find().is_cordoned) == (False, True)


@pytest.mark.usefixtures("committed_tables")
def test_a_member_that_stays_waits_until_its_slots_are_clean() -> None:
    """A member that stays is used again, so its slots stay draining until its agent reports that
    no task runs there, or the member is lost.
    """
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


# -- beside other changes --------------------------------------------------------------------------


def test_a_draining_member_is_left_out_of_the_pool_file() -> None:
    agents(members=2)
    begin(task())
    drain()
    assert [m["name"] for m in config_of(get_pool("tf"))["members"]["list"]] == ["tf-1"]


def test_a_draining_member_that_stays_is_kept_in_the_pool_file() -> None:
    agents(members=2)
    begin(task())
    drain(stays=True)
    assert [m["name"] for m in config_of(get_pool("tf"))["members"]["list"]] == ["tf-0", "tf-1"]


def test_the_name_of_a_gone_member_can_be_used_again() -> None:
    agents(members=2)
    drain()
    found = snapshot_of(member().pk)
    assert found is not None
    record_report(*found, MemberReport(is_gone=True))
    add_members(pool_id=get_pool("tf").pk, declared=[{"name": "tf-0"}])
    assert Member.objects.filter(name="tf-0").count() == 2


def test_a_plan_on_a_draining_member_expires_at_its_own_deadline() -> None:
    agents(members=1, approval={"expires": "1h"})
    claim = planned()
    drain(until=in_hours(5))
    sql(
        "UPDATE claims_claim SET expires_at = now() - interval '1 s', due_at = now() WHERE id = %s",
        claim.id,
    )
    check_due_claims()
    finalize()
    assert again(claim).outcome == "expired"
    assert find().state == "deleting"
