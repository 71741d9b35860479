"""Turns a policy's wish into a decision: pause > freeze > max > pin > reserved floor > min >
policy, then guards and cool-downs, then the choice of members to remove (`victims.py`).

Pure: the same snapshot always gives the same decision. Each decision carries its reason.
"""

from dataclasses import dataclass, replace

from .model import (
    ScalingCheck,
    ScalingDecision,
    ScalingTarget,
    Snapshot,
    plural,
    record_inputs,
    signed,
    span,
)
from .policies import OnDemand, Policy
from .roll import add_roll
from .victims import choose


@dataclass(frozen=True, slots=True)
class DesiredCount:
    """The number of members that a pool should have, and the rule that set the number."""

    target: int
    source: str  # policy, min, floor, pin, max, freeze
    wish: ScalingTarget
    checks: tuple[ScalingCheck, ...]

    @property
    def is_wish(self) -> bool:
        """True if the pace of the policy applies. Other limits and urgent wishes do not wait."""
        return self.source in ("policy", "max") and not self.wish.is_urgent


def decide(s: Snapshot, policy: Policy) -> ScalingDecision:
    if s.limits.paused:
        check = ScalingCheck(False, "not paused", s.limits.paused)
        return finish(
            s,
            ScalingDecision(
                0,
                "paused",
                "paused",
                f"Paused: {s.limits.paused}. No member is created or removed",
                checks=(check,),
            ),
        )
    if s.limits.frozen:
        return finish(s, freeze(s))
    aim = find_desired_count(s, policy.wish(s))
    delta = aim.target - len(s.there)
    if delta > 0:
        decision = grow(s, policy, aim, delta)
    elif delta < 0:
        decision = shrink(s, policy, aim, -delta)
    else:
        decision = stay(s, aim)
    return finish(s, add_roll(s, replace(decision, gauge=aim.wish.gauge)))


def force(s: Snapshot, count: int, reason: str) -> ScalingDecision:
    """Create members on an operator's order. The maximum and a freeze still apply (S19)."""
    if s.limits.frozen:
        return finish(
            s, ScalingDecision(0, "blocked", "frozen", f"Frozen: {s.limits.frozen}", count)
        )
    room = s.limits.high - len(s.members)
    made = max(0, min(count, room))
    check = ScalingCheck(room >= count, f"{len(s.members)} + {count} ≤ {s.limits.high}", "maximum")
    if not made:
        return finish(s, ScalingDecision(0, "blocked", "max", full(s), count, (check,)))
    return finish(s, ScalingDecision(made, "grow", "forced", f"forced: {reason}", made, (check,)))


def find_desired_count(s: Snapshot, wish: ScalingTarget) -> DesiredCount:
    """Apply the limits from the weakest to the strongest; each may override the one before."""
    target, source, limits = wish.target, "policy", s.limits
    checks = list(wish.checks)
    if target < limits.low:
        target, source = limits.low, "min"
        checks.append(
            ScalingCheck(
                False, f"{wish.target} ≥ {limits.low}", f"minimum{describe_window(limits.window)}"
            )
        )
    if target < s.floor:
        target, source = s.floor, "floor"
        checks.append(
            ScalingCheck(
                False, f"{wish.target} ≥ {s.floor}", f"kept by {plural(s.reserved, 'reservation')}"
            )
        )
    if limits.pin is not None:
        target, source = limits.pin.count, "pin"
        checks.append(
            ScalingCheck(target == len(s.there), f"pinned to {target}", limits.pin.reason)
        )
    if target > limits.high:
        # `stay` and `grow` report what was wanted beyond the maximum.
        target, source = (
            limits.high,
            "max" if len(s.there) > limits.high or source == "policy" else source,
        )
    return DesiredCount(target, source, wish, tuple(checks))


def describe_window(window: str) -> str:
    return f", {window}" if window else ""


