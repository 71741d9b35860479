"""Decisions about claims: what could ever be served, who may pass whom, when to look next, what
becomes of a claim. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

STRICT_AFTER = 600.0  # seconds that smaller claims may pass one that does not fit
# Between two looks of the finalizer at a claim that it could not deal with.
SOONEST, LATEST = 1.0, 300.0

# A claim that waits for one of these waits for holders to leave: it will be served if nobody passes
# it. Everything else (no member, no pool, a pause) is not cured by holding others up.
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
    """What a pool could give to one kind of claim, by its layout, its maximum and the
    members it has.
    """

    pool: str
    kind: str  # as asked for, or the only one there is; empty: there are several
    kinds: tuple[str, ...]
    lanes: tuple[str, ...]  # that serve the kind, pickiest first
    each: int  # slots of one member of the usual form
    run: int  # longest run of numbers on one member of the usual form
    max_members: int
    members: tuple[tuple[int, int], ...] = ()  # slots and longest run of each member that is there
    segment: int = 1
    quota: int | None = None  # None: the slots are no ports
    span: tuple[int, int] | None = None

    @property
    def most(self) -> int:
        """Slots the pool could ever have for this kind."""
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
class SlotDemand:
    """What a line of claims asks for."""

    size: int = 1  # in each pool
    contiguous: bool = False
    on_one_member: bool = False
    same_number: bool = False
    selector: Mapping[str, str] = field(default_factory=dict)
    # In one of its pools each number takes two slots: TCP and UDP are separate there.
    is_paired: bool = False


class Refusal(NamedTuple):
    code: str
    text: str
    way_out: str


def find_refusal(wanted: SlotDemand, offers: Sequence[Offer]) -> Refusal | None:
    """Why this could never be served by these pools, whoever is there now. None: it could."""
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
    """One number in several pools: they must number alike."""
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
    """What is true of a pool for one line, cheap to ask: yes or no, nothing counted."""

    state: str = "missing"  # or as stored
    is_paused: bool = False
    refusal: str = ""  # code: it could never serve this
    has_member: bool = False
    is_any_willing: bool = False  # a member that is ready and not cordoned
    has_labels: bool = True  # a member with the labels asked for, whatever its state
    is_labelled_willing: bool = True
    is_free: bool = False  # a slot that the line accepts


def find_reason(wanted: SlotDemand, pools: Sequence[PoolState]) -> str:
    """Why a line waits: a code that stays the same as long as the reason does. The first pool in
    trouble decides.
    """
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
        return "full"  # what is free has not the labels
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
    """Whether a line holds nobody back: it waits for something that no holder's leaving brings (a
    member, a pool, labels that no member has). Simple lines are served in order, so never."""
    return not is_simple and code not in HOLDERS_LEAVE


@dataclass(frozen=True, slots=True)
class WaitingHead:
    """The head of a line that was not served, as a later claim meets it."""

    claim: int
    size: int  # slots in all its pools
    passed: int = 0  # slots that others have taken past it
    waited: float = 0.0  # seconds
    lanes: frozenset[str] = frozenset()
    # That a slot's member must carry for it.
    labels: Mapping[str, str] = field(default_factory=dict)

    def may_be_passed(self, size: int, taken: int) -> bool:
        """Whether a later claim of `size` slots may take `taken` slots that the waiter could use.

        Only a smaller claim may pass. All that pass take no more slots than the waiter needs, and
        none after STRICT_AFTER.
        """
        return size < self.size and self.passed + taken <= self.size and self.waited < STRICT_AFTER


class Passing(NamedTuple):
    """One batch of simple claims past the waiters of a lane."""

    waiters: list[int]  # claims that are passed: each slot counts against them
    kept: list[Mapping[str, str]]  # labels whose members' slots are left alone


def choose_passings(waiters: Iterable[WaitingHead]) -> list[Passing]:
    """What simple claims may take of a lane past these waiters: first the slots that no waiter with
    labels could use, then the others, where every waiter may still be passed. Empty: nothing."""
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
    """The place of a head: smaller goes first."""

    rank: int
    claim: int


@dataclass(frozen=True, slots=True)
class QueueHead:
    """The first of a line."""

    turn: Turn
    shape: int
    is_simple: bool
    tried: float | None = None  # seconds ago


def choose_heads(heads: Sequence[QueueHead], most: int) -> list[QueueHead]:
    """Of the heads that must be tried one by one: the first half by their turn, the rest by who was
    tried longest ago, all in the order of their turns. So the work of one step is bounded and yet
    every line is tried in time."""
    in_turn = sorted(heads, key=lambda h: h.turn)
    if len(in_turn) <= most:
        return in_turn
    first, rest = in_turn[: most // 2], in_turn[most // 2 :]
    longest_ago = sorted(rest, key=lambda h: float("-inf") if h.tried is None else -h.tried)
    return sorted([*first, *longest_ago[: most - len(first)]], key=lambda h: h.turn)


# -- timers ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TimedClaim:
    """A bound claim whose time has come to be looked at. Seconds, all by the database's clock."""

    held: float  # since it was bound
    silent: float | None  # since it was last heard; None: never
    is_acknowledged: bool
    acknowledge: float | None = None
    heartbeat: float | None = None
    hold: float | None = None


@dataclass(frozen=True, slots=True)
class DeadlineCheck:
    """What becomes of it. `outcome` empty: it goes on, and is looked at again in `again` seconds
    (None: never).
    """

    outcome: Literal["", "unacknowledged", "silent", "expired", "lost"]
    again: float | None
    reason: str = ""


