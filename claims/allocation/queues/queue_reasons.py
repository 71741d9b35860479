"""Finds and writes why the queues wait, and asks the scaler for more members."""

import json
from collections.abc import Sequence

from claims import claims_sql
from claims.allocation.metrics import FAILED
from claims.allocation.queues.wait_queue import STALE, AllocationResult, WaitQueue
from claims.allocation.requests.demands import PoolDemand, slot_demand_in
from claims.allocation.requests.policy import (
    HOLDERS_LEAVE,
    Offer,
    PoolState,
    find_joint_refusal,
    find_reason,
    find_refusal,
    is_passable,
)
from claims.allocation.requests.pool_facts import (
    PoolFacts,
    offer_of,
    read_pool_row,
    read_pool_state,
)
from claims.allocation.scale_request import request_scaling
from claims.statements import repeat

SETTLED = 1.0  # seconds between two writes of `tried_at`, which orders the queues of choose_heads


def write_reasons(queues: Sequence[WaitQueue], step: AllocationResult) -> None:
    """Writes the wait reason of each queue if it has changed or is old, and asks the scaler for
    more members.
    """
    shapes, reasons, lanes, asking = [], [], [], set()
    for queue in queues:
        if queue.is_done:
            continue
        if step.bound_pools & {pool.id for pool in queue.found}:
            queue.code = ""  # the slots that it found free may be taken by now
        code = reason_of(queue, step)
        reason = {"code": code, "passable": is_passable(code, is_simple=queue.is_simple)}
        is_old = queue.tried is None or queue.tried >= (SETTLED if queue.was_tried else STALE)
        if queue.stored_reason is None or queue.stored_reason.get("code") != code:
            FAILED.labels(queue.known_name, code).inc()
        if is_old or reason != queue.stored_reason or queue.lanes != queue.stored_lanes:
            shapes.append(queue.shape)
            reasons.append(json.dumps(reason))
            lanes.append(json.dumps(queue.lanes))
        if code not in ("next", "pool_paused"):
            asking |= {
                pool.id for pool in queue.found if not read_pool_row(pool.id, step.states).is_asked
            }
    if shapes:
        repeat(lambda: claims_sql.write_reasons(shapes=shapes, reasons=reasons, lanes=lanes))
    if asking:
        request_scaling(asking)


def reason_of(queue: WaitQueue, step: AllocationResult) -> str:
    queue.code = queue.code or _find_code(queue, step)
    return queue.code


def _find_code(queue: WaitQueue, step: AllocationResult) -> str:
    """The reason of the first part that does not fit. Parts that fit one by one, and not together,
    are short of slots.
    """
    demands = queue.demands
    codes = [
        find_reason(demand.wanted, [_state_of(demand, pool, step) for pool in demand.pools])
        for demand in demands
    ]
    if len(codes) == 1:
        return codes[0]
    if (hopeless := next((code for code in codes if code not in HOLDERS_LEAVE), "")) != "":
        return hopeless
    pairs = [
        (slot_demand_in(demand.wanted, [pool], demand.kind), _offer_in(demand, pool, step, True))
        for demand in demands
        for pool in demand.found
    ]
    if refusal := find_joint_refusal(pairs):
        return refusal.code
    return next((code for code in codes if code != "next"), "not_enough")


def _state_of(demand: PoolDemand, pool: PoolFacts | None, step: AllocationResult) -> PoolState:
    if pool is None:
        return PoolState()
    offer = _offer_in(demand, pool, step, demand.wanted.size > 1)
    refusal = find_refusal(demand.wanted, [offer])
    row = read_pool_row(pool.id, step.states)
    return read_pool_state(pool, row, demand.wanted, demand.kind, refusal)


def _offer_in(
    demand: PoolDemand, pool: PoolFacts, step: AllocationResult, with_members: bool
) -> Offer:
    key = (pool.id, pool.revision, demand.kind, with_members)
    if key not in step.offers:
        step.offers[key] = offer_of(pool, demand.kind, with_members=with_members)
    return step.offers[key]
