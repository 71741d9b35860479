"""Scaling as pages and the API show it: decisions as cards, the next members to be removed, the
state of the roll.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from claims.scaling import scaling_sql
from claims.scaling.scaler import decide_safely, inputs_of
from claims.scaling.snapshot import HOPELESS, Subject, read_subjects, read_wanted
from pools.config.scaling_spec import BUILT_IN
from pools.models import Decision as Row
from pools.models import Pool
from pools.scaling import ScalingDecision, decide_roll, list_next, order
from pools.scaling.model import ScaledMember, plural
from pools.scaling.victims import find_blocker
from project.kernel.errors import FieldError, Invalid, wrong_field
from slots.members import members_sql

SHOWN = 25  # decisions
NEXT = 12  # members
HOUR = timedelta(hours=1)
# Settings that a dry run may change.
CHANGES = ("max", "min", "grow_above", "shrink_below", "max_idle", "size")


@dataclass(frozen=True, slots=True)
class Card:
    """A decision as it is shown. Without id and times: a dry run."""

    id: int | None
    at: datetime | None
    last_at: datetime | None
    times: int
    delta: int
    words: str
    verdict: str
    reason: str
    inputs: Mapping[str, object]
    checks: Sequence[Mapping[str, object]]
    gauge: Mapping[str, float] | None
    chosen: Sequence[Mapping[str, object]]
    spared: Sequence[Mapping[str, object]]
    more_spared: int = 0

    @property
    def share(self) -> str:
        return "" if self.gauge is None else f"{self.gauge['value']:.1f} %"

    @property
    def gauge_label(self) -> str:
        if self.gauge is None:
            return ""
        low, high = (f"{self.gauge[name]:.1f}".removesuffix(".0") for name in ("low", "high"))
        return f"{self.share} in use; shrinks below {low} %, grows above {high} %"

    @property
    def code(self) -> str:
        """The reason as a code. A waiting roll adds its own: max+roll."""
        return str(self.inputs.get("key", "")).partition(":")[2].split(":")[0].partition("+")[0]

    @property
    def allowed_at(self) -> datetime | None:
        """When the cool-down ends that delays the change. None: no cool-down delays it."""
        seconds = self.inputs.get("allowed_in")
        if self.last_at is None or not isinstance(seconds, int | float):
            return None
        return self.last_at + timedelta(seconds=seconds)

    @property
    def result(self) -> str:
        """What becomes of the number of members."""
        number = self.inputs.get("wanted")
        wanted = number if isinstance(number, int) else 0
        more = f"{plural(wanted, 'more member')} wanted. None is created"
        match self.verdict, self.code:
            case "blocked", "max":
                why = "Waiting claims show this as their reason; raise the maximum to serve them."
                return f"{more}. {why}"
            case "blocked", _:
                return f"{more} until the freeze ends."
            case "paused", _:
                return "No member is created or removed until the pause ends."
            case "frozen", _:
                return "No member is created or removed until the freeze ends."
            case "stopped", _:
                return (
                    "No other member is renewed until an operator orders the roll again or the "
                    "configuration changes."
                )
            case "failed", _:
                return "Nothing is changed. The next decision tries again."
            case "hold", "min":
                return "No member is removed: the minimum requires the members."
            case "hold", "floor":
                return "No member is removed: reservations need the members."
            case "hold", "pin":
                return "The pin sets the number of members: none is created or removed."
            case _, _ if wanted > 0:
                return f"{more} before the cool-down ends."
            case _, _ if wanted < 0:
                return f"{-wanted} fewer wanted. No member is removed now."
        return "No member is created or removed now."

    @property
    def not_counted(self) -> str:
        """The waiting claims that no new member could serve, by reason. Empty: none."""
        total, found = self.inputs.get("hopeless"), self.inputs.get("hopeless_by")
        if not isinstance(total, int) or not total:
            return ""
        if not isinstance(found, Mapping) or not found:  # a decision of an earlier version
            return f"{plural(total, 'claim')} that no new member can serve"
        return ", ".join(f"{plural(n, 'claim')} {HOPELESS[code]}" for code, n in found.items())


@dataclass(frozen=True, slots=True)
class NextRemoval:
    """A member in the order of removal."""

    id: int
    name: str
    state: str
    blocked: str  # why it cannot be removed; empty: it can be removed now
    claims: tuple[tuple[int, str], ...] = ()  # id and slot state of the claims there


@dataclass(frozen=True, slots=True)
class RollOverview:
    """The outdated members and the state of their renewal."""

    members: Sequence[NextRemoval]
    words: str
    is_under_way: bool  # an extra member was created to replace one of them


@dataclass(frozen=True, slots=True)
class ScalingOverview:
    pool: Pool
    subject: Subject | None  # None: the pool is not active or has no scaling
    now: Card | None = None
    cards: Sequence[Card] = ()
    going: Sequence[NextRemoval] = ()
    more_going: int = 0
    grown: int = 0
    shrunk: int = 0
    options: Mapping[str, object] = field(default_factory=dict)
    roll: RollOverview | None = None

    @property
    def can_go(self) -> int:
        return sum(not each.blocked for each in self.going)


def read_scaling_overview(pool: Pool, *, limit: int = SHOWN) -> ScalingOverview:
    rows = scaling_sql.read_scaled(pools=[pool.pk])
    cards = list_decisions(pool.pk, limit)
    subject = read_subjects(rows, read_wanted())[0] if rows else None
    if subject is None or subject.spec.scaling is None:
        return ScalingOverview(pool, None, cards=cards)
    going, more = list_next_removals(subject)
    counts = (
        Row.objects.filter(pool=pool, at__gte=subject.row.moment - HOUR)
        .exclude(delta=0)
        .values_list("delta", flat=True)
    )
    grown, shrunk = sum(d for d in counts if d > 0), -sum(d for d in counts if d < 0)
    return ScalingOverview(
        pool,
        subject,
        card_now(decide_safely(subject)),
        cards,
        going,
        more,
        grown,
        shrunk,
        subject.spec.scaling.options,
        roll_of(subject),
    )


def read_roll(pool: Pool) -> RollOverview | None:
    """The roll of an active pool, with or without scaling. None: the pool is not active."""
    rows = scaling_sql.read_scaled(pools=[pool.pk])
    return roll_of(read_subjects(rows, read_wanted())[0]) if rows else None


def roll_of(subject: Subject) -> RollOverview:
    snapshot = subject.snapshot
    old = [m for m in snapshot.members if m.is_outdated and m.is_owned and not m.is_going]
    members = [
        NextRemoval(m.id, m.name, m.state, find_blocker(m, may_be_new=True)) for m in order(old)
    ]
    decision = decide_roll(snapshot)
    reason = "all members are up to date" if decision is None else decision.reason
    if decision is not None and (stop := snapshot.limits.paused or snapshot.limits.frozen):
        reason = f"{plural(len(old), 'member')} outdated; nothing is changed: {stop}"
    return RollOverview(members, reason, snapshot.extra is not None)


def list_decisions(pool_id: int, limit: int) -> list[Card]:
    found = Row.objects.filter(pool_id=pool_id).order_by("-last_at", "-id")
    return [card_of(row) for row in found[:limit]]


def card_of(row: Row) -> Card:
    inputs: dict[str, Any] = row.inputs
    return Card(
        row.pk, row.at, row.last_at, row.seen_again + 1, row.delta, inputs.get("words", ""),
        inputs.get("verdict", ""), row.reason, inputs, inputs.get("checks", ()),
        inputs.get("gauge"), row.chosen, row.spared, inputs.get("more_spared", 0),
    )  # fmt: skip


def card_now(decision: ScalingDecision) -> Card:
    """The card of a dry run."""
    chosen, spared = (
        [judged._asdict() for judged in some] for some in (decision.chosen, decision.spared)
    )
    row = Row(
        delta=decision.delta, reason=decision.reason, inputs=inputs_of(decision), chosen=chosen,
        spared=spared,
    )  # fmt: skip
    return replace(card_of(row), at=None, last_at=None)


def list_next_removals(subject: Subject) -> tuple[list[NextRemoval], int]:
    ranked = list_next(subject.snapshot.members)
    shown: list[tuple[ScaledMember, str]] = ranked[:NEXT]
    holders: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for row in members_sql.holders(members=[member.id for member, _ in shown]):
        if row.claim_id is not None:
            holders[row.member_id].append((row.claim_id, row.state))
    found = [
        NextRemoval(m.id, m.name, m.state, why, tuple(dict.fromkeys(holders[m.id])))
        for m, why in shown
    ]
    return found, len(ranked) - len(shown)


def try_changes(subject: Subject, changes: Mapping[str, Any]) -> Card:
    """The decision of this moment if the configuration had these changes. `Invalid` for unknown
    options and for a minimum above the maximum.
    """
    scaling, limits = subject.spec.scaling, subject.snapshot.limits
    assert scaling is not None  # `read_scaling_overview` checks it
    low, high = changes.get("min", limits.low), changes.get("max", limits.high)
    if low > high:
        raise wrong_field(
            "min", f"Minimum {low} is above maximum {high}.", "Lower min or raise max."
        )
    known = BUILT_IN.get(scaling.policy, ())
    options = {name: value for name, value in changes.items() if name not in ("min", "max")}
    if unknown := [name for name in options if name not in known]:
        way_out = (
            f"Use one of {', '.join(known)}."
            if known
            else "A dry run cannot change options of a custom policy."
        )
        raise Invalid(
            fields=[
                FieldError(name, f"{scaling.policy} has no option {name}.", way_out)
                for name in unknown
            ]
        )
    snapshot = replace(subject.snapshot, limits=replace(limits, low=low, high=high))
    spec = replace(subject.spec, scaling=replace(scaling, options={**scaling.options, **options}))
    return card_now(decide_safely(replace(subject, spec=spec, snapshot=snapshot)))
