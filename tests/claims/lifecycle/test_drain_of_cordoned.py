"""A cordoned member that drains is cordoned again after an undrain, and every dialog says so."""

from typing import Any

import pytest

from pools.models import Member
from project.kernel.actor import acting_as
from project.kernel.errors import Conflict
from project.kernel.models import Event
from slots.members.drain import undrain_member
from slots.members.services import (
    cancel_member_removal,
    cordon_member,
    remove_member,
    uncordon_member,
)
from tests.api.conftest import caller  # noqa: F401
from tests.claims.lifecycle.drain_helpers import drain, finalize, find
from tests.claims.lifecycle.pages.test_drain_pages import browser_as, confirm, path_of, text_of
from tests.claims.tasks.approvals.helpers import agents, begin, member, result, task, tell

pytestmark = pytest.mark.usefixtures("tables")

AS_BEFORE = (True, False, "disk", "ana", None)


def cordon(why: str = "disk") -> None:
    with acting_as("ana"):
        cordon_member(member_id=member().pk, reason=why)


def now() -> tuple[Any, ...]:
    found = find()
    return found.is_cordoned, found.is_leaving, found.note, found.cordon_by, found.drain_until


def is_open() -> bool:
    return bool(member().slots.filter(is_open=True).exists())


def undrain() -> Member:
    return undrain_member(member_id=member().pk)


@pytest.mark.parametrize("stays", [True, False], ids=["stays", "goes"])
@pytest.mark.parametrize("is_before", [True, False], ids=["before", "meanwhile"])
def test_an_undrain_restores_an_earlier_or_later_cordon(stays: bool, is_before: bool) -> None:
    agents(slots=("any", "any"))
    begin(task())
    if is_before:
        cordon()
        drain(stays=stays)
    else:
        drain(stays=stays)
        cordon()
    assert find().note == "kernel patch"
    undrain()
    assert now() == AS_BEFORE
    assert Event.objects.get(verb="undrain").after == "cordoned"
    assert not is_open()
    uncordon_member(member_id=member().pk)
    assert now() == (False, False, "", "", None)
    assert is_open()


@pytest.mark.parametrize("ends", [(True, False), (False, True), (True, False, True)], ids=str)
def test_a_cordon_survives_changes_of_the_end_of_a_drain(ends: tuple[bool, ...]) -> None:
    agents(slots=("any", "any"))
    begin(task())
    cordon()
    for stays in ends:
        drain(stays=stays)
        assert find().is_cordoned
    undrain()
    assert now() == AS_BEFORE


@pytest.mark.parametrize("is_cordoned", [True, False], ids=["cordoned", "open"])
def test_keeping_a_leaving_member_restores_its_cordon_or_openness(is_cordoned: bool) -> None:
    agents(slots=("any", "any"))
    begin(task())
    if is_cordoned:
        cordon()
    remove_member(member_id=member().pk, reason="too many")
    cancel_member_removal(member_id=member().pk)
    assert now() == (AS_BEFORE if is_cordoned else (False, False, "", "", None))
    assert is_open() is not is_cordoned


def test_an_undrain_after_drain_and_removal_opens_an_uncordoned_member() -> None:
    agents(slots=("any", "any"))
    begin(task())
    drain(stays=True)
    remove_member(member_id=member().pk, reason="too many")
    undrain()
    assert now() == (False, False, "", "", None)
    assert is_open()


def test_an_uncordon_during_a_drain_holds_after_the_undrain() -> None:
    agents(slots=("any", "any"))
    begin(task())
    cordon()
    drain()
    uncordon_member(member_id=member().pk)
    assert find().note == "kernel patch"
    undrain()
    assert now() == (False, False, "", "", None)


def test_a_cordon_left_by_a_drain_can_be_lifted_and_is_not_restored_later() -> None:
    agents(slots=("any", "any"))
    claim = begin(task())
    with acting_as("ben"):
        drain(stays=True)
    tell(claim, result("no_changes"))
    finalize()
    assert now() == (True, False, "kernel patch", "ben", None)
    uncordon_member(member_id=member().pk)
    begin(task(workspace="other"))
    drain(stays=True)
    with pytest.raises(Conflict, match="drains"):
        uncordon_member(member_id=member().pk)
    undrain()
    assert is_open()


def test_the_dialogs_and_the_panel_announce_the_cordon_that_remains() -> None:
    pool = agents(slots=("any", "any"))
    begin(task())
    cordon()
    browser = browser_as("operator", pool)
    assert "by ana “disk”; the cordon stays after an undrain" in text_of(
        browser.get(path_of("drain"))
    )
    drain(stays=True)
    shown = text_of(browser.get("/pools/tf/?member=tf-0"))
    assert "After an undrain it stays cordoned, by ana: “disk”." in shown
    assert "Stays cordoned. Claims here are not affected." in shown
    assert "The member stays cordoned, as before the drain." in text_of(
        browser.get(path_of("undrain"))
    )
    confirm(browser, path_of("undrain"))
    assert now() == AS_BEFORE
    assert "Takes no new claims: “disk”." in text_of(browser.get("/pools/tf/?member=tf-0"))


def test_the_undrain_dialog_announces_that_an_uncordoned_member_opens() -> None:
    pool = agents(slots=("any", "any"))
    begin(task())
    drain(stays=True)
    browser = browser_as("operator", pool)
    assert "The member takes new claims again." in text_of(browser.get(path_of("undrain")))
    assert "stays cordoned, by" not in text_of(browser.get("/pools/tf/?member=tf-0"))


def test_the_drain_api_announces_the_cordon_that_remains(caller: Any) -> None:  # noqa: F811
    pool = agents(slots=("any", "any"))
    begin(task())
    client = caller("operator", pool)
    path = f"members/{find().pk}/"
    client.post(f"{path}cordon/", {"reason": "disk"})
    plain = client.get(f"{path}drain/").body
    assert (plain["stays_cordoned"], plain["cordon_note"]) == (False, "disk")
    body = client.post(f"{path}drain/", {"reason": "kernel patch", "stays": True}).body
    assert (body["stays_cordoned"], body["cordoned_by"], body["cordon_note"]) == (
        True,
        plain["cordoned_by"],
        "disk",
    )
    assert body["cordoned_by"].startswith("operator")
    body = client.post(f"{path}undrain/", {}).body
    assert (body["is_draining"], body["member"]["is_cordoned"], body["member"]["note"]) == (
        False,
        True,
        "disk",
    )
