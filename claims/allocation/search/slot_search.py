"""Finds and locks the slots of a claim that is not simple: several slots, numbers in a row, one
member, labels, several pools, TCP and UDP together.

The search runs in the transaction that binds the slots. It locks with SKIP LOCKED, so it passes
over slots that another transaction is about to take. It returns None if it finds too few slots;
its locks end with the transaction.

A number takes one slot, or two in a pool with separate slots for TCP and UDP. The slots of one
number are adjacent in the result.
"""

from collections.abc import Sequence
from dataclasses import replace

from claims import claims_sql, pairs_sql
from claims.allocation.requests.policy import SlotDemand
from claims.allocation.requests.pool_facts import PoolFacts
from claims.allocation.search.number_match import find_matched, lock_numbers
from claims.allocation.search.part_search import find_part_slots
from pools.config.layout import NODE
from slots.members import members_sql

TRIES = 3  # another transaction may take a slot between search and lock
LONG_RUN = 50  # numbers from which find_long_run is faster


def find_slots(
    wanted: SlotDemand, pools: Sequence[PoolFacts], kind: str, claim: int
) -> list[int] | None:
    """Ids in the order of their ordinals: the first slot of each pool, then the second of each. So
    a smaller size keeps the same number of slots in each pool.
    """
    if wanted.parts:
        return find_part_slots(wanted, pools, kind, claim)
    if wanted.same_number and len(pools) > 1:
        is_counted = not wanted.is_paired and not (
            wanted.on_one_member and wanted.size > 1 and not wanted.contiguous
        )
        found = (_in_all_pools if is_counted else find_matched)(wanted, pools, kind)
    else:
        found = []
        for pool in pools:
            ids = _in_one_pool(wanted, pool, kind, claim)
            if ids is None:
                return None
            found.append(ids)
    if found is None:
        return None
    widths = [pool.width_of(kind) for pool in pools]
    return [
        slot
        for i in range(wanted.size)
        for ids, width in zip(found, widths, strict=True)
        for slot in ids[i * width : (i + 1) * width]
    ]


