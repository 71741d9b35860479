"""Which member is removed first at scale-in, and why the rest are spared (S14)."""

from collections.abc import Sequence

from .model import SHOWN, RemovalCandidate, ScaledMember, plural, span

GOING, UNKNOWN, COMING, IDLE, BUSY, RESERVING = range(6)


def rank(member: ScaledMember) -> int:
    if member.is_going:
        return GOING
    if member.reserved:
        return RESERVING
    if member.occupied or member.unsaved:
        return BUSY
    if member.state == "offline" or member.is_lost:
        return UNKNOWN
    return COMING if member.state == "creating" else IDLE


def order(members: Sequence[ScaledMember]) -> list[ScaledMember]:
    """Members in the order of removal: leaving, silent, being created, idle, busy, reserving.
    Among equals outdated before current, lower deletion cost first, then the newest.
    """
    newest_first = sorted(members, key=lambda m: (m.created, m.id), reverse=True)
    return sorted(
        newest_first,
        key=lambda m: (rank(m), m.occupied if rank(m) == BUSY else 0, not m.is_outdated, m.cost),
    )


def find_blocker(member: ScaledMember, *, may_be_new: bool = False) -> str:
    """Why this member must not be removed. Empty: it may be."""
    if member.is_going:
        return "being removed"
    if not member.is_owned:
        return "not created by Berth"
    if member.occupied:
        counts = (
            (member.running, "running"),
            (member.reserved, "reserved"),
            (member.draining, "draining"),
        )
        return ", ".join(f"{count} {word}" for count, word in counts if count)
    if member.unsaved:
        return f"its agent has the only copy of {plural(member.unsaved, 'state')}"
    if member.is_cordoned:
        return "cordoned by an operator"
    if member.state == "creating" and not may_be_new:
        return "being created"
    return ""


def choose(
    members: Sequence[ScaledMember], count: int, *, may_be_new: bool = False, quiet: float = 0.0
) -> tuple[tuple[RemovalCandidate, ...], tuple[RemovalCandidate, ...], int]:
    """At most `count` members to remove, the first `SHOWN` spared ones with reasons, and the
    number of further spared ones. `quiet`: seconds that a member must have been idle.
    """
    chosen: list[RemovalCandidate] = []
    spared: list[RemovalCandidate] = []
    last: ScaledMember | None = None
    for member in order(members):
        if member.is_going:
            continue
        why = find_blocker(member, may_be_new=may_be_new)
        if not why and member.quiet_for < quiet:
            why = f"idle for {span(member.quiet_for)}, {span(quiet)} are needed"
        if why:
            spared.append(RemovalCandidate(member.id, member.name, why))
        elif len(chosen) < count:
            chosen.append(RemovalCandidate(member.id, member.name, reason_for(member)))
            last = member
        else:
            spared.append(RemovalCandidate(member.id, member.name, reason_against(member, last)))
    return tuple(chosen), tuple(spared[:SHOWN]), max(0, len(spared) - SHOWN)


def reason_for(member: ScaledMember) -> str:
    what = {UNKNOWN: "offline, no claims", COMING: "being created"}.get(rank(member), "idle")
    return f"{what}{', outdated' if member.is_outdated else ''}, cost {member.cost}, newest"


def reason_against(member: ScaledMember, last: ScaledMember | None) -> str:
    """Why the member comes after the last chosen one."""
    if last is None or rank(member) != rank(last):
        return "idle" if last is None else "idle; members that are not ready are removed first"
    if last.is_outdated and not member.is_outdated:
        return "idle, not outdated"
    if member.cost != last.cost:
        return f"deletion cost {member.cost}"
    older = last.created - member.created
    return f"idle, {span(older) if older >= 1 else 'less than 1 s'} older"


def list_next(members: Sequence[ScaledMember]) -> list[tuple[ScaledMember, str]]:
    """All members in the order of removal, each with what blocks its removal now. Members that
    could be removed come first.
    """
    found = [(member, find_blocker(member)) for member in order(members) if not member.is_going]
    return sorted(found, key=lambda pair: bool(pair[1]))
