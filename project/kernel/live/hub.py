"""Live pages: the hub of a web process reads the event log and sends frames to sockets.

There are two kinds of frames. A frame of a region has the region's HTML (`_paint_one`). A frame of
slots has the present class of each changed slot (`_send_cells`), which
`slots/pages/dashboard_queries.py` reads. A frame never holds a difference, so a repeated frame is
harmless. All sockets with the same view get the same encoded frame.

The event log decides what is sent. Channel layer and timer only wake the reader, so a lost message
delays a frame by a second. The server renders a page with a position of the log from before its
reads. The page's socket names that position, and gets frames for all events after it. The position
that the hub sends to a socket lies before the first event without a frame, so a socket that
reconnects with it misses no event.
"""

import asyncio
import json
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from channels.layers import get_channel_layer
from django.core.exceptions import ObjectDoesNotExist
from django.db import close_old_connections, connections

from project.kernel.errors import NotFound
from project.kernel.events.log import EventRow, Position
from project.kernel.events.verbs import verbs_with
from project.kernel.http.long_poll import wait_briefly

from .regions import ANY, OpenedRegion, Subject
from .tail import BATCH, LiveLog

logger = logging.getLogger(__name__)

TICK = 0.1  # seconds between two reads of the log while events arrive
POLL = 1.0  # seconds between two reads without events
CANCEL_AGAIN = 1.0  # seconds for a task to end before it is cancelled again
POSITION_EVERY = 5.0
CHECK_EVERY = 30.0  # a session may expire without an event
HELD_UP = 2.0  # seconds: an old open transaction hides the end of the log
GROUP = "live"
T = TypeVar("T")
RELOAD = json.dumps({"reload": True})


class Socket(Protocol):
    """A browser's connection, as the hub uses it."""

    watching: dict[str, OpenedRegion]

    def push(self, key: str, frame: str) -> None:
        """Queues a frame without waiting. It replaces an unsent frame with the same key."""

    def recheck(self) -> None:
        """Checks the reader's permission again."""


@dataclass(slots=True)
class WatchedRegion:
    """A region for one scope of permission, and the sockets that show it."""

    opened: OpenedRegion
    sockets: set[Socket] = field(default_factory=set)
    # The position before the first event without a frame.
    dirty_since: Position | None = None
    painting_since: Position | None = None
    ready_at: float = 0.0  # the earliest time of the next frame


@dataclass(slots=True)
class JoiningSocket:
    socket: Socket
    names: list[str]
    after: Position


