"""Decisions about claims that wait: which demand a pool could ever serve, why a queue waits, and
which claim may pass another. Pure.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypedDict

STRICT_AFTER = 600.0  # seconds during which smaller claims may pass a claim that does not fit

# What a selector says of one label: its value, or conditions (pools/config/label_selector.py).
LabelTerm = str | Mapping[str, object]

# Reasons that end when holders release slots, provided that no later claim takes these slots. For
# other reasons (no member, no pool, a pause) it does not help to hold later claims back.
HOLDERS_LEAVE = frozenset(
    {
        "full",
        "not_enough",
        "not_contiguous",
        "not_together",
        "no_common_number",
        "no_pair",
        "behind",
        "next",
    }
)


@dataclass(frozen=True, slots=True)
class Offer:
    """Capacity of a pool for one kind of claim: its layout, its maximum and its members."""

    pool: str
    kind: str  # as requested, or the pool's only kind; empty: the pool has several
    kinds: tuple[str, ...]
    lanes: tuple[str, ...]  # that serve the kind; lanes that accept few kinds come first
    each: int  # slots of a member with the pool's layout
    run: int  # longest run of numbers on such a member
    max_members: int
    members: tuple[tuple[int, int], ...] = ()  # slots and longest run of each present member
    segment: int = 1
    quota: int | None = None  # None: the slots are not ports
    span: tuple[int, int] | None = None
    unserved: str = ""  # why the provider cannot serve the kind

    @property
    def most(self) -> int:
        """Slots for this kind at the maximum of members."""
        free_places = max(0, self.max_members - len(self.members))
        return sum(count for count, _ in self.members) + free_places * self.each

    @property
    def most_on_one(self) -> int:
        usual = self.each if self.max_members > 0 else 0
        return max([usual, *(count for count, _ in self.members)])

    @property
    def longest_run(self) -> int:
        usual = self.run if self.max_members > 0 else 0
        return max([usual, *(run for _, run in self.members)])


@dataclass(frozen=True, slots=True)
class PartDemand:
    """One part of a claim: numbers that serve one kind, in each of its pools."""

    kind: str
    pools: tuple[str, ...]
    size: int = 1  # numbers in each pool
    same_number: bool = False
    where: str = field(default="", compare=False)  # the field of the request
    options: Mapping[str, object] = field(default_factory=dict, compare=False)  # as stored


@dataclass(frozen=True, slots=True)
class SlotDemand:
    """What each claim of a queue requests."""

    size: int = 1  # in each pool
    contiguous: bool = False
    on_one_member: bool = False
    same_number: bool = False
    selector: Mapping[str, LabelTerm] = field(default_factory=dict)
    # One of the pools has separate slots for TCP and UDP, so each number takes two slots there.
    is_paired: bool = False
    # Of a claim of several parts, whose `size` is the numbers of all parts. Parts differ in kind
    # and pools, and share the selector.
    parts: tuple[PartDemand, ...] = ()

    @property
    def labels(self) -> str:
        """The selector as JSON, for statements."""
        return json.dumps(dict(self.selector))


class PartTerms(TypedDict, total=False):
    """Stored fields of a `PartDemand`. Fields with their default value are left out."""

    kind: str
    pools: list[str]
    size: int
    same_number: bool


class Terms(TypedDict, total=False):
    """Stored fields of a `SlotDemand`. Fields with their default value are left out."""

    contiguous: bool
    on_one_member: bool
    same_number: bool
    selector: dict[str, LabelTerm]
    parts: list[PartTerms]


class Refusal(NamedTuple):
    code: str
    text: str
    way_out: str

    @property
    def field(self) -> str:
        """The field of a claim without parts that the refusal is about."""
        return REFUSED_FIELDS.get(self.code, "pool")


REFUSED_FIELDS = {
    "kind_missing": "kind",
    "kind_not_offered": "kind",
    "too_big": "size",
    "run_too_long": "contiguous",
    "member_too_small": "on_one_member",
    "unequal_segments": "same_number",
    "unequal_quotas": "same_number",
    "no_common_range": "same_number",
}


def find_refusal(wanted: SlotDemand, offers: Sequence[Offer]) -> Refusal | None:
    """Why these pools could never serve the demand, even empty; None if they could."""
    for offer in offers:
        if refusal := _refusal_of(wanted, offer):
            return refusal
    if wanted.same_number and len(offers) > 1:
        return _refusal_together(offers)
    return None


def _refusal_of(wanted: SlotDemand, offer: Offer) -> Refusal | None:
    pool, size = offer.pool, wanted.size
    if not offer.kind:
        return Refusal(
            "kind_missing",
            f"Pool {pool} serves several kinds of claims, and none is named.",
            _one_of(offer.kinds),
        )
    if offer.unserved:
        text = f"Pool {pool} serves no {offer.kind}: {offer.unserved}."
        return Refusal("kind_not_offered", text, _one_of(offer.kinds))
    if not offer.lanes:
        return Refusal(
            "kind_not_offered", f"Pool {pool} has no slots for {offer.kind}.", _one_of(offer.kinds)
        )
    if offer.most == 0:
        return Refusal(
            "no_room", f"Pool {pool} may have no member.", "Raise its maximum of members."
        )
    if size > offer.most:
        what = "numbers in TCP and UDP" if wanted.is_paired else "slots"
        text = (
            f"{size} {what} are more than pool {pool} ever has for {offer.kind}: at "
            f"most {offer.most}."
        )
        return Refusal(
            "too_big",
            text,
            f"Ask for {offer.most} at most, or raise the pool's maximum of members.",
        )
    if wanted.contiguous and size > offer.longest_run:
        text = (
            f"{size} numbers in a row are more than a member of {pool} has: at most "
            f"{offer.longest_run}."
        )
        return Refusal(
            "run_too_long", text, f"Ask for {offer.longest_run} at most, or leave out contiguous."
        )
    if wanted.on_one_member and size > offer.most_on_one:
        text = (
            f"{size} slots are more than one member of {pool} has for {offer.kind}: at most "
            f"{offer.most_on_one}."
        )
        return Refusal(
            "member_too_small",
            text,
            f"Ask for {offer.most_on_one} at most, or leave out on_one_member.",
        )
    return None


def _refusal_together(offers: Sequence[Offer]) -> Refusal | None:
    """Why no number can be free in all pools; None if their numbering agrees."""
    if len({offer.segment for offer in offers}) > 1:
        which = ", ".join(f"{o.pool} has segments of {o.segment}" for o in offers)
        return Refusal(
            "unequal_segments",
            f"The pools number differently: {which}.",
            "Use pools with equal segments, or leave out same_number.",
        )
    if len({offer.quota for offer in offers}) > 1:
        which = ", ".join(
            f"{o.pool} has {'no quota' if o.quota is None else f'a quota of {o.quota}'}"
            for o in offers
        )
        return Refusal(
            "unequal_quotas",
            f"The pools offer different numbers: {which}.",
            "Use pools with equal quotas, or leave out same_number.",
        )
    spans = [offer.span for offer in offers if offer.span is not None]
    if spans and max(first for first, _ in spans) > min(last for _, last in spans):
        which = ", ".join(f"{o.pool} has {o.span[0]}-{o.span[1]}" for o in offers if o.span)
        return Refusal(
            "no_common_range",
            f"No number exists in all of them: {which}.",
            "Use pools whose ranges overlap.",
        )
    return None


def find_joint_refusal(demands: Sequence[tuple[SlotDemand, Offer]]) -> Refusal | None:
    """Why a pool could never serve these demands of one claim together, though it could serve each
    alone. Each lane of the pool is counted by a demand that takes this lane only; a demand for TCP
    and UDP takes both lanes.
    """
    most: dict[tuple[str, str], int] = {}
    needed: dict[tuple[str, str], int] = {}
    for wanted, offer in demands:
        if len(offer.lanes) == 1:
            most[offer.pool, offer.lanes[0]] = offer.most
        if len(offer.lanes) == 1 or wanted.is_paired:
            for lane in offer.lanes:
                needed[offer.pool, lane] = needed.get((offer.pool, lane), 0) + wanted.size
    for (pool, lane), count in needed.items():
        if count > most.get((pool, lane), count):
            limit = most[pool, lane]
            text = f"{count} {lane} slots are more than pool {pool} ever has: at most {limit}."
            way_out = "Ask for fewer, or raise the pool's maximum of members."
            return Refusal("too_big", text, way_out)
    return None


def _one_of(kinds: Sequence[str]) -> str:
    return f"Use one of {', '.join(kinds)}."


def longest_run(numbers: Iterable[int], step: int) -> int:
    best = length = 0
    previous: int | None = None
    for number in sorted(numbers):
        length = length + 1 if previous is not None and number == previous + step else 1
        best, previous = max(best, length), number
    return best


# -- waiting ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PoolState:
    """Facts about a pool for one queue. All are cheap to read: none of them is a count."""

    state: str = "missing"  # or as stored
    is_paused: bool = False
    refusal: str = ""  # code, if the pool could never serve the queue
    has_member: bool = False
    is_any_willing: bool = False  # a member is ready and not cordoned
    has_labels: bool = True  # a member in any state has the requested labels
    is_labelled_willing: bool = True
    is_free: bool = False  # a slot that the queue accepts is free


def find_reason(wanted: SlotDemand, pools: Sequence[PoolState]) -> str:
    """Code of the reason for which a queue waits. The first pool with a problem decides."""
    for pool in pools:
        if code := _trouble(wanted, pool):
            return code
    if not all(pool.is_free for pool in pools):
        return "full"
    if wanted.contiguous and wanted.size > 1:
        return "not_contiguous"
    if wanted.same_number:
        return "no_common_number"
    if wanted.on_one_member and wanted.size > 1:
        return "not_together"
    if wanted.is_paired:
        return "no_pair"
    if wanted.selector:
        return "full"  # the free slots do not have the labels
    return "not_enough" if wanted.size > 1 else "next"


def _trouble(wanted: SlotDemand, pool: PoolState) -> str:
    if pool.state in ("missing", "gone"):
        return "pool_not_found"
    if pool.state in ("pending", "deleting"):
        return f"pool_{pool.state}"
    if pool.refusal:
        return pool.refusal
    if not pool.has_member:
        return "no_member"
    if wanted.selector and not pool.has_labels:
        return "no_member_with_labels"
    if pool.is_paused:
        return "pool_paused"
    if not pool.is_any_willing or (wanted.selector and not pool.is_labelled_willing):
        return "no_member_willing"
    return ""


def is_passable(code: str, *, is_simple: bool) -> bool:
    """Whether later claims may pass the queue freely, because released slots would not help it.
    Simple queues are served in order and are never passable.
    """
    return not is_simple and code not in HOLDERS_LEAVE


@dataclass(frozen=True, slots=True)
class WaitingHead:
    """The unserved first claim of a queue. Later claims may have to leave slots to it."""

    claim: int
    size: int  # slots in all its pools
    passed: int = 0  # slots that later claims have taken
    waited: float = 0.0  # seconds
    lanes: frozenset[str] = frozenset()
    labels: Mapping[str, LabelTerm] = field(default_factory=dict)  # required of the slot's member

    def may_be_passed(self, size: int, taken: int) -> bool:
        """Whether a later claim of `size` slots may take `taken` slots that this claim could use.

        Only a smaller claim may pass. Together they take at most as many slots as this claim
        needs, and none after STRICT_AFTER.
        """
        return size < self.size and self.passed + taken <= self.size and self.waited < STRICT_AFTER


class Passing(NamedTuple):
    """One batch of simple claims that passes waiting claims of a lane."""

    waiters: list[int]  # the passed claims; each slot counts for each of them
    kept: list[Mapping[str, LabelTerm]]  # slots of members with these labels are not taken


def choose_passings(waiters: Iterable[WaitingHead]) -> list[Passing]:
    """The batches in which simple claims may pass these waiters: first on slots that no waiter with
    labels could use, then on the other slots, if every waiter may be passed.
    """
    plain, labelled = list[WaitingHead](), list[WaitingHead]()
    for waiter in waiters:
        (labelled if waiter.labels else plain).append(waiter)
    if not all(waiter.may_be_passed(1, 1) for waiter in plain):
        return []
    passings = [Passing([waiter.claim for waiter in plain], [waiter.labels for waiter in labelled])]
    if labelled and all(waiter.may_be_passed(1, 1) for waiter in labelled):
        passings.append(Passing([waiter.claim for waiter in (*plain, *labelled)], []))
    return passings


@dataclass(frozen=True, slots=True, order=True)
class Turn:
    """Sort key of a claim: the smaller goes first."""

    rank: int
    claim: int


@dataclass(frozen=True, slots=True)
class QueueHead:
    """The first claim of a queue."""

    turn: Turn
    shape: int
    is_simple: bool
    tried: float | None = None  # seconds ago


def choose_heads(heads: Sequence[QueueHead], most: int) -> list[QueueHead]:
    """The heads to try one by one, in the order of their turns: half of them have the first turns,
    the other half was not tried for the longest time. This bounds the work of a step, and every
    queue is tried in time.
    """
    in_turn = sorted(heads, key=lambda h: h.turn)
    if len(in_turn) <= most:
        return in_turn
    first, rest = in_turn[: most // 2], in_turn[most // 2 :]
    longest_ago = sorted(rest, key=lambda h: float("-inf") if h.tried is None else -h.tried)
    return sorted([*first, *longest_ago[: most - len(first)]], key=lambda h: h.turn)
