"""Live pages: one tail of the event log in each web process, regions of HTML and cells of slots
that follow it, sockets that get them.

Truth is in the log. The channel layer and the timer only say "look again", so a lost message costs
a second and loses nothing. A page is rendered with the position of the log from before its reads;
its socket names that position and misses nothing: what was touched since then is rendered again. A
frame is a whole region or the present class of slots, never a difference, so sending one twice is
harmless, and it is encoded once for all sockets that see the same.

The position a socket is told lies before the first event that anything still owes it. Whoever comes
back with it misses nothing.
"""

import asyncio
import json
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from channels.layers import get_channel_layer
from django.core.exceptions import ObjectDoesNotExist
from django.db import close_old_connections, connections

from project.kernel.errors import NotFound
from project.kernel.events.log import EventRow, Position
from project.kernel.events.verbs import verbs_with

from .regions import ANY, OpenedRegion, Subject
from .tail import BATCH, LiveLog

logger = logging.getLogger(__name__)

TICK = 0.1  # seconds between two looks while something happens
POLL = 1.0  # and while nothing seems to
POSITION_EVERY = 5.0
CHECK_EVERY = 30.0  # sessions end by the clock, too
HELD_UP = 2.0  # seconds; a forgotten transaction keeps the log's end out of sight
GROUP = "live"
RELOAD = json.dumps({"reload": True})


class Socket(Protocol):
    """What the hub knows of a connection."""

    watching: dict[str, OpenedRegion]

    def push(self, key: str, frame: str) -> None:
        """Never waits. What was pushed under the same key and is not sent yet is replaced."""

    def recheck(self) -> None:
        """See whether it may still be here."""


@dataclass(slots=True)
class WatchedRegion:
    """A region with a scope of permission, and the sockets that see it."""

    opened: OpenedRegion
    sockets: set[Socket] = field(default_factory=set)
    # The position before the first event that is in no frame yet.
    dirty_since: Position | None = None
    painting_since: Position | None = None
    ready_at: float = 0.0  # not painted again before


@dataclass(slots=True)
class JoiningSocket:
    socket: Socket
    names: list[str]
    after: Position


@dataclass(slots=True)
class ChangedSubjects:
    """What some events spoke of."""

    subjects: set[Subject] = field(default_factory=set)
    slots: set[int] = field(default_factory=set)
    members: set[int] = field(default_factory=set)  # as a whole: all of their slots look different
    pools: set[int] = field(default_factory=set)
    verbs: set[str] = field(default_factory=set)
    since: Position | None = None

    def add(self, rows: Iterable[EventRow]) -> None:
        for row in rows:
            self.since = self.since or position_before(row)
            self.verbs.add(row.verb)
            for name, number in (
                ("pool", row.pool_id),
                ("member", row.member_id),
                ("slot", row.slot_id),
                ("claim", row.claim_id),
            ):
                if number is not None:
                    self.subjects.add((name, number))
            if row.slot_id is not None:
                self.slots.add(row.slot_id)
            elif row.member_id is not None:
                self.members.add(row.member_id)
            elif row.pool_id is not None and row.claim_id is None:
                self.pools.add(row.pool_id)
        if self.verbs:
            self.subjects.add(ANY)


def position_before(row: EventRow) -> Position:
    return Position(row.tx, row.id - 1)


