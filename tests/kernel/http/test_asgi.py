"""The way of a request through ASGI to Django and back: body limits, turns for large bodies,
streams.
"""

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

from project.kernel.http import bodies
from project.kernel.http.asgi import Http

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


def name_sender(request: HttpRequest) -> bodies.BodyCaller:
    """A guard that admits every caller."""
    sender = request.headers["X-Sender"]
    return bodies.BodyCaller(sender, sender)


urlpatterns = [
    path("echo", echo),
    path("whose", whose),
    path("stream", stream),
    path("broken", broken),
]


@pytest.fixture
def http(settings: Any) -> Iterator[Http]:
    settings.ROOT_URLCONF = __name__
    settings.BERTH_BODIES = [("/", 2 * bodies.LARGE, f"{__name__}.name_sender")]
    seen.clear()
    http = Http()
    yield http
    everybody = threading.Barrier(settings.BERTH_WEB_THREADS)

    def leave() -> None:
        everybody.wait(10)  # so that each thread does it once
        connection.close()

    for left in [http.threads.submit(leave) for _ in range(settings.BERTH_WEB_THREADS)]:
        left.result()
    http.threads.shutdown()


async def ask(
    http: Http, where: str, *, method: str = "GET", body: list[bytes] | None = None
) -> tuple[int, bytes]:
    parts = body or [b""]
    coming = iter(
        [
            {"type": "http.request", "body": part, "more_body": n < len(parts) - 1}
            for n, part in enumerate(parts)
        ]
    )
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if (message := next(coming, None)) is not None:
            return message
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [
        (b"host", b"localhost"),
        (b"content-length", str(sum(map(len, parts))).encode()),
        (b"x-sender", b"ana"),
    ]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": f"/{where}",
        "query_string": b"",
        "headers": headers,
    }
    await http(
        scope | {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "scheme": "http"},
        receive,
        send,
    )
    assert not sent[-1].get("more_body", False)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


async def test_body_arrives_whole(http: Http) -> None:
    assert await ask(http, "echo", method="POST", body=[b"one ", b"two"]) == (200, b"one two")


