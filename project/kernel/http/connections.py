"""Limits of one client: connections, idle time, and the size and duration of a request's head.

uvicorn and httptools have no such limits, so these subclasses of uvicorn's protocols add them. A
request in progress (also a long poll) and a WebSocket are never idle. Timers run only while data
is missing: an ordinary request starts none.
"""

import asyncio
import json
import resource
from http import HTTPStatus
from typing import Any

from django.conf import settings
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from project.kernel.security.client_address import counted_address

from .bodies import BODY_IS_THERE
from .problems import CONTENT_TYPE, ProblemBody, problem

UNREAD_SECONDS = 60.0  # a client that reads no byte of its response for so long is disconnected
LARGEST_READ = 256 * 1024  # bytes of one read of a socket
RESERVED = 200  # descriptors for files, the database and Valkey


class HeadRefused(Exception):
    """Stops the parser that calls the protocol."""


class Connections:
    """All connections of this process, and how many each client address has."""

    def __init__(self) -> None:
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.most = max(1, min(settings.BERTH_CONNECTIONS, descriptors - RESERVED))
        self.most_of_one = max(1, min(settings.BERTH_CONNECTIONS_PER_ADDRESS, self.most // 2))
        self.most_idle = settings.BERTH_IDLE_CONNECTIONS
        self.count = 0
        self.by_address: dict[str, int] = {}
        self.idle: dict[LimitedHttpProtocol, None] = {}  # the longest idle first

    def enter(self, address: str) -> bool:
        """Counts a connection, or a request behind a proxy; False at the limit of the address."""
        if not address:
            return True
        count = self.by_address.get(address, 0)
        if count >= self.most_of_one:
            return False
        self.by_address[address] = count + 1
        return True

    def leave(self, address: str) -> None:
        if address:
            left = self.by_address[address] - 1
            if left:
                self.by_address[address] = left
            else:
                del self.by_address[address]

    def open(self, protocol: "LimitedHttpProtocol") -> int:
        """Counts a new connection and returns 0, or the status of its refusal. At a limit, the
        longest idle connection is closed to make room.
        """
        self.count += 1
        address, protocol.address = protocol.address, ""
        if self.count > self.most and not self._end_idle():
            return HTTPStatus.SERVICE_UNAVAILABLE
        if not self.enter(address):
            oldest = next((p for p in self.idle if p.address == address), None)
            if oldest is None:
                return HTTPStatus.TOO_MANY_REQUESTS
            oldest.end_idle()
            self.enter(address)
        protocol.address = address
        return 0

    def close(self, address: str) -> None:
        self.count -= 1
        self.leave(address)

    def add_idle(self, protocol: "LimitedHttpProtocol") -> None:
        self.idle[protocol] = None
        if len(self.idle) > self.most_idle:
            self._end_idle()

    def _end_idle(self) -> bool:
        oldest = next(iter(self.idle), None)
        if oldest is not None:
            oldest.end_idle()
        return oldest is not None


_connections: Connections | None = None


def all_connections() -> Connections:
    global _connections
    if _connections is None:
        _connections = Connections()
    return _connections


class LimitedHttpProtocol(HttpToolsProtocol):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.limits = all_connections()
        self.address = ""
        self.is_counted = False
        self.is_in_head = False
        self.has_progress = False
        self.fed_bytes = 0  # pending_bytes and those of the present read
        self.pending_bytes = 0  # at least the bytes since the parser's last progress
        self.refusal = 0  # replaces the status 400
        self.head_timer: asyncio.TimerHandle | None = None
        self.unread_timer: asyncio.TimerHandle | None = None
        self.unread_bytes = 0

    # -- the connection ----------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = counted_address(self.client[0]) if self.client else ""
        refused = self.limits.open(self)
        self.is_counted = True
        if refused:
            self.refuse(refused)
            return
        self.limits.add_idle(self)
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        self._forget()
        super().handle_websocket_upgrade()

    def _forget(self) -> None:
        self._stop_head_timer()
        self._stop_unread_timer()
        self._give_up_place()

    def end_idle(self) -> None:
        """Closes the connection to make room; its place is free at once."""
        self._give_up_place()
        self._end()

    def _give_up_place(self) -> None:
        self.limits.idle.pop(self, None)
        if self.is_counted:
            self.is_counted = False
            self.limits.close(self.address)

    def _end(self) -> None:
        """Closes the connection. `close` waits until all bytes are sent, and a client that does not
        read would keep the connection: unsent bytes need `abort`.
        """
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    # -- what comes in -----------------------------------------------------------------------------
    def data_received(self, data: bytes) -> None:
        self.fed_bytes = self.pending_bytes + len(data)
        self.has_progress = False
        super().data_received(data)
        if self.has_progress and not self.is_in_head:
            self.pending_bytes = 0
            return
        self.pending_bytes = self.fed_bytes
        if (
            self.pending_bytes > settings.BERTH_HEAD_BYTES + LARGEST_READ
            and not self.transport.is_closing()
        ):
            # An endless head, trailer or chunk extension.
            self.refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        elif self.head_timer is None and self in self.limits.idle:
            self._start_head_timer()

    def on_message_begin(self) -> None:
        self.is_in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self.is_in_head, self.has_progress = False, True
        if (
            self.fed_bytes > settings.BERTH_HEAD_BYTES
            and self._measure_head() > settings.BERTH_HEAD_BYTES
        ):
            self.refusal = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise HeadRefused
        if self.head_timer is not None:
            self._stop_head_timer()
        self.limits.idle.pop(self, None)
        super().on_headers_complete()

    def _measure_head(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def on_body(self, body: bytes) -> None:
        self.has_progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.has_progress = True
        self.scope[BODY_IS_THERE] = True  # type: ignore[literal-required]
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_unread()
        elif self.cycle.response_complete:
            self.limits.add_idle(self)

    def _start_head_timer(self) -> None:
        self.head_timer = self.loop.call_later(settings.BERTH_HEAD_SECONDS, self._end_head)

    def _stop_head_timer(self) -> None:
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None

    def _end_head(self) -> None:
        self.head_timer = None
        if self.is_in_head:
            self.refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self._end()

    def timeout_keep_alive_handler(self) -> None:
        if not self.transport.is_closing():
            self._end()

    # -- what goes out -----------------------------------------------------------------------------
    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_unread()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_unread_timer()

    def _stop_unread_timer(self) -> None:
        if self.unread_timer is not None:
            self.unread_timer.cancel()
            self.unread_timer = None

    def _watch_unread(self) -> None:
        self._stop_unread_timer()
        self.unread_bytes = self.transport.get_write_buffer_size()
        self.unread_timer = self.loop.call_later(UNREAD_SECONDS, self._end_unread)

    def _end_unread(self) -> None:
        if self.transport.get_write_buffer_size() < self.unread_bytes:
            self._watch_unread()
        else:
            self.transport.abort()

    # -- refusals ----------------------------------------------------------------------------------
    def send_400_response(self, msg: str) -> None:
        if self.refusal:
            self.refuse(self.refusal)
        else:
            super().send_400_response(msg)

    def refuse(self, status: int) -> None:
        body = json.dumps(describe_refusal(status)).encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
            f"content-type: {CONTENT_TYPE}\r\ncontent-length: {len(body)}\r\n"
        )
        self.transport.write(f"{head}connection: close\r\n\r\n".encode() + body)
        self.transport.close()


def describe_refusal(status: int) -> ProblemBody:
    match status:
        case HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            most = settings.BERTH_HEAD_BYTES
            return problem(
                status,
                "head_too_large",
                f"The head of this request is larger than {most} bytes.",
                "Send fewer headers.",
            )
        case HTTPStatus.REQUEST_TIMEOUT:
            seconds = settings.BERTH_HEAD_SECONDS
            return problem(
                status,
                "head_too_slow",
                f"The head of this request took longer than {seconds:g} s.",
                "Send the head without pauses.",
            )
        case HTTPStatus.TOO_MANY_REQUESTS:
            return describe_too_many()
    return problem(
        503,
        "too_many_connections",
        "The server has reached its limit of connections.",
        "Try again after a few seconds.",
    )


def describe_too_many() -> ProblemBody:
    most = all_connections().most_of_one
    detail = f"Your address has {most} open connections, which is the limit."
    return problem(
        429,
        "too_many_connections",
        detail,
        "Close some of them, or raise BERTH_CONNECTIONS_PER_ADDRESS on the server.",
    )


class LimitedWebSocketProtocol(WebSocketsSansIOProtocol):
    """Counts a WebSocket for its client's address while it is open. uvicorn's ping closes dead
    sockets.
    """

    address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        limits = all_connections()
        limits.count += 1
        address = counted_address(self.client[0]) if self.client else ""
        if limits.enter(address):  # the HTTP connection has just given up its place
            self.address = address

    def connection_lost(self, exc: Exception | None) -> None:
        all_connections().close(self.address)
        super().connection_lost(exc)
