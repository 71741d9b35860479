"""Django under ASGI with one change of thread a request.

Django's own handler changes threads for each signal, middleware and view, and starts a thread for
every request, which then opens a database connection of its own. Our views are synchronous, so a
request here is read as a whole (never more than its limit), answered by one of a few lasting
threads, each with a lasting connection, and sent.

A request that waits by design (`?wait=`) holds neither thread nor connection meanwhile: its view
answers with what there is now and an attribute `again`, a coroutine function that returns when
another look may be worth it. Then the same request is answered anew, with all of its checks; the
last answer, without `again`, is sent. Without this handler, in a test client, the first answer is
the answer.
"""

import asyncio
import contextlib
import contextvars
import io
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from django.conf import settings
from django.core import signals
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.http.response import HttpResponse, HttpResponseBase
from django.urls import set_script_prefix
from django.utils.module_loading import import_string

from project.kernel.errors import SlowClient, TooMany, Unavailable

from .bodies import (
    PASSED,
    PASSED_FOR,
    BodyCaller,
    BodyTooLarge,
    BodyTooSlow,
    ClientGone,
    LargeTurns,
    discard_body,
    read_body,
)
from .deferred import THREADS, TRIED, DeferredResponse
from .problems import CONTENT_TYPE, describe, problem

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

CHUNK = 64 * 1024
SHORT = 16 * 1024  # bytes that are read and checked while others wait for the event loop

logger = logging.getLogger(__name__)


