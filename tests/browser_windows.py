"""Browser windows that all tests of a worker share.

A context of its own costs each test two more renderer processes and an empty cache: three times
the CPU time of the pages that the test reads. So a window stays open and on the site between two
tests, and `use` takes everything from it that the last test may have left.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Error

# Animations would be drawn 60 times a second.
OPTIONS = {
    "viewport": {"width": 1440, "height": 900},
    "locale": "en-US",
    "reduced_motion": "reduce",
}
EMPTY_PAGE = "/healthz"


class Window:
    """A page in a context of its own, with what it complains of."""

    def __init__(self, browser: Browser, site: str) -> None:
        self.browser = browser
        self.site = site
        self.complaints: list[str] = []
        self.page: Any = None

    @contextmanager
    def use(self) -> Iterator[Any]:
        """The page, without cookies and stored values, on an empty page of the site."""
        if self.page is None:
            self.open()
        self.complaints.clear()
        try:
            yield self.page
        finally:
            complaints = list(self.complaints)
            try:
                self.reset()
            except Error:  # the page has crashed, or a test has closed it
                self.close()
            self.complaints[:] = complaints

    def open(self) -> None:
        context = self.browser.new_context(base_url=self.site, **OPTIONS)
        self.page = context.new_page()
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self.note)
        self.page.goto(EMPTY_PAGE, wait_until="commit")

    def note(self, message: Any) -> None:
        if message.type == "error":
            self.complaints.append(f"{message.text} ({message.location})")

    def reset(self) -> None:
        for other in self.page.context.pages:
            if other != self.page:
                other.close()
        self.page.unroute_all(behavior="ignoreErrors")
        self.page.goto(EMPTY_PAGE, wait_until="commit")
        self.page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
        self.page.context.clear_cookies()
        self.page.mouse.move(0, 0)
        self.page.set_viewport_size(OPTIONS["viewport"])
        self.page.emulate_media(color_scheme="light", reduced_motion="reduce")

    def close(self) -> None:
        if self.page is not None:
            self.page.context.close()
            self.page = None
