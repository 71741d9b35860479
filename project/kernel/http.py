"""Django under ASGI with one change of thread a request.

Django's own handler changes threads for each signal, middleware and view, and starts a thread for every request, which then opens a
database connection of its own. Our views are synchronous, so a request here is read as a whole (never more than its limit), answered
by one of a few lasting threads, each with a lasting connection, and sent. Requests that wait by design (`?wait=`) have threads of
their own: they never keep the others waiting.
"""

import asyncio
import contextvars
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core import signals
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.db import connections
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

CHUNK = 64 * 1024


class TooLarge(Exception):
    pass


class Gone(Exception):
    """The caller left while sending."""


class Http(ASGIHandler):
    def __init__(self) -> None:
        super().__init__()
        self.quick = ThreadPoolExecutor(settings.BERTH_WEB_THREADS, thread_name_prefix="web")
        self.waiting = ThreadPoolExecutor(settings.BERTH_WAITING_THREADS, thread_name_prefix="wait")
        self.limits = sorted(settings.BERTH_BODY_LIMITS.items(), key=lambda pair: -len(pair[0]))

    def load_middleware(self, is_async: bool = False) -> None:
        super().load_middleware(is_async=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # type: ignore[override]
        try:
            body = await read(receive, self.limit(scope))
        except TooLarge:
            await refuse_large(scope, send)
            return
        except Gone:
            return
        may_wait = b"wait=" in scope["query_string"]
        loop, pool = asyncio.get_running_loop(), self.waiting if may_wait else self.quick
        # A context of its own, so that nothing one request sets is seen by the next on the same thread.
        response = await loop.run_in_executor(pool, contextvars.Context().run, self.answer, scope, body, may_wait)
        await send({"type": "http.response.start", "status": response.status_code, "headers": list_headers(response)})
        if not response.streaming:
            await send({"type": "http.response.body", "body": response.content})
            return
        try:
            async for part in parts(response):
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await loop.run_in_executor(self.quick, response.close)

    def limit(self, scope: Scope) -> int:
        path: str = scope["path"]
        return next(size for prefix, size in self.limits if path.startswith(prefix))

    def answer(self, scope: Scope, body: bytes, may_wait: bool) -> Any:
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=self.__class__, scope=scope)
        request, refused = self.create_request(scope, io.BytesIO(body))
        response: Any = refused if request is None else self.get_response(request)
        response._handler_class = self.__class__
        if not response.streaming:
            response.close()
        if may_wait:
            connections.close_all()  # so many threads would keep more connections than the database has
        return response


async def read(receive: Receive, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise TooLarge
        if not message.get("more_body", False):
            return b"".join(parts)


async def refuse_large(scope: Scope, send: Send) -> None:
    """The rest is not read; the connection ends."""
    detail = "This body is larger than what is accepted here."
    body = {"type": "about:blank", "title": "Too large", "status": 413, "detail": detail, "code": "too_large", "errors": []}
    headers = [(b"content-type", b"application/problem+json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})


def list_headers(response: HttpResponseBase) -> list[tuple[bytes, bytes]]:
    headers = [(name.encode("ascii"), value.encode("latin1")) for name, value in response.items()]
    return headers + [(b"Set-Cookie", cookie.output(header="").strip().encode("ascii")) for cookie in response.cookies.values()]


async def parts(response: Any) -> AsyncIterator[bytes]:
    if response.is_async:
        async for part in response:
            yield part
        return
    iterator: Iterator[bytes] = iter(response)
    following = sync_to_async(lambda: next(iterator, b""), thread_sensitive=False)
    while part := await following():
        for start in range(0, len(part), CHUNK):
            yield part[start : start + CHUNK]
