"""Claims that are asked for on an event loop are made together, without a thread for each
(`thread_batching` does the same for threads).

Those that were read in the same turn of the loop go along, and those that come while two
statements are under way wait for the end of one. A statement that is held up by a lock keeps the
others waiting for a moment only. What can't be made so (its key exists, its pool has changed or is
locked, its caller may not any more) comes back as None and is made by a thread of its own, in the
usual way.
"""

import asyncio
import logging
import select
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from weakref import WeakKeyDictionary

from django.db import DatabaseError, connection

from claims.allocation.claim_view import ClaimView
from claims.allocation.create import (
    claim_made,
    columns,
    explain_made,
    may_repeat,
    notify_made,
    route_at_once,
)
from claims.allocation.metrics import CREATED
from claims.allocation.requests.claim_request import ClaimRequest
from claims.allocation.requests.resolve import Route
from claims.allocation.thread_batching import PATIENCE, QueuedCreate, create_batch, split_batch
from pools.access.tokens import CachedToken

# Seconds to wait while so many statements are under way.
PATIENCES = (0.0, 0.002, PATIENCE, PATIENCE)
MOST_AT_ONCE = len(PATIENCES)  # the other threads are for other calls
# Seconds after which a connection is looked at before it is trusted with a claim that has no key.
IDLE = 10.0

logger = logging.getLogger(__name__)


class PendingCreate:
    """One claim, from the moment it was read until somebody has made it."""

    __slots__ = ("claim", "error", "future", "request", "route", "since", "wish")

    def __init__(self, request: ClaimRequest, route: Route, proof: CachedToken) -> None:
        self.request, self.route = request, route
        self.wish = QueuedCreate(route, columns(request, route), proof)
        self.claim: ClaimView | None = None
        self.error: BaseException | None = None
        self.since = 0.0
        self.future: asyncio.Future[ClaimView | None]

    async def make(self, threads: Executor) -> ClaimView | None:
        return await batcher_of(threads).join(self)

    def conclude(self) -> None:
        wish = self.wish
        if wish.error is not None:
            self.error = None if may_repeat(self.request, wish.error) else wish.error
        elif wish.row is not None:
            self.claim = claim_made(self.request, self.route, wish.row, wish.values["spec"])
            CREATED.labels(self.claim.state).inc()


def begin_create(request: ClaimRequest, proof: CachedToken) -> PendingCreate | None:
    """As create_at_once. None: it is not simple, or its line is not known here yet."""
    route = route_at_once(request)
    return None if route is None else PendingCreate(request, route, proof)


class Batcher:
    """Of one event loop. All but `_work` runs on it, so nothing here needs a lock."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: Executor) -> None:
        self.loop, self.threads = loop, threads
        self.waiting: list[PendingCreate] = []
        self.under_way = 0
        self.is_called = False
        self.timer: asyncio.TimerHandle | None = None

    def join(self, asked: PendingCreate) -> "asyncio.Future[ClaimView | None]":
        asked.future, asked.since = self.loop.create_future(), self.loop.time()
        self.waiting.append(asked)
        if not self.is_called:  # after those that were read in this turn
            self.is_called = True
            self.loop.call_soon(self._start)
        return asked.future

    def _start(self) -> None:
        """Alone at once; beside another after a moment, in which more may come; a third only
        when those two are held up.
        """
        self.is_called = False
        while self.waiting and self.under_way < MOST_AT_ONCE:
            due = self.waiting[0].since + PATIENCES[self.under_way]
            if self.loop.time() < due:
                if self.timer is None:
                    self.timer = self.loop.call_at(due, self._on_timer)
                return
            self._send()

    def _on_timer(self) -> None:
        self.timer = None
        self._start()

    def _send(self) -> None:
        wishes, _ = split_batch([asked.wish for asked in self.waiting])
        taken = set(map(id, wishes))
        batch = [asked for asked in self.waiting if id(asked.wish) in taken]
        self.waiting = [asked for asked in self.waiting if id(asked.wish) not in taken]
        self.under_way += 1
        try:
            self.threads.submit(self._work, batch)
        except RuntimeError as error:  # they end with their process
            fail_all(batch, error)
            self.loop.call_soon(self._give, batch, True)

    def _work(self, batch: list[PendingCreate]) -> None:
        """In a thread: the statement, then the answers. Those that wait are told why, after the
        others have theirs.
        """
        try:
            make_all(batch)
        except BaseException as error:
            fail_all(batch, error)
        explained = [asked for asked in batch if asked.claim is not None and asked.claim.is_waiting]
        notify_created(batch, is_bound=True)
        self.loop.call_soon_threadsafe(
            self._give, [asked for asked in batch if asked not in explained], True
        )
        if explained:
            notify_created(explained, is_bound=False)
            explain_made([asked.claim for asked in explained if asked.claim is not None])
            self.loop.call_soon_threadsafe(self._give, explained, False)

    def _give(self, answered: list[PendingCreate], has_ended: bool) -> None:
        if has_ended:
            self.under_way -= 1
            self._start()  # the next ones begin first
        for asked in answered:
            if asked.future.done():  # its caller has gone
                continue
            if asked.error is not None:
                asked.future.set_exception(asked.error)
            else:
                asked.future.set_result(asked.claim)


def make_all(batch: Sequence[PendingCreate]) -> None:
    check_connection()
    try:
        create_batch([asked.wish for asked in batch])
    except DatabaseError as error:  # one by itself
        for asked in batch:
            asked.wish.error = error
    for asked in batch:
        try:
            asked.conclude()
        except Exception as error:  # told to its caller
            asked.error = error


def notify_created(made: Sequence[PendingCreate], *, is_bound: bool) -> None:
    state = "bound" if is_bound else "waiting"
    pools = {
        pool.id: pool
        for asked in made
        if asked.claim is not None and asked.claim.state == state
        for pool in asked.route.found
    }
    if not pools:
        return
    try:
        notify_made(list(pools.values()), any_bound=is_bound, any_waiting=not is_bound)
    except Exception as error:
        # The claims are there, and whoever is told of them looks by timer, too.
        logger.warning("nobody was told of new claims, they are found by timer: %s", error)


def fail_all(batch: Sequence[PendingCreate], error: BaseException) -> None:
    for asked in batch:
        asked.claim, asked.error = None, error


_used = threading.local()


def check_connection() -> None:
    """One that died while it was idle takes no claim along: then its end can be read from it,
    unless the network has swallowed that.
    """
    now = time.monotonic()
    if connection.errors_occurred or now - getattr(_used, "at", 0.0) > IDLE or has_unread_data():
        connection.close_if_unusable_or_obsolete()
        if connection.connection is not None and not connection.is_usable():
            connection.close()
    _used.at = now


def has_unread_data() -> bool:
    """The server has sent something that nobody asked for; asks nothing of it, and costs
    a microsecond.
    """
    raw = connection.connection
    if raw is None or raw.closed:
        return False
    poll = select.poll()
    poll.register(raw.fileno(), select.POLLIN)
    return bool(poll.poll(0))


_batchers: WeakKeyDictionary[Executor, Batcher] = WeakKeyDictionary()


def batcher_of(threads: Executor) -> Batcher:
    loop = asyncio.get_running_loop()
    found = _batchers.get(threads)
    if found is None or found.loop is not loop:
        found = _batchers[threads] = Batcher(loop, threads)
    return found
