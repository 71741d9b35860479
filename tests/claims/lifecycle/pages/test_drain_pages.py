"""Drains over HTTP pages: each dialog lists the affected claims and their fate."""

import re
from typing import Any

import pytest
from django.test import Client

from pools.models import Member
from project.dashboard.installation import list_problems
from project.kernel.models import Event
from slots.members.services import remove_member
from tests.claims.helpers import make_pool
from tests.claims.lifecycle.drain_helpers import drain, finalize, find, pass_deadline
from tests.claims.tasks.approvals.helpers import (
    again,
    agents,
    applying,
    begin,
    member,
    planned,
    sql,
    task,
)
from tests.dashboard.plain_browser import browser_as

pytestmark = pytest.mark.usefixtures("tables")


def text_of(answer: Any) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def confirm(browser: Client, path: str, **given: str) -> Any:
    """Reads the question, then says yes to what it showed."""
    asked = browser.get(path).content.decode()
    seen = re.search(r'name="seen" value="([^"]*)"', asked)
    assert seen is not None, asked
    return browser.post(path, {"seen": seen[1], **given})


def path_of(what: str, name: str = "tf-0") -> str:
    return f"/members/{member(name).pk}/{what}/"


def test_the_drain_dialog_lists_each_claim_and_its_fate() -> None:
    pool = agents(slots=("any", "any", "any"), members=1)
    begin(task(workspace="a"))
    applying(workspace="b")
    waiting = planned(workspace="c")
    shown = text_of(browser_as("operator", pool).get(path_of("drain")))
    assert (
        "1 plan runs, 1 apply runs and 1 plan waits for an approval. Each claim may "
        "finish until the deadline and then loses its slots"
    ) in shown
    assert "plans again" in shown
    assert "lost, workspace locked" in shown
    assert "keeps its plan" in shown
    assert (
        "1 plan waits here: until the deadline they can be approved and applied here, after it "
        "they lose the slot" in shown
    )
    assert f"/claims/{waiting.id}/" in browser_as("viewer", pool).get("/pools/tf/").content.decode()


def test_the_drain_dialog_sets_deadline_reason_and_author() -> None:
    pool = agents(members=1)
    begin(task())
    answer = confirm(
        browser_as("operator", pool),
        path_of("drain"),
        within="2h",
        end="goes",
        reason="kernel patch",
    )
    assert answer.status_code == 302
    now = find()
    assert now.is_leaving
    assert now.drain_by == f"operator-{pool.pk}"
    assert now.drain_until is not None
    assert Event.objects.get(verb="drain").reason == "kernel patch"


def test_a_drain_by_dialog_may_keep_the_member_cordoned() -> None:
    pool = agents(members=1)
    begin(task())
    confirm(
        browser_as("operator", pool),
        path_of("drain"),
        within="2h",
        end="stays",
        reason="kernel patch",
    )
    assert (find().is_leaving, find().is_cordoned) == (False, True)
    assert "Cordoned once it is empty" in text_of(
        browser_as("viewer", pool).get("/pools/tf/?member=tf-0")
    )


@pytest.mark.parametrize("within", ["soon", "0s", "40d"])
def test_an_invalid_drain_deadline_is_refused_by_the_dialog(within: str) -> None:
    pool = agents(members=1)
    begin(task())
    answer = confirm(
        browser_as("operator", pool), path_of("drain"), within=within, end="goes", reason="x"
    )
    assert answer.status_code == 422
    assert "is not a length of time" in text_of(answer)
    assert find().drain_until is None


def test_a_forced_drain_requires_the_typed_name() -> None:
    pool = agents(members=1)
    claim = begin(task())
    browser = browser_as("operator", pool)
    assert confirm(browser, path_of("force-drain"), reason="it burns").status_code == 422
    assert again(claim).state == "bound"
    assert (
        confirm(browser, path_of("force-drain"), reason="it burns", typed="tf-0").status_code == 302
    )
    assert again(claim).state == "waiting"


def test_a_forced_drain_is_confirmed_again_when_its_claims_changed() -> None:
    pool = agents(members=1, slots=("any", "plan"))
    begin(task(workspace="", what="plan"))
    browser = browser_as("operator", pool)
    asked = browser.get(path_of("force-drain")).content.decode()
    seen = re.search(r'name="seen" value="([^"]*)"', asked)
    assert seen is not None
    second = begin(task(workspace="", what="plan"))
    answer = browser.post(
        path_of("force-drain"), {"seen": seen[1], "reason": "it burns", "typed": "tf-0"}
    )
    assert answer.status_code == 409
    assert again(second).state == "bound"


def test_the_undrain_dialog_ends_the_drain() -> None:
    pool = agents(members=1)
    begin(task())
    drain()
    assert confirm(browser_as("operator", pool), path_of("undrain")).status_code == 302
    assert find().drain_until is None


