"""A cordon outlives a drain, also where the previous release wrote the rows."""

import pytest

from project.kernel.actor import acting_as
from project.kernel.models import Event
from slots.members.services import cancel_member_removal, remove_member
from tests.claims.helpers import sql
from tests.claims.lifecycle.drain_helpers import drain, finalize, find
from tests.claims.lifecycle.pages.test_drain_pages import browser_as, path_of, text_of
from tests.claims.lifecycle.test_drain_of_cordoned import AS_BEFORE, cordon, is_open, now, undrain
from tests.claims.tasks.approvals.helpers import agents, begin, member, result, task, tell

pytestmark = pytest.mark.usefixtures("tables")


def test_a_drain_that_ends_cordoned_keeps_the_author_of_an_earlier_cordon() -> None:
    agents(slots=("any", "any"))
    claim = begin(task())
    cordon()
    with acting_as("ben"):
        drain(stays=True)
    tell(claim, result("no_changes"))
    finalize()
    assert now() == AS_BEFORE
    assert Event.objects.get(verb="drained").reason == "kernel patch"


def test_a_member_opened_by_the_previous_release_can_be_cordoned_again() -> None:
    agents(slots=("any", "any"))
    cordon()
    sql("UPDATE pools_member SET is_cordoned = false, note = '' WHERE name = 'tf-0'")
    cordon("again")
    assert (find().is_cordoned, find().cordon_note, is_open()) == (True, "again", False)


def test_a_cordon_by_the_previous_release_survives_a_drain() -> None:
    agents(slots=("any", "any"))
    begin(task())
    sql("UPDATE pools_member SET is_cordoned = true, note = 'disk' WHERE name = 'tf-0'")
    drain()
    undrain()
    assert (find().is_cordoned, find().note, is_open()) == (True, "disk", False)


def test_keeping_a_leaving_member_keeps_its_cordon() -> None:
    pool = agents(slots=("any", "any"))
    begin(task())
    cordon()
    remove_member(member_id=member().pk, reason="too many")
    assert "the member stays, cordoned as before." in text_of(
        browser_as("operator", pool).get(path_of("keep"))
    )
    cancel_member_removal(member_id=member().pk)
    assert Event.objects.get(verb="keep").after == "cordoned"
