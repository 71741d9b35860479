"""The search for common numbers in several pools, compared with an exhaustive search."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claims.allocation.search import same_number
from claims.allocation.search.same_number import (
    FreeNumbers,
    NumberMatch,
    bits_of,
    find_match,
    lowest,
    runs,
)

NUMBERS = st.sets(st.integers(0, 9), max_size=10)
POOLS = st.lists(st.lists(NUMBERS, min_size=1, max_size=3), min_size=1, max_size=3)


def test_bit_sets_round_trip_to_sorted_numbers() -> None:
    assert bits_of([]) == 0
    assert lowest(bits_of([65535, 3, 30000]), 9) == [3, 30000, 65535]
    assert lowest(bits_of([1, 2, 3]), 2) == [1, 2]


@given(NUMBERS, st.integers(1, 5), st.integers(1, 3))
def test_runs_are_found_at_every_start(numbers: set[int], length: int, step: int) -> None:
    expected = [n for n in sorted(numbers) if all(n + i * step in numbers for i in range(length))]
    assert lowest(runs(bits_of(numbers), length, step), 99) == expected


def free(pools: list[list[set[int]]]) -> list[list[FreeNumbers]]:
    return [
        [FreeNumbers(10 * p + m, bits_of(numbers)) for m, numbers in enumerate(pool)]
        for p, pool in enumerate(pools)
    ]


def is_right(match: NumberMatch, pools: list[list[set[int]]], size: int) -> bool:
    placed = all(
        n in pools[p][member % 10]
        for p, members in enumerate(match.members)
        for n, member in zip(match.numbers, members, strict=True)
    )
    return placed and len(match.numbers) == len(set(match.numbers)) == size


@settings(max_examples=200)
@given(POOLS, st.integers(1, 4))
def test_find_match_takes_the_lowest_common_numbers(pools: list[list[set[int]]], size: int) -> None:
    common = set.intersection(*[set.union(*pool) for pool in pools])
    match = find_match(free(pools), size)
    assert (match is not None) == (len(common) >= size)
    assert match is None or (
        is_right(match, pools, size) and match.numbers == sorted(common)[:size]
    )


@settings(max_examples=200)
@given(POOLS, st.integers(2, 4))
def test_find_match_together_uses_one_member_in_each_pool(
    pools: list[list[set[int]]], size: int
) -> None:
    is_there = any(len(set.intersection(*chosen)) >= size for chosen in product(*pools))
    match = find_match(free(pools), size, is_together=True)
    assert (match is not None) == is_there
    assert match is None or (
        is_right(match, pools, size) and all(len(set(members)) == 1 for members in match.members)
    )


@settings(max_examples=200)
@given(POOLS, st.integers(2, 4), st.integers(1, 2))
def test_find_match_of_a_run_takes_its_lowest_start(
    pools: list[list[set[int]]], size: int, step: int
) -> None:
    starts = [
        n
        for n in range(10)
        if all(
            any({n + i * step for i in range(size)} <= member for member in pool) for pool in pools
        )
    ]
    match = find_match(free(pools), size, run=step)
    assert (match is not None) == bool(starts)
    assert match is None or (is_right(match, pools, size) and match.numbers[0] == starts[0])


def test_the_search_for_a_match_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last two pools share no number, and the search finds that out only at their members."""
    monkeypatch.setattr(same_number, "MOST_TRIED", 500)
    many = [FreeNumbers(m, bits_of([m, 100])) for m in range(60)]
    pools = [
        many,
        many,
        [FreeNumbers(1, bits_of([100, 200]))],
        [FreeNumbers(2, bits_of([200, 100]))],
    ]
    assert find_match(pools, 2, is_together=True) is None
