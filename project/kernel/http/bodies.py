"""Reads the body of a request within limits of size, speed and trust.

Any caller may send UNKNOWN_MOST bytes. For a larger body, the guard of the path (BERTH_BODIES)
names the caller or refuses it. A body of more than LARGE bytes takes one of a few turns, so that
large bodies do not fill the memory. A caller has one turn at a time, and the members of one pool
share half of the turns: a slow body of 260 MB may take hours.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from django.conf import settings

from project.kernel.errors import SlowClient, TooLarge, TooMany

from .asgi_types import Message, Receive, Scope


class BodyCaller(NamedTuple):
    """The sender of a body, and the group that shares its turns: the pool of an agent; a user is
    a group of its own.
    """

    name: str
    group: str


Guard = Callable[[], Awaitable[BodyCaller]]  # names the caller, or raises its refusal

# Key in the scope: the body is complete, and reading it needs no timeout.
BODY_IS_THERE = "berth_body_is_there"
UNKNOWN_MOST = 128 * 1024
LARGE = 1_000_000
LARGE_AT_ONCE = 4
LARGE_OF_GROUP = 2
MOST_WAITING = 8  # bodies of one caller that wait for its turn
# The most of a refused body that is read and dropped.
DISCARD_BYTES, DISCARD_SECONDS = 64_000_000, 5.0


class BodyTooLarge(TooLarge):
    def __init__(self, limit: int, rest: Receive | None) -> None:
        super().__init__(f"The body is larger than {limit} bytes.", limit=limit)
        self.rest = rest  # reads the rest of the body; None: there is no rest


class ClientGone(Exception):
    """The client closed the connection before the end of its body."""


class KeyedTurns:
    """A semaphore for each key. Keys without users are forgotten."""

    def __init__(self, turns: int) -> None:
        self._turns = turns
        # By key: its semaphore, and how many tasks hold it or wait for it.
        self._used: dict[str, tuple[asyncio.Semaphore, int]] = {}

    def count(self, key: str) -> int:
        return self._used[key][1] if key in self._used else 0

    @asynccontextmanager
    async def acquire(self, key: str) -> AsyncIterator[None]:
        turns, count = self._used.get(key) or (asyncio.Semaphore(self._turns), 0)
        self._used[key] = turns, count + 1
        try:
            async with turns:
                yield
        finally:
            turns, count = self._used.pop(key)
            if count > 1:
                self._used[key] = turns, count - 1


class LargeTurns:
    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(LARGE_AT_ONCE)
        self._callers, self._groups = KeyedTurns(1), KeyedTurns(LARGE_OF_GROUP)

    @asynccontextmanager
    async def acquire(self, caller: BodyCaller) -> AsyncIterator[None]:
        if self._callers.count(caller.name) > MOST_WAITING:
            raise TooMany(
                "Too many large bodies of this caller wait for their turn.",
                way_out="Send one after the other.",
            )
        async with (
            self._callers.acquire(caller.name),
            self._groups.acquire(caller.group),
            self._turns,
        ):
            yield


async def read_body(
    scope: Scope, receive: Receive, *, limit: int, guard: Guard, turns: LargeTurns
) -> bytes:
    declared = length_of(scope)
    is_expected = BODY_IS_THERE not in scope and (bool(declared) or is_chunked(scope))
    if declared <= UNKNOWN_MOST and declared <= limit:  # most bodies come with the head
        began = asyncio.get_running_loop().time() if is_expected else 0.0
        first = await _receive_in_time(receive, began, 0) if is_expected else await receive()
        if first["type"] == "http.disconnect":
            raise ClientGone
        body: bytes = first.get("body", b"")
        if not first.get("more_body", False) and len(body) <= limit:
            return body
        return await _read_large(declared, began, first, receive, limit, guard, turns)
    caller = await guard() if declared > UNKNOWN_MOST else None
    if declared > limit:
        raise BodyTooLarge(limit, unread_of(scope, receive))
    return await _read_large(declared, 0.0, None, receive, limit, guard, turns, caller)


async def _read_large(
    declared: int,
    began: float,
    message: Message | None,
    receive: Receive,
    limit: int,
    guard: Guard,
    turns: LargeTurns,
    caller: BodyCaller | None = None,
) -> bytes:
    """The whole body. `message` is its first message, None if no message was read."""
    loop = asyncio.get_running_loop()
    parts: list[bytes] = []
    size, has_turn = 0, False
    async with AsyncExitStack() as held:
        if caller is not None and declared > LARGE:
            await held.enter_async_context(turns.acquire(caller))
            has_turn = True
        began = began or loop.time()
        while True:
            if message is None:
                message = await _receive_in_time(receive, began, size)
            if message["type"] == "http.disconnect":
                raise ClientGone
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            is_all = not message.get("more_body", False)
            if size > limit:
                raise BodyTooLarge(limit, None if is_all else receive)
            if is_all:
                return b"".join(parts)
            message = None
            paused = loop.time()
            if caller is None and size > UNKNOWN_MOST:
                caller = await guard()
            if caller is not None and not has_turn and size > LARGE:
                await held.enter_async_context(turns.acquire(caller))
                has_turn = True
            began += loop.time() - paused  # the pause is the server's, not the client's


async def _receive_in_time(receive: Receive, began: float, size: int) -> Message:
    """The next message of the body. Raises SlowClient after BERTH_BODY_SECONDS, and when the
    whole body is slower than BERTH_BODY_RATE bytes a second.
    """
    due = min(asyncio.get_running_loop().time(), began + size / settings.BERTH_BODY_RATE)
    end = due + settings.BERTH_BODY_SECONDS
    try:
        async with asyncio.timeout_at(end):
            return await receive()
    except TimeoutError:
        raise SlowClient(
            f"The body arrived too slowly: no byte for {settings.BERTH_BODY_SECONDS:g} s, or less "
            f"than {settings.BERTH_BODY_RATE} bytes a second.",
            way_out="Send the request again, faster. This request changed nothing.",
        ) from None


def length_of(scope: Scope) -> int:
    """Content-Length; 0 if it is missing or malformed."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() and len(value) < 20 else 0
    return 0


def is_chunked(scope: Scope) -> bool:
    return any(name == b"transfer-encoding" for name, _ in scope["headers"])


def unread_of(scope: Scope, receive: Receive) -> Receive | None:
    """Reads the rest of a refused body. None: the client sent Expect: 100-continue, and will not
    send the body after a refusal.
    """
    return None if any(name == b"expect" for name, _ in scope["headers"]) else receive


async def discard_body(receive: Receive, most: int) -> None:
    """Reads and drops the body, up to `most` bytes."""
    while most > 0:
        message = await receive()
        most -= len(message.get("body", b""))
        if not message.get("more_body", False):
            return
