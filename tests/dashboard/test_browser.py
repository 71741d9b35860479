"""The dashboard in a real browser: live windows, reconnection, shortcuts and accessibility."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth.models import User
from django.db import connection
from playwright.sync_api import expect

from claims.lifecycle.release import release_claim
from project.kernel.events.log import record
from tests.dashboard.helpers import (
    PAGES,
    PASSWORD,
    chief,
    claim,
    expect_not_reloaded,
    make_pool,
    mark_page,
    member,
    person,
)

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[2]
SignIn = Callable[[Any, User], None]
STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
COLOURS = ["color-contrast", "link-in-text-block"]  # the rules that know colours
AXE = Axe()
LIVE = "#conn.live"


@pytest.fixture
def ana(site: str) -> User:
    return chief()


def open_live(page: Any, path: str) -> None:
    page.goto(path)
    page.locator(LIVE).wait_for()


def confirm(page: Any, verb: str, reason: str = "", typed: str = "") -> None:
    dialog = page.locator("#dialog[open]")
    dialog.wait_for()
    if reason:
        dialog.locator("[name=reason]").fill(reason)
    if typed:
        dialog.locator("[name=typed]").fill(typed)
    dialog.get_by_role("button", name=verb, exact=True).click()
    dialog.wait_for(state="hidden")


def test_cordon_claim_and_release_reach_two_windows_without_a_reload(
    page: Any, other: Any, sign_in: SignIn, ana: User
) -> None:
    make_pool()
    page.goto("/")
    page.fill("[name=username]", "ana")
    page.fill("[name=password]", PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    open_live(page, "/pools/env/?member=env-1")
    sign_in(other, person("ben", "viewer"))
    open_live(other, "/pools/env/?member=env-1")
    for window in (page, other):
        mark_page(window)

    page.get_by_role("link", name="Cordon…").click()
    confirm(page, "Cordon", reason="disk warnings")
    for window in (page, other):
        window.locator('.mem[data-name="env-1"] .cordoned').wait_for()
        window.locator("#member-panel .cordoned").wait_for()
    page.get_by_role("link", name="Uncordon…").click()
    confirm(page, "Uncordon")
    other.locator('.mem[data-name="env-1"] .cordoned').wait_for(state="detached")

    page.locator("#member-panel").get_by_role("link", name="Claim…").first.click()
    dialog = page.locator("#dialog[open]")
    dialog.locator("[name=owner]").fill("branch:login")
    confirm(page, "Claim this slot")
    for window in (page, other):
        window.locator("#member-panel").get_by_text("branch:login").wait_for()
        window.locator('.mem[data-name="env-1"] i.bound').wait_for()
        expect_not_reloaded(window)

    other.locator("#member-panel a.mono").first.click()
    other.get_by_role("heading", name=re.compile("branch:login")).wait_for()
    other.locator(LIVE).wait_for()
    page.locator("#member-panel a.mono").first.click()
    page.get_by_role("link", name="Release…", exact=True).click()
    confirm(page, "Release")
    for window in (page, other):
        window.locator("h1 .st.done").wait_for()


def test_a_dropped_socket_resumes_without_a_gap(page: Any, sign_in: SignIn, ana: User) -> None:
    make_pool()
    sign_in(page, ana)
    taken: list[Any] = []
    page.route_web_socket(
        "**/ws/live/", lambda line: (taken.append(line), line.connect_to_server())
    )
    open_live(page, "/pools/env/")
    mark_page(page)
    held = claim(owner="before")
    page.locator(".mem i.bound").wait_for()
    taken[-1].close(code=4000)
    release_claim(claim_id=held.id, generation=held.generation)
    claim(owner="while-away", size=2)
    page.locator(".mem i.bound").nth(1).wait_for()
    page.locator(LIVE).wait_for()
    assert len(taken) >= 2
    assert page.locator(".mem i.bound").count() == 2
    expect_not_reloaded(page)


@contextmanager
def server(port: int) -> Iterator[None]:
    """A web process of this test's own, which it may stop and start again on the same port."""
    at = urlsplit(os.environ["DATABASE_URL"])
    environment = {
        **os.environ,
        "DATABASE_URL": at._replace(path=f"/{connection.settings_dict['NAME']}").geturl(),
    }
    ready, told = os.pipe()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        handles = (listener.fileno(), os.open(os.devnull, os.O_RDONLY), told)
        command = [sys.executable, "-m", "project.kernel.embedded.web", *map(str, handles)]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, pass_fds=handles)
        os.close(handles[1])
        os.close(told)
        try:
            assert os.read(ready, 1), "the web process does not start"
            yield
        finally:
            os.close(ready)
            process.terminate()
            process.wait(20)


