"""Fixtures for every test."""

import os
import shutil
import socket
import subprocess
import sys
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
from hypothesis import HealthCheck
from hypothesis import settings as trials

from project.kernel.events import notify
from tests.boot import migrated
from tests.left_out import CHROMIUM as CHROMIUM_MISSING
from tests.rolled_back import committed_tables, tables

__all__ = ["committed_tables", "tables"]  # fixtures

ROOT = Path(__file__).resolve().parents[1]
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
# No test is timed.
trials.register_profile(
    "berth", trials.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
trials.load_profile("berth")
QUIET = [
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules with browser tests come last: Playwright's event loop stays, and no asynchronous test
    can run beside it.

    Parallel workers take whole modules, in this order.
    """
    for item in items:
        if "page" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
    last = {item.path for item in items if item.get_closest_marker("browser")}
    items.sort(key=lambda item: (item.path in last, item.get_closest_marker("browser") is not None))


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
def serve_web(**more: str) -> Iterator[str]:
    """The real web process on the tests' database, with these variables; its address."""
    at = urlsplit(os.environ["DATABASE_URL"])
    environment = {
        **os.environ,
        "DATABASE_URL": at._replace(path=f"/{connection.settings_dict['NAME']}").geturl(),
    }
    # Whoever has one meanwhile.
    environment |= dict.fromkeys(
        ("BERTH_KUBECONFIG", "KUBECONFIG"), str(ROOT / "tests" / "no-kubeconfig")
    )
    environment |= more
    ready, told = os.pipe()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        # At the end at once: it need not wait.
        handles = (listener.fileno(), os.open(os.devnull, os.O_RDONLY), told)
        command = [sys.executable, "-m", "project.kernel.embedded.web", *map(str, handles)]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, pass_fds=handles)
        os.close(handles[1])
        os.close(told)
        try:
            # Ends when it says so, and when it dies.
            assert os.read(ready, 1), "the web process does not start"
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            os.close(ready)
            process.terminate()
            process.wait(20)


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

    # Its event loop runs in this thread from here on, though nothing of ours is in it.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", *QUIET]
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, site: str) -> Iterator[Any]:
    """A fresh browser window on the site. Whatever it complains of, our content policy included,
    fails the test.
    """
    context = browser.new_context(
        base_url=site, viewport={"width": 1440, "height": 900}, locale="en-US"
    )
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda message: (
            complaints.append(f"{message.text} ({message.location})")
            if message.type == "error"
            else None
        ),
    )
    yield page
    context.close()
    assert not complaints, complaints


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
