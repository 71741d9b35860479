"""The WebSocket of an agent, as plain ASGI: /ws/agent/. It sends orders without delay and receives
heartbeats.

The agent sends   {"have": "<version>", "load": {...}?}   every `beat_s` seconds: a heartbeat with
                                                          the version of its last orders.
Berth sends       the answer of GET orders/, at once, after each change, and when the agent has
                  another version; {"version": "<version>"} to a heartbeat with the current version.

The token comes in the header Authorization. Browsers cannot send that header, so Berth checks no
origin, and no address holds a secret. A replaced or ended token closes the connection, and the
agent connects again with its new token. An agent without a WebSocket polls the REST API, which
has the same orders.
"""

import asyncio
import contextvars
import json
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from django.db import DatabaseError, close_old_connections
from django.urls import path

from claims.tasks.agent_api.endpoint import identify_header
from claims.tasks.agent_api.presence import record_load
from claims.tasks.runs.orders import OrderList, heartbeat_buffer, read_orders, wait_for_orders
from claims.tasks.runs.work_order import heartbeat_interval, spec_of
from pools.access.authentication import read_bearer
from pools.access.rate_limit import count_request
from project.kernel.actor import acting_as
from project.kernel.errors import Conflict, Invalid
from project.kernel.live.socket import refuse_handshake
from slots.members.liveness import record_heartbeat
from slots.members.tokens import AgentIdentity, BadMemberToken, identify_member

logger = logging.getLogger(__name__)

LARGEST = 16_384  # characters of a message
PACE, WITHIN = 40, 10.0  # messages in so many seconds
RECHECK = 60.0  # seconds between two checks of the token, which may expire
MAX_CONNECTIONS = 3  # connections of one member: an agent has one, and maybe dead ones
BAD_MESSAGE, BAD_TOKEN, TOO_MANY, REPLACED, TOO_FAST, SILENT = 4400, 4401, 4409, 4410, 4429, 4408
THREADS = 2  # each with a connection to the database

T = TypeVar("T")
Message = MutableMapping[str, Any]  # of ASGI; also the scope
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="agents")
_open: dict[int, list["AgentSocket"]] = {}


