"""Binds waiting claims to free slots. One step reads the queues that have work, not their claims.

Queues of simple claims are served in batches: one statement takes the first claims of all queues
that accept a lane, in the order of their turns, and the same number of free slots. A claim that is
not simple is tried alone when its turn comes. If it does not fit, smaller claims may pass it; the
slots that they take are counted on its row (`passed`) and never exceed its size. Row locks
coordinate any number of allocators.
"""

import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from django.db import transaction

from claims import claims_sql, pairs_sql
from claims.allocation.bind import bind_claim
from claims.allocation.metrics import BOUND, WAITED
from claims.allocation.queues.queue_reasons import reason_of, write_reasons
from claims.allocation.queues.wait_queue import STALE, AllocationResult, WaitQueue
from claims.allocation.requests.demands import (
    is_simple_demand,
    kind_in,
    lanes_in,
    slot_demand_in,
    slot_demand_of,
)
from claims.allocation.requests.policy import (
    HOLDERS_LEAVE,
    Passing,
    Turn,
    WaitingHead,
    choose_heads,
    choose_passings,
)  # fmt: skip
from claims.allocation.requests.pool_facts import (
    PoolFacts,
    find_pools,
    find_pools_by_id,
)
from claims.statements import repeat
from pools.config.layout import NODE, PAIRED
from project.kernel.actor import current_actor
from project.kernel.events.notify import publish

BATCH = 200  # claims in one statement: below 20 ms, and an eighth less work for each than with 100
BATCHES = 10  # of one lane in one step; then the allocator serves the other pools
# Seconds of serving in one step. After a step, notifications are sent and the process may stop.
MAX_STEP_SECONDS = 0.5
TRIED_BY_ONE = 40  # claims that are not simple, of one pool in one step
ADOPTED = 500
LAST = (2**15 - 1, 2**63 - 1)  # a rank and id behind every claim

# Called in this order before the queues are served. Each function binds claims that go first, and
# returns their number.
served_first: list[Callable[[], int]] = []


def allocate() -> AllocationResult:
    """One step of the allocator."""
    step = AllocationResult()
    step.bound += sum(serve() for serve in served_first)
    queues = _read_queues()
    _resolve_pools(queues)
    write_reasons(_serve(queues, step), step)
    if step.bound:
        publish("events", *(["operations"] if step.has_operations else []))
        BOUND.inc(step.bound)
    return step


# -- reading ---------------------------------------------------------------------------------------


def _read_queues() -> list[WaitQueue]:
    found = []
    for row in claims_sql.queues_with_work(stale=STALE):
        found.append(
            WaitQueue(
                shape=row.shape,
                names=row.pools,
                kind=row.kind,
                lanes=row.lanes,
                wanted=slot_demand_of(row.size, json.loads(row.terms)),
                is_simple=row.is_simple,
                turn=Turn(row.rank, row.claim),
                pool_id=row.pool_id,
                waited=row.waited,
                tried=row.tried,
                stored_reason=None if row.wait_reason is None else json.loads(row.wait_reason),
                stored_lanes=row.lanes,
                total=row.total,
                passed=row.passed,
                free_lanes=set(row.free_lanes),
            )
        )
    return found


def _resolve_pools(queues: list[WaitQueue]) -> None:
    """Sets the present pools of each queue: found by id for queues of one pool, by name for queues
    of several pools and of missing pools.
    """
    by_id = find_pools_by_id({queue.pool_id for queue in queues if queue.pool_id is not None})
    names = set[str]()
    for queue in queues:
        if len(queue.names) > 1 or queue.pool_id is None:
            names.update(queue.names)
        elif by_id[queue.pool_id].state == "gone":
            names.add(queue.names[0])
    by_name = find_pools(names) if names else {}
    for queue in queues:
        first = None if queue.pool_id is None else by_id[queue.pool_id]
        if first is None or first.state == "gone":
            first = _change_pool(queue, first, by_name.get(queue.names[0]))
        queue.pools = (first, *(by_name.get(name) for name in queue.names[1:]))
        queue.kind = kind_in(queue.pools, queue.kind)
        queue.lanes = lanes_in(queue.pools, queue.kind, queue.wanted.parts)
        _update_simple(queue)
        if queue.lanes != queue.stored_lanes:
            queue.free_lanes = set(queue.lanes)  # try it in this step


