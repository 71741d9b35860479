"""Finds and locks the slots of a claim of several parts.

The parts that any slot of the same lanes serves are searched together, group after group: first
equal numbers in several pools, then numbers in TCP and UDP, then other numbers, because each of
these searches has more choice than the one before. SKIP LOCKED does not pass over the locks of the
own transaction, so each search reads further by the slots that earlier searches have taken, and
leaves these out.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from claims import claims_sql, pairs_sql
from claims.allocation.requests.demands import PoolDemand, split_demand
from claims.allocation.requests.policy import PartDemand, SlotDemand
from claims.allocation.requests.pool_facts import PoolFacts
from claims.allocation.search.number_match import find_matched
from pools.config.layout import NODE
from slots.members import members_sql


class TakenPlace(NamedTuple):
    pool: int
    lane: str
    member: int
    number: int


Taken = dict[int, TakenPlace]  # by the id of the slot
PartKey = tuple[str, tuple[str, ...], bool]


def find_part_slots(
    wanted: SlotDemand, pools: Sequence[PoolFacts], kind: str, claim: int
) -> list[int] | None:
    """Ids in the order of their ordinals: number after number in the order of the parts, and of
    each number the slots in all pools of its part. None: too few slots are free.
    """
    taken: Taken = {}
    found: dict[PartKey, list[list[int]]] = {}
    demands = split_demand(wanted, pools, [pool.name for pool in pools], kind)
    for alike in _group(sorted(demands, key=_choice)):
        total = sum(demand.wanted.size for demand in alike)
        together = replace(alike[0], wanted=replace(alike[0].wanted, size=total))
        numbers = _search(together, taken, claim)
        if numbers is None:
            return None
        for demand in alike:
            found[demand.kind, demand.names, demand.wanted.same_number] = numbers
    slots = [
        slot
        for part in wanted.parts
        for _ in range(part.size)
        for slot in found[key_of(part)].pop(0)
    ]
    return slots if len(set(slots)) == len(slots) else None


def _group(demands: Sequence[PoolDemand]) -> list[list[PoolDemand]]:
    """The demands in this order; those that any slot of the same lanes serves are together, and
    need one search.
    """
    groups: dict[object, list[PoolDemand]] = {}
    for i, demand in enumerate(demands):
        wanted, pools = demand.wanted, demand.found
        is_plain = not wanted.is_paired and not (wanted.same_number and len(pools) > 1)
        lanes = tuple((pool.id, *pool.lanes_for(demand.kind)) for pool in pools)
        groups.setdefault(lanes if is_plain else i, []).append(demand)
    return list(groups.values())


def key_of(part: PartDemand) -> PartKey:
    return part.kind, part.pools, part.same_number


def _choice(demand: PoolDemand) -> tuple[bool, bool]:
    return not (demand.wanted.same_number and len(demand.pools) > 1), not demand.wanted.is_paired


def _search(demand: PoolDemand, taken: Taken, claim: int) -> list[list[int]] | None:
    """For each number, its slots in all pools of the demand."""
    wanted, pools = demand.wanted, demand.found
    if wanted.same_number and len(pools) > 1:
        but = {(place.member, place.number) for place in taken.values()}
        found = find_matched(wanted, pools, demand.kind, but)
        if found is not None:
            _take(found, taken)
    else:
        found = []
        for pool in pools:
            slots = _search_pool(wanted, pool, demand.kind, taken, claim)
            if slots is None:
                return None
            found.append(slots)
    if found is None:
        return None
    widths = [pool.width_of(demand.kind) for pool in pools]
    return [
        [
            slot
            for slots, width in zip(found, widths, strict=True)
            for slot in slots[i * width : (i + 1) * width]
        ]
        for i in range(wanted.size)
    ]


def _search_pool(
    wanted: SlotDemand, pool: PoolFacts, kind: str, taken: Taken, claim: int
) -> list[int] | None:
    used = defaultdict[str, int](int)
    for place in taken.values():
        if place.pool == pool.id:
            used[place.lane] += 1
    pair = pool.pair_for(kind)
    if pair is not None:
        return _pairs(wanted, pool, pair, sum(used[lane] for lane in pair), taken)
    found: list[int] = []
    for lane in pool.lanes_for(kind):
        left = wanted.size - len(found)
        if lane == NODE and left == 1 and not used[lane]:
            earlier = claims_sql.earlier_claim(pool=pool.id, lane=lane, claim=claim)
            before = [] if earlier is None else [earlier]
            rows = members_sql.find_node(
                pool=pool.id, lane=lane, claim=claim, labels=wanted.labels, earlier_claims=before
            )
        elif wanted.selector:
            rows = members_sql.find_labelled(
                left + used[lane], pool=pool.id, lane=lane, labels=wanted.labels
            )
        else:
            rows = members_sql.find_any(left + used[lane], pool=pool.id, lane=lane)
        free = [row for row in rows if row.id not in taken][:left]
        taken |= {row.id: TakenPlace(pool.id, lane, row.member_id, row.number) for row in free}
        found += [row.id for row in free]
        if len(found) == wanted.size:
            return found
    return None


def _pairs(
    wanted: SlotDemand, pool: PoolFacts, pair: tuple[str, str], used: int, taken: Taken
) -> list[int] | None:
    lane, other = pair
    if wanted.selector:
        rows = pairs_sql.find_labelled_pairs(
            wanted.size + used, pool=pool.id, lane=lane, other=other, labels=wanted.labels
        )
    else:
        rows = pairs_sql.find_pairs(wanted.size + used, pool=pool.id, lane=lane, other=other)
    free = [row for row in rows if row.id not in taken and row.other_id not in taken]
    if len(free) < wanted.size:
        return None
    found: list[int] = []
    for row in free[: wanted.size]:
        taken[row.id] = TakenPlace(pool.id, lane, row.member_id, row.number)
        taken[row.other_id] = TakenPlace(pool.id, other, row.member_id, row.number)
        found += [row.id, row.other_id]
    return found


def _take(found: Sequence[Sequence[int]], taken: Taken) -> None:
    ids = [slot for slots in found for slot in slots]
    for row in pairs_sql.places_of(slots=ids):
        taken[row.id] = TakenPlace(row.pool_id, row.lane, row.member_id, row.number)
