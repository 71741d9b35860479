"""Placement: in which order a pool hands out its free slots.

A claim takes the free slot with the lowest rank, and of equal ranks the one with the lowest number
(`ORDER BY rank, number` in the statements of claims). A policy computes the rank of each slot when
the slot is made and when the pool's placement changes; binding a claim does not compute ranks. If a
policy counts uses, a trigger (slot_counts_use) raises the rank of a slot by one whenever a claim
takes it. The parser, the form, the page of the pool and the schemas read `PLACEMENTS`.
docs/howto/add-a-placement.md describes how to add a policy. Standard library only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

LONGEST_NAME = 16  # characters of the column pools_pool.placement
LOWEST_RANK = -(2**31)  # policies that count uses have negative ranks


@dataclass(frozen=True, slots=True)
class MemberSlots:
    """The slots of one member, for a policy that ranks them."""

    position: int  # of the member in its pool; the first member has 0
    slots: Sequence[tuple[str, int]]  # lane and number of each slot, in the order of the numbers
    draw: Callable[[], int]  # returns a random rank


@dataclass(frozen=True, slots=True)
class Placement:
    name: str
    text: str  # effect of the policy, for people; empty: the name is enough
    # Returns one rank for each slot, in the same order, from 0 to 2**31 - 1; below 2**30 if the
    # policy counts uses, because the uses are added.
    rank: Callable[[MemberSlots], list[int]]
    counts_uses: bool = False  # each use of a slot raises its rank by one

    def __str__(self) -> str:
        return f"{self.name}: {self.text}" if self.text else self.name


def rank_by_position(member: MemberSlots) -> list[int]:
    """Members in their order, so that the last member empties first."""
    return [member.position] * len(member.slots)


def rank_in_turns(member: MemberSlots) -> list[int]:
    """Every member gives its n-th slot of a lane before any member gives one more."""
    seen: dict[str, int] = {}
    ranks = []
    for lane, _ in member.slots:
        ranks.append(seen.get(lane, 0))
        seen[lane] = ranks[-1] + 1
    return ranks


def rank_at_random(member: MemberSlots) -> list[int]:
    return [member.draw() for _ in member.slots]


# In the order of the form.
PLACEMENTS: dict[str, Placement] = {
    placement.name: placement
    for placement in (
        Placement("pack", "one member is filled before the next", rank_by_position),
        Placement("spread", "every member gives one slot before any gives two", rank_in_turns),
        Placement("random", "", rank_at_random),
    )
}
DEFAULT_PLACEMENT = "pack"


def ranks_of(
    placement: str, position: int, slots: Sequence[tuple[str, int]], draw: Callable[[], int]
) -> list[int]:
    policy = PLACEMENTS[placement]
    ranks = policy.rank(MemberSlots(position, slots, draw))
    return [LOWEST_RANK + rank for rank in ranks] if policy.counts_uses else ranks