class CallerRefused(Exception):
    """The guard of a large body refused its caller."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__()
        self.response = response


class Http(ASGIHandler):
    def __init__(self) -> None:
        super().__init__()
        self.quick = ThreadPoolExecutor(settings.BERTH_WEB_THREADS, thread_name_prefix="web")
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
                guard=partial(self.name_caller, scope, guard),
                turns=self.turns,
            )
        except BodyTooLarge as error:
            await refuse_large(send, error)
            return
        except CallerRefused as error:
            await refuse_unread(send, error.response, list_headers(error.response))
            return
        except (BodyTooSlow, TooMany) as error:
            refused = answer_problem(
                *describe(error if isinstance(error, TooMany) else make_slow_error())
            )
            await refuse_unread(send, refused, list_headers(refused))
            return
        except ClientGone:
            return
        try:
            response = await self.look(scope, body)
        except asyncio.CancelledError:
            logger.debug("the server stops, who waited for a first answer is told so")
            await refuse_unread(send, stopping := stopping_response(), list_headers(stopping))
            return
        try:
            while (again := getattr(response, "again", None)) is not None:
                if await is_gone_before(receive, again):
                    return
                response = await self.look(scope, body)
        except asyncio.CancelledError:
            logger.debug("the server stops, who waited gets the answer of the last look")
        await send(
            {
                "type": "http.response.start",
                "status": response.status_code,
                "headers": list_headers(response),
            }
        )
        if not response.streaming:
            await send({"type": "http.response.body", "body": response.content})
            return
        try:
            async for part in parts(response, self.quick):
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await asyncio.get_running_loop().run_in_executor(self.quick, response.close)

    async def look(self, scope: Scope, body: bytes) -> Any:
        if self.short.get(scope["path"]) == scope["method"] and is_short(scope, body):
            response = await self.answer_here(scope, body)
            if response is not None:
                return response
        return await self.in_thread(self.answer, scope, body)

    async def answer_here(self, scope: Scope, body: bytes) -> Any:
        """On the event loop, by views that are made for it (BERTH_SHORT_CALLS). None: a thread
        is needed after all.
        """
        scope[THREADS] = self.quick
        response = contextvars.Context().run(self.begin, scope, body)
        del scope[THREADS]
        if not isinstance(response, DeferredResponse):
            return response
        found = None if response.finish is None else await response.finish()
        if found is None:
            scope[TRIED] = True
            return None
        return response.complete(found)

    async def in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        # A context of its own, so that nothing one request sets is seen by the next on the
        # same thread.
        return await asyncio.get_running_loop().run_in_executor(
            self.quick, contextvars.Context().run, function, *arguments
        )

    def limit(self, scope: Scope) -> tuple[int, str]:
        """Bytes of its body, and who looks at the caller of a larger one."""
        path: str = scope["path"]
        return next(((limit, guard) for fits, limit, guard in self.bodies if fits(path)), (0, ""))

    async def name_caller(self, scope: Scope, guard: str) -> BodyCaller:
        found: BodyCaller | HttpResponse = await self.in_thread(self.ask_guard, scope, guard)
        if isinstance(found, HttpResponse):
            raise CallerRefused(found)
        return found

    def ask_guard(self, scope: Scope, guard: str) -> Any:
        """The name of the caller, or its refusal. The request itself is checked again when its
        body is there.
        """
        signals.request_started.send(sender=self.__class__, scope=scope)
        request, refused = self.create_request(scope, io.BytesIO(b""))
        if request is None:
            return refused
        try:
            return import_string(guard)(request)
        except Exception as error:
            return answer_problem(*describe(error))

    def begin(self, scope: Scope, body: bytes) -> Any:
        """Without the signals, which are for database connections: there are none on the
        event loop.
        """
        set_script_prefix(get_script_prefix(scope))
        request, refused = self.create_request(scope, io.BytesIO(body))
        return refused if request is None else self.get_response(request)

    def answer(self, scope: Scope, body: bytes) -> Any:
        signals.request_started.send(sender=self.__class__, scope=scope)
        response: Any = self.begin(scope, body)
        response._handler_class = self.__class__
        if not response.streaming:
            response.close()
        return response


async def is_gone_before(receive: Receive, again: Callable[[], Awaitable[None]]) -> bool:
    """Whether the caller left before it was worth another look."""
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


async def refuse_large(send: Send, error: BodyTooLarge) -> None:
    limit = error.limit
    body = problem(
        413,
        "too_large",
        f"This body is larger than the {limit} bytes that are accepted here.",
        limit=limit,
    )
    await refuse_unread(
        send,
        HttpResponse(json.dumps(body), status=413),
        [(b"content-type", CONTENT_TYPE.encode())],
        error.rest,
    )


def make_slow_error() -> SlowClient:
    return SlowClient(
        f"The body of this request came too slowly: nothing for {settings.BERTH_BODY_SECONDS:g} s, "
        f"or less than {settings.BERTH_BODY_RATE} bytes a second.",
        way_out="Send it again, faster. Nothing was changed.",
    )


def stopping_response() -> HttpResponse:
    body, headers = describe(
        Unavailable(
            "The server stops. If this call changes something, that may or may not have happened.",
            code="stopping",
            way_out=(
                "Send it again after a few seconds; with the same Idempotency-Key nothing "
                "is done twice."
            ),
            retry_after=3.0,
        )
    )
    return answer_problem(body, headers)


def answer_problem(body: dict[str, Any], headers: dict[str, str]) -> HttpResponse:
    text = json.dumps(body)
    headers = headers | {"Content-Length": str(len(text))}
    return HttpResponse(text, status=body["status"], content_type=CONTENT_TYPE, headers=headers)


async def refuse_unread(
    send: Send, response: Any, headers: list[tuple[bytes, bytes]], unread: Receive | None = None
) -> None:
    """The connection ends after it. Most programs read no answer before they have sent their body,
    and would only see the connection break: so what still comes is passed over (unread), for a
    while. Of strangers nothing large is taken at all."""
    await send(
        {
            "type": "http.response.start",
            "status": response.status_code,
            "headers": [*headers, (b"connection", b"close")],
        }
    )
    if unread is not None:
        await send({"type": "http.response.body", "body": response.content, "more_body": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PASSED_FOR):
                await discard_body(unread, PASSED)
    await send(
        {"type": "http.response.body", "body": b"" if unread is not None else response.content}
    )


def is_short(scope: Scope, body: bytes) -> bool:
    """A small call of a program. Sessions are in the database, so cookies are for threads."""
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


async def parts(response: Any, threads: ThreadPoolExecutor) -> AsyncIterator[bytes]:
    """Written part by part on the threads of requests, which have the connections: what is sent
    may still be read from the database.
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