@pytest.mark.parametrize("what", ["drain", "undrain", "force-drain"])
def test_a_viewer_may_not_drain(what: str) -> None:
    pool = agents(members=1)
    begin(task())
    if what == "undrain":
        drain()
    browser, before = browser_as("viewer", pool), find()
    given = {"reason": "x", "within": "1h", "end": "goes", "typed": "tf-0"}
    assert browser.get(path_of(what)).status_code == 403
    assert browser.post(path_of(what), given).status_code == 403
    after = find()
    assert (after.is_leaving, after.drain_until) == (before.is_leaving, before.drain_until)


def test_the_pool_page_shows_the_progress_and_claims_of_a_drain() -> None:
    pool = agents(slots=("any", "plan", "plan"), members=2)
    claim = begin(task(workspace="", what="plan"))
    drain(claim.slots[0].member)
    shown = text_of(browser_as("viewer", pool).get("/pools/tf/"))
    assert "Draining 1" in shown
    assert "2 of 3 slots" in shown
    assert str(claim.id) in shown
    assert "system: “kernel patch”" in shown


def test_the_member_panel_says_that_the_drain_deadline_has_passed() -> None:
    pool = agents(members=1)
    begin(task())
    drain()
    pass_deadline()
    page = text_of(browser_as("operator", pool).get("/pools/tf/?member=tf-0"))
    assert "past, since" in page
    assert "claims lose their slots" in page


def test_a_leaving_member_without_a_deadline_is_listed_as_draining() -> None:
    pool = agents(members=1)
    begin(task())
    remove_member(member_id=member().pk, reason="sold")
    page = text_of(browser_as("operator", pool).get("/pools/tf/?member=tf-0"))
    assert "Draining 1" in page
    assert "No deadline; the drain ends when the last claim ends" in page


def test_an_approver_sees_the_drain_before_the_decision() -> None:
    pool = agents(members=1)
    claim = planned()
    drain()
    page = text_of(browser_as("approver", pool).get(f"/claims/{claim.id}/"))
    assert "The apply starts at once on tf-0 · any 0" in page
    assert "tf-0 drains" in page
    sql("UPDATE pools_member SET drain_until = now() - interval '1 s'")
    page = text_of(browser_as("operator", pool).get(f"/claims/{claim.id}/"))
    assert "the slot is being released" in page


def test_a_drain_past_its_deadline_is_a_trouble_for_readers_of_its_pool() -> None:
    agents(members=1)
    begin(task())
    drain()
    sql("UPDATE pools_member SET drain_until = now() - interval '5 min'")
    said = {trouble.lead: trouble.text for trouble in list_problems()}
    assert said["tf-0 in tf:"].startswith("past its drain deadline since 5 min")
    assert "tf-0 in tf:" in {trouble.lead for trouble in list_problems({member().pool_id})}
    assert "tf-0 in tf:" not in {trouble.lead for trouble in list_problems(set())}, (
        "a viewer of other pools reads its name"
    )


def test_members_are_drained_together_by_zone_or_name() -> None:
    members = [
        {"name": name, "labels": {"zone": zone}}
        for name, zone in (("a", "eu-1"), ("b", "eu-1"), ("c", "eu-2"))
    ]
    pool = make_pool("lab", members=members)
    browser = browser_as("operator", pool)
    sql("UPDATE pools_pool SET state = 'active'")
    path = "/pools/lab/drain/?zone=eu-1"
    assert "Drain 2 members of lab" in text_of(browser.get(path))
    assert (
        confirm(
            browser, path, within="1h", end="goes", reason="the zone goes", typed="lab"
        ).status_code
        == 302
    )
    assert sorted(Member.objects.filter(state="gone").values_list("name", flat=True)) == ["a", "b"]
    assert "Drain 1 member of lab" in text_of(
        browser.get("/pools/lab/drain/?members=c&members=nobody")
    )
    assert "No member of that name can be drained" in text_of(
        browser.get("/pools/lab/drain/?members=nobody")
    )


def test_the_drain_members_form_asks_for_names_first() -> None:
    pool = make_pool("lab", members=["a", "b"])
    sql("UPDATE pools_pool SET state = 'active'")
    browser = browser_as("operator", pool)
    assert "Drain members…" in text_of(browser.get("/pools/lab/"))
    answer = browser.post("/pools/lab/drain/", {"names": "a\nzone=eu-1\n"})
    assert (answer.status_code, answer["Location"]) == (
        302,
        "/pools/lab/drain/?members=a&zone=eu-1",
    )
    assert Member.objects.filter(state="ready").count() == 2
    wrong = browser.post("/pools/lab/drain/", {"names": "nobody"})
    assert (wrong.status_code, "Pool lab has no member nobody" in text_of(wrong)) == (422, True)


@pytest.mark.usefixtures("committed_tables")
def test_a_drain_by_force_lists_slots_that_are_not_clean() -> None:
    pool = agents(members=1)
    begin(task())
    drain(force=True)
    finalize()
    assert "1 slot still being cleaned" in text_of(browser_as("viewer", pool).get("/pools/tf/"))
