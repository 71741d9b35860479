"""Turns the target of a policy into a decision: pause > freeze > max > pin > reserved floor > min >
policy, then guards and cool-downs, then the choice of members to remove (`victims.py`).

Pure: the same snapshot always gives the same decision. Each decision carries its reason.
"""

from dataclasses import dataclass, replace

from .model import (
    ScalingCheck,
    ScalingDecision,
    ScalingTarget,
    Snapshot,
    ago,
    capitalise,
    check_look,
    existing,
    plural,
    record_inputs,
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
    policy_target: ScalingTarget
    checks: tuple[ScalingCheck, ...]

    @property
    def follows_pace(self) -> bool:
        """True if the pace of the policy applies. Other limits and urgent targets do not wait."""
        return self.source in ("policy", "max") and not self.policy_target.is_urgent


def decide(s: Snapshot, policy: Policy) -> ScalingDecision:
    if s.limits.paused:
        check = ScalingCheck(False, "not paused", s.limits.paused)
        words = f"Paused: {s.limits.paused}. No member is created or removed"
        return finish(s, ScalingDecision(0, "paused", "paused", words, checks=(check,)))
    if s.limits.frozen:
        return finish(s, freeze(s))
    aim = find_desired_count(s, policy.find_target(s))
    delta = aim.target - len(s.there)
    if delta > 0:
        decision = grow(s, policy, aim, delta)
    elif delta < 0:
        decision = shrink(s, policy, aim, -delta)
    else:
        decision = stay(s, aim)
    decision = replace(decision, reason=capitalise(decision.reason), gauge=aim.policy_target.gauge)
    return finish(s, add_roll(s, decision))


def force(s: Snapshot, count: int, reason: str) -> ScalingDecision:
    """Create members on an operator's order. The maximum and a freeze still apply (S19)."""
    if s.limits.frozen:
        words = f"Frozen: {s.limits.frozen}"
        return finish(s, ScalingDecision(0, "blocked", "frozen", words, count))
    room = s.limits.high - len(s.members)
    made = max(0, min(count, room))
    check = ScalingCheck(room >= count, f"{len(s.members)} + {count} ≤ {s.limits.high}", "maximum")
    if not made:
        return finish(s, ScalingDecision(0, "blocked", "max", full(s), count, (check,)))
    return finish(s, ScalingDecision(made, "grow", "forced", f"forced: {reason}", made, (check,)))


def find_desired_count(s: Snapshot, policy_target: ScalingTarget) -> DesiredCount:
    """Apply the limits from the weakest to the strongest; each may override the one before."""
    target, source, limits = policy_target.target, "policy", s.limits
    checks = list(policy_target.checks)
    if target < limits.low:
        target, source = limits.low, "min"
        note = f"minimum{describe_window(limits.window)}"
        checks.append(ScalingCheck(False, f"{policy_target.target} ≥ {target}", note))
    if target < s.floor:
        target, source = s.floor, "floor"
        note = f"needed by {plural(s.reserved, 'reservation')}"
        checks.append(ScalingCheck(False, f"{policy_target.target} ≥ {target}", note))
    if limits.pin is not None:
        target, source = limits.pin.count, "pin"
        is_met = target == len(s.there)
        checks.append(ScalingCheck(is_met, f"pinned to {target}", limits.pin.reason))
    if target > limits.high:
        # `stay` and `grow` report what was wanted beyond the maximum.
        target = limits.high
        if len(s.there) > limits.high or source == "policy":
            source = "max"
    return DesiredCount(target, source, policy_target, tuple(checks))


def describe_window(window: str) -> str:
    return f", {window}" if window else ""


def stay(s: Snapshot, aim: DesiredCount) -> ScalingDecision:
    wanted = aim.policy_target.target - len(s.there)
    code, words = aim.source, aim.policy_target.reason
    if wanted > 0 and s.limits.pin is None:
        checks = (*aim.checks, check_room(s, wanted))
        return ScalingDecision(0, "blocked", "max", f"{words}, but {full(s)}", wanted, checks)
    if wanted < 0 and code == "min":
        words = f"{words}, but the minimum is {plural(s.limits.low, 'member')}"
    elif wanted < 0 and code == "floor":
        words = f"{words}, but {reservations(s)}"
    elif code == "pin" and s.limits.pin is not None:
        words = f"pinned to {s.limits.pin.count}{with_reason(s.limits.pin.reason)}"
    else:
        code = aim.policy_target.code
    return ScalingDecision(0, "hold", code, words, checks=aim.checks)


def grow(s: Snapshot, policy: Policy, aim: DesiredCount, delta: int) -> ScalingDecision:
    pace, checks, count, words = policy.pace, aim.checks, delta, reason_of(s, aim)
    if aim.follows_pace:
        count = min(delta, pace.step_up) if pace.step_up else delta
        if pace.up:
            left = pause_left(s.since_up, pace.up)
            checks = (*checks, check_pause(s.since_up, pace.up, "created"))
            if left:
                words = f"{aim.policy_target.reason}; the cool-down ends in {span(left)}"
                code = f"{aim.policy_target.code}-cooling"
                return ScalingDecision(
                    0, "hold", code, words, count, checks=checks, allowed_in=left
                )
    room = s.limits.high - len(s.members)
    checks = (*checks, check_room(s, count))
    if room <= 0:
        return ScalingDecision(0, "blocked", "max", f"{words}, but {full(s)}", count, checks)
    return ScalingDecision(min(count, room), "grow", code_of(aim), words, count, checks)


def check_room(s: Snapshot, count: int) -> ScalingCheck:
    """Whether the maximum leaves room for so many more members."""
    there, high = len(s.members), s.limits.high
    note = f"maximum{describe_window(s.limits.window)}"
    return ScalingCheck(there + count <= high, f"{there} + {count} ≤ {high}", note)


def pause_left(since: float | None, needed: float) -> float:
    """Seconds until the cool-down after a change ends."""
    return 0.0 if since is None else max(0.0, needed - since)


def check_pause(since: float | None, needed: float, change: str) -> ScalingCheck:
    """Whether the last member was created or removed long enough ago."""
    is_met = not pause_left(since, needed)
    return ScalingCheck(is_met, f"{span(needed)} since a member was {change}", ago(since))


def shrink(s: Snapshot, policy: Policy, aim: DesiredCount, surplus: int) -> ScalingDecision:
    pace, count, quiet, left = policy.pace, surplus, 0.0, 0.0
    code, words = code_of(aim), reason_of(s, aim)
    # Each guard with the end of the sentence that says why no member is removed.
    look = check_look(s)
    checked = "never checked" if s.seen is None else f"last checked {look.note}"
    guards = [(look, f"the provider was {checked}")]
    # Guards and pace apply unless an operator's order or the maximum demands the removal.
    is_own = aim.source in ("policy", "min", "floor")
    if is_own:
        count = min(surplus, pace.step_down) if pace.step_down else surplus
        quiet = policy.idle_for or 0.0 if isinstance(policy, OnDemand) else 0.0
        waiting = plural(s.claims, "claim waits", "claims wait")
        guards.append((ScalingCheck(not s.claims, f"{s.claims} waiting", "must be 0"), waiting))
        creating = ScalingCheck(not s.creating, f"{s.creating} being created", "must be 0")
        being = plural(s.creating, "member is", "members are")
        guards.append((creating, f"{being} being created"))
        left = max(pause_left(since, pace.down) for since in (s.since_down, s.since_up))
        for since, change in ((s.since_down, "removed"), (s.since_up, "created")):
            if pace.down:
                cooled = check_pause(since, pace.down, change)
                guards.append((cooled, f"the cool-down ends in {span(left)}"))
    checks = tuple(dict.fromkeys((*aim.checks, *(check for check, _ in guards))))
    if failed := next(((check, why) for check, why in guards if not check.is_met), None):
        check, why = failed
        return ScalingDecision(
            0, "hold", f"{code}-{slug(check)}", f"{words}, but {why}", -count, checks,
            allowed_in=left or None,
        )  # fmt: skip
    # Only the roll removes the member that it created.
    candidates = [m for m in s.members if m.id != s.surge]
    chosen, spared, more = choose(candidates, count, may_be_new=not is_own, quiet=quiet)
    if not chosen:
        words = f"{words}, but no member may be removed now"
        return ScalingDecision(0, "hold", f"{code}-nobody", words, -count, checks, (), spared, more)
    return ScalingDecision(
        -len(chosen), "shrink", code, words, -count, checks, chosen, spared, more
    )


def freeze(s: Snapshot) -> ScalingDecision:
    """Remove idle members. Members that are held or reserved stay (P17)."""
    checks = (ScalingCheck(False, "no freeze", s.limits.frozen), check_look(s))
    words = f"Frozen: {s.limits.frozen}. "
    chosen, spared, more = choose(s.members, len(s.members), may_be_new=True)
    if chosen and s.is_fresh:
        words += "Idle members are removed, busy ones stay"
        delta = -len(chosen)
        return ScalingDecision(
            delta, "shrink", "freeze", words, delta, checks, chosen, spared, more
        )
    words += plural(len(s.there), "member stays", "members stay")
    return ScalingDecision(0, "frozen", "freeze", words, 0, checks, (), spared, more)


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
    window = f" ({s.limits.window})" if s.limits.window else ""
    match aim.source:
        case "min" if is_short:
            low = plural(s.limits.low, "member")
            return f"the minimum{window} is {low}, and {existing(len(s.there))}"
        case "floor" if is_short:
            return f"{reservations(s)}, and {existing(len(s.there))}"
        case "pin":
            reason = s.limits.pin.reason if s.limits.pin else ""
            return f"pinned to {aim.target}{with_reason(reason)}"
        case "max" if len(s.there) > s.limits.high:
            high = plural(s.limits.high, "member")
            return f"the maximum{window} is {high}, and {existing(len(s.there))}"
        case _:
            return aim.policy_target.reason


def code_of(aim: DesiredCount) -> str:
    return aim.policy_target.code if aim.source == "policy" else aim.source


def full(s: Snapshot) -> str:
    going = sum(m.is_going or m.is_lost for m in s.members)
    more = f", {going} of them being removed or lost" if going else ""
    if s.limits.used_up:
        return (
            f"{s.limits.used_up}: {plural(len(s.members), 'member exists', 'members exist')}{more}"
        )
    return f"{len(s.members)} of {s.limits.high} members exist{more}"


def reservations(s: Snapshot) -> str:
    keep = plural(s.reserved, "reservation needs", "reservations need")
    return f"{keep} {plural(s.floor, 'member')}"


def slug(check: ScalingCheck) -> str:
    """The part of a decision's code that names the failed guard, without its numbers."""
    return "".join(c for c in check.text if c.isalpha() or c in "+−")[:24]


def with_reason(reason: str) -> str:
    """Without quotation marks: an event quotes the whole sentence."""
    return f": {reason}" if reason else ""
