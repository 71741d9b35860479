"""The outermost ASGI application: it finds out who the client is before anything counts or logs it.

uvicorn's ProxyHeadersMiddleware reads X-Forwarded-For and X-Forwarded-Proto of trusted proxies
(BERTH_TRUSTED_PROXIES). A direct client is counted with its connection; a client behind a proxy is
counted here, with each request that is in progress.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from project.kernel.events.log import record
from project.kernel.security.client_address import (
    UNTRUSTED_PROXY,
    counted_address,
    is_address,
    is_trusted_proxy,
    network_of,
    normalize_address,
)

from .connections import all_connections, describe_too_many
from .problems import CONTENT_TYPE

App = Callable[[Any, Any, Any], Awaitable[None]]

AGAIN = 3600.0  # seconds between two events about one peer
MOST_NOTED = 20  # peers that are remembered: anybody may send the header

logger = logging.getLogger(__name__)


class ClientAddress:
    def __init__(self, app: App) -> None:
        self.app = app
        trusted = [str(network) for network in settings.BERTH_TRUSTED_PROXIES]
        self.behind_proxy = ProxyHeadersMiddleware(self._serve_behind_proxy, trusted_hosts=trusted)
        self._noted: dict[str, float] = {}
        self._tasks: set[asyncio.Future[None]] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
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
                self._note(network_of(address))
                break
        await self.app(scope, receive, send)

    async def _serve_behind_proxy(self, scope: Any, receive: Any, send: Any) -> None:
        address = normalize_address(scope["client"][0])
        scope["client"] = (
            (address, scope["client"][1]) if is_address(address) else scope["berth_peer"]
        )
        counted = counted_address(scope["client"][0])
        limits = all_connections()
        if not limits.enter(counted):
            await refuse_too_many(scope, send)
            return
        try:
            await self.app(scope, receive, send)
        finally:
            limits.leave(counted)

    def _note(self, peer: str) -> None:
        """Once an hour for a peer, as an event; the address is not believed."""
        now = time.monotonic()
        if peer in self._noted and now - self._noted[peer] < AGAIN:
            return
        self._noted = {each: at for each, at in self._noted.items() if now - at < AGAIN}
        if len(self._noted) < MOST_NOTED:
            self._noted[peer] = now
            noted = asyncio.get_running_loop().run_in_executor(None, record_untrusted, peer)
            self._tasks.add(noted)
            noted.add_done_callback(self._tasks.discard)


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


async def refuse_too_many(scope: Any, send: Any) -> None:
    body = json.dumps(describe_too_many()).encode()
    prefix = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    headers = [
        (b"content-type", CONTENT_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"retry-after", b"5"),
    ]
    await send({"type": f"{prefix}.start", "status": 429, "headers": headers})
    await send({"type": f"{prefix}.body", "body": body})
