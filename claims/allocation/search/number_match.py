"""Finds and locks the same numbers in several pools, for demands that SQL cannot count."""

from collections.abc import Collection, Sequence

from claims import pairs_sql
from claims.allocation.requests.policy import SlotDemand
from claims.allocation.requests.pool_facts import PoolFacts
from claims.allocation.search.same_number import FreeNumbers, bits_of, find_match

TRIES = 3  # another transaction may take a slot between search and lock


def lock_numbers(
    member: int, lanes: list[str], numbers: Sequence[int], *, width: int
) -> list[int] | None:
    """Locks these numbers of a member: both slots of each, or (width 1) the slot of the first lane.
    None: another transaction has taken one of them.
    """
    rows = pairs_sql.lock_numbers(member=member, lanes=lanes, numbers=list(numbers))
    found = [[row.id for row in rows if row.number == number][:width] for number in numbers]
    return (
        [slot for ids in found for slot in ids] if all(len(ids) == width for ids in found) else None
    )


def find_matched(
    wanted: SlotDemand,
    pools: Sequence[PoolFacts],
    kind: str,
    but: Collection[tuple[int, int]] = (),
) -> list[list[int]] | None:
    """The same numbers in all pools, for demands that SQL cannot count: numbers in two lanes at
    once, on one member of each pool, or beside other parts of the claim. `but`: member and number
    of places that another part takes.
    """
    for _ in range(TRIES):
        free = [_free_numbers(pool, kind, wanted.labels, but) for pool in pools]
        match = find_match(
            free,
            wanted.size,
            is_together=wanted.on_one_member,
            run=pools[0].step if wanted.contiguous else None,
        )
        if match is None:
            return None
        found = [
            _lock_match(pool, kind, match.numbers, members)
            for pool, members in zip(pools, match.members, strict=True)
        ]
        locked = [ids for ids in found if ids is not None]
        if len(locked) == len(pools):
            return locked
    return None


def _free_numbers(
    pool: PoolFacts, kind: str, labels: str, but: Collection[tuple[int, int]]
) -> list[FreeNumbers]:
    found: dict[int, int] = {}
    is_paired = pool.pair_for(kind) is not None
    lanes: dict[int, int] = {}
    for row in pairs_sql.free_numbers(pool=pool.id, lanes=pool.lanes_for(kind), labels=labels):
        taken = {number for member, number in but if member == row.member_id}
        bits = bits_of(set(row.numbers) - taken if taken else row.numbers)
        lanes[row.member_id] = lanes.get(row.member_id, 0) + 1
        before = found.get(row.member_id)
        found[row.member_id] = (
            bits if before is None else before & bits if is_paired else before | bits
        )
    return [
        FreeNumbers(member, bits)
        for member, bits in found.items()
        if bits and not (is_paired and lanes[member] < 2)
    ]


def _lock_match(
    pool: PoolFacts, kind: str, numbers: Sequence[int], members: Sequence[int]
) -> list[int] | None:
    """Locks the numbers member by member. Returns the slots in the order of the numbers."""
    found: dict[int, list[int]] = {}
    width = pool.width_of(kind)
    for member in dict.fromkeys(members):
        mine = [number for number, where in zip(numbers, members, strict=True) if where == member]
        ids = lock_numbers(member, pool.lanes_for(kind), mine, width=width)
        if ids is None:
            return None
        found |= {number: ids[i * width : (i + 1) * width] for i, number in enumerate(mine)}
    return [slot for number in numbers for slot in found[number]]
