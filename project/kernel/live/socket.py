"""One WebSocket of a live page, as plain ASGI. `Access`, which an app above implements, names the
reader.

The browser sends
    {"watch": ["pool.head:tf-prod", ...], "after": position}    subscribe, from a position
    {"unwatch": [name, ...]}                                    unsubscribe
The server sends
    {"region": name, "html": ...}                   new HTML of a region
    {"cells": name, "set": {class: [slot, ...]}, "to": position}
                                                    present classes of slots, read at `to`
    {"at": position, "now": ms, "held": seconds}    every 5 s: the position for a reconnection;
                                                    `held`: an open transaction hides the log's end
    {"gone": [name, ...]}                           regions that the reader may not see
    {"reload": true}                                too far behind, or the permission has changed
"""

import asyncio
import json
import logging
import time
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Protocol

from django.urls import re_path

from project.kernel.errors import NotFound, TooMany
from project.kernel.events.log import Position
from project.kernel.http.asgi_types import Receive, Scope, Send
from project.kernel.http.problems import describe, send_problem
from project.kernel.version import __version__

from .hub import RELOAD, Hub, hub
from .regions import OpenedRegion, Viewer, open_region

logger = logging.getLogger(__name__)

LARGEST = 16_384  # characters of a message from the browser
MOST_REGIONS = 40
LONGEST_NAME = 300
PACE, WITHIN = 40, 10.0  # messages, and the seconds in which they may come

SIGNED_OUT, BAD_MESSAGE, TOO_FAST = 4401, 4400, 4429


class Access(Protocol):
    def identify(self) -> Viewer:
        """The present identity of the reader; None if the session or token has ended. Runs in a
        thread and may use the database.
        """


class Outbox:
    """Unsent frames. A newer frame of a region replaces the older one. A page that cannot keep up
    gets one frame that reloads it.
    """

    LIMIT = 64

    def __init__(self) -> None:
        self._frames: dict[str, str] = {}
        self._filled = asyncio.Event()

    def put(self, key: str, frame: str) -> None:
        if key == "at":
            # A position follows all frames that it covers. A region may keep its older place.
            self._frames.pop(key, None)
        if key not in self._frames and len(self._frames) >= self.LIMIT:
            self._frames = {"reload": RELOAD}
        elif "reload" not in self._frames:
            self._frames[key] = frame
        self._filled.set()

    async def get(self) -> str:
        await self._filled.wait()
        key = next(iter(self._frames))
        frame = self._frames.pop(key)
        if not self._frames:
            self._filled.clear()
        return frame

    def clear(self) -> None:
        self._frames.clear()
        self._filled.clear()

    def __len__(self) -> int:
        return len(self._frames)