def test_a_stale_page_reconnects_by_its_button_after_a_restart(
    browser: Any, site: str, ana: User
) -> None:
    make_pool()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = browser.new_context(base_url=f"http://127.0.0.1:{port}")
    page = context.new_page()
    try:
        with server(port):
            page.goto("/login/")
            page.fill("[name=username]", "ana")
            page.fill("[name=password]", PASSWORD)
            page.get_by_role("button", name="Sign in").click()
            open_live(page, "/pools/env/")
            mark_page(page)
        page.locator("#conn.reconnecting, #conn.stale").wait_for()
        page.locator("#stale").wait_for()
        assert "what you typed stays" in page.locator("#stale").inner_text()
        claim(owner="while-down")
        with server(port):
            page.locator("#stale button").click()
            page.locator(LIVE).wait_for()
            page.locator(".mem i.bound").wait_for()
            assert page.locator("#stale").count() == 0
            expect_not_reloaded(page)
    finally:
        context.close()


def test_the_first_pool_replaces_the_welcome_page_live(
    page: Any, sign_in: SignIn, ana: User
) -> None:
    sign_in(page, ana)
    open_live(page, "/")
    page.get_by_role("heading", name="No pools yet").wait_for()
    make_pool()
    page.get_by_role("link", name="env", exact=True).first.wait_for()


def test_signing_out_in_one_window_signs_out_the_other(
    page: Any, sign_in: SignIn, ana: User
) -> None:
    make_pool()
    sign_in(page, ana)
    open_live(page, "/pools/env/")
    second = page.context.new_page()
    second.goto("/")
    second.locator("details.menu summary").click()
    second.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/login/?next=*")


def test_keyboard_shortcuts_navigate_select_and_confirm(
    page: Any, sign_in: SignIn, ana: User
) -> None:
    make_pool(members=1, slots=1)
    claim()
    waiting = [claim(owner=f"w{n}") for n in range(3)]
    sign_in(page, ana)
    open_live(page, "/")
    page.keyboard.press("g")
    page.keyboard.press("c")
    page.wait_for_url("**/claims/")
    page.locator("[data-rows] [data-key]").first.wait_for()
    page.keyboard.press("/")
    expect(page.locator(":focus")).to_have_attribute("name", "q")
    page.locator(":focus").blur()
    for key in ("j", "x", "j", "j", "Shift+X"):
        page.keyboard.press(key)
    assert page.locator(".bulk b").inner_text() == "3 selected"
    page.keyboard.press("Escape")
    page.locator(".bulk").wait_for(state="hidden")
    page.keyboard.press("k")
    page.keyboard.press("k")
    page.keyboard.press("x")
    page.locator(".bulk").get_by_role("button", name="Cancel…").click()
    dialog = page.locator("#dialog[open]")
    dialog.wait_for()
    page.keyboard.press("Control+Enter")
    dialog.wait_for(state="hidden")
    page.locator(f'[data-key="{waiting[0].id}"]').wait_for(state="detached")
    page.keyboard.press("?")
    page.locator("#help[open]").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("Control+K")
    page.locator("#palette[open]").wait_for()
    page.keyboard.type("env")
    page.locator("#palette").get_by_text("Pool env").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url("**/pools/env/")


def test_arrows_move_between_members_and_n_finds_the_next_in_need(
    page: Any, sign_in: SignIn, ana: User
) -> None:
    make_pool(members=3)
    person("ben")
    sign_in(page, ana)
    open_live(page, "/pools/env/")
    page.locator('.mem[data-name="env-1"]').focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(":focus")).to_have_attribute("data-name", "env-2")
    page.keyboard.press("Enter")
    page.locator("#member-panel h2", has_text="env-2").wait_for()
    assert "member=env-2" in page.url
    page.get_by_role("link", name="Cordon…").click()
    confirm(page, "Cordon", reason="look at it")
    page.locator('.mem[data-name="env-2"][data-attention]').wait_for()
    page.locator("main").focus()
    page.keyboard.press("n")
    expect(page.locator(":focus")).to_have_attribute("data-name", "env-2")


def test_a_row_under_the_pointer_does_not_move(page: Any, sign_in: SignIn, ana: User) -> None:
    make_pool()
    sign_in(page, ana)
    open_live(page, "/")
    row = page.locator(".side .ev > li").first
    row.hover()
    key = row.get_attribute("data-key")
    before = row.bounding_box()
    claim(owner="newcomer")
    page.locator('.side .ev[data-held]:not([data-held="0"])').wait_for()
    assert page.locator(f'.side [data-key="{key}"]').bounding_box() == before
    page.mouse.move(5, 5)
    page.locator(".side .ev").get_by_text("newcomer").wait_for()


