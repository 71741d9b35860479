"""Creates the simple claims of one event loop in batches: one statement and one commit for the
claims that arrive together.

A batch takes the claims that were read in the same turn of the loop. While two statements run, new
claims wait for the end of one of them, but only for a moment: a statement that waits for a lock
must not hold up other claims. A claim that the batch leaves out (its key exists, its pool has
changed or is locked, its caller has lost the permission) gets None, and its caller creates it
with `create_claim`.
"""

import asyncio
import json
import logging
import select
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from weakref import WeakKeyDictionary

from django.db import DatabaseError, connection

from claims import claims_sql
from claims.allocation.claim_view import ClaimView
from claims.allocation.metrics import CREATED
from claims.allocation.new_claim import (
    CreatedRow,
    claim_made,
    columns,
    create_single,
    explain_made,
    may_repeat,
    notify_made,
)
from claims.allocation.requests.claim_request import ClaimRequest
from claims.allocation.requests.resolve import Route, find_cached_route
from pools.access.tokens import CachedToken
from project.kernel.controllers.periodic import is_unavailable

MAX_BATCH = 16  # claims in one statement: twice the threads of a web process
# Seconds that a claim waits for company while 0, 1, 2 or 3 statements run. The third and fourth
# start only when the first two are held up, by a lock for example.
PATIENCES = (0.0, 0.002, 0.03, 0.03)
MOST_AT_ONCE = len(PATIENCES)  # the other threads are for other calls
# Seconds without use after which a connection is tested before it creates a claim without a key.
IDLE = 10.0

logger = logging.getLogger(__name__)


class PendingCreate:
    """A claim between its request and its answer: the claim, an error, or neither if the batch has
    left it out.
    """

    __slots__ = ("cached_token", "claim", "error", "future", "request", "route", "since", "values")

    def __init__(
        self, request: ClaimRequest, route: Route, cached_token: CachedToken | None = None
    ) -> None:
        self.request, self.route, self.cached_token = request, route, cached_token
        self.values = columns(request, route)
        self.claim: ClaimView | None = None
        self.error: BaseException | None = None
        self.since = 0.0
        self.future: asyncio.Future[ClaimView | None]

    async def make(self, threads: Executor) -> ClaimView | None:
        return await batcher_of(threads).join(self)


def begin_create(request: ClaimRequest, cached_token: CachedToken) -> PendingCreate | None:
    """A claim that one statement can create, the check of its caller included. None for a claim
    that is not simple, or has no cached route.
    """
    route = find_cached_route(request) if request.is_plain and not request.task else None
    return (
        None
        if route is None or not route.is_simple
        else PendingCreate(request, route, cached_token)
    )


def create_at_once(request: ClaimRequest, cached_token: CachedToken) -> ClaimView | None:
    """Creates the claim in the calling thread, as a batch of its own. None if it is left out."""
    pending = begin_create(request, cached_token)
    if pending is None:
        return None
    create_batch([pending])
    if pending.error is not None:
        raise pending.error
    notify_batch([pending])
    if pending.claim is not None and pending.claim.is_waiting:
        explain_made([pending.claim])
    return pending.claim


