"""Every page, dialog and error page passes axe in both themes, and fits on a phone.

The pages come from the addresses of the site (tests/dashboard/test_page_permissions.py), so a new
page is checked as soon as its address exists. All tests read one world in one window; none changes
it.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import OperationalError
from django.test import Client, RequestFactory
from playwright.sync_api import expect

from project.kernel.http.problems import server_error
from tests.axe import find_faults
from tests.browser_windows import OPTIONS, Window
from tests.clean_tables import empty_touched_tables
from tests.dashboard.accessibility_world import Shown, build_shown
from tests.dashboard.screenshots import shoot_all
from tests.dashboard.test_page_permissions import CLAIM, POOL, ROWS, STATE

pytestmark = pytest.mark.browser

PHONE = {"width": 390, "height": 844}
LIVE = "#conn.live"
NO_HTML = {
    "healthz", "readyz", "metrics", "favicon.ico", "agent/berth-agent.pyz",
    "api/schema/", "api/schema/pool.json", f"{CLAIM}plan/<id:plan_id>/raw/", STATE,
}  # fmt: skip
THIRD_PARTY = {"api/docs/"}  # Swagger UI
# The layout differs most on a phone: axe reads these pages there once more.
NARROW = {CLAIM, "claims/run/", "approvals/", "workspaces/", "workspaces/<path:name>/"}
# Parts of a page, fetched by its scripts: the page is checked with the part in it.
Open = Callable[[Any], None]


def open_palette(page: Any) -> None:
    page.keyboard.press("Control+K")
    page.locator("#palette input").fill("env")
    page.locator("#palette").get_by_text("Pool env", exact=True).wait_for()


def open_member(page: Any) -> None:
    page.locator('.mem[data-name="env-1"]').click()
    page.locator("#member-panel h2", has_text="env-1").wait_for()


def open_port(page: Any) -> None:
    page.locator(".ports i.idle").first.click()
    page.locator("#port-panel h2", has_text="30005").wait_for()


def open_preview(page: Any) -> None:
    page.locator(".inbox li", has_text="network").click()
    page.locator("#peek", has_text="network").wait_for()


def open_group(page: Any) -> None:
    page.locator(".plan.groups > li").last.locator("summary").first.click()


def open_change(page: Any) -> None:
    open_group(page)
    page.locator(".plan.groups > li").last.locator("li details summary").first.click()


PARTS: dict[str, tuple[str, Open]] = {
    "search/": ("/", open_palette),
    f"{POOL}members/<id:member_id>/": ("/pools/env/", open_member),
    f"{POOL}ports/<id:slot_id>/": ("/pools/ports/?tab=ports", open_port),
    "approvals/<id:claim_id>/": ("/approvals/", open_preview),
    f"{CLAIM}plan/<id:plan_id>/changes/": ("/claims/{huge}/", open_group),
    f"{CLAIM}plan/<id:plan_id>/changes/<id:number>/": ("/claims/{huge}/", open_change),
}


def open_help(page: Any) -> None:
    page.keyboard.press("?")
    page.locator("#help[open]").wait_for()


def open_menu(page: Any) -> None:
    page.locator("details.menu summary").click()


def select_claims(page: Any) -> None:
    page.locator("[data-rows] [data-key] input[type=checkbox]").first.check()
    page.locator(".bulk").wait_for()


def choose_source(name: str) -> Open:
    return lambda page: page.locator(f"[name=source][value={name}]").check()


def start_without_files(page: Any) -> None:
    choose_source("files")(page)
    page.get_by_role("button", name="Start run").click()
    page.locator("#faults").wait_for()


def stay(page: Any) -> None:
    """The page as it is loaded."""


def refuse_approval(page: Any) -> None:
    """The form names another plan than the one that waits."""
    form = page.locator("#decide")
    form.locator("[name=digest]").evaluate("field => { field.value = '0'.repeat(64); }")
    form.locator("[name=read]").check()
    form.locator("[data-word=Approve]").click()
    page.locator("#decide-said .note.error").wait_for()


def send_form(fields: int) -> Open:
    """A form without the token against forgery."""

    def send(page: Any) -> None:
        with page.expect_navigation():
            page.evaluate(
                """fields => {
                  const form = document.createElement("form");
                  form.method = "post";
                  for (let number = 0; number < fields; number++) {
                    const field = document.createElement("input");
                    field.name = `field-${number}`;
                    form.append(field);
                  }
                  document.body.append(form);
                  form.submit();
                }""",
                fields,
            )

    return send


def show_host_error(page: Any) -> None:
    """A name with an underscore belongs to no host. The browser resolves it to this machine."""
    port = urlsplit(page.url).port
    assert page.goto(f"http://no_host.localhost:{port}/").status == 400


# Further states of pages.
STATES: tuple[tuple[str, Open], ...] = (
    ("/?help", open_help),
    ("/?menu", open_menu),
    ("/claims/?select", select_claims),
    ("/claims/run/?source=files", choose_source("files")),
    ("/claims/run/?source=archive", choose_source("archive")),
    ("/claims/run/?source=git", choose_source("git")),
    ("/claims/run/?refused", start_without_files),
    ("/claims/{network}/?refused", refuse_approval),
    ("/pools/none/", stay),
)
ERRORS: dict[str, tuple[str, Open]] = {
    "400": ("/tokens/?400", send_form(settings.DATA_UPLOAD_MAX_NUMBER_FIELDS + 1)),
    "400-host": ("/tokens/?400-host", show_host_error),
    "403": ("/tokens/?403", send_form(1)),
    "404": ("/nowhere/", stay),
}
# Pages of the admin that ask for a reason, a number and a confirmation.
ASKING = {
    "reason": "/admin/pools/member/{free}/cordon/",
    "number": "/admin/pools/member/{free}/cost/",
    "confirmation": "/admin/pools/member/{free}/leave/",
}


def list_routes() -> list[str]:
    """Addresses that a browser reads as HTML."""
    return sorted(
        route for route, row in ROWS.items()
        if "GET" in row.methods and route not in NO_HTML | THIRD_PARTY | set(PARTS)
    )  # fmt: skip


@pytest.fixture(scope="module")
def shown(web_process: str, django_db_blocker: Any) -> Iterator[Shown]:
    with django_db_blocker.unblock():
        yield build_shown()
        empty_touched_tables("default")


@pytest.fixture(scope="module")
def signed_in(
    shown: Shown, windows: tuple[Window, Window], django_db_blocker: Any
) -> Iterator[Window]:
    """A window of a superuser, on a page with the scripts of dialogs."""
    with windows[0].use() as page:
        client, name = Client(), settings.SESSION_COOKIE_NAME
        with django_db_blocker.unblock():
            client.force_login(User.objects.get(pk=shown.user))
        cookie = {"name": name, "value": client.cookies[name].value, "httpOnly": True}
        page.context.add_cookies([{**cookie, "url": windows[0].site}])
        yield windows[0]


@pytest.fixture
def window(signed_in: Window) -> Iterator[Any]:
    """The window. A browser writes each status of 4xx into its console, and that of a process
    that is not ready.
    """
    signed_in.complaints.clear()
    yield signed_in.page
    found = [text for text in signed_in.complaints if not re.search("status of 4|/readyz", text)]
    assert not found, found


def fetch(page: Any, path: str) -> tuple[int, str]:
    status, text = page.evaluate(
        "path => fetch(path).then(async (answer) => [answer.status, await answer.text()])", path
    )
    return status, text


def check_page(
    page: Any, path: str, prepare: Open = stay, *, is_live: bool = True, is_narrow: bool = False
) -> list[str]:
    page.goto(path, wait_until="commit" if is_live else "load")
    if is_live:
        page.locator(LIVE).wait_for()
    prepare(page)
    shoot_all(page, f"page{re.sub('[^a-z0-9]+', '-', path)}")
    found = find_faults(page)
    page.set_viewport_size(PHONE)
    expect(page.locator("html"), path).to_have_js_property("scrollWidth", PHONE["width"])
    if is_narrow:
        # As tall as the page: no fixed element covers the content.
        height = page.evaluate("() => document.documentElement.scrollHeight")
        page.set_viewport_size({**PHONE, "height": height})
        found += [f"on a phone: {fault}" for fault in find_faults(page)]
    page.set_viewport_size(OPTIONS["viewport"])
    return found


def check_dialog(page: Any, path: str) -> list[str]:
    """The dialog above a page, opened like by its link."""
    page.evaluate(
        """path => {
          const link = document.createElement("a");
          link.dataset.dialog = path;
          document.querySelector("main").append(link);
          link.click();
          link.remove();
        }""",
        path,
    )
    page.locator("#dialog[open] [data-close]").wait_for()
    shoot_all(page, f"dialog{re.sub('[^a-z0-9]+', '-', path)}", is_whole=False)
    found = [f"{path}: {fault}" for fault in find_faults(page, "#dialog")]
    page.keyboard.press("Escape")
    page.locator("#dialog[open]").wait_for(state="detached")
    return found


def check_dialog_page(page: Any, path: str, html: str) -> list[str]:
    """The dialog as a page of its own, which differs from any other page in its main part only."""
    page.evaluate(
        """html => {
          const parsed = new DOMParser().parseFromString(html, "text/html");
          document.title = parsed.title;
          document.querySelector("main").replaceWith(parsed.querySelector("main"));
        }""",
        html,
    )
    return [f"{path}: {fault}" for fault in find_faults(page, "main")]


def test_an_address_that_axe_leaves_out_answers_no_html(window: Any, shown: Shown) -> None:
    kinds = {
        route: window.evaluate(
            "path => fetch(path).then(({headers}) => headers.get('Content-Type'))",
            shown.values[route],
        )
        for route in sorted(NO_HTML)
    }
    assert [route for route, kind in kinds.items() if "html" in (kind or "")] == []


def test_axe_reports_low_contrast_and_a_nameless_button(window: Any) -> None:
    """Proves that axe works: without this check, the other tests might miss every fault."""
    window.goto("/tokens/")
    dim = (
        "<p style='color: light-dark(#000, #222); background: light-dark(#fff, "
        "#000)'>dim</p><button type='button'></button>"
    )
    window.evaluate(
        "dim => document.querySelector('main').insertAdjacentHTML('beforeend', dim)", dim
    )
    found = sorted(
        " ".join(fault.split(": ")[:2]).split("/tokens/ ")[1] for fault in find_faults(window)
    )
    assert found == ["dark color-contrast", "light button-name"]


@pytest.mark.parametrize("route", list_routes())
def test_axe_finds_no_fault_on_a_page_or_dialog(route: str, window: Any, shown: Shown) -> None:
    found, confirmable = [], []
    for path in shown.list_paths(route):
        if not window.locator("#dialog").count() or not window.locator(LIVE).count():
            window.goto("/tokens/")
            window.locator(LIVE).wait_for()
        status, html = fetch(window, path)
        assert status == 200, (path, status)
        if 'class="dlg alone"' in html:
            found += check_dialog(window, path)
            found += check_dialog_page(window, path, html)
            confirmable.append("data-guarded" in html)
        else:
            assert "<html" in html, f"{path} is a part of a page: name its page in PARTS"
            is_live = 'id="conn"' in html
            found += check_page(window, path, is_live=is_live, is_narrow=route in NARROW)
    assert not found, "\n".join(found)
    assert any(confirmable) or not confirmable, f"{route}: no dialog that can be confirmed"


@pytest.mark.parametrize("route", sorted(PARTS))
def test_axe_finds_no_fault_on_a_page_with_a_fetched_part(
    route: str, window: Any, shown: Shown
) -> None:
    path, prepare = PARTS[route]
    fetched = re.compile(re.sub("<[^>]*>", "[^/]+", route) + r"(\?.*)?$")

    def fetch_part(page: Any) -> None:
        with page.expect_response(fetched):
            prepare(page)

    assert check_page(window, shown.fill(path), fetch_part) == []


@pytest.mark.parametrize(("path", "prepare"), STATES, ids=[path for path, _ in STATES])
def test_axe_finds_no_fault_on_a_further_state_of_a_page(
    path: str, prepare: Open, window: Any, shown: Shown
) -> None:
    assert check_page(window, shown.fill(path), prepare, is_live=prepare != stay) == []


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_axe_finds_no_fault_on_an_error_page(name: str, window: Any) -> None:
    path, prepare = ERRORS[name]

    def show(page: Any) -> None:
        prepare(page)
        assert page.locator(".crumb").inner_text() == name[:3]

    assert check_page(window, path, show, is_live=False) == []


def make_answer(error: Exception) -> str:
    """The page after an exception, as the handler of the site makes it."""
    try:
        raise error
    except Exception:
        return server_error(RequestFactory().get("/")).content.decode()


@pytest.mark.parametrize(
    ("error", "code"),
    [(ValueError("a mistake"), "500"), (OperationalError("it starts"), "503")],
    ids=["500", "refused"],
)
def test_axe_finds_no_fault_on_the_page_of_a_server_error(
    error: Exception, code: str, window: Any
) -> None:
    """No request makes a sound server fail, so the window gets the page of the handler."""
    html = make_answer(error)
    assert f'<p class="crumb">{code}</p>' in html
    window.route("**/broken/", lambda route: route.fulfill(content_type="text/html", body=html))
    try:
        assert check_page(window, "/broken/", is_live=False) == []
    finally:
        window.unroute("**/broken/")


def test_axe_finds_no_fault_on_a_refused_dialog(window: Any) -> None:
    window.goto("/tokens/")
    window.locator(LIVE).wait_for()
    path = "/claims/999999/release/"
    assert fetch(window, path)[0] == 404
    assert check_dialog(window, path) == []


@pytest.mark.parametrize("name", sorted(ASKING))
def test_axe_finds_no_fault_on_a_page_of_the_admin_that_asks(
    name: str, window: Any, shown: Shown
) -> None:
    """The frame around the main part is Unfold's."""
    window.goto(shown.fill(ASKING[name]))
    faults = find_faults(window, "main")
    for field in window.locator("main [required]").all():
        field.fill(" ")
    window.get_by_role("main").get_by_role("button").click()
    window.get_by_role("main").get_by_role("alert").wait_for()
    assert faults + find_faults(window, "main") == []


def test_axe_finds_no_fault_on_the_sign_in_page(open_window: Any) -> None:
    assert check_page(open_window(), "/login/", is_live=False) == []
