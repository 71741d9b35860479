"""The scaling policies. Each pool has one policy, which returns the wanted number of members and a
reason for a snapshot. Limits, guards and the choice of members are shared (`decide.py`).

An installation may add policies: a class with `pace` and `find_target(snapshot)`, named in
settings.BERTH_SCALING_POLICIES.
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from .model import (
    Gauge,
    ScalingCheck,
    ScalingPace,
    ScalingTarget,
    Snapshot,
    existing,
    plural,
    span,
)
from .victims import find_blocker, order

EVERYTHING_AT_ONCE = ScalingPace(0, 0, 0, 0)
ONE_BY_ONE = ScalingPace()
WARM = ScalingPace(0, 300, 0, 0)
ON_DEMAND = ScalingPace(0, 600, 1, 1)


@runtime_checkable
class Policy(Protocol):
    @property
    def pace(self) -> ScalingPace: ...

    def find_target(self, s: Snapshot) -> ScalingTarget: ...


class RenamedPolicy:
    """A custom policy whose method has its earlier name, `wish`."""

    def __init__(self, policy: Any) -> None:
        self.pace: ScalingPace = policy.pace
        self._policy = policy

    def find_target(self, s: Snapshot) -> ScalingTarget:
        target: ScalingTarget = self._policy.wish(s)
        return target


@dataclass(frozen=True, slots=True)
class Fixed:
    """A constant number of members."""

    size: int = 1
    pace: ScalingPace = EVERYTHING_AT_ONCE

    def find_target(self, s: Snapshot) -> ScalingTarget:
        count = len(s.there)
        check = ScalingCheck(count == self.size, f"{count} of {self.size}", "configured size")
        words = f"{plural(self.size, 'member')} wanted, {existing(count)}"
        return ScalingTarget(self.size, "fixed", words, (check,))


@dataclass(frozen=True, slots=True)
class Utilisation:
    """One more member above a share of slots in use, one fewer below another share (S8)."""

    grow_above: float = 80.0
    shrink_below: float = 20.0
    idle_members: bool = False  # True: idle members may go while slots of other members are in use
    pace: ScalingPace = ONE_BY_ONE

    def find_target(self, s: Snapshot) -> ScalingTarget:
        if early := start(s):
            return early
        share = 100 * s.used / s.total if s.total else 0.0
        gauge = Gauge(round(share, 1), self.shrink_below, self.grow_above)
        return self._target_at(s, share)._replace(gauge=gauge)

    def _target_at(self, s: Snapshot, share: float) -> ScalingTarget:
        """The target at this share of slots in use, in per cent."""
        count, percent = len(s.there), f"{share:.1f} %"
        above, below = f"{share:.1f} > {self.grow_above:g}", f"{share:.1f} < {self.shrink_below:g}"
        if share > self.grow_above:
            check = ScalingCheck(True, above, "more members wanted")
            words = f"{percent} of {plural(s.total, 'slot')} in use"
            return ScalingTarget(count + 1, "busy", words, (check,))
        if s.members_for(s.unmet):
            slots = sum(line.slots for line in s.unmet)
            check = ScalingCheck(True, f"{slots} > 0", "slots missing")
            words = f"{percent} in use and {missing(slots)}"
            return ScalingTarget(count + 1, "waiting", words, (check,))
        if share >= self.shrink_below:
            checks = (
                ScalingCheck(False, above, "needed to grow"),
                ScalingCheck(False, below, "needed to shrink"),
            )
            words = f"{percent} in use, between {self.shrink_below:g} and {self.grow_above:g} %"
            return ScalingTarget(count, "between", words, checks)
        return self._fewer(s, percent, ScalingCheck(True, below, "fewer members wanted"))

    def _fewer(self, s: Snapshot, percent: str, below: ScalingCheck) -> ScalingTarget:
        count, checks, failed = len(s.there), [below], list[str]()
        counts = [(s.claims, "waiting", "claim waits", "claims wait")]
        if not self.idle_members:
            counts[:0] = [
                (s.running, "running", "slot is held", "slots are held"),
                (s.reserved, "reserved", "slot is reserved", "slots are reserved"),
            ]
        for number, word, one, many in counts:
            checks.append(ScalingCheck(not number, f"{number} {word}", "must be 0"))
            failed += [plural(number, one, many)] if number else []
        if failed:
            words = f"{percent} is below {self.shrink_below:g} %, but {' and '.join(failed)}"
            return ScalingTarget(count, "kept", words, tuple(checks))
        if not count:
            return ScalingTarget(0, "empty", "no member exists and no claim waits for a slot")
        first = next((m for m in order(s.there) if not find_blocker(m)), None)
        if first is not None and 100 * s.used > self.grow_above * (s.total - first.usable):
            text = f"without {first.name} above {self.grow_above:g} %"
            words = f"{percent} in use, but without {first.name} the pool would grow again"
            checks.append(ScalingCheck(False, text, "removal would cause growth"))
            return ScalingTarget(count, "needed", words, tuple(checks))
        words = f"{percent} of {plural(s.total, 'slot')} in use"
        return ScalingTarget(count - 1, "idle", words, tuple(checks))


@dataclass(frozen=True, slots=True)
class Warm:
    """A number of idle members beside those in use, ready for the next claims (P19)."""

    max_idle: int = 1
    pace: ScalingPace = WARM

    def find_target(self, s: Snapshot) -> ScalingTarget:
        count = len(s.there)
        used = sum(m.occupied > 0 for m in s.there)
        pending = s.members_for(s.lines)
        wanted = used + pending + self.max_idle
        words = f"{used} in use + {pending} for waiting claims + {self.max_idle} idle = {wanted}"
        check = ScalingCheck(count == wanted, f"{count} of {wanted}", "in use + waiting + idle")
        return ScalingTarget(wanted, "warm", words, (check,))


@dataclass(frozen=True, slots=True)
class OnDemand:
    """One more member while a claim cannot be served, one fewer once a member has been idle for
    `idle_for` (S1-S7).
    """

    idle_for: float | None = 600.0  # None: no member is removed
    pace: ScalingPace = ON_DEMAND

    def find_target(self, s: Snapshot) -> ScalingTarget:
        count = len(s.there)
        if early := start(s):
            return early
        unmet = sum(line.slots for line in s.unmet)
        needed = s.members_for(s.unmet)
        check = ScalingCheck(bool(needed), f"{unmet} > 0", "slots missing")
        if needed:
            return ScalingTarget(count + needed, "waiting", missing(unmet), (check,))
        if unmet:
            words = (
                f"{missing(unmet)}, but new members would not have the requested slots or labels"
            )
            return ScalingTarget(count, "unservable", words, (check,))
        if self.idle_for is None or s.claims:
            words = (
                "every waiting claim is being served" if s.claims else "no claim waits for a slot"
            )
            return ScalingTarget(count, "served", words, (check,))
        long = sum(not find_blocker(m) and m.quiet_for >= self.idle_for for m in s.there)
        idle_for = span(self.idle_for)
        check = ScalingCheck(bool(long), f"{long} idle for {idle_for}", "needed to shrink")
        if long:
            have = plural(long, "member has", "members have")
            words = f"no claim waits for a slot and {have} been idle for {idle_for} or longer"
            return ScalingTarget(count - 1, "idle", words, (check,))
        words = f"no claim waits for a slot and no member has been idle for {idle_for}"
        return ScalingTarget(count, "content", words, (check,))


def missing(slots: int) -> str:
    return f"{plural(slots, 'slot is', 'slots are')} missing for waiting claims"


def start(s: Snapshot) -> ScalingTarget | None:
    """The targets that take effect without a cool-down: the first member (S9), and a slot for plans
    that people review or have approved (S11). None: neither is needed.
    """
    if not s.there and s.members_for(s.lines):
        words = f"no member exists and {plural(s.claims, 'claim waits', 'claims wait')}"
        return ScalingTarget(max(s.limits.low, 1), "first", words, is_urgent=True)
    urgent = [line for line in s.unmet if line.urgent and line.wants_new]
    if urgent and s.members_for(urgent):
        slots = sum(line.urgent for line in urgent)
        note = "plans that wait for people or are approved"
        check = ScalingCheck(True, f"{plural(slots, 'plan')} without a slot", note)
        words = f"{plural(slots, 'plan')} without a slot, and no free slot fits"
        return ScalingTarget(len(s.there) + 1, "urgent", words, (check,), is_urgent=True)
    return None
