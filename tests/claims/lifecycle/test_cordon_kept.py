"""A cordon that somebody ordered outlives a drain that ends cordoned, and what processes of the
release before have written.
"""

import pytest

from project.kernel.actor import acting_as
from project.kernel.models import Event
from slots.members.services import keep_member, remove_member
from tests.claims.helpers import sql
from tests.claims.lifecycle.drain_helpers import drain, finalize, find
from tests.claims.lifecycle.pages.test_drain_pages import browser_as, path_of, text_of
from tests.claims.lifecycle.test_drain_of_cordoned import AS_BEFORE, cordon, is_open, now, undrain
from tests.claims.tasks.approvals.helpers import agents, begin, member, result, task, tell

pytestmark = pytest.mark.usefixtures("tables")


def test_a_drain_that_leaves_it_cordoned_does_not_replace_who_cordoned_it_and_why() -> None:
    agents(slots=("any", "any"))
    claim = begin(task())
    cordon()
    with acting_as("ben"):
        drain(stays=True)
    tell(claim, result("no_changes"))
    finalize()
    assert now() == AS_BEFORE
    assert Event.objects.get(verb="drained").reason == "kernel patch"


def test_one_that_the_release_before_has_opened_is_cordoned_anew() -> None:
    agents(slots=("any", "any"))
    cordon()
    sql("UPDATE pools_member SET is_cordoned = false, note = '' WHERE name = 'tf-0'")
    cordon("again")
    assert (find().is_cordoned, find().cordon_note, is_open()) == (True, "again", False)


def test_one_that_the_release_before_has_cordoned_stays_so() -> None:
    agents(slots=("any", "any"))
    begin(task())
    sql("UPDATE pools_member SET is_cordoned = true, note = 'disk' WHERE name = 'tf-0'")
    drain()
    undrain()
    assert (find().is_cordoned, find().note, is_open()) == (True, "disk", False)


def test_kept_it_is_said_to_be_cordoned() -> None:
    pool = agents(slots=("any", "any"))
    begin(task())
    cordon()
    remove_member(member_id=member().pk, reason="too many")
    assert "it stays, cordoned as before." in text_of(
        browser_as("operator", pool).get(path_of("keep"))
    )
    keep_member(member_id=member().pk)
    assert Event.objects.get(verb="keep").after == "cordoned"
