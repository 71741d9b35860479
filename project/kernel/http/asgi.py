"""Django under ASGI with one change of thread per request.

Django's own handler changes threads for each signal, middleware and view, and starts a thread for
every request, which then opens its own database connection. Berth's views are synchronous: this
handler reads a request as a whole (within its limit), and one of a few lasting threads, each with
a lasting connection, answers it.

A long poll (`?wait=`) holds neither thread nor connection while it waits. Its view returns the
present answer with an attribute `again`, a coroutine function that returns when the answer may
have changed. The handler then runs the same request again, with all of its checks, and sends the
first answer without `again`. Django's test client sends the first answer.
"""

import asyncio
import contextlib
import contextvars
import io
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from django.conf import settings
from django.core import signals
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix
from django.utils.module_loading import import_string

from project.kernel.errors import SlowClient, TooMany, Unavailable

from .asgi_types import Receive, Scope, Send
from .bodies import (
    DISCARD_BYTES,
    DISCARD_SECONDS,
    BodyCaller,
    BodyTooLarge,
    ClientGone,
    LargeTurns,
    discard_body,
    read_body,
)
from .deferred import THREADS, TRIED, DeferredResponse
from .problems import RETRY_SAFELY, UNKNOWN_OUTCOME, respond

T = TypeVar("T")

CHUNK = 64 * 1024
SHORT = 16 * 1024  # bytes of a body that the event loop itself may parse

logger = logging.getLogger(__name__)


class CallerRefused(Exception):
    """The guard of a path refused the caller of a large body."""

    def __init__(self, response: HttpResponseBase) -> None:
        super().__init__()
        self.response = response