async def test_body_over_its_limit_is_refused_before_it_is_read(http: Http) -> None:
    endless = [b"x" * 100_000] * (2 * bodies.LARGE // 100_000 + 1)
    status, body = await ask(http, "echo", method="POST", body=endless)
    assert status == 413 and b"too_large" in body


@pytest.mark.parametrize("expects", [False, True])
async def test_sender_of_an_oversized_body_receives_the_413(http: Http, expects: bool) -> None:
    """A program that sends to the end before it reads would see the connection break. A program
    that asked first has sent no byte of the body.
    """
    parts, size, sent = 40, 100_000, list[dict[str, Any]]()
    taken: list[int] = []

    async def receive() -> dict[str, Any]:
        taken.append(len(sent))
        return {"type": "http.request", "body": b"x" * size, "more_body": len(taken) < parts}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [
        (b"host", b"localhost"),
        (b"x-sender", b"ana"),
        (b"content-length", str(parts * size).encode()),
        *([(b"expect", b"100-continue")] if expects else []),
    ]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/echo",
        "query_string": b"",
        "scheme": "http",
    }
    await http(
        scope | {"headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)},
        receive,
        send,
    )
    assert sent[0]["status"] == 413 and b"2000000 bytes" in sent[1]["body"]
    assert (len(taken), not sent[-1].get("more_body")) == (0 if expects else parts, True)


async def test_complete_oversized_body_is_refused_without_waiting_for_more(http: Http) -> None:
    """Its length was not said, and its last part is the one too many: red where the next is
    asked for, as none comes for seconds.
    """
    parts = [
        {"type": "http.request", "body": b"x" * 1_200_000, "more_body": more}
        for more in (True, False)
    ]
    sent = list[dict[str, Any]]()

    async def receive() -> dict[str, Any]:
        return parts.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/echo",
        "query_string": b"",
        "scheme": "http",
    }
    headers = [(b"host", b"localhost"), (b"transfer-encoding", b"chunked"), (b"x-sender", b"ana")]
    await http(
        scope | {"headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)},
        receive,
        send,
    )
    assert sent[0]["status"] == 413
    assert not sent[-1].get("more_body")


class Slow:
    """A body that comes as far as it is let: past the size from which it needs a turn, then
    to its end.
    """

    def __init__(self, sender: str, is_said: bool = True) -> None:
        self.sender, self.is_said = sender, is_said
        self.parts = iter([b"x" * bodies.LARGE, b"y", b""])
        self.is_read, self.may_end = asyncio.Event(), asyncio.Event()
        self.sent: list[dict[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        part = next(self.parts)
        if not part:
            self.is_read.set()
            await self.may_end.wait()
        return {"type": "http.request", "body": part, "more_body": bool(part)}

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    async def go(self, http: Http) -> int:
        length = (
            (b"content-length", str(bodies.LARGE + 1).encode())
            if self.is_said
            else (b"transfer-encoding", b"chunked")
        )
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "path": "/echo",
            "query_string": b"",
            "scheme": "http",
        }
        headers = [(b"host", b"localhost"), (b"x-sender", self.sender.encode()), length]
        await http(
            scope | {"headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)},
            self.receive,
            self.send,
        )
        return int(self.sent[0]["status"])


async def begin(http: Http, *large: Slow) -> list[asyncio.Task[int]]:
    """Each has its turn."""
    tasks = []
    for slow in large:
        tasks.append(asyncio.create_task(slow.go(http)))
        await asyncio.wait_for(slow.is_read.wait(), 30)
    return tasks


@pytest.mark.parametrize("is_said", [True, False])
async def test_large_bodies_take_turns_and_small_ones_do_not_wait(
    http: Http, is_said: bool
) -> None:
    """Or a few callers with all that they may send fill the memory."""
    large = [Slow(f"sender {n}", is_said) for n in range(bodies.LARGE_AT_ONCE + 1)]
    tasks = await begin(http, *large[:-1])
    tasks.append(asyncio.create_task(large[-1].go(http)))
    assert (await ask(http, "echo", method="POST", body=[b"small"]))[0] == 200, (
        "it waits for none of them"
    )
    assert not large[-1].is_read.is_set(), "it has no turn yet"
    large[1].may_end.set()
    assert await asyncio.wait_for(tasks[1], 30) == 200
    await asyncio.wait_for(large[-1].is_read.wait(), 30)
    for slow in large:
        slow.may_end.set()
    assert await asyncio.wait_for(asyncio.gather(*tasks), 30) == [200] * len(large)


async def test_caller_has_one_turn_at_a_time(http: Http) -> None:
    first, second, other = Slow("ana"), Slow("ana"), Slow("ben")
    tasks = await begin(http, first)
    tasks.append(asyncio.create_task(second.go(http)))
    tasks += await begin(http, other)
    assert not second.is_read.is_set()
    first.may_end.set()
    await asyncio.wait_for(second.is_read.wait(), 30)
    for slow in (second, other):
        slow.may_end.set()
    assert await asyncio.wait_for(asyncio.gather(*tasks), 30) == [200] * 3


async def test_caller_with_too_many_waiting_bodies_gets_429(http: Http) -> None:
    first, others = Slow("ana"), [Slow("ana") for _ in range(bodies.MOST_WAITING + 1)]
    tasks = await begin(http, first)
    tasks += [asyncio.create_task(slow.go(http)) for slow in others]
    done, waiting = await asyncio.wait(tasks, timeout=30, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in done] == [429], "one more than may wait"
    for slow in (first, *others):
        slow.may_end.set()
    assert await asyncio.wait_for(asyncio.gather(*waiting), 30) == [200] * (1 + bodies.MOST_WAITING)


async def test_disconnected_caller_gives_its_turn_back(http: Http) -> None:
    for n in range(bodies.LARGE_AT_ONCE + 1):
        leaving = Slow(f"sender {n}")
        task = (await begin(http, leaving))[0]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    status, _ = await asyncio.wait_for(
        ask(http, "echo", method="POST", body=[b"x" * 100_000] * 15), 30
    )
    assert status == 200, "the next one has its turn"


async def test_streamed_answer_arrives_in_parts(http: Http) -> None:
    assert await ask(http, "stream") == (200, b"one two " + b"x" * 100_000)


async def test_failing_view_yields_an_answer(http: Http) -> None:
    assert (await ask(http, "broken"))[0] == 500


@pytest.mark.django_db(transaction=True)
async def test_each_thread_keeps_one_database_connection(http: Http) -> None:
    for _ in range(3):
        await asyncio.gather(*[ask(http, "whose") for _ in range(30)])
    assert len(seen) == 90
    assert len({pid for _, pid in seen}) <= settings.BERTH_WEB_THREADS
    # One connection for each thread, for good.
    assert len(set(seen)) == len({name for name, _ in seen})