def check_deadlines(timed: TimedClaim) -> DeadlineCheck:
    """The earliest limit that has passed decides; otherwise the next one to come."""
    if timed.hold is not None and timed.held >= timed.hold:
        return DeadlineCheck(
            "expired",
            None,
            f"held for {format_seconds(timed.held)}, the limit is {format_seconds(timed.hold)}",
        )
    if (
        timed.acknowledge is not None
        and not timed.is_acknowledged
        and timed.held >= timed.acknowledge
    ):
        return DeadlineCheck(
            "unacknowledged", None, f"not acknowledged within {format_seconds(timed.acknowledge)}"
        )
    silent = timed.held if timed.silent is None else timed.silent
    if timed.heartbeat is not None and silent >= timed.heartbeat:
        return DeadlineCheck(
            "silent",
            None,
            f"silent for {format_seconds(silent)}, the limit is {format_seconds(timed.heartbeat)}",
        )
    ahead = []
    if timed.hold is not None:
        ahead.append(timed.hold - timed.held)
    if timed.acknowledge is not None and not timed.is_acknowledged:
        ahead.append(timed.acknowledge - timed.held)
    if timed.heartbeat is not None:
        ahead.append(timed.heartbeat - silent)
    return DeadlineCheck("", min(ahead) if ahead else None)


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """A plan that waits for a person and whose time has come to be looked at. Seconds, all by
    the database's clock.
    """

    left: float  # until its deadline
    waited: float  # since the plan came in
    notice: float  # before the deadline at which people are told; 0: never
    is_notified: bool
    is_reserved: bool  # a slot waits with it
    is_seeking: bool = False  # it is to have one again
    hold: float | None = None  # how long its pool keeps a slot for it; None: as long as it waits


@dataclass(frozen=True, slots=True)
class PendingCheck:
    action: Literal["", "expire", "park", "seek", "stop_seeking", "notify"]
    again: float = 0.0  # seconds until the next look, where there is nothing to do


def check_pending_approval(p: PendingApproval) -> PendingCheck:
    """23:59 stays, 24:01 goes. Nobody is told of a deadline that has passed."""
    if p.left <= 0:
        return PendingCheck("expire")
    is_held_enough = p.hold is not None and p.waited >= p.hold
    if is_held_enough and p.is_reserved:
        return PendingCheck("park")
    if is_held_enough and p.is_seeking:
        return PendingCheck("stop_seeking")
    # Its pool keeps slots for longer than it did.
    if not is_held_enough and not p.is_reserved and not p.is_seeking:
        return PendingCheck("seek")
    if p.notice > 0 and not p.is_notified and p.left <= p.notice:
        return PendingCheck("notify")
    ahead = [p.left]
    if p.notice > 0 and not p.is_notified:
        ahead.append(p.left - p.notice)
    if p.hold is not None and (p.is_reserved or p.is_seeking):
        ahead.append(p.hold - p.waited)
    return PendingCheck("", min(ahead))


# -- loss ------------------------------------------------------------------------------------------

BACK_OFF = (5.0, 10.0, 20.0, 40.0, 60.0)  # seconds before a plan that was lost is tried again
MOST_ATTEMPTS = 5


def back_off(attempts: int) -> float:
    """`attempts`: those that have failed."""
    return BACK_OFF[min(max(attempts, 1), len(BACK_OFF)) - 1]


class Fate(NamedTuple):
    """Of a claim whose member was lost, or whose task was."""

    to: Literal["waiting", "blocked", "parked", "ended"]
    outcome: str
    reason: str
    wait: float = 0.0  # seconds of back-off
    rank: int | None = None  # 0: it was approved, and goes first
    step: str | None = None  # `plan`: from its beginning, and that counts as no failure


def fate_of_lost(
    *,
    step: str,
    is_retried: bool,
    is_reserved: bool = False,
    is_started: bool = True,
    has_task: bool = False,  # an agent runs it
    attempts: int = 0,  # that failed before
    what: str = "its member was lost",
) -> Fate:
    """An apply that may have begun is never run again by itself: nobody knows how far it came."""
    if is_reserved:
        return Fate("parked", "", f"{what}; its plan is kept")
    if step == "apply":
        if is_started:
            return Fate("ended", "lost", f"{what} while it applied")
        return Fate("waiting", "", f"{what} before it began to apply, it goes on elsewhere", rank=0)
    if has_task:
        if attempts + 1 >= MOST_ATTEMPTS:
            return Fate("ended", "lost", f"{what}, {attempts + 1} times in a row")
        wait = back_off(attempts + 1)
        return Fate(
            "blocked", "", f"{what}, it is tried again in {format_seconds(wait)}", wait=wait
        )
    if is_retried:
        return Fate("waiting", "", f"{what}, it is tried again")
    return Fate("ended", "lost", what)


def fate_of_drained(
    *, step: str, is_retried: bool, is_reserved: bool, is_started: bool, has_task: bool
) -> Fate:
    """Of a claim that its member's drain puts out. It is nobody's failure: a plan goes back into
    its line at once, and none is counted.
    """
    what = "its member was drained"
    if has_task and step != "apply" and not is_reserved:
        return Fate("waiting", "", f"{what}, it plans again", step="plan")
    return fate_of_lost(
        step=step,
        is_retried=is_retried,
        is_reserved=is_reserved,
        is_started=is_started,
        has_task=has_task,
        what=what,
    )


def format_seconds(seconds: float) -> str:
    """A length of time as the pages say it: 31 s, 2 min 4 s, 2 h 46 min, 3 d 4 h."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    parts = [
        ("d", whole // 86400),
        ("h", whole // 3600 % 24),
        ("min", whole // 60 % 60),
        ("s", whole % 60),
    ]
    first = next(i for i, (_, count) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for unit, count in parts[first : first + 2] if count)
