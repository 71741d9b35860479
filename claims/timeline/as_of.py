"""The past from the event log: the slots of pools at a moment, the holds of a slot, and the number
of events over time.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from claims.timeline.messages import CONTROLLERS
from claims.timeline.queries import Filter, owners_of, where_of
from project.kernel.db.guards import reporting
from project.kernel.db.sql import run
from project.kernel.events.log import first_id_at
from slots.pages.display import TASK_LANES, BarPart, bar_parts

MOST_SLOTS = 20_000  # slots that one page looks up
MOST_EVENTS = 200_000  # events that are counted one by one; a longer log is sampled
PROBES = 720
BUCKETS = 144  # bars of a chart
HOLDING = ("bound", "held")

# Reads the last event of each slot before an id, through the index on slots.
POOLS_AT = """
SELECT member.pool_id, slot.lane, coalesce(e.after, 'idle') AS after, count(*)::int AS n
FROM pools_member member JOIN slots_slot slot ON slot.member_id = member.id
LEFT JOIN LATERAL (SELECT after FROM kernel_event WHERE slot_id = slot.id AND id < %(before)s
  ORDER BY id DESC LIMIT 1) e ON true
WHERE member.pool_id = ANY (%(pools)s::bigint[]) AND member.created_at <= %(at)s
  AND (member.state <> 'gone' OR member.changed_at > %(at)s)
GROUP BY 1, 2, 3"""
COUNT_SLOTS = "SELECT count(*)::int FROM slots_slot WHERE pool_id = ANY (%(pools)s::bigint[])"
FIND_SLOT = """
SELECT slot.id, slot.lane, slot.number, member.name, member.id AS member_id, member.pool_id
FROM pools_member member JOIN slots_slot slot ON slot.member_id = member.id
WHERE lower(member.name) = lower(%(member)s) AND slot.number = %(number)s
  AND (%(lane)s = '' OR slot.lane = %(lane)s)
ORDER BY member.id DESC, slot.lane LIMIT 20"""
HOLDS = """
SELECT at, verb, claim_id, generation, after, actor FROM kernel_event
WHERE slot_id = %(slot)s AND id {sign} %(id)s ORDER BY id {order} LIMIT 60"""
COUNT_EVENTS = """
SELECT floor(extract(epoch FROM at - %(since)s) / %(step)s)::int AS b, count(*)::int AS n,
  bool_or(split_part(actor, '/', 1) <> ALL (%(controllers)s::text[]) AND claim_id IS NULL) AS people