def _update_simple(queue: WaitQueue) -> None:
    """The pools of the queue decide whether each number takes two slots, and whether a slot is a
    node. They may be newer than the queue.
    """
    if queue.kind in PAIRED or queue.wanted.parts:
        queue.wanted = slot_demand_in(queue.wanted, queue.pools, queue.kind)
    elif NODE not in queue.lanes:
        return
    is_simple = is_simple_demand(queue.wanted, queue.names, queue.lanes)
    if is_simple != queue.is_simple:
        pairs_sql.mark_simple(shape=queue.shape, is_simple=is_simple)
        queue.is_simple = is_simple


def _change_pool(
    queue: WaitQueue, before: PoolFacts | None, after: PoolFacts | None
) -> PoolFacts | None:
    """Moves the queue from a deleted pool to the new pool of the same name, if there is one."""
    actor = current_actor()
    if before is not None:
        while (
            len(claims_sql.disown(ADOPTED, shape=queue.shape, pool=before.id, actor=actor))
            == ADOPTED
        ):
            pass
        queue.pool_id = None
        publish("events")
    if after is None or after.state == "deleting":
        return None
    lease = after.spec.lease
    limits = {"acknowledge": lease.acknowledge, "heartbeat": lease.heartbeat, "hold": lease.hold}
    text = json.dumps({name: seconds for name, seconds in limits.items() if seconds is not None})
    while (
        len(claims_sql.adopt(ADOPTED, shape=queue.shape, pool=after.id, lease=text, actor=actor))
        == ADOPTED
    ):
        pass
    if not queue.kind:
        claims_sql.name_kind(shape=queue.shape, kind=kind_in([after], ""))
    queue.pool_id = after.id
    # Try it in this step.
    queue.free_lanes = set(lanes_in([after], queue.kind, queue.wanted.parts))
    publish("events")
    return after


# -- serving ---------------------------------------------------------------------------------------


def _serve(queues: Sequence[WaitQueue], step: AllocationResult) -> list[WaitQueue]:
    """Serves pool by pool for at most MAX_STEP_SECONDS. Returns the queues without those of the
    pools that it did not reach.
    """
    began = time.monotonic()
    by_pool: dict[int, list[WaitQueue]] = defaultdict(list)
    for queue in queues:
        if queue.is_whole and queue.lanes:
            for pool in queue.found:
                by_pool[pool.id].append(queue)
    pool_ids = list(by_pool)
    random.shuffle(pool_ids)  # several allocators begin with different pools
    while pool_ids and time.monotonic() - began < MAX_STEP_SECONDS:
        pool_id = pool_ids.pop()
        _serve_pool(pool_id, by_pool[pool_id], step)
    step.is_more = step.is_more or bool(pool_ids)
    missed = {id(queue) for pool_id in pool_ids for queue in by_pool[pool_id]}
    return [queue for queue in queues if id(queue) not in missed]


def _serve_pool(pool_id: int, queues: list[WaitQueue], step: AllocationResult) -> None:
    """Serves all claims in the order of their turns: a batch of simple claims, then the next claim
    that is not simple, and so on. Of a queue that is not simple, a step binds the first claim only;
    it leaves the slots to the next claim of that queue and ends before that claim's turn.
    """
    serving = _Serving(
        next(p for p in queues[0].found if p.id == pool_id),
        [queue for queue in queues if queue.is_simple],
        step,
    )
    rest = sorted((queue for queue in queues if not queue.is_simple), key=lambda queue: queue.turn)
    chosen = {
        head.shape
        for head in choose_heads([queue.head() for queue in rest if queue.free_lanes], TRIED_BY_ONE)
    }
    end: Turn | None = None  # later claims wait for the next step
    for queue in rest:
        if end is not None and end < queue.turn:
            break
        serving.serve_before(queue.turn)
        is_tried = queue.shape in chosen and queue.found[0].id == pool_id
        if queue.is_done or (is_tried and _try_one(queue, step)):
            if queue.following is not None:
                end = min(end or queue.following, queue.following)
        elif reason_of(queue, step) in HOLDERS_LEAVE:
            serving.waiters.append(queue.waiter())
    serving.serve_before(end)
    step.is_more = step.is_more or end is not None


