"""Slots as a provider sees them outside, compared with their rows. The result is kept in
`Slot.observed`; `slots/sync/drift.py` lists the differences.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache

from django.db import transaction

from pools.config.layout import SHARED
from pools.providers.base import (
    MemberReport,
    MemberSnapshot,
    Observation,
    PoolSnapshot,
    PortUse,
    SeenSlot,
)
from project.kernel.events.log import record
from project.kernel.ui import formatting
from project.kernel.validation import moment
from slots.members import members_sql
from slots.members.store import lane_of
from slots.models import Slot
from slots.sync.foreign_listeners import record_foreign_listeners
from slots.sync.listener_changes import describe_change
from slots.sync.port_uses import read_pool_uses

Place = tuple[str, int]
Observed = Mapping[str, object]

ABOUT = ("claim", "since")  # fields of Slot.observed about the observation itself
# A problem lasts once two observations this many seconds apart have seen it, and no sync between
# them has found the listener without one. A look sees fewer problems than a sync.
LASTS = 60.0
TIMED = ("presence", "health", "target", "problem", "changed")
TARGET = ("target", "health", "reason", "problem")  # fields about the target of a listener
USED = ("held", "reserved")
KINDS = ("missing", "changed", "problem", "orphan", "foreign")  # of differences, the worst first
LASTING = "lasting problem"  # a new finding about a known difference of the kind `problem`
SHOWN = ("presence", "health", "problem", "changed")  # decide the class of a port on its page
MOST_NAMED = 3  # places that an event names
NAMED = {
    "missing": "is missing outside",
    "changed": "was changed outside",
    "problem": "cannot serve its claim",
    "orphan": "has an object outside and no claim",
    "foreign": "has a foreign object in its place",
}


def judge_slot(
    state: str, seen: SeenSlot | None, *, is_precreated: bool = False, is_expected: bool = False
) -> dict[str, object]:
    """What `Slot.observed` says of a slot, without holder and times. The object of an empty place
    is missing if a claim holds the slot, or if it is expected before a claim holds the slot. An
    object of a slot that no claim has is an orphan, unless the pool creates its objects in advance.
    """
    if seen is None:
        return {"presence": "missing"} if state in USED or is_expected else {}
    if seen.is_foreign:
        presence = "foreign"
    elif state in ("idle", "retired") and not is_precreated:
        presence = "orphan"
    else:
        presence = "present"
    return {**seen.attributes, "presence": presence}


def find_kind(state: str, observed: Observed) -> str:
    """The kind of difference between a slot and its object; empty: none. An observation may be
    older than the state of the slot. `_port_class` of dashboard_queries.sql has the same rule.
    """
    presence = observed.get("presence", "")
    if presence == "foreign":
        return "foreign"
    if presence == "missing" and state == "idle" and observed.get("claim", 0) is None:
        return "missing"  # no claim held the slot then, so the object was expected in advance
    if state in USED:
        if presence == "missing":
            return "missing"
        if observed.get("problem"):
            return "problem"
        return "changed" if observed.get("changed") else ""
    return "orphan" if presence == "orphan" and state in ("idle", "retired") else ""


def observed_since(observed: Observed, name: str = "presence") -> datetime | None:
    """Since when a value of the observation is as it is; None: a version stored it that kept no
    times.
    """
    since = observed.get("since")
    at = since.get(name) if isinstance(since, dict) else None
    return datetime.fromisoformat(at) if isinstance(at, str) else None


def observed_last(observed: Observed) -> datetime:
    """When the observation of a slot changed last."""
    times = [at for name in TIMED if (at := observed_since(observed, name)) is not None]
    return max(times, default=datetime.min.replace(tzinfo=UTC))


def record_observed_slots(
    pool: PoolSnapshot, look: Observation, started: datetime
) -> dict[int, str]:
    """Compare the slots that the look reports. A slot that changed after the look began waits for
    the next look. Returns the new differences: slots with their kind, or LASTING.
    """
    found: dict[int, str] = {}
    seen = {each.member_id: each.slots for each in look.seen if each.slots is not None}
    if seen:
        rows = Slot.objects.filter(member_id__in=seen, changed_at__lt=started)
        # A sync that ended after the look began has seen more than the look.
        earlier = [row for row in rows if observed_last(row.observed) < started]
        found = _record(pool, earlier, seen, _read_settled(pool, earlier))
        record_foreign_listeners({member: foreign_places(slots) for member, slots in seen.items()})
    return found


def record_reported_slots(
    pool: PoolSnapshot, member: MemberSnapshot, report: MemberReport
) -> dict[int, str]:
    """Compare the slots of a sync, in the generations that the provider got: a later holder is not
    affected. Returns the new differences: slots with their kind, or LASTING.
    """
    found: dict[int, str] = {}
    if report.slots is not None:
        generations = {slot.id: slot.generation for slot in member.slots}
        rows = Slot.objects.filter(member_id=member.id, pk__in=generations)
        found = _record(
            pool,
            (row for row in rows if row.generation == generations[row.pk]),
            {member.id: report.slots},
        )
        record_foreign_listeners({member.id: foreign_places(report.slots)})
    return found


@dataclass(frozen=True, slots=True)
class Settled:
    """What a look compares with, of members without an ordered sync: what the rows want of other
    members may be newer than what the look saw.
    """

    members: frozenset[int]
    uses: Mapping[int, PortUse]  # by slot
    used: frozenset[int] = frozenset()  # slots that claims hold

    def is_busy(self, row: Slot) -> bool:
        """Whether a claim holds the slot, and a sync of its member is ordered."""
        return row.pk in self.used and row.member_id not in self.members


def _read_settled(pool: PoolSnapshot, rows: Sequence[Slot]) -> Settled:
    """The rows and the uses are read before the operations, so that the result of a sync that ended
    meanwhile is not overwritten.
    """
    if pool.ports is None:
        return Settled(frozenset(), {})
    members = {row.pk: row.member_id for row in rows if row.state in USED or pool.is_precreated}
    used = frozenset(row.pk for row in rows if row.state in USED)
    uses = read_pool_uses(pool, used)
    settled = {
        member_id
        for member_id in set(members.values())
        if not members_sql.has_operation(lane=lane_of(member_id), but=[])
    }
    known = {slot: use for slot, use in uses.items() if members[slot] in settled}
    return Settled(frozenset(settled), known, used)


def foreign_places(seen: Iterable[SeenSlot]) -> list[tuple[str, int]]:
    return [(slot.lane, slot.number) for slot in seen if slot.is_foreign]


def _record(
    pool: PoolSnapshot,
    rows: Iterable[Slot],
    seen: Mapping[int, Sequence[SeenSlot]],
    settled: Settled | None = None,
) -> dict[int, str]:
    """`settled` None: a sync, which makes the outside equal to the rows."""
    places: dict[int, dict[Place, SeenSlot]] = {
        member_id: {(slot.lane, slot.number): slot for slot in slots}
        for member_id, slots in seen.items()
    }
    clock = cache(moment)  # most looks find nothing new, and ask the database for no time
    changed: dict[int, list[tuple[Slot, Observed]]] = defaultdict(list)
    new: dict[int, str] = {}
    for row in rows:
        found = find_object(places[row.member_id], row.lane, row.number)
        is_expected = pool.is_precreated and is_expected_idle(row, settled)
        judged = judge_slot(
            row.state, found, is_precreated=pool.is_precreated, is_expected=is_expected
        )
        judged = keep_unread(row, judged)
        use = None if settled is None else settled.uses.get(row.pk)
        judged = add_change(judged, found, use)
        if settled is not None and settled.is_busy(row):
            judged = keep_problem(row, judged)
        judged = follow_problem(row, judged, found, clock, is_sync=settled is None)
        if is_known(row, judged) or not _store(row, judged, clock()):
            continue
        if judged.get("is_lasting") and not row.observed.get("is_lasting"):
            new[row.pk] = LASTING
        if any(judged.get(key) != row.observed.get(key) for key in SHOWN):
            changed[row.member_id].append((row, {**judged, "claim": row.claim_id}))
    for member_id, slots in changed.items():
        new = _record_change(pool.id, member_id, slots) | new
    return new


def is_expected_idle(row: Slot, settled: Settled | None) -> bool:
    """Whether an object must be in the place of an idle slot of a pool that creates its objects in
    advance. A look misses it only where no sync is ordered, which may be about to create it. A sync
    that does not see it does not end the difference.
    """
    if row.state != "idle" or not row.is_open:
        return False
    if settled is None:
        return find_kind(row.state, row.observed) == "missing"
    return row.member_id in settled.members


def follow_problem(
    row: Slot,
    judged: dict[str, object],
    found: SeenSlot | None,
    clock: Callable[[], datetime],
    *,
    is_sync: bool,
) -> dict[str, object]:
    """The observation with the time at which a problem of the holder was first seen
    (`failing_since`), and whether it lasts.
    """
    if row.state not in USED or not judged:
        return judged
    before = row.observed if row.observed.get("claim") == row.claim_id else {}
    known = {name: before[name] for name in ("failing_since", "is_lasting") if name in before}
    if found is None or not found.attributes.get("problem"):
        return judged if is_sync else {**known, **judged}
    now = clock()
    since = str(known.get("failing_since") or formatting.rfc3339(now))
    is_lasting = (now - datetime.fromisoformat(since)).total_seconds() >= LASTS
    if is_lasting or known.get("is_lasting"):
        known["is_lasting"] = True
    return {**judged, **known, "failing_since": since}


def find_object(places: Mapping[Place, SeenSlot], lane: str, number: int) -> SeenSlot | None:
    """The object in the place of a slot. A listener of a number, for any protocol, is that of
    the number's slot in any lane: pre-created listeners have a lane for each protocol.
    """
    return places.get((lane, number)) or places.get((SHARED, number))


def keep_unread(row: Slot, judged: dict[str, object]) -> dict[str, object]:
    """The observation with the last known target, where the provider saw the listener and did not
    read its target (`unread`). The target of a former holder is not kept.
    """
    read = {name: value for name, value in judged.items() if name != "unread"}
    if not judged.get("unread") or row.observed.get("claim") != row.claim_id:
        return read
    return {name: row.observed[name] for name in TARGET if name in row.observed} | read


def keep_problem(row: Slot, judged: dict[str, object]) -> dict[str, object]:
    """The observation of a look with the known problem of the holder. A look sees fewer problems
    than a sync, and the ordered sync says whether this one lasts.
    """
    is_kept = (
        row.observed.get("claim") == row.claim_id
        and bool(row.observed.get("problem"))
        and not judged.get("problem")
        and judged.get("presence") != "foreign"
    )
    if not is_kept:
        return judged
    return judged | {name: row.observed[name] for name in ("presence", "problem")}


def add_change(
    known: dict[str, object], found: SeenSlot | None, use: PortUse | None
) -> dict[str, object]:
    """The observation with how the listener differs from the use of its port (`changed`)."""
    if use is None or found is None or known.get("presence") != "present":
        return known
    is_unread = bool(found.attributes.get("unread")) and "target" not in known
    change = describe_change(use, {**known, "unread": is_unread})
    return {**known, "changed": change} if change else known


def is_known(row: Slot, judged: Observed) -> bool:
    before = {name: value for name, value in row.observed.items() if name not in ABOUT}
    is_same_holder = not judged or row.observed.get("claim") == row.claim_id
    return before == judged and is_same_holder


def _store(row: Slot, judged: dict[str, object], now: datetime) -> bool:
    """Keep the observation, the claim that held the slot, and since when each value that claims
    depend on is as it is. An event of the holder records a change of its listener. False: the row
    has changed since it was read.
    """
    before = row.observed if row.observed.get("claim") == row.claim_id else {}
    known = before.get("since", {})
    since = {
        name: known[name]
        if name in known and before.get(name) == judged[name]
        else formatting.rfc3339(now)
        for name in TIMED
        if name in judged
    }
    about = {"claim": row.claim_id, "since": since} if judged else {}
    with transaction.atomic():
        # Since the row was read, the holder may have changed, or a sync may have seen more.
        mine = Slot.objects.filter(
            pk=row.pk, generation=row.generation, state=row.state, observed=row.observed
        )
        if not mine.update(observed={**judged, **about}):
            return False
        word = describe_listener(judged)
        if row.claim_id is not None and word != describe_listener(before):
            record(
                "observe",
                pool_id=row.pool_id,
                member_id=row.member_id,
                claim_id=row.claim_id,
                generation=row.generation,
                data={"lane": row.lane, "number": row.number, "word": word},
            )
    return True


def describe_listener(observed: Observed) -> str:
    """A word for people; empty: it was not observed."""
    if observed.get("problem"):
        return "failed"
    if observed.get("changed"):
        return "changed"
    if observed.get("presence") == "present":
        return str(observed.get("health") or "present")
    return str(observed.get("presence") or "")


def _record_change(
    pool_id: int, member_id: int, slots: Sequence[tuple[Slot, Observed]]
) -> dict[int, str]:
    """The new differences, by slot. One event for the slots of a member, by which open pages get
    their new classes, follows the updates in a transaction of its own: one transaction for all rows
    would lock slots in another order than claims do.
    """
    before = {row.pk: find_kind(row.state, row.observed) for row, _ in slots}
    after = {row.pk: find_kind(row.state, observed) for row, observed in slots}
    new = [row for row, _ in slots if after[row.pk] and after[row.pk] != before[row.pk]]
    ended = [row for row, _ in slots if before[row.pk] and not after[row.pk]]
    with transaction.atomic():
        if new:
            text = _name_places(new, after)
            record("drift", pool_id=pool_id, member_id=member_id, reason=text)
        elif ended:
            text = formatting.sentence([f"{row.lane} {row.number}" for row in ended[:MOST_NAMED]])
            more = f" and {len(ended) - MOST_NAMED} more" if len(ended) > MOST_NAMED else ""
            record("drift_ends", pool_id=pool_id, member_id=member_id, reason=f"{text}{more}")
        else:
            record("observe_slots", pool_id=pool_id, member_id=member_id)
    return {row.pk: after[row.pk] for row in new}


def _name_places(rows: Sequence[Slot], kinds: Mapping[int, str]) -> str:
    worst = sorted(rows, key=lambda row: (KINDS.index(kinds[row.pk]), row.number, row.lane))
    named = [f"{row.lane} {row.number} {NAMED[kinds[row.pk]]}" for row in worst[:MOST_NAMED]]
    more = len(rows) - MOST_NAMED
    return f"{', '.join(named)}{f', and {more} more' if more > 0 else ''}"