FROM kernel_event WHERE id >= %(first)s AND id < %(last)s AND {tests} GROUP BY 1"""
PROBE = """
SELECT e.at FROM generate_series(%(first)s::bigint, %(last)s::bigint, %(step)s::bigint) AS n,
LATERAL (SELECT at FROM kernel_event WHERE id >= n ORDER BY id LIMIT 1) e"""


@dataclass(frozen=True, slots=True)
class PoolAt:
    pool_id: int
    parts: list[BarPart]
    held: int
    total: int


def pools_at(pool_ids: Iterable[int], at: datetime) -> list[PoolAt] | None:
    """The states of the slots of each pool at a moment. None: the pools have too many slots."""
    ids = list(pool_ids)
    with reporting():
        if run(COUNT_SLOTS, {"pools": ids})[0][0] > MOST_SLOTS:
            return None
        rows = run(POOLS_AT, {"pools": ids, "at": at, "before": first_id_at(at)})
    counts = {pool: Counter[str]() for pool in ids}
    for row in rows:
        if row.after in HOLDING:
            name = "running" if row.lane in TASK_LANES else "bound"
        else:
            name = row.after if row.after in ("reserved", "draining") else "idle"
        if row.after != "retired":
            counts[row.pool_id][name] += row.n
    found = []
    for pool, by_name in counts.items():
        held = sum(by_name[name] for name in ("running", "bound", "reserved"))
        found.append(PoolAt(pool, bar_parts(by_name), held, sum(by_name.values())))
    return found


@dataclass(frozen=True, slots=True)
class HoldPeriod:
    """One hold of a slot."""

    claim_id: int | None
    owner: str
    generation: int | None
    actor: str
    since: datetime | None
    until: datetime | None
    verb: str


@dataclass(frozen=True, slots=True)
class SlotHistory:
    """The hold of a slot at a moment, the hold before and the hold after."""

    slot_id: int
    place: str
    pool_id: int
    then: HoldPeriod | None
    earlier: HoldPeriod | None
    later: HoldPeriod | None


def read_place(text: str) -> tuple[str, str, int] | None:
    """Parse a place: 'env-eu-1 slot 2', 'env-eu-1 · slot 2', 'gateway-1 tcp 30004', 'env-eu-1/2'.
    None: not a place.
    """
    words = text.replace("·", " ").replace("/", " ").replace(":", " ").split()
    if len(words) < 2 or not words[-1].isdecimal() or len(words[-1]) > 9:
        return None
    return words[0], words[1] if len(words) > 2 else "", int(words[-1])


def find_hold_at(text: str, at: datetime, pools: Iterable[int] | None) -> SlotHistory | str:
    """The history of the named slot, or an error text."""
    place = read_place(text)
    if place is None:
        return "Name a member and a slot, like env-eu-1 slot 2."
    member, lane, number = place
    found = run(FIND_SLOT, {"member": member, "lane": lane, "number": number})
    if not found and lane:
        found = run(FIND_SLOT, {"member": member, "lane": "", "number": number})
    visible = None if pools is None else set(pools)
    row = next((r for r in found if visible is None or r.pool_id in visible), None)
    if row is None:
        return f"There is no slot {number} on a member {member}."
    return read_history(row.id, f"{row.name} · {row.lane} {row.number}", row.pool_id, at)


class HoldEvent(NamedTuple):
    at: datetime
    verb: str
    claim_id: int | None
    generation: int | None
    after: str
    actor: str


def read_history(slot_id: int, place: str, pool_id: int, at: datetime) -> SlotHistory:
    """The holds of a slot around a moment, from its events."""
    values = {"slot": slot_id, "id": first_id_at(at)}
    before = run(HOLDS.format(sign="<", order="DESC"), values, row=HoldEvent)
    after = run(HOLDS.format(sign=">=", order="ASC"), values, row=HoldEvent)
    story = [*reversed(before), *after]
    holds = read_holds(story, owners_of(event.claim_id for event in story))
    then = next(
        (h for h in holds if h.since and h.since <= at and (h.until is None or h.until > at)), None
    )
    earlier = next((h for h in reversed(holds) if h.until and h.until <= at), None)
    later = next((h for h in holds if h.since and h.since > at), None)
    return SlotHistory(slot_id, place, pool_id, then, earlier, later)


def read_holds(story: Iterable[HoldEvent], owners: Mapping[int, str]) -> list[HoldPeriod]:
    """The holds that a slot's events describe, oldest first."""
    holds: list[HoldPeriod] = []
    now: HoldEvent | None = None
    for event in story:
        is_held = event.after in (*HOLDING, "reserved")
        if now is not None and (not is_held or event.claim_id != now.claim_id):
            holds.append(_hold_period(now, event.at, owners))
            now = None
        if is_held and now is None:
            now = event
    if now is not None:
        holds.append(_hold_period(now, None, owners))
    return holds


def _hold_period(event: HoldEvent, until: datetime | None, owners: Mapping[int, str]) -> HoldPeriod:
    return HoldPeriod(
        event.claim_id,
        owners.get(event.claim_id or 0, ""),
        event.generation,
        event.actor,
        event.at,
        until,
        event.verb,
    )


@dataclass(frozen=True, slots=True)
class Chart:
    """A bar chart as two SVG paths, however many bars it has."""

    bars: str
    people: str  # bars with actions of people


def draw(counts: Sequence[float], people: Sequence[bool]) -> Chart:
    highest = max(counts, default=0) or 1
    width = 1000 / max(1, len(counts))
    outlines = {False: "", True: ""}
    for i, n in enumerate(counts):
        if n:
            top = 100 - 96 * (n / highest) ** 0.5
            outlines[people[i]] += f"M{width * i:.1f} 100V{top:.1f}h{width * 0.8:.1f}V100z"
    return Chart(outlines[False], outlines[True])


def busy(wanted: Filter, since: datetime, until: datetime) -> Chart:
    """A chart of the number of events over time. A long log is sampled at even distances of ids,
    whose times give its density.
    """
    first, last = first_id_at(since), first_id_at(until)
    step = (until - since).total_seconds() / BUCKETS
    counts, people = [0.0] * BUCKETS, [False] * BUCKETS

    def place(at: datetime) -> int:
        return min(BUCKETS - 1, max(0, int((at - since).total_seconds() / step)))

    if last - first <= MOST_EVENTS:
        tests, values = where_of(wanted)
        values |= {
            "since": since,
            "step": step,
            "first": first,
            "last": last,
            "controllers": sorted(CONTROLLERS),
        }
        with reporting():
            for row in run(COUNT_EVENTS.format(tests=tests), values, prepare=False):
                if 0 <= row.b < BUCKETS:
                    counts[row.b] += row.n
                    people[row.b] = people[row.b] or row.people
    else:
        share = max(1, (last - first) // PROBES)
        for row in run(PROBE, {"first": first, "last": last, "step": share}, prepare=False):
            counts[place(row.at)] += share
    return draw(counts, people)