@dataclass(slots=True)
class ChangedSubjects:
    """The subjects, slots, members and pools that some events name."""

    subjects: set[Subject] = field(default_factory=set)
    slots: set[int] = field(default_factory=set)
    members: set[int] = field(default_factory=set)  # all of their slots may have changed
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
    """The sockets of one event loop, and the tasks that feed them."""

    def __init__(self) -> None:
        self.sockets: set[Socket] = set()
        self.watched: dict[str, WatchedRegion] = {}
        self.by_subject: dict[Subject, set[str]] = defaultdict(set)
        self.log = LiveLog()
        self._owed = ChangedSubjects()  # slots whose frames are not sent yet
        self._joiners: list[JoiningSocket] = []
        self._wake, self._paint = asyncio.Event(), asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._threads: ThreadPoolExecutor | None = None
        self._position_sent_at = self._checked_at = time.monotonic()

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

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Runs work with Django's ORM in one thread: the hub needs one connection."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, thread_name_prefix="live")
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: with_connection(work)
        )

    async def close(self) -> None:
        tasks, self._tasks = self._tasks, []
        # Reset all fields before the first await: a socket may enter meanwhile and start the hub.
        log, self.log = self.log, LiveLog()
        threads, self._threads = self._threads, None
        self._owed = ChangedSubjects()
        pending = set(tasks)
        while pending:
            for task in pending:
                task.cancel()
            # A client library may lose a cancellation that comes while it connects.
            _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN)
        await asyncio.gather(*tasks, return_exceptions=True)  # reads their errors
        await log.forget_connection()
        if threads is not None:
            threads.submit(connections.close_all)
            threads.shutdown(wait=False)

    # -- the tail ----------------------------------------------------------------------------------
    async def _keep_running(self, loop: Callable[[], Awaitable[None]]) -> None:
        """Restarts a loop after an error: the database or the channel layer may be unavailable.
        Unsent frames stay due.
        """
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
                    "live pages: %s failed; restart in %.1f s: %s: %s",
                    loop.__name__,
                    pause,
                    type(error).__name__,
                    error,
                )
                await asyncio.sleep(pause)

    async def _listen(self) -> None:
        """Wakes the tail on a message of the channel layer. Without messages, the timer does."""
        layer: Any = get_channel_layer()
        if layer is None:
            return
        channel = await layer.new_channel("live!")
        await layer.group_add(GROUP, channel)
        while True:
            await layer.receive(channel)
            self._wake.set()

    async def _tail(self) -> None:
        await self.log.begin()
        self._recheck()  # permissions may have changed before the hub followed the log
        while True:
            self._wake.clear()
            began = time.monotonic()
            rows = await self.log.more()
            await self._deliver(rows)
            await self._run_timers()
            if len(rows) < BATCH:
                await asyncio.sleep(max(0.0, TICK - (time.monotonic() - began)))
            if not rows:  # events come in bursts: after some, read again without a message
                await wait_briefly(self._wake, POLL)

    async def _deliver(self, rows: list[EventRow]) -> None:
        changed = ChangedSubjects()
        changed.add(rows)
        for key in {
            key for subject in changed.subjects for key in self.by_subject.get(subject, ())
        }:
            self._mark_dirty(self.watched[key], changed.since)
        if changed.verbs & verbs_with("changes_access"):
            self._recheck()
        self._owed.add(rows)
        await self._send_cells(self._owed, self.sockets)
        self._owed = ChangedSubjects()
        while self._joiners:
            joiner = self._joiners[0]
            await self._catch_up(joiner)
            # Sockets may have entered or left during the await.
            self._joiners = [other for other in self._joiners if other is not joiner]
        self._paint.set()

    def _mark_dirty(self, watched: WatchedRegion, since: Position | None) -> None:
        if watched.opened.render is not None and watched.dirty_since is None:
            watched.dirty_since = since or self.log.position

    async def _send_cells(self, changed: ChangedSubjects, sockets: set[Socket]) -> None:
        """Sends the present class of each changed slot: one query, and one frame for each view of
        a pool.
        """
        views = {
            (w.opened.pool_id, w.opened.view): w
            for w in self.watched.values()
            if w.opened.render is None
        }
        if not views:
            return
        pools = changed.pools & {pool_id for pool_id, _ in views}
        found = await self.log.cells(changed.slots, changed.members, pools)
        for view, cells in found.items():
            if watched := views.get(view):
                frame = json.dumps(
                    {"cells": watched.opened.name, "set": cells, "to": str(self.log.position)},
                    separators=(",", ":"),
                )
                for socket in watched.sockets & sockets:
                    socket.push(f"{watched.opened.name}:{time.monotonic()}", frame)

    async def _catch_up(self, joiner: JoiningSocket) -> None:
        """Makes up for the events between the position of a page and the hub's."""
        if joiner.socket not in self.sockets or joiner.after >= self.log.position:
            return
        rows = await self.log.since(joiner.after)
        if rows is None:
            joiner.socket.push("reload", RELOAD)
            return
        changed = ChangedSubjects()
        changed.add(rows)
        if changed.verbs & verbs_with("changes_access"):
            joiner.socket.recheck()
        for name in joiner.names:
            opened = joiner.socket.watching.get(name)
            if opened is not None and opened.subjects & changed.subjects:
                self._mark_dirty(self.watched[opened.key], changed.since)
        await self._send_cells(changed, {joiner.socket})

    # -- timers ------------------------------------------------------------------------------------
    async def _run_timers(self) -> None:
        now = time.monotonic()
        if now - self._position_sent_at >= POSITION_EVERY:
            self._position_sent_at = now
            await self._send_position()
        if now - self._checked_at >= CHECK_EVERY:
            self._checked_at = now
            self._recheck()

    async def _send_position(self) -> None:
        held = await self.log.held_up()
        frame: dict[str, str | int] = {
            "at": str(self.safe_position()),
            "now": int(time.time() * 1000),
        }
        if held > HELD_UP:
            frame["held"] = round(held)
            # The log does not yet show these changes, but the tables do.
            for watched in self.watched.values():
                self._mark_dirty(watched, self.log.position)
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
            left = None if first is None else min(first.ready_at - now, TICK)
            await wait_briefly(self._paint, left)

    async def _paint_one(self, watched: WatchedRegion) -> None:
        began = time.monotonic()
        watched.painting_since, watched.dirty_since = watched.dirty_since, None
        key, frame = f"region:{watched.opened.name}", RELOAD
        try:
            assert watched.opened.render is not None
            html = await self.in_thread(watched.opened.render)
            frame = json.dumps({"region": watched.opened.name, "html": html}, separators=(",", ":"))
        except (ObjectDoesNotExist, NotFound):
            key = "reload"  # the object was deleted; the reloaded page says so
        except Exception:
            # The frame stays due. The hub retries after a pause and serves other regions meanwhile.
            watched.dirty_since, watched.ready_at = watched.painting_since, time.monotonic() + 2.0
            logger.exception("live region %s", watched.opened.key)
            return
        finally:
            watched.painting_since = None
        watched.ready_at = began + max(watched.opened.every, 5 * (time.monotonic() - began))
        for socket in watched.sockets:
            socket.push(key, frame)


def with_connection(work: Callable[[], T]) -> T:
    """Runs work after closing a broken connection: the thread, and its connection, are lasting."""
    close_old_connections()
    return work()


_hubs: dict[asyncio.AbstractEventLoop, Hub] = {}


def hub() -> Hub:
    """The hub of this event loop. A server has one loop; tests have many."""
    loop = asyncio.get_running_loop()
    for other in [other for other in _hubs if other.is_closed()]:
        del _hubs[other]
    if loop not in _hubs:
        _hubs[loop] = Hub()
    return _hubs[loop]
