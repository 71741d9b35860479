"""The input of a scaling policy (`Snapshot`), its answer (`ScalingTarget`), and the decision
(`ScalingDecision`).

Frozen values of the standard library only, so that the same code decides over recorded demand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

Verdict = Literal[
    "grow", "shrink", "hold", "blocked", "paused", "frozen", "failed", "rebuild", "stopped"
]
# Steps of a roll: create one more member, remove an outdated member for it, rebuild a member in
# place, remove a surplus member, stop until an operator continues the roll.
Step = Literal["", "surge", "swap", "rebuild", "over", "stop"]

SHOWN = 20  # members that a decision names


class ScaledMember(NamedTuple):
    """A member that is not gone. A tuple, because a cycle may create a hundred thousand."""

    id: int
    name: str
    state: str  # creating, ready, offline, deleting
    slots: int  # all but retired
    running: int = 0
    reserved: int = 0
    draining: int = 0
    cost: int = 0  # deletion cost: cheaper members are removed first
    created: float = 0.0  # seconds since 1970, to the microsecond
    quiet_for: float = 0.0  # seconds since anything happened in its slots
    is_leaving: bool = False
    is_cordoned: bool = False
    is_lost: bool = False
    is_owned: bool = True  # Berth created it and may delete it
    is_outdated: bool = False  # created from another configuration than the pool has now
    state_for: float = 0.0  # seconds since the state last changed
    outside: str = ""  # the provider's message about the member: what it waits for, or a fault
    unsaved: int = 0  # Terraform states of which only the member's agent has a copy

    @property
    def occupied(self) -> int:
        return self.running + self.reserved + self.draining

    @property
    def is_going(self) -> bool:
        return self.is_leaving or self.state == "deleting"

    @property
    def is_there(self) -> bool:
        """True if the member counts towards the wanted number: neither leaving nor lost."""
        return not self.is_going and not self.is_lost

    @property
    def usable(self) -> int:
        """Slots that count as capacity. A member that takes no new claims counts only its
        occupied slots, because no claim can get the idle ones.
        """
        if (
            self.state in ("ready", "creating")
            and not self.is_cordoned
            and not self.is_going
            and not self.is_lost
        ):
            return self.slots
        return self.occupied


class Sums(NamedTuple):
    there: tuple[ScaledMember, ...]
    creating: int
    offline: int
    going: int
    running: int
    reserved: int
    draining: int
    total: int


class DemandQueue(NamedTuple):
    """Waiting claims with equal demands that this pool could serve. Blocked claims are in no
    queue (A11).
    """

    lanes: tuple[str, ...]  # lanes of this pool that serve the claims, most restricted first
    claims: int
    slots: int  # that the claims ask for together
    # Slots for approved plans, and for plans that wait for a slot to be reserved again.
    urgent: int = 0
    waited: float = 0.0  # seconds that the next claim has waited
    fits_free: bool = True  # False: the free slots do not fit together
    wants_new: bool = True  # False: a new member would lack labels that the claims ask for


@dataclass(frozen=True, slots=True)
class Pin:
    """The number of members that an operator has set until a time."""

    count: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MemberLimits:
    low: int = 0
    high: int = 10
    window: str = ""  # text of the open schedule window; empty: the limits of the pool
    pin: Pin | None = None
    paused: str = ""  # the reason of a pause
    frozen: str = ""  # text of the open freeze window
    used_up: str = ""  # what leaves no room for more members below the maximum of the pool


@dataclass(frozen=True, slots=True)
class Roll:
    """How outdated members are renewed, and the orders of operators for the roll."""

    is_wanted: bool = True  # by the configuration, or by an operator's order
    may_surge: bool = True  # the roll may create one more member first
    could_surge: bool = False  # the widest window leaves room for one more member
    paused: str = ""  # the reason of a pause
    stopped: str = ""  # a new member did not become ready
    ready_within: float = 900.0
    settle: float = 10.0  # seconds a new member must be ready before the next one is removed


@dataclass(frozen=True, slots=True)
class ScalingPace:
    """Cool-downs in seconds, and members per decision. A step of 0 means no limit."""

    up: float = 30.0
    down: float = 600.0
    step_up: int = 1
    step_down: int = 1


@dataclass(frozen=True)
class Snapshot:
    pool: str
    members: tuple[ScaledMember, ...] = ()
    lines: tuple[DemandQueue, ...] = ()
    free: Mapping[str, int] = field(default_factory=dict)  # open slots by lane
    each: Mapping[str, int] = field(default_factory=dict)  # slots of a new member by lane
    limits: MemberLimits = MemberLimits()
    is_requested: bool = False  # a claim could not be served and asked for a member
    grown_since_request: bool = False
    since_up: float | None = None  # seconds; None: never
    since_down: float | None = None
    seen: float | None = None  # seconds since the provider's last full look
    fresh: float = 60.0  # seconds for which a look counts
    # Seconds since the controller started that carries out the decision; None: a dry run.
    runs_for: float | None = None
    blocked: int = 0  # claims behind a lock or a predecessor, for the record
    # Claims that no new member could serve, by the code of the reason; for the record.
    hopeless: Mapping[str, int] = field(default_factory=dict)
    roll: Roll = Roll()
    surge: int | None = None  # id of the surplus member that the roll created

    @cached_property
    def sums(self) -> "Sums":
        """All counts over the members. One loop that unpacks tuples, because a cycle counts up
        to a hundred thousand members. The surge of a roll does not count for policies, and its
        free slots are no capacity.
        """
        there: list[ScaledMember] = []
        creating = offline = going = running = reserved = draining = total = 0
        for member in self.members:
            (
                id_,
                _,
                state,
                slots,
                runs,
                reserves,
                drains,
                _,
                _,
                _,
                is_leaving,
                is_cordoned,
                is_lost,
                _,
                _,
                _,
                _,
                _,
            ) = member
            running += runs
            reserved += reserves
            draining += drains
            is_going = is_leaving or state == "deleting"
            going += is_going
            offline += state == "offline"
            if not is_going and not is_lost and id_ != self.surge:
                there.append(member)
                creating += state == "creating"
                if not is_cordoned and state in ("ready", "creating"):
                    total += slots
                    continue
            total += runs + reserves + drains
        return Sums(tuple(there), creating, offline, going, running, reserved, draining, total)

    @cached_property
    def extra(self) -> ScaledMember | None:
        """The surge of a roll, unless it is leaving."""
        if self.surge is None:
            return None
        return next((m for m in self.members if m.id == self.surge and not m.is_going), None)

    @property
    def there(self) -> tuple[ScaledMember, ...]:
        return self.sums.there

    @property
    def creating(self) -> int:
        return self.sums.creating

    @property
    def running(self) -> int:
        return self.sums.running

    @property
    def reserved(self) -> int:
        return self.sums.reserved

    @property
    def used(self) -> int:
        return self.running + self.reserved

    @property
    def total(self) -> int:
        """Slots that count as capacity."""
        return self.sums.total

    @property
    def new_slots(self) -> int:
        return sum(self.each.values())

    @property
    def claims(self) -> int:
        return sum(line.claims for line in self.lines)

    @property
    def floor(self) -> int:
        """Members that reservations keep (S10)."""
        return -(-self.reserved // self.new_slots) if self.reserved and self.new_slots else 0

    @property
    def is_fresh(self) -> bool:
        """The provider was looked at recently, and since this controller started."""
        return self.seen is not None and self.seen <= self.fresh and not self.is_seen_earlier

    @property
    def is_seen_earlier(self) -> bool:
        """The last look began before this controller started."""
        return self.seen is not None and self.runs_for is not None and self.seen > self.runs_for

    @cached_property
    def unmet(self) -> tuple[DemandQueue, ...]:
        """The demand that free slots and members under creation do not cover."""
        left = dict(self.free)
        coming = {lane: count * self.creating for lane, count in self.each.items()}
        found = []
        for line in sorted(self.lines, key=lambda each: (len(each.lanes), -each.urgent)):
            slots = line.slots
            for supply in (left, coming) if line.fits_free else (coming,):
                for lane in line.lanes:
                    taken = min(slots, supply.get(lane, 0))
                    slots -= taken
                    if taken:
                        supply[lane] -= taken
            if slots > 0:
                found.append(line._replace(slots=slots, urgent=min(line.urgent, slots)))
        return tuple(found)

    def members_for(self, lines: Sequence[DemandQueue]) -> int:
        """Number of new members that would serve these queues."""
        needed = 0
        for line in lines:
            each = sum(self.each.get(lane, 0) for lane in line.lanes)
            if each and line.wants_new:
                needed += -(-line.slots // each)
        return needed


class ScalingCheck(NamedTuple):
    """One condition of a decision, with its threshold."""

    is_met: bool
    text: str
    note: str = ""


class RemovalCandidate(NamedTuple):
    """A member considered for removal, with the reason why it is chosen or spared."""

    id: int
    name: str
    why: str


class Gauge(NamedTuple):
    value: float
    low: float
    high: float


class ScalingTarget(NamedTuple):
    """The number of members a policy wants, before limits and guards. A target equal to the
    present number means no change.
    """

    target: int
    code: str  # equal reasons have equal codes
    reason: str
    checks: tuple[ScalingCheck, ...] = ()
    is_urgent: bool = False  # no cool-down, no step
    gauge: Gauge | None = None


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    delta: int
    verdict: Verdict
    code: str
    reason: str
    wanted: int = 0  # the change without limits and guards
    checks: tuple[ScalingCheck, ...] = ()
    chosen: tuple[RemovalCandidate, ...] = ()
    spared: tuple[RemovalCandidate, ...] = ()
    more_spared: int = 0
    gauge: Gauge | None = None
    inputs: Mapping[str, object] = field(default_factory=dict)
    clears_request: bool = False
    absorbs: bool = False  # the next request asks for the member that was just created
    step: Step = ""  # of a roll
    allowed_in: float | None = None  # seconds until a cool-down allows the wanted change

    @property
    def is_done(self) -> bool:
        """True if the decision changes members or stops the roll."""
        return bool(self.delta) or self.step in ("rebuild", "stop")

    @property
    def words(self) -> str:
        """Short form: +1, −1, no change, +1 delayed, +1 blocked, rebuild."""
        match self.verdict:
            case "grow" | "shrink":
                return signed(self.delta)
            case "blocked":
                return f"{signed(self.wanted)} blocked"
            case "hold":
                return f"{signed(self.wanted)} delayed" if self.wanted else "no change"
            case _:
                return self.verdict

    @property
    def key(self) -> str:
        """Decisions in a row with equal keys share one row."""
        return f"{self.verdict}:{self.code}:{self.delta}:{self.wanted}"


def signed(number: int) -> str:
    return f"+{number}" if number > 0 else f"−{-number}" if number else "0"


def record_inputs(s: Snapshot) -> dict[str, object]:
    """The facts that are stored with the decision."""
    return {
        "members": len(s.there),
        "all_members": len(s.members),
        "slots": s.total,
        "running": s.running,
        "reserved": s.reserved,
        "draining": s.sums.draining,
        "creating": s.creating,
        "offline": s.sums.offline,
        "leaving": s.sums.going,
        "waiting": s.claims,
        "unmet": sum(line.slots for line in s.unmet),
        "urgent": sum(line.urgent for line in s.lines),
        "blocked": s.blocked,
        "hopeless": sum(s.hopeless.values()),
        "hopeless_by": dict(s.hopeless),
        "min": s.limits.low,
        "max": s.limits.high,
        "window": s.limits.window,
        "floor": s.floor,
        "seen": None if s.seen is None else round(s.seen, 1),
        "requested": s.is_requested,
        "outdated": sum(m.is_outdated and not m.is_going for m in s.members),
        "surge": "" if s.extra is None else s.extra.name,
    }


def check_look(s: Snapshot) -> ScalingCheck:
    """A member is removed only after a recent look at the provider, since this controller
    started.
    """
    note = ago(s.seen) + (", before this controller started" if s.is_seen_earlier else "")
    return ScalingCheck(s.is_fresh, "provider checked recently", note)


def ago(seconds: float | None) -> str:
    return "never" if seconds is None else f"{span(seconds)} ago"


def capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]


def plural(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def existing(count: int) -> str:
    return plural(count, "member exists", "members exist") if count else "no member exists"


def span(seconds: float) -> str:
    """A duration as text: 31 s, 2 min, 2 h 46 min, 3 d 4 h."""
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    parts = [("d", whole // 86400), ("h", whole // 3600 % 24), ("min", whole // 60 % 60)]
    first = next(i for i, (_, count) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for unit, count in parts[first : first + 2] if count)
