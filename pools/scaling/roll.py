"""The rolling renewal of outdated members: those created from another configuration than the pool
has now. Pure.

Only idle members are renewed, one by one. Where the limits leave room, the roll creates one more
member first (a surge); elsewhere it rebuilds a member in its place. A new member must become ready
and stay ready before the next step. A new member that does not become ready stops the roll, so
that a broken configuration does not replace every member.
"""

from collections.abc import Sequence
from dataclasses import replace

from .model import (
    RemovalCandidate,
    ScaledMember,
    ScalingCheck,
    ScalingDecision,
    Snapshot,
    capitalise,
    check_look,
    plural,
    span,
)
from .victims import find_blocker, order


def decide_roll(s: Snapshot) -> ScalingDecision | None:
    """The next step of the roll, or what the roll waits for. None: no member is outdated."""
    old = [
        m for m in s.members if m.is_outdated and m.is_owned and not m.is_going and m.id != s.surge
    ]
    if not old and s.extra is None:
        return None
    if s.extra is not None and (s.extra.is_outdated or not old):
        return end_surge(s, s.extra)
    if not s.roll.is_wanted and s.extra is None:
        return wait("manual", f"{outdated(old)}, renewed once an operator orders it")
    if s.roll.paused:
        return wait("paused", f"{outdated(old)}, the roll is paused: {s.roll.paused}")
    if s.roll.stopped:
        return wait("stopped", f"{outdated(old)}, the roll has stopped: {s.roll.stopped}")
    if (gate := find_gate(s)) is not None:
        return gate
    return step(s, old) if s.extra is None else swap(s, old, s.extra)


def add_roll(s: Snapshot, decision: ScalingDecision) -> ScalingDecision:
    """Replace a decision without a change by the next step of the roll. If the roll waits, its
    reason follows the reason of the policy.
    """
    if decision.delta or (found := decide_roll(s)) is None:
        return decision
    if found.is_done:
        return replace(found, gauge=decision.gauge, checks=(*found.checks, *decision.checks))
    return replace(
        decision,
        reason=f"{decision.reason}. {found.reason}",
        code=f"{decision.code}+{found.code}",
        checks=(*decision.checks, *found.checks),
    )


def find_gate(s: Snapshot) -> ScalingDecision | None:
    """What new members impose on the roll: it waits while one is not ready or only just ready,
    and stops if one does not become ready in time. None: the roll may go on.
    """
    new = [m for m in s.members if not m.is_outdated and m.is_owned and not m.is_going]
    for member in new:
        if member.is_lost or (member.state != "ready" and member.state_for >= s.roll.ready_within):
            why = "has vanished" if member.is_lost and member.state == "ready" else "is not ready"
            after, name = span(member.state_for), member.name
            words = f"The roll stops: {name} {why} after {after}{provider_reason(member)}"
            check = ScalingCheck(False, f"{name} ready within {span(s.roll.ready_within)}", after)
            return ScalingDecision(
                0, "stopped", "roll-stopped", words, checks=(check,), step="stop"
            )
    if late := next((m for m in new if m.state != "ready"), None):
        check = ScalingCheck(False, f"{late.name} ready", late.state)
        words = f"the roll waits for {late.name} to be ready{provider_reason(late)}"
        return wait("unready", words, check)
    if fresh := next((m for m in new if m.state_for < s.roll.settle), None):
        check = ScalingCheck(False, f"ready for {span(s.roll.settle)}", fresh.name)
        return wait("unready", f"the roll waits for {fresh.name} to stay ready", check)
    return None


def step(s: Snapshot, old: Sequence[ScaledMember]) -> ScalingDecision:
    """The step while no surge exists: rebuild an outdated member that is not ready, else create
    one more member, else rebuild one in its place.
    """
    idle = idle_of(old)
    if not idle:
        return wait("busy", in_use(old))
    if useless := next((m for m in idle if m.state != "ready"), None):
        check = ScalingCheck(True, f"{useless.name} is not ready", useless.state)
        return rebuild(s, useless, old, check)
    room = s.limits.high - len(s.members)
    check = ScalingCheck(room > 0, f"{len(s.members)} + 1 ≤ {s.limits.high}", "room for one more")
    if room > 0 and s.roll.may_surge:
        words = f"Roll: {outdated(old)}, one more member is created first"
        return ScalingDecision(1, "grow", "roll", words, 1, (check,), step="surge")
    if going := [m for m in s.members if m.is_going]:
        return wait("going", f"the roll waits until {going[0].name} is gone", check)
    if s.claims:
        waiting = plural(s.claims, "claim waits", "claims wait")
        words = f"{outdated(old)}, not renewed in their places while {waiting}"
        return wait("claims", words, check)
    ready, low = count_ready(s), least_in_place(s)
    least = ScalingCheck(ready - 1 >= low, f"{ready} − 1 ≥ {low}", "ready meanwhile")
    if not least.is_met:
        window = f" ({s.limits.window})" if s.limits.window else ""
        needed = f"{low} of {len(s.members)} have to be ready during a rebuild{window}"
        return wait("least", f"{outdated(old)}, but {needed}", check, least)
    return rebuild(s, idle[0], old, check, least)