def test_times_are_in_the_zone_of_the_browser_which_is_named(
    browser: Any, site: str, sign_in: SignIn, ana: User
) -> None:
    make_pool()
    record("sign_in", actor="ana", data={"user": "ana"})
    context = browser.new_context(base_url=site, timezone_id="Asia/Kolkata")
    page = context.new_page()
    sign_in(page, ana)
    open_live(page, "/events/")
    moment = page.locator("[data-rows] time").first
    exact = moment.get_attribute("title")
    assert exact.endswith(" UTC")
    hour, minute, second = (int(part) for part in exact.split(" ")[1].split(":"))
    shifted = (hour * 60 + minute + 330) % 1440
    assert moment.inner_text().endswith(f"{shifted // 60:02d}:{shifted % 60:02d}:{second:02d}")
    assert page.locator("th [data-zone]").inner_text() == "GMT+5:30"
    context.close()


def test_morph_keeps_the_order_of_many_new_rows(page: Any, sign_in: SignIn, ana: User) -> None:
    """Rows with white space between them, of which some are new, some gone and some elsewhere."""
    make_pool()
    sign_in(page, ana)
    open_live(page, "/")
    lists = [
        ["a", "b"],
        ["f", "e", "d", "c", "a", "b"],
        ["b", "g", "a"],
        [],
        ["z"],
        ["y", "x", "w", "v", "z"],
        ["v", "w", "x", "y", "z"],
    ]
    shown = page.evaluate(
        """(lists) => {
          const list = document.createElement("ul");
          list.setAttribute("data-list", "");
          document.body.append(list);
          return lists.map((keys) => {
            berth.morph(list, keys.map((key) => `<li data-key="${key}">${key}</li>\n`).join(""));
            return [...list.children].map((row) => row.textContent);
          });
        }""",
        lists,
    )
    assert shown == lists


MORE_PAGES = (
    "/pools/dense/", "/pools/new/", "/pools/new/?as=file", "/pools/env/edit/", "/claims/?q=",
    "/claims/{waiting}/", "/claims/{held}/", "/events/?at=now", "/members/{member}/cordon/",
)  # fmt: skip
DIALOGS = (
    ("/pools/env/", "text=Pause…"), ("/pools/env/", "text=Add members…"),
    ("/pools/env/", "text=Delete…"), ("/claims/{held}/", "text=Force release…"),
    ("/claims/", "text=New claim…"),
)  # fmt: skip


def faults(page: Any) -> list[str]:
    """In both themes: they are the same page in other colours, so what knows no colour is
    asked once.
    """
    found = []
    for theme, rules in (
        ("dark", {"type": "rule", "values": COLOURS}),
        ("light", {"type": "tag", "values": STANDARDS}),
    ):
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        for v in AXE.run(page, options={"runOnly": rules, "resultTypes": ["violations"]}).response[
            "violations"
        ]:
            node = v["nodes"][0]
            found.append(
                f"{page.url} {theme}: {v['id']}: {node['html'][:200]} "
                f"{node.get('failureSummary', '')[:200]}"
            )
    return found


def test_axe_reports_low_contrast_and_a_nameless_button(page: Any, site: str) -> None:
    """Else the others would find nothing whatever there is."""
    page.goto("/login/")
    dim = (
        "<p style='color: light-dark(#000, #222); background: light-dark(#fff, "
        "#000)'>dim</p><button type='button'></button>"
    )
    page.evaluate("dim => document.querySelector('main').insertAdjacentHTML('beforeend', dim)", dim)
    found = sorted(" ".join(fault.split(": ")[:2]).split("/login/ ")[1] for fault in faults(page))
    assert found == ["dark color-contrast", "light button-name"]


def test_axe_finds_no_fault_on_any_page_or_dialog(page: Any, sign_in: SignIn, site: str) -> None:
    page.goto("/login/")
    found = faults(page)
    sign_in(page, chief())
    page.goto("/")
    found += faults(page)  # the first page, without pools
    make_pool(members=2, slots=1, description="Test environments", group="Environments")
    make_pool("dense", members=61, slots=3)
    ids = {"held": claim().id, "member": member("env-1").pk}
    claim()
    ids["waiting"] = claim(owner="branch:login").id
    claim("none", owner="early")
    for path in (*PAGES, *MORE_PAGES):
        page.goto(path.format(**ids))
        found += faults(page)
    lost = page.context.new_page()  # a browser complains of the status in its console
    lost.goto("/pools/none/")
    found += faults(lost)
    lost.close()
    for path, opener in DIALOGS:
        page.goto(path.format(**ids))
        page.locator(LIVE).wait_for()
        page.click(opener)
        page.locator("#dialog[open]").wait_for()
        found += faults(page)
    page.goto("/")
    page.keyboard.press("Control+K")
    page.locator("#palette [role=option]").first.wait_for()
    found += faults(page)
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    found += faults(page)
    assert not found, "\n".join(found)
