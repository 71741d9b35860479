"""The open connection of an agent, as plain ASGI: /ws/agent/. What REST says, as soon as it is so,
and its heartbeat; nothing else.

The agent says   {"have": "<version>", "load": {...}?}    each `beat_s` seconds: its heartbeat, and
                                                          what it was told last.
It hears         what GET orders/ answers, at once and whenever that changes, or when it says that
                 it has something else {"version": "<version>"}   to a heartbeat: it is still so.

The token comes in the header Authorization, which no browser can send: no origin is asked for,
and an address never holds a secret. A token that is replaced or ends closes the connection;
whoever reads the new one is let in again. Who cannot come this way loses nothing but time: the
truth is in REST.
"""

import asyncio
import contextvars
import json
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from django.db import DatabaseError, close_old_connections
from django.urls import path

from claims.tasks.agent_api.endpoint import identify_header
from claims.tasks.agent_api.presence import record_load
from claims.tasks.runs.orders import OrderList, heartbeat_buffer, read_orders, wait_for_orders
from claims.tasks.runs.work_order import heartbeat_interval, spec_of
from pools.access.authentication import SCHEME
from pools.access.rate_limit import count_request
from project.kernel.actor import acting_as
from project.kernel.errors import Conflict, Invalid
from project.kernel.live.socket import refuse_handshake
from slots.members.liveness import record_heartbeat
from slots.members.tokens import AgentIdentity, BadMemberToken, identify_member

logger = logging.getLogger(__name__)

LARGEST = 16_384  # characters of a message
PACE, WITHIN = 40, 10.0  # messages in so many seconds
RECHECK = 60.0  # a token also ends by the clock
MOST = 3  # connections of one member: an agent has one, and one that it does not know to be dead
BAD_MESSAGE, BAD_TOKEN, TOO_MANY, REPLACED, TOO_FAST, SILENT = 4400, 4401, 4409, 4410, 4429, 4408
THREADS = 2  # each with a connection to the database

Send = Callable[[Any], Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]
_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="agents")
_open: dict[int, list["AgentSocket"]] = {}


