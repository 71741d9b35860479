"""A visitor of the sample: a signed-in person without a browser."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.dashboard.test_page_permissions import list_pages
from tests.end_to_end.stack import Stack
from tests.waiting import wait_until

VIEWS = re.compile(r'href="(\?(?:tab|view)=[a-z]+)"')


class Visitor:
    """Reads pages like a patient person: a page that asks for patience (503) is read again."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def get(self, path: str) -> httpx.Response:
        return self.send("GET", path)

    def send(self, method: str, path: str, **more: Any) -> httpx.Response:
        def read() -> httpx.Response | None:
            answer = self.client.request(method, path, **more)
            return None if answer.status_code == 503 else answer

        return wait_until(read, f"{path} is unavailable", pause=1.0)

    def sign_in(self, username: str, password: str) -> None:
        form = self.get("/login/").text
        found = re.search(r'name="csrfmiddlewaretoken" value="(.+?)"', form)
        assert found, form
        fields = {
            "csrfmiddlewaretoken": found[1], "username": username, "password": password,
        }  # fmt: skip
        answer = self.send("POST", "/login/", data=fields)
        assert answer.status_code == 302, (answer.status_code, answer.text)

    def is_empty(self, path: str) -> bool:
        answer = self.get(path)
        assert answer.status_code == 200, (path, answer.status_code)
        return 'class="empty"' in answer.text

    def list_pages(self, pools: tuple[str, ...]) -> list[str]:
        """Pages without an argument, and the pages of these pools, with all their tabs and views.
        Dialogs and parts of pages are left out.
        """
        found = []
        routes = [f"/{route}" for route in list_pages() if "<" not in route]
        for path in [*routes, *(f"/pools/{name}/" for name in pools)]:
            answer = self.get(path)
            is_page = 'id="conn"' in answer.text and 'class="dlg alone"' not in answer.text
            if answer.status_code == 200 and is_page:
                found += [path, *(path + view for view in sorted(set(VIEWS.findall(answer.text))))]
        return found


@contextmanager
def visit(stack: Stack) -> Iterator[Visitor]:
    """As the first user, a superuser."""
    with httpx.Client(
        base_url=f"http://127.0.0.1:{stack.port}", trust_env=False, timeout=30
    ) as client:
        visitor = Visitor(client)
        visitor.sign_in("admin", (stack.home / "admin-password").read_text().strip())
        yield visitor
