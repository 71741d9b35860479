"""Finding and locking the slots of a claim that is not simple: several at once, in a row, on one member, with labels, in several pools.

Everything here runs in the transaction that hands the slots over, and locks with SKIP LOCKED: what somebody else is about to take is not
waited for. Fewer than asked for: None, and nothing is held back but for the locks, which go with the transaction.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from claims.policy import Wanted
from claims.routes import PoolFacts
from claims.statements import CLAIMS, SLOTS
from pools.layout import NODE

TRIES = 3  # somebody may take what was found before it is locked


def find_slots(wanted: Wanted, pools: Sequence[PoolFacts], kind: str, claim: int) -> list[int] | None:
    """Ids in the order of their ordinals: the first of each pool, then the second of each, so that a claim that shrinks shrinks evenly."""
    labels = json.dumps(dict(wanted.selector))
    if wanted.same_number and len(pools) > 1:
        found = _in_all_pools(wanted, pools, kind, labels)
    else:
        found = []
        for pool in pools:
            ids = _in_one_pool(wanted, pool, pool.lanes_for(kind), labels, claim)
            if ids is None:
                return None
            found.append(ids)
    return None if found is None else [ids[i] for i in range(wanted.size) for ids in found]


def find_instead(wanted: Wanted, pool: PoolFacts, kind: str, count: int, claim: int) -> list[int] | None:
    """So many more for a claim that has lost some of its slots and keeps the others."""
    labels = json.dumps(dict(wanted.selector))
    return _in_one_pool(replace(wanted, size=count), pool, pool.lanes_for(kind), labels, claim)


def _in_one_pool(wanted: Wanted, pool: PoolFacts, lanes: list[str], labels: str, claim: int) -> list[int] | None:
    size = wanted.size
    if size > 1 and wanted.contiguous:
        return _run(pool, lanes, size, labels)
    if size > 1 and wanted.on_one_member:
        return _together(pool, lanes, size, labels)
    found: list[int] = []
    for lane in lanes:
        if size == 1 and wanted.selector and lane == NODE:
            earlier = CLAIMS.value("earlier_claim", pool=pool.id, lane=lane, claim=claim)
            before = [] if earlier is None else [earlier]
            rows = SLOTS.rows("find_node", pool=pool.id, lane=lane, claim=claim, labels=labels, earlier_claims=before)
        elif wanted.selector:
            rows = SLOTS.rows("find_labelled", size - len(found), pool=pool.id, lane=lane, labels=labels)
        else:
            rows = SLOTS.rows("find_any", size - len(found), pool=pool.id, lane=lane)
        found += [row.id for row in rows]
        if len(found) == size:
            return found
    return None


def _run(pool: PoolFacts, lanes: list[str], size: int, labels: str) -> list[int] | None:
    for lane in lanes:
        for _ in range(TRIES):
            at = SLOTS.one("find_run", size, pool=pool.id, lane=lane, step=pool.step, labels=labels)
            if at is None:
                break
            rows = SLOTS.rows("lock_run", size, member=at.member_id, lane=lane, number=at.number, step=pool.step)
            if len(rows) == size:
                return [row.id for row in rows]
    return None


def _together(pool: PoolFacts, lanes: list[str], size: int, labels: str) -> list[int] | None:
    for _ in range(TRIES):
        member = CLAIMS.value("find_on_one", size, pool=pool.id, lanes=lanes, labels=labels)
        if member is None:
            return None
        rows = CLAIMS.rows("lock_on_one", size, member=member, lanes=lanes)
        if len(rows) == size:
            return [row.id for row in rows]
    return None


def _in_all_pools(wanted: Wanted, pools: Sequence[PoolFacts], kind: str, labels: str) -> list[list[int]] | None:
    """The same numbers everywhere."""
    places: dict[str, Any] = {
        "pools": [pool.id for pool in pools for _ in pool.lanes_for(kind)],
        "lanes": [lane for pool in pools for lane in pool.lanes_for(kind)],
        "labels": labels,
        "count": len(pools),
    }
    for _ in range(TRIES):
        if wanted.contiguous and wanted.size > 1:
            number = CLAIMS.value("find_common_run", wanted.size, step=pools[0].step, **places)
            found = None if number is None else [_run_from(pool, kind, number, wanted.size, labels) for pool in pools]
        else:
            numbers = [row.number for row in CLAIMS.rows("find_common_numbers", wanted.size, **places)]
            found = None if len(numbers) < wanted.size else [_numbers(pool, kind, numbers, labels) for pool in pools]
        if found is None:
            return None
        if all(len(ids) == wanted.size for ids in found):
            return found
    return None


def _run_from(pool: PoolFacts, kind: str, number: int, size: int, labels: str) -> list[int]:
    at = CLAIMS.one("find_run_from", size, pool=pool.id, lanes=pool.lanes_for(kind), number=number, step=pool.step, labels=labels)
    if at is None:
        return []
    return [row.id for row in SLOTS.rows("lock_run", size, member=at.member_id, lane=at.lane, number=number, step=pool.step)]


def _numbers(pool: PoolFacts, kind: str, numbers: Sequence[int], labels: str) -> list[int]:
    lanes = pool.lanes_for(kind)
    rows = [CLAIMS.one("lock_common_number", pool=pool.id, lanes=lanes, number=number, labels=labels) for number in numbers]
    return [row.id for row in rows if row is not None]
