"""Matching those who wait with what is free. One step looks at the lines that have work, never at
everybody in them.

Lines of simple claims are served in batches: one statement takes the heads of all lines that accept
a lane, in the order of their turns, and as many free slots. A claim that is not simple is tried by
itself when its turn comes among them. If it does not fit, smaller claims may pass it: they take no
more slots than it needs, counted on its row (`passed`). Row locks are the coordination: any number
of allocators may run.
"""

import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from claims import claims_sql, pairs_sql
from claims.allocation.bind import bind_claim
from claims.allocation.metrics import BOUND, FAILED, WAITED
from claims.allocation.requests.policy import (
    HOLDERS_LEAVE,
    Offer,
    Passing,
    PoolState,
    QueueHead,
    SlotDemand,
    Turn,
    WaitingHead,
    choose_heads,
    choose_passings,
    find_reason,
    find_refusal,
    is_passable,
)  # fmt: skip
from claims.allocation.requests.resolve import (
    PoolFacts,
    find_pools,
    kind_in,
    lanes_in,
    offer_of,
    slot_demand_in,
    slot_demand_of,
)
from claims.allocation.scale_request import request_scaling
from claims.statements import repeat
from pools.config.layout import PAIRED
from pools.lifecycle.selectors import read_stored
from project.kernel.actor import current_actor
from project.kernel.events.notify import publish

BoundRow = claims_sql.BindBatchRow | claims_sql.BindBatchBeforeRow | claims_sql.BindBatchPastRow
BATCH = 200  # claims in one statement: below 20 ms, and an eighth less work for each than with 100
BATCHES = 10  # of one lane in one step; then the other pools have their turn
# Seconds of serving in one step: then whoever was served is heard of, and a wish to stop is heard.
LONGEST = 0.5
TRIED_BY_ONE = 40  # heads that are not simple, of one pool in one step
STALE = 20.0  # seconds after which a line is looked at though nothing is free for it
SETTLED = 1.0  # between two notes that a line was tried: whose turn it is to be tried rests on them
ADOPTED = 500
LAST = (2**15 - 1, 2**63 - 1)  # behind every claim: rank and id

# Called in this order before the queues are served. Each binds claims that go first, and returns
# how many it has bound.
served_first: list[Callable[[], int]] = []


@dataclass
class WaitQueue:
    """Those who ask for the same, as their head stands now."""

    shape: int
    names: list[str]
    kind: str
    lanes: list[str]
    wanted: SlotDemand
    is_simple: bool
    turn: Turn
    pool_id: int | None
    waited: float
    tried: float | None
    noted: Mapping[str, Any] | None
    stored_lanes: list[str]
    total: int = 1  # slots of the head in all its pools
    passed: int = 0
    free_lanes: set[str] = field(default_factory=set)  # of its first pool, as they were read
    is_free: bool = False
    pools: tuple[PoolFacts | None, ...] = ()
    is_done: bool = False  # its head was bound in this step
    was_tried: bool = False
    code: str = ""  # why it waits, once that was asked

    @property
    def found(self) -> list[PoolFacts]:
        return [pool for pool in self.pools if pool is not None]

    @property
    def is_whole(self) -> bool:
        return all(pool is not None and pool.state == "active" for pool in self.pools)

    @property
    def known_name(self) -> str:
        """Of its first pool, "" while that does not exist: a label of metrics is never a
        caller's own word.
        """
        return self.found[0].name if self.found else ""

    def head(self) -> QueueHead:
        return QueueHead(self.turn, self.shape, self.is_simple, self.tried)

    def waiter(self) -> WaitingHead:
        return WaitingHead(
            self.turn.claim,
            self.total,
            self.passed,
            self.waited,
            frozenset(self.lanes),
            self.wanted.selector,
        )


@dataclass
class AllocationResult:
    """What one step did and found out."""

    bound: int = 0
    is_more: bool = False
    states: dict[int, Any] = field(default_factory=dict)
    offers: dict[tuple[int, int, str, bool], Offer] = field(default_factory=dict)
    bound_pools: set[int] = field(default_factory=set)
    has_operations: bool = False


