"""The dashboard in a real browser: live windows, reconnection and shortcuts."""

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from claims.lifecycle.release import release_claim
from project.kernel.events.log import record
from tests.axe import find_faults
from tests.conftest import serve_web
from tests.dashboard.helpers import (
    PASSWORD,
    chief,
    claim,
    expect_not_reloaded,
    make_pool,
    mark_page,
    person,
)

pytestmark = pytest.mark.browser

SignIn = Callable[[Any, User], None]
OpenWindow = Callable[..., Any]
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


def test_a_dropped_socket_resumes_without_a_gap(
    open_window: OpenWindow, sign_in: SignIn, ana: User
) -> None:
    make_pool()
    page = open_window()
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
def reach_at(port: int, site: str) -> Iterator[None]:
    """The site at a port of its own. The end of the block breaks each connection, as the end of a
    web process does.
    """
    sockets = [socket.create_server(("127.0.0.1", port))]
    threads = []

    def copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                near = sockets[0].accept()[0]
                far = socket.create_connection(("127.0.0.1", urlsplit(site).port or 0))
                sockets.extend((near, far))
                start(copy, near, far)
                start(copy, far, near)

    def start(work: Callable[..., None], *args: socket.socket) -> None:
        threads.append(Thread(target=work, args=args))
        threads[-1].start()

    start(accept)
    try:
        yield
    finally:
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(20)
        for each in sockets:
            each.close()


def test_a_stale_page_reconnects_by_its_button_after_a_restart(
    open_window: OpenWindow, sign_in: SignIn, site: str, ana: User
) -> None:
    """A new process answers after the restart."""
    make_pool()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    page = open_window(base_url=f"http://127.0.0.1:{port}")
    sign_in(page, ana)
    with reach_at(port, site):
        open_live(page, "/pools/env/")
        mark_page(page)
    page.locator("#conn.reconnecting, #conn.stale").wait_for()
    page.locator("#stale").wait_for()
    assert "what you typed stays" in page.locator("#stale").inner_text()
    claim(owner="while-down")
    with serve_web(port):
        page.locator("#stale button").click()
        page.locator(LIVE).wait_for()
        page.locator(".mem i.bound").wait_for()
        assert page.locator("#stale").count() == 0
        expect_not_reloaded(page)


def test_the_first_pool_replaces_the_welcome_page_live(
    page: Any, sign_in: SignIn, ana: User
) -> None:
    sign_in(page, ana)
    open_live(page, "/")
    page.get_by_role("heading", name="No pools yet").wait_for()
    assert find_faults(page) == []
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
    open_window: OpenWindow, sign_in: SignIn, ana: User
) -> None:
    make_pool()
    record("sign_in", actor="ana", data={"user": "ana"})
    page = open_window(timezone_id="Asia/Kolkata")
    sign_in(page, ana)
    open_live(page, "/events/")
    moment = page.locator("[data-rows] time").first
    exact = moment.get_attribute("title")
    assert exact.endswith(" UTC")
    hour, minute, second = (int(part) for part in exact.split(" ")[1].split(":"))
    shifted = (hour * 60 + minute + 330) % 1440
    assert moment.inner_text().endswith(f"{shifted // 60:02d}:{shifted % 60:02d}:{second:02d}")
    assert page.locator("th [data-zone]").inner_text() == "GMT+5:30"


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
