"""Decides where the claims of an evacuated member go, which of them stay and why, and when a claim
that moves has arrived. Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from claims.allocation.search.same_number import bits_of, lowest, runs

READY_WITHIN = 300.0  # seconds for the health check of new ports, if the old ones were ready


@dataclass(frozen=True, slots=True)
class HeldPort:
    """A slot of a claim on the evacuated member."""

    ordinal: int
    lane: str
    number: int
    part: int = 0
    keeps_number: bool = False  # the port has the same number in several pools
    slot: int = 0


@dataclass(frozen=True, slots=True)
class MovableClaim:
    id: int
    ports: tuple[HeldPort, ...]  # on the evacuated member, by ordinal
    contiguous: bool = False
    on_one_member: bool = False
    labels: str = ""  # key of `FreeMember.selected_by`; empty: any member
    is_bound: bool = True
    is_named: bool = False  # the claim asked for exactly its slot


@dataclass(slots=True)
class FreeMember:
    """The free slots of another member that takes claims: id and rank, by lane and number."""

    id: int
    name: str
    free: dict[str, dict[int, tuple[int, int]]] = field(default_factory=lambda: defaultdict(dict))
    selected_by: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Target:
    slot: int
    member: str
    lane: str
    number: int


@dataclass(frozen=True, slots=True)
class Move:
    claim: MovableClaim
    targets: Mapping[int, Target]  # by ordinal


@dataclass(frozen=True, slots=True)
class Stay:
    """A claim that stays for now."""

    claim: MovableClaim
    code: str
    reason: str
    wants: Mapping[str, int] = field(default_factory=dict)  # slots that a new member would have

    @property
    def needs_room(self) -> bool:
        return bool(self.wants)


Outcome = Move | Stay


class _Number(NamedTuple):
    """Ports of a claim that have the same number: one, or TCP and UDP of one part."""

    number: int
    ports: tuple[HeldPort, ...]

    @property
    def lanes(self) -> tuple[str, ...]:
        return tuple(port.lane for port in self.ports)


class FreePorts:
    """The free ports of a pool beside the evacuated member. Moves take their slots from them."""

    def __init__(self, members: Sequence[FreeMember], step: int = 1) -> None:
        self.members = members
        self.step = step  # difference between adjacent numbers
        self._by_name = {member.name: member for member in members}
        self._in_order: dict[tuple[str, ...], list[tuple[int, int, int]]] = {}

    def take(self, targets: Iterable[Target]) -> None:
        for target in targets:
            del self._by_name[target.member].free[target.lane][target.number]

    def in_order(self, lanes: tuple[str, ...]) -> Iterator[tuple[FreeMember, int]]:
        """Numbers that are free in all these lanes of their member, in the order of the pool's
        placement.
        """
        if lanes not in self._in_order:
            first = lanes[0]
            self._in_order[lanes] = sorted(
                (rank, number, index)
                for index, member in enumerate(self.members)
                for number, (_, rank) in member.free[first].items()
                if has_free(member, lanes, number)
            )
        for _, number, index in self._in_order[lanes]:
            member = self.members[index]
            if has_free(member, lanes, number):  # not taken since
                yield member, number


def has_free(member: FreeMember, lanes: Iterable[str], number: int) -> bool:
    return all(number in member.free[lane] for lane in lanes)


def plan_moves(claims: Sequence[MovableClaim], free: FreePorts) -> Iterator[Outcome]:
    """For each claim in this order its move, or why it stays."""
    for claim in claims:
        outcome = _plan(claim, free)
        if isinstance(outcome, Move):
            free.take(outcome.targets.values())
        yield outcome


def _plan(claim: MovableClaim, free: FreePorts) -> Outcome:
    if not claim.is_bound:
        return Stay(claim, "not_bound", "It waits for a decision, and its slot is reserved")
    if claim.is_named:
        return Stay(claim, "named_slot", "It asked for exactly this port")
    allowed = [
        each for each in free.members if not claim.labels or claim.labels in each.selected_by
    ]
    if claim.labels and not allowed:
        return Stay(claim, "no_labels", "No other member takes claims and has the labels it needs")
    numbers = _group(claim.ports)
    is_joint = len(numbers) > 1 and (claim.contiguous or claim.on_one_member)
    targets = (
        _find_joint(claim, allowed, numbers, free.step)
        if is_joint
        else _find_single(free, allowed, numbers)
    )
    if targets is not None:
        return Move(claim, targets)
    wants = _count(port.lane for port in claim.ports)
    return Stay(claim, *_explain(claim, allowed, numbers), wants)


def _group(ports: Sequence[HeldPort]) -> list[_Number]:
    found: dict[tuple[int, int], list[HeldPort]] = defaultdict(list)
    for port in ports:
        found[port.part, port.number].append(port)
    in_order = sorted(found.items(), key=lambda item: item[1][0].ordinal)
    return [_Number(number, tuple(group)) for (_, number), group in in_order]


def _find_joint(
    claim: MovableClaim, members: Sequence[FreeMember], numbers: Sequence[_Number], step: int
) -> dict[int, Target] | None:
    """Targets on one member, for a claim that keeps its numbers together."""
    for member in sorted(members, key=_first_rank):
        chosen = _choose(member, claim, numbers, step)
        if chosen is not None:
            return {
                port.ordinal: _target(member, port.lane, number)
                for group, number in zip(numbers, chosen, strict=True)
                for port in group.ports
            }
    return None


def _choose(
    member: FreeMember, claim: MovableClaim, numbers: Sequence[_Number], step: int
) -> list[int] | None:
    if any(port.keeps_number for group in numbers for port in group.ports):
        is_free = all(has_free(member, group.lanes, group.number) for group in numbers)
        return [group.number for group in numbers] if is_free else None
    free = -1
    for lane in {lane for group in numbers for lane in group.lanes}:
        free &= bits_of(member.free[lane])
    if claim.contiguous:
        start = lowest(runs(free, len(numbers), step), 1)
        return [start[0] + i * step for i in range(len(numbers))] if start else None
    found = lowest(free, len(numbers))
    return found if len(found) == len(numbers) else None


def _find_single(
    free: FreePorts, members: Sequence[FreeMember], numbers: Sequence[_Number]
) -> dict[int, Target] | None:
    """Each number on the member that comes first. Numbers that must stay the same, and pairs of
    lanes, come before numbers with more choice.
    """
    allowed = {member.name for member in members}
    taken: set[int] = set()
    found: dict[int, Target] = {}
    for group in sorted(numbers, key=lambda each: (not _is_fixed(each), -len(each.ports))):
        for member, number in _candidates(free, members, group):
            targets = {port.ordinal: _target(member, port.lane, number) for port in group.ports}
            slots = {target.slot for target in targets.values()}
            if member.name in allowed and taken.isdisjoint(slots):
                taken |= slots
                found |= targets
                break
        else:
            return None
    return dict(sorted(found.items()))


def _candidates(
    free: FreePorts, members: Sequence[FreeMember], group: _Number
) -> Iterator[tuple[FreeMember, int]]:
    if not _is_fixed(group):
        return free.in_order(group.lanes)
    same = [each for each in members if has_free(each, group.lanes, group.number)]
    same.sort(key=lambda each: each.free[group.lanes[0]][group.number][1])
    return iter([(member, group.number) for member in same])


def _is_fixed(group: _Number) -> bool:
    return any(port.keeps_number for port in group.ports)


def _target(member: FreeMember, lane: str, number: int) -> Target:
    return Target(member.free[lane][number][0], member.name, lane, number)


def _first_rank(member: FreeMember) -> int:
    ranks = (rank for places in member.free.values() for _, rank in places.values())
    return min(ranks, default=2**31)


def _count(lanes: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for lane in lanes:
        found[lane] += 1
    return dict(found)


def _explain(
    claim: MovableClaim, members: Sequence[FreeMember], numbers: Sequence[_Number]
) -> tuple[str, str]:
    for lane, n in _count(port.lane for port in claim.ports).items():
        free = sum(len(member.free[lane]) for member in members)
        if free < n:
            return "full", f"It needs {n} {_name(lane, n)}, and {free} {_are(free)} free elsewhere"
    fixed = [group for group in numbers if _is_fixed(group)]
    if fixed:
        shown = ", ".join(str(group.number) for group in fixed[:4])
        what = "Number" if len(fixed) == 1 else "Numbers"
        where = "is not free" if len(fixed) == 1 else "are not free together"
        return "number_taken", f"{what} {shown} {where} elsewhere, and it keeps its numbers"
    if claim.contiguous and len(numbers) > 1:
        return "not_contiguous", f"No other member has {len(numbers)} free ports in a row"
    if claim.on_one_member and len(numbers) > 1:
        return "not_together", f"No other member has {len(numbers)} free ports"
    return "no_pair", "No other member has a number that is free for TCP and UDP"


def _name(lane: str, count: int) -> str:
    noun = "port" if count == 1 else "ports"
    return noun if lane == "port" else f"{lane} {noun}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


@dataclass(frozen=True, slots=True)
class ArrivalFacts:
    """A claim that moves, and its new ports."""

    is_bound: bool  # it still holds slots
    is_serving: bool  # slots that it has left still serve
    was_ready: bool  # its ports were ready before it moved
    is_programmed: bool = False
    is_ready: bool = False
    failure: str = ""  # why waiting for a port does not help
    waits_for: str = ""  # why a port is not ready
    waited: float = 0.0  # seconds since it moved


class Arrival(NamedTuple):
    action: Literal["wait", "arrive", "take_back"]
    reason: str = ""


def judge_arrival(facts: ArrivalFacts) -> Arrival:
    """Whether the slots that a claim has left may drain now. They serve on while the new ports are
    not ready; if the new ports fail, the claim goes back to them.
    """
    if not facts.is_bound:
        return Arrival("arrive", "the claim has ended")
    if not facts.is_serving or facts.is_ready:
        return Arrival("arrive")
    if not facts.was_ready:
        is_done = facts.is_programmed or bool(facts.failure)
        return Arrival("arrive") if is_done else Arrival("wait", facts.waits_for)
    if facts.failure:
        return Arrival("take_back", facts.failure)
    if facts.is_programmed and facts.waited >= READY_WITHIN:
        return Arrival("take_back", f"{facts.waits_for} within {READY_WITHIN / 60:.0f} min")
    return Arrival("wait", facts.waits_for)