def allocate(*, only_pools: Iterable[int] | None = None) -> AllocationResult:
    """One step. `only_pools`: no others are served; their reasons are not looked at either."""
    step = AllocationResult()
    if only_pools is None:
        step.bound += sum(serve() for serve in served_first)
    lines = _read_queues()
    if only_pools is not None:
        wanted = set(only_pools)
        lines = [line for line in lines if line.pool_id in wanted]
    lines = _resolve_pools(lines)
    reached = _serve(lines, step)
    if only_pools is None:
        _write_reasons(reached, step)
    if step.bound:
        publish("events", *(["operations"] if step.has_operations else []))
        BOUND.inc(step.bound)
    return step


# -- reading ---------------------------------------------------------------------------------------


def _read_queues() -> list[WaitQueue]:
    found = []
    for row in claims_sql.lines(stale=STALE):
        terms = json.loads(row.terms)
        found.append(
            WaitQueue(
                shape=row.shape,
                names=row.pools,
                kind=row.kind,
                lanes=row.lanes,
                wanted=slot_demand_of(row.size, terms),
                is_simple=row.is_simple,
                turn=Turn(row.rank, row.claim),
                pool_id=row.pool_id,
                waited=row.waited,
                tried=row.tried,
                noted=None if row.wait_reason is None else json.loads(row.wait_reason),
                stored_lanes=row.lanes,
                total=row.total,
                passed=row.passed,
                free_lanes=set(row.free_lanes),
                is_free=bool(row.free_lanes),
            )
        )
    return found


def _resolve_pools(lines: list[WaitQueue]) -> list[WaitQueue]:
    """Gives every line its pools as they are now: found by id for the simple ones, by name where
    there are several or none yet.
    """
    by_id = _read_pools({line.pool_id for line in lines if line.pool_id is not None})
    names = {
        name for line in lines if len(line.names) > 1 or line.pool_id is None for name in line.names
    }
    names |= {
        line.names[0]
        for line in lines
        if line.pool_id is not None and by_id[line.pool_id].state == "gone"
    }
    by_name = find_pools(names) if names else {}
    for line in lines:
        first = None if line.pool_id is None else by_id[line.pool_id]
        if first is None or first.state == "gone":
            first = _change_pool(line, first, by_name.get(line.names[0]))
        line.pools = (first, *(by_name.get(name) for name in line.names[1:]))
        line.kind = kind_in(line.pools, line.kind)
        line.lanes = lanes_in(line.pools, line.kind)
        _pair(line)
        if line.lanes != line.stored_lanes:
            line.is_free, line.free_lanes = True, set(line.lanes)  # worth a try
    return lines


def _pair(line: WaitQueue) -> None:
    """Whether its numbers take two slots each is said by its pools, and they may have come later
    than the line.
    """
    if line.kind not in PAIRED:
        return
    wanted = line.wanted = slot_demand_in(line.wanted, line.pools, line.kind)
    is_simple = (
        wanted.size == 1 and len(line.names) == 1 and not wanted.selector and not wanted.is_paired
    )
    if is_simple != line.is_simple:
        pairs_sql.mark_simple(shape=line.shape, is_simple=is_simple)
        line.is_simple = is_simple


def _read_pools(ids: Iterable[int]) -> dict[int, PoolFacts]:
    rows = claims_sql.pools_by_id(pools=list(ids))
    return {
        r.id: PoolFacts(
            r.id, r.name, r.revision, r.state, r.queue, r.provider, read_stored(r.name, r.spec)
        )
        for r in rows
    }


def _change_pool(
    line: WaitQueue, before: PoolFacts | None, after: PoolFacts | None
) -> PoolFacts | None:
    """A pool has appeared under the name the line waits for, or the one it waited in is gone."""
    if before is not None:
        while (
            len(claims_sql.disown(ADOPTED, shape=line.shape, pool=before.id, actor=current_actor()))
            == ADOPTED
        ):
            pass
        line.pool_id = None
        publish("events")
    if after is None or after.state == "deleting":
        return None
    lease = after.spec.lease
    limits = {"acknowledge": lease.acknowledge, "heartbeat": lease.heartbeat, "hold": lease.hold}
    text = json.dumps({name: seconds for name, seconds in limits.items() if seconds is not None})
    values: dict[str, Any] = {
        "shape": line.shape,
        "pool": after.id,
        "lease": text,
        "actor": current_actor(),
    }
    while len(claims_sql.adopt(ADOPTED, **values)) == ADOPTED:
        pass
    if not line.kind:
        claims_sql.name_kind(shape=line.shape, kind=kind_in([after], ""))
    line.pool_id = after.id
    line.is_free, line.free_lanes = True, set(after.lanes_for(line.kind))  # worth a try
    publish("events")
    return after