class Http(ASGIHandler):
    def __init__(self) -> None:
        super().__init__()
        self.threads = ThreadPoolExecutor(settings.BERTH_WEB_THREADS, thread_name_prefix="web")
        self.bodies = [
            (re.compile(pattern).match, limit, guard)
            for pattern, limit, guard in settings.BERTH_BODIES
        ]
        self.short: dict[str, str] = settings.BERTH_SHORT_CALLS
        self.turns = LargeTurns()

    def load_middleware(self, is_async: bool = False) -> None:
        super().load_middleware(is_async=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # type: ignore[override]
        limit, guard = self.limit(scope)
        try:
            body = await read_body(
                scope,
                receive,
                limit=limit,
                guard=partial(self.in_thread, partial(self.name_caller, scope, guard)),
                turns=self.turns,
            )
        except BodyTooLarge as error:
            await refuse_unread(send, respond(error), error.rest)
            return
        except CallerRefused as error:
            await refuse_unread(send, error.response)
            return
        except (SlowClient, TooMany) as error:
            await refuse_unread(send, respond(error))
            return
        except ClientGone:
            return
        try:
            response = await self.answer(scope, body)
        except asyncio.CancelledError:
            logger.debug("the server stops: requests without an answer get 503")
            stopping = Unavailable(
                f"The server stops. {UNKNOWN_OUTCOME}",
                code="stopping",
                way_out=RETRY_SAFELY,
                retry_after=3.0,
            )
            await refuse_unread(send, respond(stopping))
            return
        try:
            while (again := getattr(response, "again", None)) is not None:
                if await is_gone_before(receive, again):
                    return
                response = await self.answer(scope, body)
        except asyncio.CancelledError:
            logger.debug("the server stops: a long poll gets its present answer")
        await send(
            {
                "type": "http.response.start",
                "status": response.status_code,
                "headers": list_headers(response),
            }
        )
        if not isinstance(response, StreamingHttpResponse):
            await send({"type": "http.response.body", "body": response.getvalue()})
            return
        try:
            async for part in parts(response, self.threads):
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await asyncio.get_running_loop().run_in_executor(self.threads, response.close)

    async def answer(self, scope: Scope, body: bytes) -> HttpResponseBase:
        if self.short.get(scope["path"]) == scope["method"] and is_short(scope, body):
            response = await self.answer_here(scope, body)
            if response is not None:
                return response
        return await self.in_thread(partial(self.answer_in_thread, scope, body))

    async def answer_here(self, scope: Scope, body: bytes) -> HttpResponseBase | None:
        """The answer of a view of BERTH_SHORT_CALLS, which runs on the event loop; None if the
        call needs a thread.
        """
        scope[THREADS] = self.threads
        response = contextvars.Context().run(self.run_view, scope, body)
        del scope[THREADS]
        if not isinstance(response, DeferredResponse):
            return response
        found = None if response.finish is None else await response.finish()
        if found is None:
            scope[TRIED] = True
            return None
        return response.complete(found)

    async def in_thread(self, work: Callable[[], T]) -> T:
        # Each call has its own context: the next request on the same thread must not see the
        # variables of this one.
        context = contextvars.Context()
        return await asyncio.get_running_loop().run_in_executor(
            self.threads, lambda: context.run(work)
        )

    def limit(self, scope: Scope) -> tuple[int, str]:
        """The most bytes of the path's body, and the guard that names callers of large bodies."""
        path: str = scope["path"]
        return next(((limit, guard) for fits, limit, guard in self.bodies if fits(path)), (0, ""))

    def name_caller(self, scope: Scope, guard: str) -> BodyCaller:
        """Raises CallerRefused. The view checks the caller again when the body is complete."""
        signals.request_started.send(sender=self.__class__, scope=scope)
        request, refused = self.create_request(scope, io.BytesIO(b""))
        if request is None:
            assert refused is not None
            raise CallerRefused(refused)
        name_caller: Callable[[HttpRequest], BodyCaller] = import_string(guard)
        try:
            return name_caller(request)
        except Exception as error:
            raise CallerRefused(respond(error)) from error

    def run_view(self, scope: Scope, body: bytes) -> HttpResponseBase:
        """The response of middleware and view, without the signals of a request: these check
        database connections, and the event loop has none.
        """
        set_script_prefix(get_script_prefix(scope))
        request, refused = self.create_request(scope, io.BytesIO(body))
        if request is None:
            assert refused is not None
            return refused
        return self.get_response(request)

    def answer_in_thread(self, scope: Scope, body: bytes) -> HttpResponseBase:
        signals.request_started.send(sender=self.__class__, scope=scope)
        response = self.run_view(scope, body)
        response._handler_class = self.__class__  # type: ignore[attr-defined]
        if not response.streaming:
            response.close()
        return response


async def is_gone_before(receive: Receive, again: Callable[[], Awaitable[None]]) -> bool:
    """Whether the client disconnects before `again` returns."""
    waiting, leaving = asyncio.ensure_future(again()), asyncio.ensure_future(receive())
    try:
        await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            waiting.result()
            return False
        return leaving.result()["type"] == "http.disconnect"
    finally:
        waiting.cancel()
        leaving.cancel()
        await asyncio.gather(waiting, leaving, return_exceptions=True)


async def refuse_unread(
    send: Send, response: HttpResponseBase, unread: Receive | None = None
) -> None:
    """Sends a response and closes the connection. Most clients read no response before they have
    sent their body, and would only see a broken connection: the rest of the body (`unread`) is
    therefore read and dropped for a while. A body of an unknown caller is not read further.
    """
    content = response.getvalue()
    if unread is None:
        response.headers["Content-Length"] = len(content)
    headers = [*list_headers(response), (b"connection", b"close")]
    status = response.status_code
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": unread is not None})
    if unread is not None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_SECONDS):
                await discard_body(unread, DISCARD_BYTES)
        await send({"type": "http.response.body", "body": b""})


def is_short(scope: Scope, body: bytes) -> bool:
    """Whether the event loop may answer the call. A call with a cookie needs a thread, because
    sessions are in the database.
    """
    return (
        len(body) <= SHORT
        and not scope["query_string"]
        and not any(name == b"cookie" for name, _ in scope["headers"])
    )


def list_headers(response: HttpResponseBase) -> list[tuple[bytes, bytes]]:
    headers = [(name.encode("ascii"), value.encode("latin1")) for name, value in response.items()]
    return headers + [
        (b"Set-Cookie", cookie.output(header="").strip().encode("ascii"))
        for cookie in response.cookies.values()
    ]


async def parts(
    response: StreamingHttpResponse, threads: ThreadPoolExecutor
) -> AsyncIterator[bytes]:
    """The parts of a streamed response. A synchronous stream may read the database, so it runs on
    the threads of requests, which have the connections.
    """
    if response.is_async:
        async for part in response:
            yield part
        return
    iterator: Iterator[bytes] = iter(response)
    loop = asyncio.get_running_loop()
    while part := await loop.run_in_executor(threads, next, iterator, b""):
        for start in range(0, len(part), CHUNK):
            yield part[start : start + CHUNK]