class SocketClosed(Exception):
    """Raised to close the connection with a reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class AgentSocket:
    def __init__(self, secret: str, agent: AgentIdentity, beat_s: float, send: Send) -> None:
        self.secret, self.agent = secret, agent
        self.patience = 4 * beat_s
        self.was_replaced = agent.is_replaced
        self.sent: str | None = None  # version of the last orders; None before the first heartbeat
        self.received_at: list[float] = []
        self._send = send
        self._again = asyncio.Event()
        self._ends: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, receive: Receive) -> None:
        """Returns when the agent leaves or Berth closes the connection."""
        member = self.agent.member_id
        mine = _open.setdefault(member, [])
        mine.append(self)
        if len(mine) > MAX_CONNECTIONS:
            mine[0].end(TOO_MANY, "Another connection of this member was opened")
        work: list[asyncio.Future[None]] = [
            self._ends,
            asyncio.ensure_future(self._read(receive)),
            asyncio.ensure_future(self._follow()),
        ]
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for over in (each for each in work if each.done()):
                over.result()
        except SocketClosed as error:
            with suppress(OSError, RuntimeError):  # the agent may have disconnected first
                await self._send(
                    {"type": "websocket.close", "code": error.code, "reason": error.reason}
                )
        finally:
            for each in work:
                each.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            mine.remove(self)
            if not mine:
                _open.pop(member, None)

    def end(self, code: int, reason: str) -> None:
        if not self._ends.done():
            self._ends.set_exception(SocketClosed(code, reason))

    async def _follow(self) -> None:
        """Sends the orders after each change, and checks the token each time.

        Only this task reads orders: of two simultaneous readers, the one with older orders might
        send last. It starts after the first heartbeat: a poll that was open during the handshake
        may have been answered later, and older orders would end the tasks of that answer.
        """
        await self._again.wait()
        while True:
            self._again.clear()
            try:
                orders = await in_thread(self._read_orders)
            except DatabaseError as error:  # the database may be back in a second
                logger.warning("agent's socket: orders not read: %s", error)
                await asyncio.sleep(1.0)
                continue
            if orders.version != self.sent:
                self.sent = orders.version
                await self._send_json(orders.as_dict())
            await first_of(
                wait_for_orders(self.agent.member_id, orders.version, RECHECK), self._again.wait()
            )

    async def _read(self, receive: Receive) -> None:
        while True:
            try:
                message = await asyncio.wait_for(receive(), self.patience)
            except TimeoutError:
                raise SocketClosed(SILENT, "The agent was silent for too long") from None
            if message["type"] == "websocket.disconnect":
                return
            have, load = self._parse(message.get("text"))
            try:
                await self._record_heartbeat(load)
            except DatabaseError as error:  # without an answer the agent uses REST
                logger.warning("agent's socket: not answered: %s", error)
                continue
            if have == self.sent:
                await self._send_json({"version": have})
            else:
                self.sent = ""
                self._again.set()

    def _parse(self, text: object) -> tuple[str, dict[str, object] | None]:
        now = time.monotonic()
        self.received_at = [at for at in self.received_at if now - at < WITHIN] + [now]
        if len(self.received_at) > PACE:
            raise SocketClosed(TOO_FAST, "Too many messages")
        try:
            body = json.loads(text) if isinstance(text, str) and len(text) <= LARGEST else None
        except (ValueError, RecursionError):
            body = None
        load = body.get("load") if isinstance(body, dict) else None
        if (
            not isinstance(body, dict)
            or not isinstance(body.get("have"), str)
            or not (load is None or isinstance(load, dict))
        ):
            raise SocketClosed(BAD_MESSAGE, "Bad message: send {have: version, load: {...}}")
        return body["have"], load

    async def _record_heartbeat(self, load: dict[str, object] | None) -> None:
        """Leaves the heartbeat of a ready member to the watch, which writes all of them
        together.
        """
        if load is None and self.agent.state == "ready":
            heartbeat_buffer.add(self.agent.member_id, self.agent.incarnation)
        else:
            try:
                await in_thread(record_socket_heartbeat, self.agent, load)
            except (Conflict, Invalid) as error:
                raise SocketClosed(BAD_MESSAGE, error.detail[:100]) from None

    def _read_orders(self) -> OrderList:
        """Reads the token after the orders. The version covers the token, so in the other order a
        token that ends in between would wake no reader.
        """
        orders = read_orders(self.agent.member_id)
        try:
            self.agent = identify_member(self.secret)
        except BadMemberToken as error:
            raise SocketClosed(BAD_TOKEN, error.detail[:100]) from None
        if self.agent.is_replaced and not self.was_replaced:
            raise SocketClosed(REPLACED, "The token was replaced: connect with the new token")
        return orders

    async def _send_json(self, body: dict[str, object]) -> None:
        try:
            await self._send(
                {"type": "websocket.send", "text": json.dumps(body, separators=(",", ":"))}
            )
        except (OSError, RuntimeError):
            logger.debug("agent's socket: the agent has disconnected")


async def agent_socket(scope: Message, receive: Receive, send: Send) -> None:
    await receive()  # websocket.connect
    try:
        secret, agent, beat_s = await in_thread(authenticate_socket, scope)
    except Exception as error:
        await refuse(scope, send, error)
        return
    await send({"type": "websocket.accept"})
    await AgentSocket(secret, agent, beat_s, send).run(receive)


def authenticate_socket(scope: Message) -> tuple[str, AgentIdentity, float]:
    """Token, agent and interval of heartbeats. The handshake counts as a heartbeat."""
    if scope.get("query_string"):
        raise Invalid(
            "This address takes no query.",
            way_out="Send the token in the header Authorization: servers log addresses.",
        )
    header: str = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
    agent = identify_header(header, (scope.get("client") or ("",))[0], count_request)
    record_socket_heartbeat(agent, None)
    return read_bearer(header) or "", agent, heartbeat_interval(spec_of(agent))


def record_socket_heartbeat(agent: AgentIdentity, load: dict[str, object] | None) -> None:
    with acting_as(agent.actor):
        if load is not None:
            record_load(agent, load)
        elif agent.state == "ready":
            heartbeat_buffer.add(agent.member_id, agent.incarnation)
        elif agent.state in ("creating", "offline"):
            record_heartbeat(member_id=agent.member_id, incarnation=agent.incarnation)


async def refuse(scope: Message, send: Send, error: Exception) -> None:
    """Rejects the handshake with the HTTP answer of the error, or with 403 on servers that cannot
    send one.
    """
    if "websocket.http.response" in (scope.get("extensions") or {}):
        await refuse_handshake(send, error)
    else:
        await send({"type": "websocket.close", "code": BAD_TOKEN})


async def first_of(*waits: Coroutine[object, object, object]) -> None:
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def in_thread(work: Callable[..., T], *given: object) -> T:
    run = contextvars.Context().run
    return await asyncio.get_running_loop().run_in_executor(
        _threads, partial(run, with_connection, work, *given)
    )


def with_connection(work: Callable[..., T], *given: object) -> T:
    """Closes a broken connection of the lasting thread before the work."""
    close_old_connections()
    return work(*given)


# An ASGI application, for URLRouter.
agent_sockets = [path("ws/agent/", agent_socket)]  # type: ignore[arg-type]