class LiveSocket:
    def __init__(self, access: Access, send: Send) -> None:
        self.access = access
        self.watching: dict[str, OpenedRegion] = {}
        self.outbox = Outbox()
        self.hub: Hub = hub()
        self.identity: Viewer = None
        self._send = send
        self._received_at: list[float] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_checking = self._check_again = False
        self.is_closed = False

    # -- for the hub -------------------------------------------------------------------------------
    def push(self, key: str, frame: str) -> None:
        self.outbox.put(key, frame)

    def recheck(self) -> None:
        self._check_again = True
        if not self._is_checking:
            self._is_checking = True
            self._spawn(self._check())

    # -- the connection ----------------------------------------------------------------------------
    async def run(self, receive: Receive) -> None:
        await receive()  # websocket.connect
        try:
            self.identity = await self.hub.in_thread(self.access.identify)
        except TooMany as error:
            await refuse_handshake(self._send, error)
            return
        await self._send({"type": "websocket.accept"})
        if self.identity is None:
            await self.close(SIGNED_OUT, "Signed out")
            return
        self.hub.enter(self)
        self.push("hello", json.dumps({"hello": __version__}))
        self._spawn(self._write())
        try:
            await self._read(receive)
        finally:
            self.is_closed = True
            for task in self._tasks:
                task.cancel()
            await self.hub.leave(self)

    async def close(self, code: int, reason: str) -> None:
        if not self.is_closed:
            self.is_closed = True
            with suppress(OSError, RuntimeError):  # the other side may have gone first
                await self._send({"type": "websocket.close", "code": code, "reason": reason})

    async def _read(self, receive: Receive) -> None:
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                return
            if self.is_closed:
                continue
            text = message.get("text")
            if not self._is_in_pace():
                await self.close(TOO_FAST, "Too many messages")
            elif not isinstance(text, str) or len(text) > LARGEST or not await self._handle(text):
                await self.close(BAD_MESSAGE, "Not understood")

    async def _write(self) -> None:
        """Sends frames. While a slow reader blocks the send, the outbox stays bounded."""
        while True:
            frame = await self.outbox.get()
            try:
                await self._send({"type": "websocket.send", "text": frame})
            except (OSError, RuntimeError):
                return  # the socket is closed; _read gets the disconnect

    def _is_in_pace(self) -> bool:
        now = time.monotonic()
        self._received_at = [at for at in self._received_at if now - at < WITHIN] + [now]
        return len(self._received_at) <= PACE

    async def _handle(self, text: str) -> bool:
        try:
            order = json.loads(text)
            names, unwanted = order.get("watch", []), order.get("unwatch", [])
            after = Position.parse(str(order["after"])) if "after" in order else None
        except (ValueError, AttributeError, RecursionError):
            return False
        if not are_names(names) or not are_names(unwanted):
            return False
        self.hub.unwatch(self, unwanted)
        if names and (after is None or len(set(names) | set(self.watching)) > MOST_REGIONS):
            return False
        if names:
            await self._watch(names, after)
        return True

    async def _watch(self, names: list[str], after: Position | None) -> None:
        while True:
            identity = self.identity
            opened = await self.hub.in_thread(partial(open_regions, identity, names))
            if self.is_closed:
                return
            # Open the regions again if the identity has changed meanwhile.
            if identity is self.identity:
                break
        if missing := [name for name in names if name not in opened]:
            self.push(f"gone:{missing}", json.dumps({"gone": missing}))
        self.hub.watch(self, opened, after or self.hub.log.position)

    # -- permission --------------------------------------------------------------------------------
    async def _check(self) -> None:
        try:
            while self._check_again and not self.is_closed:
                self._check_again = False
                try:
                    identity = await self.hub.in_thread(self.access.identify)
                except Exception as error:  # the hub's timer checks again
                    logger.warning("live socket: permission not checked: %s", error)
                    return
                if identity is None:
                    self.hub.unwatch(self, list(self.watching))
                    await self.close(SIGNED_OUT, "Signed out")
                elif identity != self.identity:
                    self.identity = identity
                    # The reloaded page subscribes again.
                    self.hub.unwatch(self, list(self.watching))
                    self.outbox.clear()
                    self.push("reload", RELOAD)
        finally:
            self._is_checking = False

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def refuse_handshake(send: Send, error: Exception) -> None:
    """Answers the handshake with an HTTP error instead of opening the socket."""
    await send_problem(send, *describe(error), is_handshake=True)


def are_names(given: object) -> bool:
    return isinstance(given, list) and all(
        isinstance(n, str) and len(n) <= LONGEST_NAME and "\x00" not in n for n in given
    )


def open_regions(identity: Viewer, names: list[str]) -> dict[str, OpenedRegion]:
    found = {name: open_region(identity, name) for name in names}
    return {name: opened for name, opened in found.items() if opened is not None}


async def refuse_unknown(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()  # websocket.connect
    await refuse_handshake(
        send,
        NotFound("This address has no WebSocket.", way_out="Use /ws/live/ or /ws/agent/."),
    )


# The last pattern of URLRouter.
unknown_sockets = [re_path("", refuse_unknown)]  # type: ignore[arg-type]