class _Serving:
    """The simple queues of one pool in one step."""

    def __init__(self, pool: PoolFacts, queues: list[WaitQueue], step: AllocationResult) -> None:
        self.pool, self.step = pool, step
        self.heads: dict[int, Turn] = {queue.shape: queue.turn for queue in queues}
        # Only lanes that were free when the queues were read: all queues that accept such a lane
        # were read then.
        self.shapes = {
            lane: [queue.shape for queue in queues if lane in queue.free_lanes]
            for lane in _lanes_in_order(pool)
        }
        self.waiters: list[WaitingHead] = []  # claims that were not served, by their turns

    def serve_before(self, before: Turn | None) -> None:
        """Serves the claims that come before `before`. Lanes that accept few kinds come first, so
        claims fill them before they compete for the other lanes.
        """
        for lane, shapes in self.shapes.items():
            if not self._stands_before(before, shapes):
                continue
            self._serve_lane(lane, before)
            if before is not None:
                self._read_heads()
                # The lane has no slot left, so the claims behind get none either.
                if self._stands_before(before, shapes):
                    self.shapes[lane] = []

    def _stands_before(self, before: Turn | None, shapes: list[int]) -> bool:
        heads = [self.heads[shape] for shape in shapes if shape in self.heads]
        return bool(heads) and (before is None or min(heads) < before)

    def _read_heads(self) -> None:
        rows = claims_sql.heads_of_queues(shapes=list(self.heads))
        self.heads = {row.shape: Turn(row.rank, row.claim) for row in rows}

    def _serve_lane(self, lane: str, before: Turn | None) -> None:
        ahead = [waiter for waiter in self.waiters if lane in waiter.lanes]
        for passing in choose_passings(ahead) if ahead else [None]:
            for _ in range(BATCHES):
                count = self._bind_batch(lane, before, passing)
                self.step.bound += count
                if count:
                    self.step.bound_pools.add(self.pool.id)
                    self.step.has_operations = self.step.has_operations or bool(self.pool.queue)
                if count < BATCH:
                    break
            else:
                self.step.is_more = True

    def _bind_batch(self, lane: str, before: Turn | None, passing: Passing | None) -> int:
        rows = repeat(lambda: self._bind(lane, before, passing))
        waited = WAITED.labels(self.pool.name)
        for row in rows:
            waited.observe(row.waited)
        return len(rows)

    def _bind(
        self, lane: str, before: Turn | None, passing: Passing | None
    ) -> list[claims_sql.BindBatchRow]:
        pool, shapes, actor = self.pool, self.shapes[lane], current_actor()
        rank, claim = LAST if before is None else (before.rank, before.claim)
        if passing is not None:
            kept = [json.dumps(dict(labels)) for labels in passing.kept]
            return claims_sql.bind_batch_past(
                BATCH, shapes=shapes, pool=pool.id, lane=lane, queue=pool.queue, actor=actor,
                rank=rank, claim=claim, waiters=passing.waiters, kept=kept,
            )  # fmt: skip
        if before is not None:
            return claims_sql.bind_batch_before(
                BATCH, shapes=shapes, pool=pool.id, lane=lane, queue=pool.queue, actor=actor,
                rank=rank, claim=claim,
            )  # fmt: skip
        return claims_sql.bind_batch(
            BATCH, shapes=shapes, pool=pool.id, lane=lane, queue=pool.queue, actor=actor
        )


def _lanes_in_order(pool: PoolFacts) -> list[str]:
    classes = pool.spec.layout.classes
    return [c.lane for c in sorted(classes, key=lambda c: len(c.accepts))]


def _try_one(queue: WaitQueue, step: AllocationResult) -> bool:
    """Binds the first claim of a queue that is not simple to all its slots, or to none."""

    def bind() -> bool:
        with transaction.atomic():
            return bind_claim(
                queue.turn.claim, queue.wanted, queue.found, queue.kind, may_pass=True
            )

    queue.was_tried = True
    if not repeat(bind):
        return False
    queue.is_done = True
    for row in claims_sql.heads_of_queues(shapes=[queue.shape]):
        queue.following = Turn(row.rank, row.claim)
    step.bound += 1
    step.bound_pools |= {pool.id for pool in queue.found}
    WAITED.labels(queue.known_name).observe(queue.waited)
    return True
