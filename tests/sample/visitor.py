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
POOL = r"/pools/(?!new/)[a-z-]+/"
# Address -> the content of its main part: a row of its table, a cell of its map, a choice of its
# form. `list_pages` finds no other address.
CONTENT = {
    r"/": r'data-key="p\d+"',
    r"/approvals/": r'data-key="c\d+"',
    r"/claims/": r'data-key="\d+"',
    r"/claims/run/": r'<option value="harbour"',
    r"/events/": r'data-key="e\d+"',
    r"/pools/new/": r'value="forwarder"',
    rf"{POOL}(\?tab=members)?": r'data-key="m\d+"',
    rf"{POOL}\?tab=events": r'data-key="e\d+"',
    rf"{POOL}\?tab=policy": r"<dt>Placement</dt>\s*<dd>\w",
    rf"{POOL}\?tab=ports": r'<i role="gridcell"[^>]+data-c="\d+"',
    rf"{POOL}\?tab=queue": r'data-key="\d+"',
    rf"{POOL}\?tab=scaling": r'data-key="d\d+"',
    r"/scaling/(\?view=pools)?": r'data-key="s\d+"',
    r"/scaling/\?view=freezes": r'<tr data-key="\d+-\d+"',
    # Only programs need a token, and Berth makes none for a person who asks for none.
    r"/tokens/": r"You have no tokens\. Only programs need a token",
    r"/workspaces/": r'data-key="w-[^"]+"',
}


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

    def has_content(self, path: str) -> bool:
        answer = self.get(path)
        assert answer.status_code == 200, (path, answer.status_code)
        (content,) = [CONTENT[page] for page in CONTENT if re.fullmatch(page, path)]
        return re.search(content, answer.text.partition("<main")[2]) is not None

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