# -- serving ---------------------------------------------------------------------------------------


def _serve(lines: Sequence[WaitQueue], step: AllocationResult) -> list[WaitQueue]:
    """Pool by pool, until it has taken long enough; the lines of pools that it did not reach are
    left out of the answer.
    """
    began = time.monotonic()
    by_pool: dict[int, list[WaitQueue]] = defaultdict(list)
    for line in lines:
        if line.is_whole and line.lanes:
            for pool in line.found:
                by_pool[pool.id].append(line)
    pool_ids = list(by_pool)
    random.shuffle(pool_ids)  # several allocators begin at different ends
    while pool_ids and time.monotonic() - began < LONGEST:
        pool_id = pool_ids.pop()
        _serve_pool(pool_id, by_pool[pool_id], step)
    step.is_more = step.is_more or bool(pool_ids)
    missed = {id(line) for pool_id in pool_ids for line in by_pool[pool_id]}
    return [line for line in lines if id(line) not in missed]


def _serve_pool(pool_id: int, lines: list[WaitQueue], step: AllocationResult) -> None:
    """Everybody in the order of their turns: batches of simple ones up to the next that is not,
    then that one by itself.
    """
    serving = _Serving(
        next(p for p in lines[0].found if p.id == pool_id),
        [line for line in lines if line.is_simple],
        step,
    )
    others = sorted((line for line in lines if not line.is_simple), key=lambda line: line.turn)
    chosen = {
        head.shape
        for head in choose_heads([line.head() for line in others if line.is_free], TRIED_BY_ONE)
    }
    for line in others:
        serving.serve_before(line.turn)
        if line.is_done:
            continue
        if line.shape in chosen and line.found[0].id == pool_id and _try_one(line, step):
            continue
        if _reason_of(line, step) in HOLDERS_LEAVE:
            serving.waiters.append(line.waiter())
    serving.serve_before(None)


class _Serving:
    """The simple lines of one pool in one step."""

    def __init__(self, pool: PoolFacts, lines: list[WaitQueue], step: AllocationResult) -> None:
        self.pool, self.step = pool, step
        self.heads: dict[int, Turn] = {line.shape: line.turn for line in lines}
        # Of lanes that were free when the lines were read: every line that takes slots of these was
        # read, too.
        self.shapes = {
            lane: [line.shape for line in lines if lane in line.free_lanes]
            for lane in _lanes_in_order(pool)
        }
        self.waiters: list[WaitingHead] = []  # that were not served, in the order of their turns

    def serve_before(self, before: Turn | None) -> None:
        """The lanes pickiest first, so that claims that fit few slots elsewhere fill these
        before they compete for the others.
        """
        for lane, shapes in self.shapes.items():
            if not self._stands_before(before, shapes):
                continue
            self._serve_lane(lane, before)
            if before is not None:
                self._read_heads()
                # Nothing is left of this lane for those behind either.
                if self._stands_before(before, shapes):
                    self.shapes[lane] = []

    def _stands_before(self, before: Turn | None, shapes: list[int]) -> bool:
        heads = [self.heads[shape] for shape in shapes if shape in self.heads]
        return bool(heads) and (before is None or min(heads) < before)

    def _read_heads(self) -> None:
        rows = claims_sql.heads_of_lines(shapes=list(self.heads))
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
        pool = self.pool
        values: dict[str, Any] = {
            "shapes": self.shapes[lane],
            "pool": pool.id,
            "lane": lane,
            "queue": pool.queue,
            "actor": current_actor(),
        }
        bind: Callable[..., Sequence[BoundRow]] = claims_sql.bind_batch
        if passing is not None:
            rank, claim = LAST if before is None else (before.rank, before.claim)
            kept = [json.dumps(dict(labels)) for labels in passing.kept]
            values |= {"waiters": passing.waiters, "kept": kept, "rank": rank, "claim": claim}
            bind = claims_sql.bind_batch_past
        elif before is not None:
            values |= {"rank": before.rank, "claim": before.claim}
            bind = claims_sql.bind_batch_before
        rows = repeat(lambda: bind(BATCH, **values))
        waited = WAITED.labels(pool.name)
        for row in rows:
            waited.observe(row.waited)
        return len(rows)