def find_replacements(
    wanted: SlotDemand, pool: PoolFacts, kind: str, count: int, claim: int
) -> list[int] | None:
    """Slots of the pool that replace `count` lost slots of a claim."""
    return _in_one_pool(replace(wanted, size=count // pool.width_of(kind)), pool, kind, claim)


def _in_one_pool(wanted: SlotDemand, pool: PoolFacts, kind: str, claim: int) -> list[int] | None:
    pair, lanes = pool.pair_for(kind), pool.lanes_for(kind)
    if pair is not None:
        return _pairs(wanted, pool, pair)
    size, labels = wanted.size, wanted.labels
    if size > 1 and wanted.contiguous:
        return _run(pool, lanes, size, labels)
    if size > 1 and wanted.on_one_member:
        return _together(pool, lanes, size, labels)
    found: list[int] = []
    for lane in lanes:
        if size == 1 and lane == NODE:
            earlier = claims_sql.earlier_claim(pool=pool.id, lane=lane, claim=claim)
            before = [] if earlier is None else [earlier]
            node = members_sql.find_node(
                pool=pool.id, lane=lane, claim=claim, labels=labels, earlier_claims=before
            )
            found += [row.id for row in node]
        elif wanted.selector:
            labelled = members_sql.find_labelled(
                size - len(found), pool=pool.id, lane=lane, labels=labels
            )
            found += [row.id for row in labelled]
        else:
            free = members_sql.find_any(size - len(found), pool=pool.id, lane=lane)
            found += [row.id for row in free]
        if len(found) == size:
            return found
    return None


def _run(pool: PoolFacts, lanes: list[str], size: int, labels: str) -> list[int] | None:
    find = members_sql.find_long_run if size >= LONG_RUN else members_sql.find_run
    for lane in lanes:
        for _ in range(TRIES):
            at = find(size, pool=pool.id, lane=lane, step=pool.step, labels=labels)
            if at is None:
                break
            rows = members_sql.lock_run(
                size, member=at.member_id, lane=lane, number=at.number, step=pool.step
            )
            if len(rows) == size:
                return [row.id for row in rows]
    return None


def _together(pool: PoolFacts, lanes: list[str], size: int, labels: str) -> list[int] | None:
    for _ in range(TRIES):
        member = claims_sql.find_on_one(size, pool=pool.id, lanes=lanes, labels=labels)
        if member is None:
            return None
        rows = claims_sql.lock_on_one(size, member=member, lanes=lanes)
        if len(rows) == size:
            return [row.id for row in rows]
    return None


def _pairs(wanted: SlotDemand, pool: PoolFacts, pair: tuple[str, str]) -> list[int] | None:
    """Both slots of each number, on one member."""
    size, labels, (lane, other) = wanted.size, wanted.labels, pair
    if size == 1 or not (wanted.contiguous or wanted.on_one_member):
        if wanted.selector:
            rows = pairs_sql.find_labelled_pairs(
                size, pool=pool.id, lane=lane, other=other, labels=labels
            )
        else:
            rows = pairs_sql.find_pairs(size, pool=pool.id, lane=lane, other=other)
        if len(rows) < size:
            return None
        return [slot for row in rows for slot in (row.id, row.other_id)]
    for _ in range(TRIES):
        if wanted.contiguous:
            first = pairs_sql.find_paired_run(
                size, pool=pool.id, lane=lane, other=other, step=pool.step, labels=labels
            )
            if first is None:
                return None
            member_id = first.member_id
            numbers = [first.number + i * pool.step for i in range(size)]
        else:
            together = pairs_sql.find_paired_together(
                size, pool=pool.id, lane=lane, other=other, labels=labels
            )
            if together is None:
                return None
            member_id, numbers = together.member_id, together.numbers
        locked = lock_numbers(member_id, list(pair), numbers, width=2)
        if locked is not None:
            return locked
    return None


def _in_all_pools(
    wanted: SlotDemand, pools: Sequence[PoolFacts], kind: str
) -> list[list[int]] | None:
    """The same numbers in all pools."""
    ids = [pool.id for pool in pools for _ in pool.lanes_for(kind)]
    lanes = [lane for pool in pools for lane in pool.lanes_for(kind)]
    size, labels, count = wanted.size, wanted.labels, len(pools)
    for _ in range(TRIES):
        if wanted.contiguous and size > 1:
            number = claims_sql.find_common_run(
                size, pools=ids, lanes=lanes, labels=labels, count=count, step=pools[0].step
            )
            if number is None:
                return None
            found = [_run_from(pool, kind, number, size, labels) for pool in pools]
        else:
            rows = claims_sql.find_common_numbers(
                size, pools=ids, lanes=lanes, labels=labels, count=count
            )
            if len(rows) < size:
                return None
            numbers = [row.number for row in rows]
            found = [_numbers(pool, kind, numbers, labels) for pool in pools]
        if all(len(slots) == size for slots in found):
            return found
    return None


def _run_from(pool: PoolFacts, kind: str, number: int, size: int, labels: str) -> list[int]:
    at = claims_sql.find_run_from(
        size,
        pool=pool.id,
        lanes=pool.lanes_for(kind),
        number=number,
        step=pool.step,
        labels=labels,
    )
    if at is None:
        return []
    return [
        row.id
        for row in members_sql.lock_run(
            size, member=at.member_id, lane=at.lane, number=number, step=pool.step
        )
    ]


def _numbers(pool: PoolFacts, kind: str, numbers: Sequence[int], labels: str) -> list[int]:
    lanes = pool.lanes_for(kind)
    rows = [
        claims_sql.lock_common_number(pool=pool.id, lanes=lanes, number=number, labels=labels)
        for number in numbers
    ]
    return [row.id for row in rows if row is not None]
