"""Finds numbers that are free in several pools, and the members that have them. Pure.

The free numbers of a member are the bits of one integer, so intersection, union and the search for
a run are one operation each, for any number of ports.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

MOST_TRIED = 20_000  # intersections in one search: about ten milliseconds


class FreeNumbers(NamedTuple):
    member: int
    numbers: int  # bits


class NumberMatch(NamedTuple):
    numbers: list[int]  # ascending
    members: list[list[int]]  # of each pool, a member for each number


def bits_of(numbers: Iterable[int]) -> int:
    found = list(numbers)
    if not found:
        return 0
    octets = bytearray(max(found) // 8 + 1)
    for number in found:
        octets[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(octets, "little")


def lowest(bits: int, count: int) -> list[int]:
    found: list[int] = []
    while bits and len(found) < count:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return found


def runs(bits: int, length: int, step: int) -> int:
    """The numbers at which a run of this length starts."""
    found, have = bits, 1
    while have < length:
        more = min(have, length - have)
        found &= found >> (more * step)
        have += more
    return found


def find_match(
    pools: Sequence[Sequence[FreeNumbers]],
    size: int,
    *,
    is_together: bool = False,
    run: int | None = None,
) -> NumberMatch | None:
    """`size` numbers that are free in every pool. `is_together`: on one member of each pool. `run`:
    in a row with this step, on one member of each pool.
    """
    if run is not None and size > 1:
        starts = lowest(
            _common(
                [
                    [FreeNumbers(f.member, runs(f.numbers, size, run)) for f in free]
                    for free in pools
                ]
            ),
            1,
        )
        return (
            None if not starts else _on_members(pools, [starts[0] + i * run for i in range(size)])
        )
    if is_together and size > 1:
        return next(_together(pools, size), None)
    numbers = lowest(_common(pools), size)
    if len(numbers) < size:
        return None
    return NumberMatch(
        numbers,
        [
            [next(f.member for f in free if f.numbers >> number & 1) for number in numbers]
            for free in pools
        ],
    )


def _common(pools: Sequence[Sequence[FreeNumbers]]) -> int:
    """The numbers that are free on any member of every pool."""
    found = -1
    for free in pools:
        here = 0
        for each in free:
            here |= each.numbers
        found &= here
    return max(found, 0)


def _on_members(pools: Sequence[Sequence[FreeNumbers]], numbers: list[int]) -> NumberMatch | None:
    wanted = bits_of(numbers)
    found = [next((f.member for f in free if f.numbers & wanted == wanted), None) for free in pools]
    return (
        NumberMatch(numbers, [[member] * len(numbers) for member in found if member is not None])
        if None not in found
        else None
    )


def _together(pools: Sequence[Sequence[FreeNumbers]], size: int) -> Iterator[NumberMatch]:
    """Searches member by member, and begins with the pool that has the fewest. A set that is too
    small is not searched further. The search ends after MOST_TRIED intersections: with many members
    in many pools it may miss a match, and the claim is tried again after the next change.
    """
    order = sorted(range(len(pools)), key=lambda i: len(pools[i]))
    left = MOST_TRIED
    common = _common(pools)

    def descend(depth: int, bits: int, chosen: tuple[int, ...]) -> Iterator[NumberMatch]:
        nonlocal left
        if depth == len(order):
            members = dict(zip(order, chosen, strict=True))
            yield NumberMatch(lowest(bits, size), [[members[i]] * size for i in range(len(pools))])
            return
        for each in pools[order[depth]]:
            left -= 1
            if left < 0:
                return
            met = bits & each.numbers
            if met.bit_count() >= size:
                yield from descend(depth + 1, met, (*chosen, each.member))

    yield from descend(0, common, ())
