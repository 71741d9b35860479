"""Plans in a real browser: decisions in two windows, long logs and large plans."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from claims.tasks.approvals.services import approve_plan
from project.kernel.actor import acting_as
from tests.claims.tasks.plans.helpers import (
    NETWORK,
    begin,
    big_plan,
    digest_of,
    finish,
    make_task_pool,
    network_plan,
    planned,
    resource,
    say,
    task,
)
from tests.dashboard.helpers import expect_not_reloaded, identity_of, mark_page, person
from tests.dashboard.test_browser import LIVE, confirm, open_live

pytestmark = pytest.mark.browser

SignIn = Callable[[Any, User], None]


def decider(name: str = "lind") -> User:
    return person(name, "approver", "operator", "claimant")


def test_an_approval_in_one_window_is_shown_in_the_other(
    page: Any, other: Any, sign_in: SignIn, site: str
) -> None:
    make_task_pool()
    waiting = planned(plan=network_plan(), summary=NETWORK, text="planning\n")
    sign_in(page, decider())
    sign_in(other, decider("nair"))
    open_live(other, "/approvals/")
    other.locator(".inbox li", has_text="network").wait_for()
    assert other.locator(".nav b").inner_text() == "1"
    open_live(page, f"/claims/{waiting.id}/")
    for window in (page, other):
        mark_page(window)

    button = page.get_by_role("button", name="Approve and apply")
    assert button.get_attribute("aria-disabled") == "true"
    assert "confirm the replacement first" in page.locator("[data-whys]").inner_text()
    box = page.locator("#decide [name=read]")
    box.focus()
    for key in ("Enter", "a", "y"):
        page.keyboard.press(key)  # no single key decides
    assert page.locator("h1 .st.apply_pending").count() == 1
    box.check()
    button.click()
    page.locator("h1 .st.applying").wait_for()
    page.locator(".steps", has_text="approved").get_by_text("by lind").wait_for()
    page.locator("#notices", has_text="is approved").wait_for()
    other.locator(".empty", has_text="No plan waits for an approval").wait_for()
    other.locator(".nav b").wait_for(state="detached")
    other.locator("#peek", has_text="lind approved").wait_for()

    begin(waiting)
    say(waiting, "applying\n")
    page.locator(".steps [aria-current]", has_text="tf-01 · any 0").wait_for()
    page.get_by_role("tab", name=re.compile("apply")).wait_for()
    page.locator("[data-log-rows]", has_text="applying").wait_for()
    finish(waiting, "applied")
    page.locator("h1 .st.done").wait_for()
    for window in (page, other):
        expect_not_reloaded(window)


def test_a_late_approval_shows_who_decided_first(
    open_window: Callable[..., Any], sign_in: SignIn
) -> None:
    make_task_pool()
    waiting = planned()
    other = open_window()
    sign_in(other, decider())
    other.route_web_socket("**/ws/live/", lambda line: None)  # this window gets no live frames
    other.goto(f"/claims/{waiting.id}/")
    with acting_as("nair"):
        approve_plan(
            claim_id=waiting.id, digest=digest_of(waiting), by=identity_of(decider("nair"))
        )
    with other.expect_response(re.compile("/approve/")) as answer:
        other.get_by_role("button", name="Approve and apply").click()
    assert answer.value.status == 409
    other.locator("#decide-said [role=alert]", has_text="nair").wait_for()


def test_a_rejection_requires_a_comment(page: Any, sign_in: SignIn, site: str) -> None:
    make_task_pool()
    waiting = planned()
    sign_in(page, decider())
    open_live(page, f"/claims/{waiting.id}/")
    no = page.locator("#decide").get_by_role("button", name="Reject")
    assert no.get_attribute("aria-disabled") == "true"
    page.locator("#decide [name=comment]").fill("not in this window")
    no.click()
    page.locator("h1 .st.rejected").wait_for()
    page.get_by_text("“not in this window”").first.wait_for()


def test_input_and_open_details_survive_live_updates(page: Any, sign_in: SignIn, site: str) -> None:
    make_task_pool(approval={"needed": 2, "own": False})
    waiting = planned(plan=network_plan(), summary=NETWORK)
    sign_in(page, decider())
    open_live(page, f"/claims/{waiting.id}/")
    page.locator("#decide [name=comment]").fill("I looked at it")
    page.locator("#decide [name=read]").check()
    page.locator(".plan summary", has_text='private["b"]').click()
    with acting_as("nair"):
        approve_plan(
            claim_id=waiting.id,
            digest=digest_of(waiting),
            by=identity_of(decider("nair")),
            comment="fine",
        )
    page.get_by_text("1 of 2").wait_for()
    assert page.locator("#decide [name=comment]").input_value() == "I looked at it"
    assert page.locator("#decide [name=read]").is_checked()
    assert page.locator("details[open]", has_text='private["b"]').count() == 1
    assert (
        page.get_by_role("button", name="Approve and apply").get_attribute("aria-disabled") is None
    )


def test_a_bulk_approval_leaves_out_destructive_plans(
    page: Any, sign_in: SignIn, site: str
) -> None:
    make_task_pool(members=4)
    for name in ("alpha", "beta"):
        planned(name)
    planned("gamma", plan=network_plan(), summary=NETWORK)
    sign_in(page, decider())
    open_live(page, "/approvals/")
    for name in ("alpha", "beta", "gamma"):
        page.get_by_label(re.compile(f"Select {name}")).check()
    assert page.locator(".bulk b").inner_text() == "3 selected"
    page.locator(".bulk").get_by_role("button", name="Approve 2…").click()
    dialog = page.locator("#dialog[open]")
    dialog.wait_for()
    assert dialog.locator("tbody tr").count() == 2
    confirm(page, "Approve 2 plans")
    page.locator("#notices", has_text="2 plans are approved").wait_for()
    page.locator(".inbox li").nth(1).wait_for(state="detached")
    assert page.locator(".inbox li").count() == 1


def test_keyboard_shortcuts_move_through_the_inbox_and_open_plans(
    page: Any, sign_in: SignIn, site: str
) -> None:
    make_task_pool(members=4)
    for name in ("alpha", "beta"):
        planned(name)
    sign_in(page, decider())
    open_live(page, "/")
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.wait_for_url("**/approvals/")
    page.locator(LIVE).wait_for()
    page.locator("#peek", has_text="alpha").wait_for()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.locator("#peek", has_text="beta").wait_for()
    page.keyboard.press("x")
    assert page.locator(".bulk b").inner_text() == "1 selected"
    page.locator("#peek").get_by_role("button", name="Approve and apply").click()
    page.locator("#peek", has_text="approved").wait_for()


# -- logs ------------------------------------------------------------------------------------------


def test_log_colours_become_classes_and_html_is_escaped(
    page: Any, sign_in: SignIn, site: str
) -> None:
    make_task_pool()
    claim = task()
    begin(claim)
    say(
        claim,
        "\x1b[1m\x1b[31mred\x1b[0m plain \x1b[38;5;46mgreen\x1b[39m <img src=x onerror=alert(1)>\n"
        "50%\r100%\n\x1b]0;title\x07after\n",
    )
    sign_in(page, decider())
    open_live(page, f"/claims/{claim.id}/")
    rows = page.locator("[data-log-rows] > div")
    rows.nth(2).wait_for()
    assert rows.nth(0).locator("span.fr.t-bold").inner_text() == "red"
    assert rows.nth(0).locator("span.fhg").inner_text() == "green"
    assert "<img src=x" in rows.nth(0).locator("code").inner_text()
    assert page.locator(".logbox img").count() == 0
    assert [rows.nth(n).locator("code").inner_text() for n in (1, 2)] == ["100%", "after"]
    coloured = "\x1b[7mswap\x1b[27m\x1b[4;2mx\x1b[2J\x1b[38;2;250;40;40my"
    parsed = page.evaluate("text => berth.ansi.parse(text).pieces", coloured)
    assert parsed == [["swap", "bx fx"], ["x", "t-dim t-under"], ["y", "fhr t-dim t-under"]]


def test_a_log_follows_its_end_until_the_reader_scrolls(
    page: Any, sign_in: SignIn, site: str
) -> None:
    make_task_pool()
    claim = task()
    begin(claim)
    say(claim, "".join(f"line {n}\n" for n in range(100)) + "half of ")
    sign_in(page, decider())
    open_live(page, f"/claims/{claim.id}/")
    page.locator("[data-log-rows]", has_text="half of").wait_for()
    say(claim, "a line\nthe end\n")
    page.locator("[data-log-rows]", has_text="half of a line").wait_for()
    page.locator("[data-log-rows]", has_text="the end").wait_for()
    view = page.locator("[data-log-view]")
    view.hover()
    page.mouse.wheel(0, -400)
    expect(page.get_by_label("Follow")).not_to_be_checked()
    top = view.evaluate("view => view.scrollTop")
    say(claim, "one more\n")
    page.locator("[data-log-said]", has_text="103 lines").wait_for()
    expect(view).to_have_js_property("scrollTop", top)
    page.get_by_label("Follow").check()
    page.locator("[data-log-rows]", has_text="one more").wait_for()
    finish(claim, "planned")
    page.locator("[data-log-said]", has_text="complete").wait_for()


def test_a_log_of_a_hundred_thousand_lines_scrolls_and_is_searched(
    page: Any, sign_in: SignIn, site: str
) -> None:
    make_task_pool()
    claim = task()
    begin(claim)
    for part in range(100):
        say(claim, "".join(f"line {part * 1000 + n} \x1b[32mok\x1b[0m\n" for n in range(1000)))
    say(claim, "after the gap\n", left_out=12_345_678)
    finish(claim, "planned")
    sign_in(page, decider())
    open_live(page, f"/claims/{claim.id}/")
    page.locator("[data-log-rows]", has_text="after the gap").wait_for()
    assert "12,345,678 bytes left out" in page.locator("[data-log-rows] .cut").inner_text()
    assert page.evaluate("() => berth.log.lines") < 5000  # the end alone came with the page
    page.locator("[data-log-find]").fill("line 54321 ")
    page.locator("[data-log-hits]", has_text="1 of 1").wait_for()
    assert page.evaluate("() => berth.log.lines") == 100_002
    assert page.locator("[data-log-rows] .hit b").inner_text() == "54,322"
    assert page.evaluate("() => berth.log.rows") < 100
    slowest = page.evaluate(
        """async () => {
          const view = document.querySelector("[data-log-view]");
          const took = [];
          for (let i = 0; i < 40; i += 1) {
            const began = performance.now();
            view.scrollTop = (view.scrollHeight / 40) * i;
            await new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)));
            took.push(performance.now() - began);
          }
          return took.sort((a, b) => a - b)[35];
        }"""
    )
    assert slowest < 250  # 33 ms on an idle machine
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    text = download.value.path().read_text()
    assert text.count("\n") == 100_002
    assert "12345678 bytes were left out" in text


# -- plans -----------------------------------------------------------------------------------------


def test_a_plan_of_five_thousand_resources_loads_in_parts(
    page: Any, sign_in: SignIn, site: str
) -> None:
    make_task_pool()
    content = big_plan()
    content["resource_changes"][7]["change"]["actions"] = ["delete"]
    waiting = planned(plan=content, summary={"change": 4999, "destroy": 1})
    sign_in(page, decider())
    open_live(page, f"/claims/{waiting.id}/")
    assert page.locator(".plan details").count() < 150
    first = page.locator("[data-plan-list] .plan > li").first
    assert "r7" in first.inner_text()
    group = page.locator(".plan.groups > li", has_text="module.m3").first
    group.locator("summary").first.click()
    group.locator("li details").nth(99).wait_for()
    group.get_by_role("button", name=re.compile("more")).click()
    group.locator("li details").nth(110).wait_for()
    group.locator("li details").first.locator("summary").click()
    group.get_by_text('~   attribute_3 = "value 3" -> "new"').first.wait_for()
    page.locator("[data-plan-search]").fill("r4321")
    page.locator("[data-plan-found] li").first.wait_for()
    assert page.locator("[data-plan-found] li").count() == 1
    assert page.locator("[data-plan-list]").is_hidden()


def test_a_plan_shows_its_changes_and_hides_sensitive_values(
    page: Any, sign_in: SignIn, site: str
) -> None:
    make_task_pool()
    secret = resource(
        "db.main", "update", before={"password": "hunter2", "size": 1},
        after={"password": "hunter3", "size": 2},
        change={"before_sensitive": {"password": True}, "after_sensitive": {"password": True}},
    )  # fmt: skip
    waiting = planned(plan={"resource_changes": [secret]}, summary={"change": 1})
    sign_in(page, decider())
    open_live(page, f"/claims/{waiting.id}/")
    page.get_by_role("button", name="Expand all").click()
    page.get_by_text("~   size     = 1 -> 2").wait_for()
    assert "hunter" not in page.content()
    assert "(sensitive)" in page.locator("[data-plan-list]").inner_text()


# -- workspaces ------------------------------------------------------------------------------------


def test_a_workspace_is_locked_and_unlocked_and_shows_its_queue(
    page: Any, sign_in: SignIn, site: str
) -> None:
    make_task_pool()
    planned("net/core")
    behind = task("net/core")
    assert behind.state == "blocked"
    sign_in(page, decider())
    open_live(page, "/workspaces/")
    page.get_by_role("link", name="net/core").click()
    page.locator(LIVE).wait_for()
    assert page.get_by_role("table", name="Current claims").locator("tbody tr").count() == 2
    page.get_by_role("link", name="Lock…").click()
    confirm(page, "Lock", reason="migration")
    page.locator("h1", has_text="locked").wait_for()
    page.get_by_role("link", name="Unlock…").click()
    confirm(page, "Unlock")
    page.locator("h1 .st").wait_for(state="detached")