class SocketClosed(Exception):
    """The connection is to be closed, and why."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class AgentSocket:
    def __init__(self, secret: str, agent: AgentIdentity, beat_s: float, send: Send) -> None:
        self.secret, self.agent = secret, agent
        self.patience = 4 * beat_s
        self.was_replaced = agent.is_replaced
        self.told: str | None = None  # nothing, until it has said what it has
        self.heard: list[float] = []
        self._send = send
        self._again = asyncio.Event()
        self._ends: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def run(self, receive: Receive) -> None:
        """Until one of the two is over: it leaves, or we have a reason to close."""
        member = self.agent.member_id
        mine = _open.setdefault(member, [])
        mine.append(self)
        if len(mine) > MOST:
            mine[0].end(TOO_MANY, "Another connection of this member was opened")
        work = [
            self._ends,
            asyncio.ensure_future(self._read(receive)),
            asyncio.ensure_future(self._follow()),
        ]
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for over in (each for each in work if each.done()):
                over.result()
        except SocketClosed as error:
            with suppress(OSError, RuntimeError):  # the other side may have gone first
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
        """Its orders, as often as they change. Whether it may still hear them is looked at each
        time. Nobody else looks: of two looks at once, the older one might be told last. And not
        before it has said what it has: the poll that it was in while this was opened may have been
        answered later, and an older list of orders would end what that poll began."""
        await self._again.wait()
        while True:
            self._again.clear()
            try:
                orders = await in_thread(self._read_orders)
            except DatabaseError as error:  # it is heard again once the database is
                logger.warning("agent's socket: orders not read: %s", error)
                await asyncio.sleep(1.0)
                continue
            if orders.version != self.told:
                self.told = orders.version
                await self._send_json(orders.as_dict())
            await first_of(
                wait_for_orders(self.agent.member_id, orders.version, RECHECK), self._again.wait()
            )

    async def _read(self, receive: Receive) -> None:
        while True:
            try:
                message = await asyncio.wait_for(receive(), self.patience)
            except TimeoutError:
                raise SocketClosed(SILENT, "Nothing was heard for too long") from None
            if message["type"] == "websocket.disconnect":
                return
            have, load = self._parse(message.get("text"))
            try:
                await self._record_heartbeat(load)
            except DatabaseError as error:  # who is not answered asks by REST
                logger.warning("agent's socket: not answered: %s", error)
                continue
            if have == self.told:
                await self._send_json({"version": have})
            else:
                self.told = ""
                self._again.set()

    def _parse(self, text: Any) -> tuple[str, dict[str, Any] | None]:
        now = time.monotonic()
        self.heard = [at for at in self.heard if now - at < WITHIN] + [now]
        if len(self.heard) > PACE:
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
            raise SocketClosed(BAD_MESSAGE, "Not understood: send {have: version, load: {...}}")
        return body["have"], load

    async def _record_heartbeat(self, load: dict[str, Any] | None) -> None:
        """Most are heard all the time: those are written down together, by the watch that they
        all wait in.
        """
        if load is None and self.agent.state == "ready":
            heartbeat_buffer.note(self.agent.member_id, self.agent.incarnation)
        else:
            try:
                await in_thread(record_socket_heartbeat, self.agent, load)
            except (Conflict, Invalid) as error:
                raise SocketClosed(BAD_MESSAGE, error.detail[:100]) from None

    def _read_orders(self) -> OrderList:
        """The token last: one that ends in between would stand in the version already, and
        nobody would be woken by it.
        """
        orders = read_orders(self.agent.member_id)
        try:
            self.agent = identify_member(self.secret)
        except BadMemberToken as error:
            raise SocketClosed(BAD_TOKEN, error.detail[:100]) from None
        if self.agent.is_replaced and not self.was_replaced:
            raise SocketClosed(REPLACED, "There is a new token: read it and come again")
        return orders

    async def _send_json(self, body: Any) -> None:
        try:
            await self._send(
                {"type": "websocket.send", "text": json.dumps(body, separators=(",", ":"))}
            )
        except (OSError, RuntimeError):
            logger.debug("an agent has gone; whoever reads from it hears of it")


async def agent_socket(scope: Any, receive: Receive, send: Send) -> None:
    await receive()  # websocket.connect
    try:
        secret, agent, beat_s = await in_thread(authenticate_socket, scope)
    except Exception as error:
        await refuse(scope, send, error)
        return
    await send({"type": "websocket.accept"})
    await AgentSocket(secret, agent, beat_s, send).run(receive)


def authenticate_socket(scope: Any) -> tuple[str, AgentIdentity, float]:
    """As any call of an agent; it counts as a heartbeat, too."""
    if scope.get("query_string"):
        raise Invalid(
            "This address takes no query.",
            way_out="Send the token in the header Authorization: an address is written down.",
        )
    header: str = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
    agent = identify_header(header, (scope.get("client") or ("",))[0], count_request)
    record_socket_heartbeat(agent, None)
    return header[len(SCHEME) :].strip(), agent, heartbeat_interval(spec_of(agent))


def record_socket_heartbeat(agent: AgentIdentity, load: dict[str, Any] | None) -> None:
    with acting_as(agent.actor):
        if load is not None:
            record_load(agent, load)
        elif agent.state == "ready":
            heartbeat_buffer.note(agent.member_id, agent.incarnation)
        elif agent.state in ("creating", "offline"):
            record_heartbeat(member_id=agent.member_id, incarnation=agent.incarnation)


async def refuse(scope: Any, send: Send, error: Exception) -> None:
    """Before it was accepted: an answer of HTTP, with its reason where the server can send one;
    else it is 403.
    """
    if "websocket.http.response" in (scope.get("extensions") or {}):
        await refuse_handshake(send, error)
    else:
        await send({"type": "websocket.close", "code": BAD_TOKEN})


async def first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def in_thread(work: Callable[..., Any], *given: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(
        _threads, contextvars.Context().run, with_connection, work, *given
    )


def with_connection(work: Callable[..., Any], *given: Any) -> Any:
    """In a thread that lives on: a connection that broke meanwhile is not used again."""
    close_old_connections()
    return work(*given)


# An ASGI application, for URLRouter.
agent_sockets = [path("ws/agent/", agent_socket)]  # type: ignore[arg-type]