def rebuild(
    s: Snapshot, member: ScaledMember, old: Sequence[ScaledMember], *checks: ScalingCheck
) -> ScalingDecision:
    if not s.is_fresh:
        return unseen(s, old)
    chosen = (RemovalCandidate(member.id, member.name, "idle, outdated"),)
    words = f"Roll: {outdated(old)}, {member.name} is rebuilt in its place"
    return ScalingDecision(
        0, "rebuild", f"roll-{member.id}", words, checks=checks, chosen=chosen, step="rebuild"
    )


def swap(s: Snapshot, old: Sequence[ScaledMember], extra: ScaledMember) -> ScalingDecision:
    """The step while the surge is ready: remove an outdated member."""
    idle = idle_of(old)
    if not idle:
        words = f"{in_use(old)}; {extra.name} is ready for one"
        return wait("busy", words)
    if not s.is_fresh:
        return unseen(s, old)
    victim = idle[0]
    is_of_use = victim.state == "ready" and victim.is_there
    ready = count_ready(s) - is_of_use
    low = least_ready(s)
    least = ScalingCheck(ready >= low or not is_of_use, f"{ready} ≥ {low}", "ready afterwards")
    if not least.is_met:
        return wait("least", f"{outdated(old)}, but {low} have to be ready", least)
    chosen = (RemovalCandidate(victim.id, victim.name, "idle, outdated"),)
    words = f"Roll: {outdated(old)}, {extra.name} is ready"
    return ScalingDecision(-1, "shrink", "roll", words, -1, (least,), chosen, step="swap")


def end_surge(s: Snapshot, extra: ScaledMember) -> ScalingDecision:
    """The step after the last renewal, or if the surge itself is outdated: remove one member."""
    what = f"{extra.name} is outdated itself" if extra.is_outdated else "no member is outdated"
    may_shrink = not extra.is_outdated and count_ready(s) > least_ready(s)
    others = [m for m in s.there if m.state == "ready"] if may_shrink else []
    free = [m for m in (extra, *order(others)) if not find_blocker(m, may_be_new=True)]
    if not free:
        return wait("extra", f"{what}, the surplus member is removed once it is idle")
    if not s.is_fresh:
        return unseen(s, ())
    chosen = (RemovalCandidate(free[0].id, free[0].name, "idle, surplus"),)
    words = f"Roll: {what}, a surplus member is removed"
    return ScalingDecision(-1, "shrink", "roll-over", words, -1, (), chosen, step="over")


def wait(code: str, words: str, *checks: ScalingCheck) -> ScalingDecision:
    return ScalingDecision(0, "hold", f"roll-{code}", capitalise(words), checks=checks)


def unseen(s: Snapshot, old: Sequence[ScaledMember]) -> ScalingDecision:
    fault = "began before this controller started" if s.is_seen_earlier else "is too old"
    words = (
        f"{outdated(old)}, the last provider check {fault}"
        if old
        else "the roll waits for a provider check"
    )
    return wait("unseen", words, check_look(s))


def idle_of(members: Sequence[ScaledMember]) -> list[ScaledMember]:
    """The removable members in the order of removal, including those being created."""
    return [m for m in order(members) if not find_blocker(m, may_be_new=True)]


def count_ready(s: Snapshot) -> int:
    return sum(m.state == "ready" and m.is_there for m in s.members)


def least_ready(s: Snapshot) -> int:
    """The minimum, or the pin of an operator if that is lower."""
    return s.limits.low if s.limits.pin is None else min(s.limits.low, s.limits.pin.count)


def least_in_place(s: Snapshot) -> int:
    """How many members must be ready while one is rebuilt. One less than the minimum where no
    window ever leaves room for a surge (the minimum is the maximum, or members are declared),
    because no member could be renewed otherwise. Elsewhere the roll waits for such a window.
    """
    could_surge = s.roll.may_surge and (s.limits.high > s.limits.low or s.roll.could_surge)
    return least_ready(s) if could_surge else max(0, least_ready(s) - 1)


def provider_reason(member: ScaledMember) -> str:
    """The provider's message about the member, as the end of a sentence."""
    return f": {member.outside.rstrip('.')}" if member.outside else ""


def in_use(members: Sequence[ScaledMember]) -> str:
    """The reason why none of these members is renewed now."""
    return f"{outdated(members)}, {'each of them ' if len(members) > 1 else ''}in use or kept"


def outdated(members: Sequence[ScaledMember]) -> str:
    return plural(len(members), "member is outdated", "members are outdated")
