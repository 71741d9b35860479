"""Fixtures for every test."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from project.kernel.events import notify
from tests.boot import migrated
from tests.browser_windows import OPTIONS, Window
from tests.left_out import CHROMIUM as CHROMIUM_MISSING
from tests.rolled_back import committed_tables, tables
from tests.web_process import run_web

__all__ = ["committed_tables", "tables"]  # fixtures

ROOT = Path(__file__).resolve().parents[1]
# The headless build comes first: it draws no window, which saves a third of the CPU time.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
QUIET = [
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def django_db_setup(
    request: pytest.FixtureRequest, django_test_environment: None
) -> Iterator[None]:
    """The run's own server brings a migrated database; on a given server Django makes one."""
    if migrated:
        connection.settings_dict["NAME"] = settings.DATABASES["default"]["NAME"] = migrated[0]
    else:
        request.getfixturevalue("django_db_setup")
    yield
    # The thread that sends notifications keeps a connection to the database.
    notify.disconnect()


@contextmanager
def serve_web(port: int = 0, /, **more: str) -> Iterator[str]:
    """The real web process on the tests' database, with these variables; its address."""
    at = urlsplit(os.environ["DATABASE_URL"])
    environment = {
        **os.environ,
        "DATABASE_URL": at._replace(path=f"/{connection.settings_dict['NAME']}").geturl(),
    }
    # A kubeconfig of the developer must not reach the tests.
    environment |= dict.fromkeys(
        ("BERTH_KUBECONFIG", "KUBECONFIG"), str(ROOT / "tests" / "no-kubeconfig")
    )
    environment |= more
    with run_web(environment, port=port) as (address, _):
        yield address


@pytest.fixture(scope="session")
def web_process(django_db_setup: None) -> Iterator[str]:
    """The real web process on the tests' database; its address."""
    with serve_web() as address:
        yield address


@pytest.fixture
def site(transactional_db: None, web_process: str) -> str:
    """Where Berth answers, on an empty database of this test's own."""
    return web_process


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip(CHROMIUM_MISSING)
    # Half a second, which other tests need not pay.
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    # From here on Playwright's event loop runs in this thread, without code of the tests.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", *QUIET]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def windows(browser: Any, web_process: str) -> Iterator[tuple[Window, Window]]:
    """Two windows on the site, for the whole run; `page` and `other` clear them."""
    found = Window(browser, web_process), Window(browser, web_process)
    yield found
    for window in found:
        window.close()


@pytest.fixture
def page(windows: tuple[Window, Window], site: str) -> Iterator[Any]:
    """A clean window on the site. Any complaint of the browser, such as a violation of the content
    policy, fails the test.
    """
    with windows[0].use() as page:
        yield page
    assert not windows[0].complaints, windows[0].complaints


@pytest.fixture
def other(windows: tuple[Window, Window], site: str) -> Iterator[Any]:
    """A second window, of another user. It may complain: a browser writes each 4xx response into
    its console.
    """
    with windows[1].use() as page:
        yield page


@pytest.fixture
def open_window(browser: Any, site: str) -> Iterator[Callable[..., Any]]:
    """`open_window(**options)`: a window of this test's own, for what stays with a window, such as
    its time zone or a routed socket.
    """
    contexts = []

    def open_one(**options: Any) -> Any:
        contexts.append(browser.new_context(**{"base_url": site, **OPTIONS, **options}))
        return contexts[-1].new_page()

    yield open_one
    for context in contexts:
        context.close()


@pytest.fixture
def sign_in(site: str) -> Callable[[Any, User], None]:
    """`sign_in(page, user)`: this window is signed in, without the form."""

    def enter(page: Any, user: User) -> None:
        client = Client()
        client.force_login(user)
        name = settings.SESSION_COOKIE_NAME
        page.context.add_cookies(
            [{"name": name, "value": client.cookies[name].value, "url": site, "httpOnly": True}]
        )

    return enter