def _lanes_in_order(pool: PoolFacts) -> list[str]:
    classes = pool.spec.layout.classes
    return [c.lane for c in sorted(classes, key=lambda c: len(c.accepts))]


def _try_one(line: WaitQueue, step: AllocationResult) -> bool:
    """The head of a line that is not simple: all it asks for, or nothing."""

    def bind() -> bool:
        with transaction.atomic():
            return bind_claim(line.turn.claim, line.wanted, line.found, line.kind, may_pass=True)

    line.was_tried = True
    if not repeat(bind):
        return False
    line.is_done = True
    step.bound += 1
    step.bound_pools |= {pool.id for pool in line.found}
    WAITED.labels(line.known_name).observe(line.waited)
    return True


# -- saying why ------------------------------------------------------------------------------------


def _write_reasons(lines: Sequence[WaitQueue], step: AllocationResult) -> None:
    """The reason of every line that was looked at: one write a line, and only where it says
    something new or is getting old.
    """
    shapes, reasons, lanes, asking = [], [], [], set()
    for line in lines:
        if line.is_done:
            continue
        if step.bound_pools & {pool.id for pool in line.found}:
            line.code = ""  # what it found free may be taken by now
        code = _reason_of(line, step)
        reason = {"code": code, "passable": is_passable(code, is_simple=line.is_simple)}
        is_old = line.tried is None or line.tried >= (SETTLED if line.was_tried else STALE)
        if line.noted is None or line.noted.get("code") != code:
            FAILED.labels(line.known_name, code).inc()
        if is_old or reason != line.noted or line.lanes != line.stored_lanes:
            shapes.append(line.shape)
            reasons.append(json.dumps(reason))
            lanes.append(json.dumps(line.lanes))
        asking |= {
            pool.id
            for pool in line.found
            if code not in ("next", "pool_paused") and not _state_row(pool.id, step).is_asked
        }
    if shapes:
        repeat(lambda: claims_sql.note_lines(shapes=shapes, reasons=reasons, lanes=lanes))
    if asking:
        request_scaling(asking)


def _reason_of(line: WaitQueue, step: AllocationResult) -> str:
    line.code = line.code or find_reason(
        line.wanted, [_state_of(line, pool, step) for pool in line.pools]
    )
    return line.code


def _state_of(line: WaitQueue, pool: PoolFacts | None, step: AllocationResult) -> PoolState:
    if pool is None:
        return PoolState()
    row = _state_row(pool.id, step)
    refusal = find_refusal(line.wanted, [_offer_of(line, pool, step)])
    has_labels = is_willing = True
    if line.wanted.selector:
        found = claims_sql.label_states(pool=pool.id, labels=json.dumps(dict(line.wanted.selector)))
        has_labels, is_willing = (
            bool(found and found.has_labels),
            bool(found and found.is_labelled_willing),
        )
    return PoolState(
        state=row.state,
        is_paused=row.is_paused,
        refusal=refusal.code if refusal else "",
        has_member=row.has_member,
        is_any_willing=row.is_any_willing,
        has_labels=has_labels,
        is_labelled_willing=is_willing,
        is_free=bool(claims_sql.is_any_free(pool=pool.id, lanes=pool.lanes_for(line.kind))),
    )


def _state_row(pool_id: int, step: AllocationResult) -> Any:
    if pool_id not in step.states:
        step.states[pool_id] = claims_sql.pool_states(pools=[pool_id])
    return step.states[pool_id]


def _offer_of(line: WaitQueue, pool: PoolFacts, step: AllocationResult) -> Offer:
    with_members = line.wanted.size > 1
    key = (pool.id, pool.revision, line.kind, with_members)
    if key not in step.offers:
        step.offers[key] = offer_of(pool, line.kind, with_members=with_members)
    return step.offers[key]
