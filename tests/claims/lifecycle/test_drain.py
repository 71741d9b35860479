"""A member that drains takes nothing new, and who is there may finish; it goes or stays, and is
taken back until it has ended (P8, R9).
"""

from datetime import timedelta
from typing import Any

import pytest

from claims.allocation.selectors import view_claim
from claims.lifecycle.chores import look_at_due_claims
from claims.lifecycle.drain import force_drain
from claims.tasks.runs.services import confirm_stopped
from pools.lifecycle.selectors import config_of, get_pool
from pools.models import Member
from pools.providers.base import MemberReport
from project.kernel.errors import Conflict, Invalid
from project.kernel.models import Event
from project.kernel.validation import moment
from slots.members.drain import LONGEST, undrain_member
from slots.members.selectors import snapshot_of
from slots.members.services import (
    add_members,
    close_pool,
    cordon_member,
    keep_member,
    remove_member,
    uncordon_member,
)
from slots.models import Slot
from slots.sync.performers import settle_report
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


def test_it_closes_and_says_who_is_there_and_until_when() -> None:
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


@pytest.mark.parametrize(
    ("until", "what"),
    [(-1.0, "has passed"), (LONGEST.total_seconds() / 3600 + 1, "30 days")],
    ids=["past", "far"],
)
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


# -- taken back ------------------------------------------------------------------------------------


@pytest.mark.parametrize("take_back", [undrain_member, keep_member], ids=["undrain", "keep"])
def test_taken_back_it_takes_claims_again_and_nobody_notices(take_back: Any) -> None:
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


# -- stays -----------------------------------------------------------------------------------------


def test_drained_it_may_stay_closed_until_somebody_opens_it() -> None:
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


@pytest.mark.parametrize(
    "again",
    [drain, lambda **more: force_drain(member_id=member().pk, **more)],
    ids=["deadline", "force"],
)
def test_said_again_without_its_end_it_stays_as_it_was_wished(again: Any) -> None:
    """Another deadline by somebody who knows nothing of it removes no member that is to stay."""
    agents()
    begin(task())
    drain(stays=True)
    again(reason="sooner")
    assert (find().is_leaving, find().is_cordoned, find().note) == (False, True, "sooner")


def test_by_force_it_drains_also_where_one_claim_cannot_be_dealt_with_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is ordered and written down: the finalizer goes on with it, and whoever ordered it
    hears that it is so.
    """

    def fail(**_: Any) -> bool:
        raise RuntimeError("a broken claim")

    agents()
    begin(task())
    with monkeypatch.context() as patch:
        patch.setattr("claims.lifecycle.drain.put_out", fail)
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
    """It is to be used again: only a word of its agent, or its loss, says that nothing
    runs there.
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


# -- beside others ---------------------------------------------------------------------------------


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
    sql(
        "UPDATE claims_claim SET expires_at = now() - interval '1 s', due_at = now() WHERE id = %s",
        claim.id,
    )
    look_at_due_claims()
    finalize()
    assert again(claim).outcome == "expired"
    assert find().state == "deleting"
