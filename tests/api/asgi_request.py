"""Requests to the ASGI handler without a socket, so that a test can disconnect while it waits."""

import asyncio
import json
from typing import Any

import pytest
from django.db import connections

from project.kernel.http.asgi import Http
from project.kernel.http.long_poll import Watch


async def ask(
    http: Http, path: str, secret: str, gone: asyncio.Event | None = None
) -> tuple[int, Any]:
    """Status and body; status 0 without a response. `gone`: the time at which the caller closes."""
    sent: list[Any] = []
    begun = False

    async def receive() -> Any:
        nonlocal begun
        if not begun:
            begun = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await (gone or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    where, _, query = path.partition("?")
    scope = {
        "type": "http", "http_version": "1.1", "scheme": "http", "method": "GET",
        "path": f"/api/v1/{where}", "raw_path": b"", "root_path": "",
        "query_string": query.encode(), "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {secret}".encode())],
    }  # fmt: skip
    await http(scope, receive, send)
    if not sent:
        return 0, None
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], json.loads(body) if b"json" in dict(sent[0]["headers"])[
        b"Content-Type"
    ] else body


async def close(http: Http) -> None:
    """Ends the threads of the handler and closes their connections."""
    await asyncio.get_running_loop().run_in_executor(http.threads, connections.close_all)
    http.threads.shutdown()


def record_waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The list grows by the longest time of each wait of a long poll when the wait begins."""
    waits: list[float] = []
    wait_for = Watch.wait_for

    async def recorded(watch: Watch[Any], subject: Any, seconds: float) -> None:
        waits.append(seconds)
        await wait_for(watch, subject, seconds)

    monkeypatch.setattr(Watch, "wait_for", recorded)
    return waits