class Batcher:
    """The batcher of one event loop. Only `_work` runs in a thread, so no lock is needed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: Executor) -> None:
        self.loop, self.threads = loop, threads
        self.waiting: list[PendingCreate] = []
        self.under_way = 0
        self.is_called = False
        self.timer: asyncio.TimerHandle | None = None

    def join(self, pending: PendingCreate) -> "asyncio.Future[ClaimView | None]":
        pending.future, pending.since = self.loop.create_future(), self.loop.time()
        self.waiting.append(pending)
        if not self.is_called:  # starts after the other claims of this turn have joined
            self.is_called = True
            self.loop.call_soon(self._start)
        return pending.future

    def _start(self) -> None:
        """Starts a statement for each batch that has waited long enough."""
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
        batch, self.waiting = split_batch(self.waiting)
        self.under_way += 1
        try:
            self.threads.submit(self._work, batch)
        except RuntimeError as error:  # the executor shuts down with its process
            fail_all(batch, error)
            self.loop.call_soon(self._give, batch, True)

    def _work(self, batch: list[PendingCreate]) -> None:
        """Runs in a thread. Bound claims are answered before the wait reasons of waiting claims are
        read.
        """
        try:
            check_connection()
            create_batch(batch)
        except BaseException as error:
            fail_all(batch, error)
        waiting = [each for each in batch if each.claim is not None and each.claim.is_waiting]
        answered = [each for each in batch if each not in waiting]
        notify_batch(answered)
        self.loop.call_soon_threadsafe(self._give, answered, True)
        if waiting:
            notify_batch(waiting)
            explain_made([each.claim for each in waiting if each.claim is not None])
            self.loop.call_soon_threadsafe(self._give, waiting, False)

    def _give(self, answered: list[PendingCreate], has_ended: bool) -> None:
        if has_ended:
            self.under_way -= 1
            self._start()  # the next statement starts before the answers are sent
        for each in answered:
            if each.future.done():  # its caller has disconnected
                continue
            if each.error is not None:
                each.future.set_exception(each.error)
            else:
                each.future.set_result(each.claim)


def split_batch(
    waiting: Sequence[PendingCreate],
) -> tuple[list[PendingCreate], list[PendingCreate]]:
    """The claims of the next statement, and the rest, both in the order of arrival. A batch takes
    one queue and rank of each pool: two queues would look for the same slots.
    """
    queues: dict[int | None, tuple[int, int]] = {}
    taken, left = list[PendingCreate](), list[PendingCreate]()
    for each in waiting:
        queue = (each.route.shape, each.values["rank"])
        if len(taken) < MAX_BATCH and queues.setdefault(each.values["pool"], queue) == queue:
            taken.append(each)
        else:
            left.append(each)
    return taken, left


def create_batch(batch: Sequence[PendingCreate]) -> None:
    """Sets the claim or the error of each. If the statement of several claims fails, all of them
    are left out, so that a claim that cannot be created fails alone.
    """
    rows: Mapping[int, CreatedRow] = {}
    try:
        if len(batch) == 1:
            single = create_single(batch[0].route, batch[0].values, batch[0].cached_token)
            rows = {} if single is None else {0: single}
        else:
            rows = {row.n: row for row in _create_gathered(batch) if row.n is not None}
    except DatabaseError as error:
        # A lost connection may hide a commit. A repeated call is safe only with a key.
        if len(batch) == 1 or is_unavailable(error):
            for each in batch:
                each.error = None if may_repeat(each.request, error) else error
    for n, row in rows.items():
        each = batch[n]
        try:
            each.claim = claim_made(each.request, each.route, row, each.values["spec"])
            CREATED.labels(each.claim.state).inc()
        except Exception as error:  # fails this claim only
            each.error = error


def _create_gathered(batch: Sequence[PendingCreate]) -> list[claims_sql.CreateGatheredRow]:
    lines: dict[int, dict[str, object]] = {}
    counts = Counter[int]()
    callers: dict[CachedToken | None, int] = {}
    claims = []
    for n, each in enumerate(batch):
        (pool,), values = each.route.found, each.values
        counts[pool.id] += 1
        if pool.id not in lines:
            lines[pool.id] = {
                "n": pool.id, "pool": pool.id, "revision": pool.revision, "name": pool.name,
                "queue": pool.queue, "rank": values["rank"], "shape": each.route.shape,
                "line": _hex(each.route.digest), "lanes": each.route.lanes,
            }  # fmt: skip
        claims.append({
            "n": n, "of": pool.id, "caller": callers.setdefault(each.cached_token, len(callers)),
            "owner": values["owner"], "requested_by": values["requested_by"], "key": values["key"],
            "digest": _hex(values["digest"]), "spec": values["spec"], "step": values["step"],
            "actor": values["actor"],
        })  # fmt: skip
    known = [
        {"n": n}
        if cached_token is None
        else {"n": n, "token": cached_token.hash, "told": cached_token.facts}
        for cached_token, n in callers.items()
    ]
    # Sorted by pool, since the statement locks the pools in this order.
    in_order = [{**lines[pool], "count": counts[pool]} for pool in sorted(lines)]
    return claims_sql.create_gathered(
        MAX_BATCH,
        lines=json.dumps(in_order),
        callers=json.dumps(known),
        claims=json.dumps(claims),
    )


def _hex(value: bytes | None) -> str | None:
    return None if value is None else f"\\x{value.hex()}"


def notify_batch(batch: Sequence[PendingCreate]) -> None:
    made = [(each.claim.state, each.route.found) for each in batch if each.claim is not None]
    if not made:
        return
    pools = {pool.id: pool for _, found in made for pool in found}
    states = {state for state, _ in made}
    try:
        notify_made(
            list(pools.values()), any_bound="bound" in states, any_waiting="waiting" in states
        )
    except Exception as error:
        # The claims exist, and every receiver also looks by timer.
        logger.warning("new claims were not announced, controllers find them by timer: %s", error)


def fail_all(batch: Sequence[PendingCreate], error: BaseException) -> None:
    for each in batch:
        each.claim, each.error = None, error


_used = threading.local()


def check_connection() -> None:
    """Replaces a connection that died while idle before a claim uses it. The end of a dead
    connection can be read from its socket, unless the network has swallowed it.
    """
    now = time.monotonic()
    if connection.errors_occurred or now - getattr(_used, "at", 0.0) > IDLE or has_unread_data():
        connection.close_if_unusable_or_obsolete()
        if connection.connection is not None and not connection.is_usable():
            connection.close()
    _used.at = now


def has_unread_data() -> bool:
    """Whether the server has sent data between two statements. Takes a microsecond and no round
    trip.
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