def stay(s: Snapshot, aim: DesiredCount) -> ScalingDecision:
    wanted = aim.wish.target - len(s.there)
    if wanted > 0 and s.limits.pin is None:
        check = ScalingCheck(
            False,
            f"{len(s.members)} + {signed(wanted).lstrip('+')} ≤ {s.limits.high}",
            f"maximum{describe_window(s.limits.window)}",
        )
        return ScalingDecision(
            0,
            "blocked",
            "max",
            f"{sentence(aim.wish.reason)}, but {full(s)}",
            wanted,
            (*aim.checks, check),
        )
    if wanted < 0 and aim.source in ("min", "floor"):
        why = (
            f"{s.limits.low} is the minimum"
            if aim.source == "min"
            else f"{plural(s.reserved, 'reservation')} keep {s.floor}"
        )
        return ScalingDecision(
            0, "hold", aim.source, f"{sentence(aim.wish.reason)}, but {why}", checks=aim.checks
        )
    if aim.source == "pin" and s.limits.pin is not None:
        return ScalingDecision(
            0,
            "hold",
            "pin",
            f"Pinned to {s.limits.pin.count}{with_reason(s.limits.pin.reason)}",
            checks=aim.checks,
        )
    return ScalingDecision(0, "hold", aim.wish.code, sentence(aim.wish.reason), checks=aim.checks)


def grow(s: Snapshot, policy: Policy, aim: DesiredCount, delta: int) -> ScalingDecision:
    pace, checks, count = policy.pace, list(aim.checks), delta
    if aim.is_wish:
        count = min(delta, pace.step_up) if pace.step_up else delta
        if pace.up:
            is_cool = s.since_up is None or s.since_up >= pace.up
            checks.append(
                ScalingCheck(is_cool, f"{span(pace.up)} since the last +", ago(s.since_up))
            )
            if not is_cool:
                words = f"{sentence(aim.wish.reason)}, but the last + was {ago(s.since_up)}"
                return ScalingDecision(
                    0, "hold", f"{aim.wish.code}-cooling", words, checks=tuple(checks)
                )
    room = s.limits.high - len(s.members)
    checks.append(
        ScalingCheck(
            room >= count,
            f"{len(s.members)} + {count} ≤ {s.limits.high}",
            f"maximum{describe_window(s.limits.window)}",
        )
    )
    if room <= 0:
        return ScalingDecision(
            0,
            "blocked",
            "max",
            f"{sentence(reason_of(s, aim))}, but {full(s)}",
            count,
            tuple(checks),
        )
    made = min(count, room)
    return ScalingDecision(
        made, "grow", code_of(aim), sentence(reason_of(s, aim)), count, tuple(checks)
    )


def shrink(s: Snapshot, policy: Policy, aim: DesiredCount, surplus: int) -> ScalingDecision:
    pace, checks, count = policy.pace, list(aim.checks), surplus
    guards = [
        ScalingCheck(
            s.is_fresh,
            "the provider was looked at",
            "never" if s.seen is None else f"{ago(s.seen)}",
        )
    ]
    quiet = 0.0
    # Guards and pace apply unless an operator's order or the maximum demands the removal.
    is_own = aim.source in ("policy", "min", "floor")
    if is_own:
        count = min(surplus, pace.step_down) if pace.step_down else surplus
        quiet = policy.idle_for or 0.0 if isinstance(policy, OnDemand) else 0.0
        guards.append(ScalingCheck(not s.claims, f"{s.claims} waiting", "must be 0"))
        guards.append(ScalingCheck(not s.creating, f"{s.creating} being created", "must be 0"))
        if pace.down:
            for since, what in ((s.since_down, "−"), (s.since_up, "+")):
                guards.append(
                    ScalingCheck(
                        since is None or since >= pace.down,
                        f"{span(pace.down)} since the last {what}",
                        ago(since),
                    )
                )
    checks += [guard for guard in guards if guard not in checks]
    if failed := [guard for guard in guards if not guard.is_met]:
        words = f"{sentence(reason_of(s, aim))}, but {describe_check(failed[0])}"
        return ScalingDecision(
            0, "hold", f"{code_of(aim)}-{slug(failed[0])}", words, -count, tuple(checks)
        )
    # Only the roll removes the member that it created.
    candidates = [m for m in s.members if m.id != s.surge]
    chosen, spared, more = choose(candidates, count, may_be_new=not is_own, quiet=quiet)
    if not chosen:
        words = f"{sentence(reason_of(s, aim))}, but each member is in use or kept"
        return ScalingDecision(
            0, "hold", f"{code_of(aim)}-nobody", words, -count, tuple(checks), (), spared, more
        )
    return ScalingDecision(
        -len(chosen),
        "shrink",
        code_of(aim),
        sentence(reason_of(s, aim)),
        -count,
        tuple(checks),
        chosen,
        spared,
        more,
    )


