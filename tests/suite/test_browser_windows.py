"""A window that tests share is as good as new for each of them."""

import pytest
from playwright.sync_api import expect

from tests.browser_windows import EMPTY_PAGE, OPTIONS, Window

pytestmark = pytest.mark.browser


def test_a_shared_window_keeps_nothing_of_the_last_test(windows: tuple[Window, Window]) -> None:
    with windows[1].use() as page:
        page.context.add_cookies([{"name": "who", "value": "ana", "url": windows[1].site}])
        page.evaluate("() => { localStorage.theme = 'dark'; sessionStorage.at = '1'; }")
        page.route("**/metrics", lambda route: route.abort())
        page.set_viewport_size({"width": 390, "height": 844})
        page.emulate_media(color_scheme="dark")
        page.context.new_page()
    with windows[1].use() as page:
        assert page.context.cookies() == []
        assert page.evaluate("() => [localStorage.length, sessionStorage.length]") == [0, 0]
        assert page.evaluate("() => fetch('/metrics').then((answer) => answer.ok)")
        assert page.viewport_size == OPTIONS["viewport"]
        assert not page.evaluate("() => matchMedia('(prefers-color-scheme: dark)').matches")
        assert page.context.pages == [page]
        expect(page).to_have_url(windows[1].site + EMPTY_PAGE)


def test_a_window_that_a_test_closed_is_opened_again(windows: tuple[Window, Window]) -> None:
    with windows[1].use() as page:
        page.close()
    with windows[1].use() as page:
        expect(page).to_have_url(windows[1].site + EMPTY_PAGE)


def test_a_window_keeps_what_the_page_complained_of(windows: tuple[Window, Window]) -> None:
    with windows[1].use() as page:
        page.evaluate("() => console.error('a fault')")
    assert [text.split(" (")[0] for text in windows[1].complaints] == ["a fault"]


def test_a_window_forgets_complaints_of_the_last_test(windows: tuple[Window, Window]) -> None:
    windows[1].complaints.append("old")
    with windows[1].use():
        assert windows[1].complaints == []
