"""The way of a request through ASGI to Django and back, and what is refused on it."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from project.kernel import http as handler
from project.kernel.http import Http

seen: list[Any] = []


@csrf_exempt
def echo(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.body, content_type="text/plain")


def whose(request: HttpRequest) -> HttpResponse:
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        seen.append((threading.current_thread().name, cursor.fetchone()[0]))
    return HttpResponse()


def stream(request: HttpRequest) -> StreamingHttpResponse:
    def parts() -> Iterator[bytes]:
        yield from (b"one ", b"two ", b"x" * 100_000)

    return StreamingHttpResponse(parts())


def broken(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("a view that fails")


urlpatterns = [path("echo", echo), path("whose", whose), path("stream", stream), path("broken", broken)]


@pytest.fixture
def http(settings: Any) -> Iterator[Http]:
    settings.ROOT_URLCONF = __name__
    seen.clear()
    http = Http()
    yield http
    everybody = threading.Barrier(settings.BERTH_WEB_THREADS)

    def leave() -> None:
        everybody.wait(10)  # so that each thread does it once
        connection.close()

    for left in [http.quick.submit(leave) for _ in range(settings.BERTH_WEB_THREADS)]:
        left.result()
    http.quick.shutdown()


async def ask(http: Http, where: str, *, method: str = "GET", body: list[bytes] | None = None) -> tuple[int, bytes]:
    parts = body or [b""]
    coming = iter([{"type": "http.request", "body": part, "more_body": n < len(parts) - 1} for n, part in enumerate(parts)])
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if (message := next(coming, None)) is not None:
            return message
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-length", str(sum(map(len, parts))).encode())]
    scope = {"type": "http", "http_version": "1.1", "method": method, "path": f"/{where}", "query_string": b"", "headers": headers}
    await http(scope | {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "scheme": "http"}, receive, send)
    assert not sent[-1].get("more_body", False)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


async def test_a_body_arrives_whole(http: Http) -> None:
    assert await ask(http, "echo", method="POST", body=[b"one ", b"two"]) == (200, b"one two")


async def test_a_body_beyond_its_limit_is_refused_before_it_is_read(http: Http) -> None:
    endless = [b"x" * 100_000] * (settings.BERTH_BODIES[-1][1] // 100_000 + 1)
    status, body = await ask(http, "echo", method="POST", body=endless)
    assert status == 413 and b"too_large" in body


@pytest.mark.parametrize("expects", [False, True])
async def test_who_sends_too_much_can_read_the_refusal(http: Http, expects: bool) -> None:
    """A program that sends to the end before it reads would see the connection break. One that asked first has sent nothing."""
    parts, size, sent = 40, 100_000, list[dict[str, Any]]()
    taken: list[int] = []

    async def receive() -> dict[str, Any]:
        taken.append(len(sent))
        return {"type": "http.request", "body": b"x" * size, "more_body": len(taken) < parts}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [
        (b"host", b"localhost"),
        (b"content-length", str(parts * size).encode()),
        *([(b"expect", b"100-continue")] if expects else []),
    ]
    scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": "/echo", "query_string": b"", "scheme": "http"}
    await http(scope | {"headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)}, receive, send)
    assert sent[0]["status"] == 413 and b"1000000 bytes" in sent[1]["body"]
    assert (len(taken), not sent[-1].get("more_body")) == (0 if expects else parts, True)


async def test_of_a_body_that_is_complete_nothing_more_is_waited_for(http: Http) -> None:
    """Its length was not said, and its last part is the one too many: red where the next is asked for, as none comes for seconds."""
    parts = [{"type": "http.request", "body": b"x" * 600_000, "more_body": more} for more in (True, False)]
    sent = list[dict[str, Any]]()

    async def receive() -> dict[str, Any]:
        return parts.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": "/echo", "query_string": b"", "scheme": "http"}
    headers = [(b"host", b"localhost"), (b"transfer-encoding", b"chunked")]
    await http(scope | {"headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)}, receive, send)
    assert sent[0]["status"] == 413
    assert not sent[-1].get("more_body")


class Slow:
    """A body that comes as far as it is let."""

    def __init__(self, size: int, is_said: bool = True) -> None:
        self.size, self.is_said = size, is_said
        self.is_read, self.may_end = asyncio.Event(), asyncio.Event()
        self.sent: list[dict[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        if not self.is_read.is_set():
            self.is_read.set()
            return {"type": "http.request", "body": b"x", "more_body": True}
        await self.may_end.wait()
        return {"type": "http.request", "body": b"y", "more_body": False}

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    async def go(self, http: Http) -> int:
        length = [(b"content-length", str(self.size).encode())] if self.is_said else [(b"transfer-encoding", b"chunked")]
        scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": "/echo", "query_string": b"", "scheme": "http"}
        headers = [(b"host", b"localhost"), *length]
        await http(scope | {"headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)}, self.receive, self.send)
        return int(self.sent[0]["status"])


@pytest.mark.parametrize("is_said", [True, False])
async def test_large_bodies_take_turns_and_small_ones_pass_by(http: Http, is_said: bool) -> None:
    """Or a few callers with all that they may send fill the memory. Whose size is not said counts as large."""
    http.bodies = [(fits, 2 * handler.LARGE, guard) for fits, _, guard in http.bodies]
    large = [Slow(handler.LARGE + 1, is_said) for _ in range(handler.LARGE_AT_ONCE + 1)]
    tasks = []
    for slow in large:
        tasks.append(asyncio.create_task(slow.go(http)))
        if slow is not large[-1]:
            await asyncio.wait_for(slow.is_read.wait(), 30)
    assert (await ask(http, "echo", method="POST", body=[b"small"]))[0] == 200, "it waits for none of them"
    assert not large[-1].is_read.is_set(), "nothing of it is taken yet"
    large[1].may_end.set()
    assert await asyncio.wait_for(tasks[1], 30) == 200
    await asyncio.wait_for(large[-1].is_read.wait(), 30)
    for slow in large:
        slow.may_end.set()
    assert await asyncio.wait_for(asyncio.gather(*tasks), 30) == [200] * len(large)


async def test_a_caller_that_leaves_gives_its_turn_back(http: Http) -> None:
    for _ in range(handler.LARGE_AT_ONCE + 1):
        leaving = Slow(handler.LARGE + 1)
        task = asyncio.create_task(leaving.go(http))
        await asyncio.wait_for(leaving.is_read.wait(), 30)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    status, _ = await asyncio.wait_for(ask(http, "echo", method="POST", body=[b"x" * 100_000] * 20), 30)
    assert status == 413, "the next one has its turn"


async def test_a_stream_arrives_in_parts(http: Http) -> None:
    assert await ask(http, "stream") == (200, b"one two " + b"x" * 100_000)


async def test_a_view_that_fails_is_an_answer(http: Http) -> None:
    assert (await ask(http, "broken"))[0] == 500


@pytest.mark.django_db(transaction=True)
async def test_few_threads_keep_few_connections(http: Http) -> None:
    for _ in range(3):
        await asyncio.gather(*[ask(http, "whose") for _ in range(30)])
    assert len(seen) == 90
    assert len({pid for _, pid in seen}) <= settings.BERTH_WEB_THREADS
    assert len(set(seen)) == len({name for name, _ in seen})  # one connection for each thread, for good