def freeze(s: Snapshot) -> ScalingDecision:
    """Remove idle members. Members that are held or reserved stay (P17)."""
    checks = (
        ScalingCheck(False, "no freeze", s.limits.frozen),
        ScalingCheck(s.is_fresh, "the provider was looked at", ago(s.seen)),
    )
    words = f"Frozen: {s.limits.frozen}"
    chosen, spared, more = choose(s.members, len(s.members), may_be_new=True)
    if chosen and s.is_fresh:
        return ScalingDecision(
            -len(chosen),
            "shrink",
            "freeze",
            f"{words}. Idle members are removed, busy ones stay",
            -len(chosen),
            checks,
            chosen,
            spared,
            more,
        )
    stays = len(s.there)
    return ScalingDecision(
        0,
        "frozen",
        "freeze",
        f"{words}. {plural(stays, 'member stays', 'members stay')}",
        0,
        checks,
        (),
        spared,
        more,
    )


def finish(s: Snapshot, decision: ScalingDecision) -> ScalingDecision:
    """A request ends once its member is there, or if no member can be created (S2, S6)."""
    is_over = decision.verdict in ("blocked", "paused", "frozen", "stopped") or (
        decision.delta <= 0 and not s.creating
    )
    clears = s.is_requested and is_over
    absorbs = clears and s.grown_since_request and decision.verdict == "hold"
    return replace(decision, inputs=record_inputs(s), clears_request=clears, absorbs=absorbs)


def reason_of(s: Snapshot, aim: DesiredCount) -> str:
    is_short = len(s.there) < aim.target
    window = describe_window(s.limits.window)
    match aim.source:
        case "min" if is_short:
            return f"{s.limits.low} is the minimum{window}, {len(s.there)} there"
        case "floor" if is_short:
            return (
                f"{plural(s.reserved, 'reservation')} keep {plural(s.floor, 'member')}, "
                f"{len(s.there)} there"
            )
        case "pin":
            reason = s.limits.pin.reason if s.limits.pin else ""
            return f"pinned to {aim.target}{with_reason(reason)}"
        case "max" if len(s.there) > s.limits.high:
            return f"{s.limits.high} is the maximum{window}, {len(s.there)} there"
        case _:
            return aim.wish.reason


def code_of(aim: DesiredCount) -> str:
    return aim.wish.code if aim.source == "policy" else aim.source


def full(s: Snapshot) -> str:
    going = sum(m.is_going or m.is_lost for m in s.members)
    more = f", {going} of them on the way out or lost" if going else ""
    return f"{len(s.members)} of {s.limits.high} members exist{more}"


def describe_check(check: ScalingCheck) -> str:
    return f"{check.text}: {check.note}" if check.note else check.text


def slug(check: ScalingCheck) -> str:
    """The part of a decision's code that names the failed guard, without its numbers."""
    return "".join(c for c in check.text if c.isalpha() or c in "+−")[:24]


def ago(seconds: float | None) -> str:
    return "never" if seconds is None else f"{span(seconds)} ago"


def with_reason(reason: str) -> str:
    return f", “{reason}”" if reason else ""


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