class Hub:
    """All sockets of one event loop, and the one tail that feeds them."""

    def __init__(self) -> None:
        self.sockets: set[Socket] = set()
        self.watched: dict[str, WatchedRegion] = {}
        self.by_subject: dict[Subject, set[str]] = defaultdict(set)
        self.log = LiveLog()
        self._owed = ChangedSubjects()  # cells that are not sent yet
        self._joiners: list[JoiningSocket] = []
        self._wake, self._paint = asyncio.Event(), asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._threads: ThreadPoolExecutor | None = None
        self._told_at = self._checked_at = time.monotonic()

    # -- sockets -----------------------------------------------------------------------------------
    def enter(self, socket: Socket) -> None:
        self.sockets.add(socket)
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(self._keep_running(loop))
                for loop in (self._tail, self._painter, self._listen)
            ]

    async def leave(self, socket: Socket) -> None:
        self.sockets.discard(socket)
        self.unwatch(socket, list(socket.watching))
        self._joiners = [joiner for joiner in self._joiners if joiner.socket is not socket]
        if not self.sockets:
            await self.close()

    def watch(self, socket: Socket, opened: dict[str, OpenedRegion], after: Position) -> None:
        self.unwatch(socket, opened)
        for name, region in opened.items():
            socket.watching[name] = region
            watched = self.watched.get(region.key)
            if watched is None:
                watched = self.watched[region.key] = WatchedRegion(region)
                for subject in region.subjects:
                    self.by_subject[subject].add(region.key)
            watched.sockets.add(socket)
        self._joiners.append(JoiningSocket(socket, list(opened), after))
        self._wake.set()

    def unwatch(self, socket: Socket, names: Iterable[str]) -> None:
        for name in names:
            region = socket.watching.pop(name, None)
            watched = self.watched.get(region.key) if region else None
            if region is None or watched is None:
                continue
            watched.sockets.discard(socket)
            if not watched.sockets:
                del self.watched[region.key]
                for subject in region.subjects:
                    self.by_subject[subject].discard(region.key)
                    if not self.by_subject[subject]:
                        del self.by_subject[subject]

    async def in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Where Django's ORM is used: one thread, so one connection of Django's a process."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, thread_name_prefix="live")
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, with_connection, function, *arguments
        )

    async def close(self) -> None:
        tasks, self._tasks = self._tasks, []
        # All of it before the first wait: whoever enters meanwhile begins anew.
        log, self.log = self.log, LiveLog()
        threads, self._threads = self._threads, None
        self._owed = ChangedSubjects()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await log.forget_connection()
        if threads is not None:
            threads.submit(connections.close_all)
            threads.shutdown(wait=False)

    # -- the tail ----------------------------------------------------------------------------------
    async def _keep_running(self, loop: Callable[[], Awaitable[None]]) -> None:
        """The database and the channel layer may be away for a while. What was owed stays owed."""
        pause = 0.2
        while True:
            began = time.monotonic()
            try:
                await loop()
                return
            except Exception as error:
                await self.log.forget_connection()
                pause = 0.2 if time.monotonic() - began > 30 else min(5.0, pause * 2)
                logger.warning(
                    "live pages: %s stopped, again in %.1f s: %s: %s",
                    loop.__name__,
                    pause,
                    type(error).__name__,
                    error,
                )
                await asyncio.sleep(pause)

    async def _listen(self) -> None:
        """The channel layer says that there is more. Without it the timer does."""
        layer: Any = get_channel_layer()  # type: ignore[no-untyped-call]
        if layer is None:
            return
        channel = await layer.new_channel("live!")
        await layer.group_add(GROUP, channel)
        while True:
            await layer.receive(channel)
            self._wake.set()

    async def _tail(self) -> None:
        await self.log.begin()
        self._recheck()  # who came before the log was followed may have lost what they had
        while True:
            self._wake.clear()
            began = time.monotonic()
            rows = await self.log.more()
            await self._deliver(rows)
            await self._by_the_clock()
            if len(rows) < BATCH:
                await asyncio.sleep(max(0.0, TICK - (time.monotonic() - began)))
            if not rows:  # after some there are more to come, whatever the hints say
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), POLL)

    async def _deliver(self, rows: list[EventRow]) -> None:
        touched = ChangedSubjects()
        touched.add(rows)
        for key in {
            key for subject in touched.subjects for key in self.by_subject.get(subject, ())
        }:
            self._soil(self.watched[key], touched.since)
        if touched.verbs & verbs_with("changes_access"):
            self._recheck()
        self._owed.add(rows)
        await self._send_cells(self._owed, self.sockets)
        self._owed = ChangedSubjects()
        while self._joiners:
            joiner = self._joiners[0]
            await self._catch_up(joiner)
            # It may have left meanwhile, and others come.
            self._joiners = [other for other in self._joiners if other is not joiner]
        self._paint.set()

    def _soil(self, watched: WatchedRegion, since: Position | None) -> None:
        if watched.opened.render is not None and watched.dirty_since is None:
            watched.dirty_since = since or self.log.position

    async def _send_cells(self, touched: ChangedSubjects, sockets: set[Socket]) -> None:
        """The present class of every slot that was touched: one query, one frame a pool."""
        pools = {w.opened.pool_id: w for w in self.watched.values() if w.opened.render is None}
        if not pools:
            return
        found = await self.log.cells(touched.slots, touched.members, touched.pools & set(pools))
        for pool_id, cells in found.items():
            if watched := pools.get(pool_id):
                frame = json.dumps(
                    {"cells": watched.opened.name, "set": cells, "to": str(self.log.position)},
                    separators=(",", ":"),
                )
                for socket in watched.sockets & sockets:
                    socket.push(f"cells:{pool_id}:{time.monotonic()}", frame)

    async def _catch_up(self, joiner: JoiningSocket) -> None:
        """What was touched between the position of its page and ours."""
        if joiner.socket not in self.sockets or joiner.after >= self.log.position:
            return
        rows = await self.log.since(joiner.after)
        if rows is None:
            joiner.socket.push("reload", RELOAD)
            return
        touched = ChangedSubjects()
        touched.add(rows)
        if touched.verbs & verbs_with("changes_access"):
            joiner.socket.recheck()
        for name in joiner.names:
            opened = joiner.socket.watching.get(name)
            if opened is not None and opened.subjects & touched.subjects:
                self._soil(self.watched[opened.key], touched.since)
        await self._send_cells(touched, {joiner.socket})

    # -- the clock ---------------------------------------------------------------------------------
    async def _by_the_clock(self) -> None:
        now = time.monotonic()
        if now - self._told_at >= POSITION_EVERY:
            self._told_at = now
            await self._send_position()
        if now - self._checked_at >= CHECK_EVERY:
            self._checked_at = now
            self._recheck()

    async def _send_position(self) -> None:
        held = await self.log.held_up()
        frame: dict[str, Any] = {"at": str(self.safe_position()), "now": int(time.time() * 1000)}
        if held > HELD_UP:
            frame["held"] = round(held)
            # What the log can't say yet, a fresh look at the tables does.
            for watched in self.watched.values():
                self._soil(watched, self.log.position)
            self._paint.set()
        text = json.dumps(frame)
        joining = {joiner.socket for joiner in self._joiners}
        for socket in self.sockets - joining:
            socket.push("at", text)

    def safe_position(self) -> Position:
        owed = [
            p
            for w in self.watched.values()
            for p in (w.dirty_since, w.painting_since)
            if p is not None
        ]
        return min([self.log.position, *owed, *([self._owed.since] if self._owed.since else [])])

    def _recheck(self) -> None:
        for socket in list(self.sockets):
            socket.recheck()

    # -- painting ----------------------------------------------------------------------------------
    async def _painter(self) -> None:
        while True:
            now = time.monotonic()
            dirty = [w for w in self.watched.values() if w.dirty_since is not None]
            first = min(dirty, key=lambda w: w.ready_at) if dirty else None
            if first is not None and first.ready_at <= now:
                await self._paint_one(first)
                continue
            self._paint.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(
                    self._paint.wait(), None if first is None else min(first.ready_at - now, TICK)
                )

    async def _paint_one(self, watched: WatchedRegion) -> None:
        began = time.monotonic()
        watched.painting_since, watched.dirty_since = watched.dirty_since, None
        key, frame = f"region:{watched.opened.name}", RELOAD
        try:
            assert watched.opened.render is not None
            html = await self.in_thread(watched.opened.render)
            frame = json.dumps({"region": watched.opened.name, "html": html}, separators=(",", ":"))
        except (ObjectDoesNotExist, NotFound):
            key = "reload"  # what it showed is gone; so the page says
        except Exception:
            # Owed still; tried again after a pause, while the others go on.
            watched.dirty_since, watched.ready_at = watched.painting_since, time.monotonic() + 2.0
            logger.exception("live region %s", watched.opened.key)
            return
        finally:
            watched.painting_since = None
        watched.ready_at = began + max(watched.opened.every, 5 * (time.monotonic() - began))
        for socket in watched.sockets:
            socket.push(key, frame)


def with_connection(function: Callable[..., Any], *arguments: Any) -> Any:
    """In a thread that lives on: a connection that broke meanwhile is not used again."""
    close_old_connections()
    return function(*arguments)


_hubs: dict[asyncio.AbstractEventLoop, Hub] = {}


def hub() -> Hub:
    """The hub of this event loop. A server has one loop; tests have many."""
    loop = asyncio.get_running_loop()
    for other in [other for other in _hubs if other.is_closed()]:
        del _hubs[other]
    if loop not in _hubs:
        _hubs[loop] = Hub()
    return _hubs[loop]
