"""Texts that explain why a claim waits and what would end the wait. Pure: wait_reason.py reads the
facts.

A text names the state, then the reason, then the way out, in the present tense, with exact numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil
from typing import NamedTuple

from claims.allocation.requests.policy import Refusal, SlotDemand
from claims.display import class_word
from pools.config.label_selector import describe_selector
from pools.scaling import MemberLimits
from project.kernel.ui.formatting import duration

PLAIN_LANES = ("slot", "node", "port")
MOST_NAMED = 3
SHOWN_FROM = 60.0  # seconds of a reservation before its length is shown


class SlotCounts(NamedTuple):
    """The slots that a queue accepts, by state. The `facts` of the API have the same names."""

    total: int = 0
    open: int = 0  # free
    held: int = 0
    reserved: int = 0
    draining: int = 0
    offline: int = 0  # in any state on offline members
    closed: int = 0  # idle, but the member is cordoned or leaving, or the pool is paused


@dataclass(frozen=True, slots=True)
class WaitContext:
    """The facts about a waiting claim and its pool."""

    pool: str
    code: str
    lanes: tuple[str, ...] = ()
    kind: str = ""
    wanted: SlotDemand = field(default_factory=SlotDemand)
    places: SlotCounts = field(default_factory=SlotCounts)
    ahead: int = 0  # claims ahead
    members: int = 0
    max_members: int = 0
    each: int = 1  # slots of one more member
    cordoned: tuple[str, ...] = ()  # members with a slot for the claim
    offline: tuple[str, ...] = ()
    creating: tuple[str, ...] = ()
    holders: int = 0  # claims
    one_holder: int | None = None  # the id, if one claim holds all slots
    strict: int | None = None  # a claim ahead that this claim may not pass
    longest: int = 0  # free run, or most free slots on one member
    longest_on: str = ""
    pairs: int = 0  # numbers that are free in both TCP and UDP
    apart: tuple[int, int] = (0, 0)  # numbers that are free in TCP, in UDP
    paused_until: datetime | None = None
    pause_reason: str = ""
    refusal: Refusal | None = None
    blockers: tuple[int, ...] = field(default=())
    # Claims that hold a reserved slot until their approval, the longest wait first.
    undecided: tuple[int, ...] = ()
    kept: float = 0.0  # seconds for which the first of them has waited
    limits: MemberLimits | None = None  # None: the pool has no scaler
    is_carried: bool = False  # members that the scaler creates have the requested labels
    part: str = ""  # the parts of the claim that do not fit; empty: the claim has no parts


class WaitMessage(NamedTuple):
    text: str
    unblock: list[str]


def describe_wait(s: WaitContext) -> WaitMessage:
    message = _DESCRIPTIONS.get(s.code, _describe_refused)(s)
    if s.part:
        message = WaitMessage(f"{s.part}: {message.text}", message.unblock)
    if not s.ahead:
        return message
    ahead = count(s.ahead, "claim is", "claims are")
    return WaitMessage(f"{message.text}, and {ahead} ahead", message.unblock)


def _describe_missing(s: WaitContext) -> WaitMessage:
    return WaitMessage(f"Pool {s.pool} does not exist", [f"Create {s.pool}"])


def _describe_pending(s: WaitContext) -> WaitMessage:
    return WaitMessage(
        f"Pool {s.pool} is pending: its provider has not answered yet",
        [f"Pool {s.pool} becomes active"],
    )


def _describe_deleting(s: WaitContext) -> WaitMessage:
    return WaitMessage(f"Pool {s.pool} is being deleted", ["Cancel it and claim in another pool"])


def _describe_paused(s: WaitContext) -> WaitMessage:
    if s.limits is not None and s.limits.frozen:
        until = f" until {moment(s.paused_until)}" if s.paused_until else ""
        ends = f"The freeze ends{', at ' + moment(s.paused_until) if s.paused_until else ''}"
        return WaitMessage(
            f"Pool {s.pool} is frozen{until}: {s.limits.frozen}",
            [ends, "The freeze is lifted"],
        )
    until = f" until {moment(s.paused_until)}" if s.paused_until else ""
    why = f": {s.pause_reason}" if s.pause_reason else ""
    return WaitMessage(
        f"Pool {s.pool} is paused{until}{why}",
        [f"The pool is resumed{', at ' + moment(s.paused_until) if s.paused_until else ''}"],
    )


def _describe_no_member(s: WaitContext) -> WaitMessage:
    return WaitMessage(
        f"Pool {s.pool} has no member",
        _with_creating(s, [_more_members(s, 1) if s.limits else f"A member is added to {s.pool}"]),
    )


def _describe_no_labels(s: WaitContext) -> WaitMessage:
    if s.limits is not None and s.is_carried:
        return WaitMessage(
            f"No member of {s.pool} has {labels(s)} yet", _with_creating(s, [_more_members(s, 1)])
        )
    return WaitMessage(
        f"No member of {s.pool} has {labels(s)}", [f"A member with {labels(s)} is added"]
    )


def _describe_unwilling(s: WaitContext) -> WaitMessage:
    who = f"member of {s.pool} with {labels(s)}" if s.wanted.selector else f"member of {s.pool}"
    return WaitMessage(
        f"Every {who} is offline, cordoned or leaving", _openings(s) or ["A member is ready again"]
    )


def _describe_full(s: WaitContext) -> WaitMessage:
    p = s.places
    parts = [
        (p.held, "held"),
        (p.reserved, _reserved(s)),
        (p.draining, "draining"),
        (p.offline, "offline"),
        (p.closed, "closed"),
    ]
    shares = ", ".join(f"{n} {word}" for n, word in parts if n)
    if p.total == 0:
        way = _more_members(s, 1) if s.limits else f"A member is added to {s.pool}"
        return WaitMessage(f"Pool {s.pool} offers no {noun(s)} now", _with_creating(s, [way]))
    if p.open:
        text = f"{count(p.open, 'slot is', 'slots are')} open in {s.pool}, none of them fits"
    else:
        text = (
            f"{'The only' if p.total == 1 else f'All {p.total}'} {noun(s, p.total)} "
            f"{'is' if p.total == 1 else 'are'} taken: {shares}"
        )
    return WaitMessage(text, _ways(s))


def _reserved(s: WaitContext) -> str:
    if s.kept < SHOWN_FROM:
        return "reserved"
    longest = "the longest " if s.places.reserved > 1 else ""
    return f"reserved ({longest}for {duration(s.kept)})"


def _describe_not_enough(s: WaitContext) -> WaitMessage:
    return WaitMessage(
        f"{s.places.open} of {s.wanted.size} {noun(s)} are open in {s.pool}", _ways(s)
    )


def _describe_not_contiguous(s: WaitContext) -> WaitMessage:
    at = f" ({s.longest_on})" if s.longest_on else ""
    return WaitMessage(f"Largest free run is {s.longest} of {s.wanted.size}{at}", _ways(s))


def _describe_not_together(s: WaitContext) -> WaitMessage:
    at = f" ({s.longest_on})" if s.longest_on else ""
    return WaitMessage(
        f"No member has {s.wanted.size} open {noun(s)}; the most is {s.longest}{at}", _ways(s)
    )


def _describe_no_pair(s: WaitContext) -> WaitMessage:
    some = f"Of {s.wanted.size} numbers {count(s.pairs, 'is', 'are')}"
    text = f"No number of {s.pool} is" if s.pairs == 0 else some
    return WaitMessage(
        f"{text} free in both TCP and UDP: {s.apart[0]} free in TCP, {s.apart[1]} in UDP", _ways(s)
    )


def _describe_no_common(s: WaitContext) -> WaitMessage:
    what = "No number is" if s.wanted.size == 1 else f"No {s.wanted.size} numbers are"
    where = ", in each on one member" if s.wanted.on_one_member and s.wanted.size > 1 else ""
    return WaitMessage(
        f"{what} free in every one of its pools{where}", ["Claims on the same numbers end"]
    )


def _describe_next(s: WaitContext) -> WaitMessage:
    if s.strict is not None:
        return WaitMessage(
            f"Claim {s.strict} goes first, and this claim may not pass it",
            [f"Claim {s.strict} starts, or is cancelled"],
        )
    text = "A slot is open" if s.places.open == 1 else f"{s.places.open} slots are open"
    return WaitMessage(
        text if s.places.open else "The claim was not tried yet", ["The claims ahead are served"]
    )


def _describe_refused(s: WaitContext) -> WaitMessage:
    if s.refusal is None:
        return WaitMessage(s.code.replace("_", " ").capitalize(), [])
    return WaitMessage(
        s.refusal.text.rstrip("."),
        ["Cancel it, or change the pool: " + s.refusal.way_out.rstrip(".")],
    )


_DESCRIPTIONS = {
    "pool_not_found": _describe_missing,
    "pool_pending": _describe_pending,
    "pool_deleting": _describe_deleting,
    "pool_paused": _describe_paused,
    "no_member": _describe_no_member,
    "no_member_with_labels": _describe_no_labels,
    "no_member_willing": _describe_unwilling,
    "full": _describe_full,
    "not_enough": _describe_not_enough,
    "not_contiguous": _describe_not_contiguous,
    "not_together": _describe_not_together,
    "no_pair": _describe_no_pair,
    "no_common_number": _describe_no_common,
    "next": _describe_next,
}


def _ways(s: WaitContext) -> list[str]:
    """Changes that would free slots, the most likely first."""
    need = (s.ahead + 1) * s.wanted.size
    ways = _openings(s)
    lacking = max(1, need - (s.pairs if s.wanted.is_paired else s.places.open))
    more = max(1, ceil(lacking / max(1, s.each)))
    ways.append(_more_members(s, more))
    if s.one_holder is not None:
        ways.append(f"Claim {s.one_holder} ends")
    elif s.holders:
        some = (
            f"{lacking} of {s.holders} claims end"
            if lacking < s.holders
            else f"All {s.holders} claims end"
        )
        ways.append(f"One of {s.holders} claims ends" if lacking <= 1 else some)
    if s.places.reserved:
        ways.append(decisions(s))
    if s.places.draining:
        ways.append(
            "The slot that drains is clean"
            if s.places.draining == 1
            else f"One of {s.places.draining} draining slots is clean"
        )
    return ways


def _more_members(s: WaitContext, more: int) -> str:
    """One more member, or the first limit of the scaler that prevents it."""
    limits, many = s.limits, "One more member" if more == 1 else f"{more} more members"
    if limits is None:
        full = s.members + more > s.max_members
        return (
            f"The maximum of members goes from {s.max_members} to {s.members + more}"
            if full
            else many
        )
    if limits.paused:
        return f"The scaler is resumed (paused: {limits.paused})"
    if s.members + more > limits.high and limits.used_up:
        return f"The range of ports becomes wider: {limits.used_up}"
    if s.members + more > limits.high:
        by = f" ({limits.window})" if limits.window else ""
        return f"The maximum of members{by} goes from {limits.high} to {s.members + more}"
    if limits.pin is not None and s.members + more > limits.pin.count:
        why = f": {limits.pin.reason}" if limits.pin.reason else ""
        return f"The pin to {count(limits.pin.count, 'member', 'members')} is removed{why}"
    if s.wanted.selector and not s.is_carried:
        return (
            f"A member with {labels(s)} is added: members that the scaler creates have other labels"
        )
    return f"{many}, created by the scaler"


def decisions(s: WaitContext) -> str:
    """A rejection frees the slot at once, an approval when its apply ends."""
    if s.undecided and len(s.undecided) == s.places.reserved <= MOST_NAMED:
        named = [str(claim) for claim in s.undecided]
        which = (
            f"Claim {named[0]}"
            if len(named) == 1
            else f"Claim {', '.join(named[:-1])} or {named[-1]}"
        )
        return f"{which} is approved or rejected"
    return (
        "The approval is decided"
        if s.places.reserved == 1
        else f"One of {s.places.reserved} approvals is decided"
    )


def _openings(s: WaitContext) -> list[str]:
    ways = [f"{name} is uncordoned" for name in s.cordoned[:MOST_NAMED]] + [
        f"{name} answers" for name in s.offline[:MOST_NAMED]
    ]
    return _with_creating(s, ways)


def _with_creating(s: WaitContext, ways: list[str]) -> list[str]:
    return [f"{name} is ready" for name in s.creating[:MOST_NAMED]] + ways


def describe_blocked(
    *,
    workspace: str,
    is_locked: bool,
    locked_by: str,
    lock_reason: str,
    holder: int | None,
    holder_class: str,
    back_off: float | None,
    ahead: int,
    lost_claim: int | None = None,  # the claim with the lost apply
) -> tuple[str, WaitMessage]:
    """Code and text for a claim that is blocked and in no queue."""
    if is_locked:
        why = f": {lock_reason}" if lock_reason else ""
        way = (
            f"{workspace} is unlocked"
            if lost_claim is None
            else f"The outcome of claim {lost_claim} is recorded"
        )
        return "workspace_locked", WaitMessage(
            f"Workspace {workspace} is locked by {locked_by}{why}", [way]
        )
    if holder is not None:
        text = f"Workspace {workspace} is busy with claim {holder}, {class_word(holder_class)}"
        if ahead:
            text += f", and {count(ahead, 'claim is', 'claims are')} ahead"
        way = (
            f"Claim {holder} is approved or rejected"
            if holder_class == "apply_pending"
            else f"Claim {holder} ends"
        )
        return "workspace_busy", WaitMessage(text, [way])
    if back_off is not None and back_off > 0:
        return "back_off", WaitMessage(
            f"Berth retries in {duration(round(back_off))}", ["The waiting time ends"]
        )
    return "unblocking", WaitMessage("Nothing blocks the claim", ["It is queued within a second"])


def noun(s: WaitContext, n: int = 2) -> str:
    """Such as `any slots` or `plan and any slots`. Lanes of pools with one kind are not named."""
    word = "slot" if n == 1 else "slots"
    named: Sequence[str] = [lane for lane in s.lanes if lane not in PLAIN_LANES]
    return f"{' and '.join(named)} {word}" if named else word


def labels(s: WaitContext) -> str:
    return describe_selector(s.wanted.selector)


def count(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"


def moment(at: datetime | None) -> str:
    return "" if at is None else f"{at:%Y-%m-%d %H:%M} UTC"
