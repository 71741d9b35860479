"""The outermost ASGI application: it determines the client's address before any other part counts
or logs the client.

uvicorn's ProxyHeadersMiddleware reads X-Forwarded-For and X-Forwarded-Proto of trusted proxies
(BERTH_TRUSTED_PROXIES). A direct client is counted with its connection; a client behind a proxy is
counted here, with each request that is in progress.
"""

import asyncio
import logging
import time
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from project.kernel.events.log import record
from project.kernel.security.client_address import (
    UNTRUSTED_PROXY,
    counted_address,
    is_trusted_proxy,
    network_of,
    normalize_address,
    read_address,
)

from .asgi_types import App, Receive, Scope, Send
from .connections import all_connections, describe_too_many
from .problems import send_problem

EVENT_INTERVAL = 3600.0  # seconds between two events about one peer
MAX_RECORDED_PEERS = 20  # remembered peers: any client may send the header

logger = logging.getLogger(__name__)


class ClientAddress:
    def __init__(self, app: App) -> None:
        self.app = app
        trusted = [str(network) for network in settings.BERTH_TRUSTED_PROXIES]
        middleware: Any = ProxyHeadersMiddleware  # its own types of ASGI match no other ones
        self.behind_proxy: App = middleware(self._serve_behind_proxy, trusted_hosts=trusted)
        self._recorded: dict[str, float] = {}
        self._tasks: set[asyncio.Future[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer = scope.get("client")
        if not peer:  # a Unix socket
            await self.app(scope, receive, send)
            return
        address = normalize_address(peer[0])
        scope["client"] = (address, peer[1])
        if is_trusted_proxy(address):
            scope["berth_peer"] = scope["client"]
            await self.behind_proxy(scope, receive, send)
            return
        for name, _ in scope["headers"]:
            if name == b"x-forwarded-for":
                self._record_peer(network_of(address))
                break
        await self.app(scope, receive, send)

    async def _serve_behind_proxy(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = normalize_address(scope["client"][0])
        scope["client"] = (
            (address, scope["client"][1]) if read_address(address) else scope["berth_peer"]
        )
        counted = counted_address(scope["client"][0])
        limits = all_connections()
        if not limits.enter(counted):
            is_handshake = scope["type"] == "websocket"
            headers = {"Retry-After": "5"}
            await send_problem(send, describe_too_many(), headers, is_handshake=is_handshake)
            return
        try:
            await self.app(scope, receive, send)
        finally:
            limits.leave(counted)

    def _record_peer(self, peer: str) -> None:
        """Records an event about an untrusted peer, at most once an hour."""
        now = time.monotonic()
        if peer in self._recorded and now - self._recorded[peer] < EVENT_INTERVAL:
            return
        self._recorded = {
            each: at for each, at in self._recorded.items() if now - at < EVENT_INTERVAL
        }
        if len(self._recorded) < MAX_RECORDED_PEERS:
            self._recorded[peer] = now
            recording = asyncio.get_running_loop().run_in_executor(None, record_untrusted, peer)
            self._tasks.add(recording)
            recording.add_done_callback(self._tasks.discard)


def record_untrusted(peer: str) -> None:
    text = (
        "sends X-Forwarded-For and is not in BERTH_TRUSTED_PROXIES: its clients share one address"
    )
    logger.warning("%s %s", peer, text)
    try:
        record(UNTRUSTED_PROXY, actor="web", reason=f"{peer} {text}", data={"peer": peer})
    except DatabaseError as error:
        logger.warning("untrusted proxy: not recorded: %s", error)
    finally:
        connection.close()
