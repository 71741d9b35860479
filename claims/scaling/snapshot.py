"""Snapshots for the scaler: members with their slots and the waiting queues, for many pools in a
few queries.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

from claims.allocation.member_limits import limits_of
from claims.scaling import scaling_sql
from pools.config.label_selector import matches
from pools.config.layout import Layout, default_kind, lanes_for, pair_for, slots_of
from pools.config.spec import PoolSpec
from pools.lifecycle.selectors import read_stored
from pools.providers.base import known_providers
from pools.scaling import DemandQueue, Roll, ScaledMember, Snapshot
from slots.sync.watcher import LOOK_EVERY, Watcher

MOST_COUNTED = 1000  # claims per queue: a longer queue does not change the next decision
NO_LABELS = "no_member_with_labels"  # hopeless unless new members carry the labels
NO_LANES = "kind_not_offered"
# Wait reasons that no new member removes, each with words that follow a number of claims.
HOPELESS = {
    "kind_missing": "without the kind that the pool requires",
    NO_LANES: "of a kind that the pool does not serve",
    "no_room": "for a pool that may have no member",
    "too_big": "for more slots than the pool can have",
    "run_too_long": "for more numbers in a row than a member has",
    "member_too_small": "for more slots on one member than a member has",
    "unequal_segments": "for the same number in pools with different segments",
    "unequal_quotas": "for the same number in pools with different quotas",
    "no_common_range": "for the same number in pools without a common range",
    NO_LABELS: "with labels that no member has",
    "pool_not_found": "for a pool that does not exist",
    "pool_pending": "for a pool that was not active yet",
    "pool_deleting": "for a pool that is being deleted",
}
DOES_NOT_FIT = frozenset({"not_contiguous", "not_together", "no_common_number", "no_pair"})
MAY_LACK_A_LANE = DOES_NOT_FIT | {"full", "not_enough"}


PoolRow = scaling_sql.LockScaledRow


@dataclass(frozen=True, slots=True)
class Subject:
    """The state of one pool on which the scaler decides."""

    row: PoolRow
    spec: PoolSpec
    snapshot: Snapshot
    frozen_until: datetime | None  # by its windows, without windows that were lifted ahead

    @property
    def id(self) -> int:
        return self.row.id


@dataclass
class WaitingDemand:
    """The non-empty queues, read once for many pools; claims are counted later."""

    by_pool: Mapping[str, list[scaling_sql.WantedLinesRow]] = field(default_factory=dict)
    blocked: Mapping[int, int] = field(default_factory=dict)


def read_wanted() -> WaitingDemand:
    by_pool: dict[str, list[scaling_sql.WantedLinesRow]] = defaultdict(list)
    for row in scaling_sql.wanted_lines():
        for name in row.pools:
            by_pool[name].append(row)
    blocked = {row.pool_id: row.n for row in scaling_sql.count_blocked() if row.pool_id is not None}
    return WaitingDemand(by_pool, blocked)


def read_subjects(
    rows: Sequence[PoolRow], wanted: WaitingDemand, started: datetime | None = None
) -> list[Subject]:
    """Build the subjects of pools whose rows were just read or locked. `started`: when the
    controller started that carries out the decisions.
    """
    ids = [row.id for row in rows]
    members: dict[int, list[ScaledMember]] = defaultdict(list)
    for row in scaling_sql.scaled_members(pools=ids):
        members[row[0]].append(ScaledMember._make(row[1:]))
    demand = _read_demand(rows, wanted)
    return [_subject(row, members.get(row.id, []), demand, wanted, started) for row in rows]


@dataclass
class _Demand:
    counts: Mapping[int, scaling_sql.CountLinesRow] = field(default_factory=dict)
    urgent: Mapping[int, int] = field(default_factory=dict)
    seeking: Mapping[int, list[scaling_sql.CountSeekingRow]] = field(default_factory=dict)
    evacuated: Mapping[int, list[scaling_sql.CountEvacuatedRow]] = field(default_factory=dict)
    free: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    # Pool, labels and lane of which at least one slot is free.
    labelled: frozenset[tuple[int, str, str]] = frozenset()


def _read_demand(rows: Sequence[PoolRow], wanted: WaitingDemand) -> _Demand:
    """Count the waiting claims, and the free slots of pools for which claims wait."""
    shapes = sorted({line.shape for row in rows for line in wanted.by_pool.get(row.name, ())})
    seeking: dict[int, list[scaling_sql.CountSeekingRow]] = defaultdict(list)
    for row in scaling_sql.count_seeking(pools=[row.id for row in rows]):
        seeking[row.pool_id].append(row)
    evacuated: dict[int, list[scaling_sql.CountEvacuatedRow]] = defaultdict(list)
    for lack in scaling_sql.count_evacuated(pools=[row.id for row in rows]):
        evacuated[lack.pool_id].append(lack)
    pools = [row.id for row in rows if row.id in seeking or wanted.by_pool.get(row.name)]
    free: dict[int, dict[str, int]] = defaultdict(dict)
    if pools:
        for lane in scaling_sql.free_lanes(pools=pools):
            free[lane.pool_id][lane.lane] = lane.n
    if not shapes:
        return _Demand(seeking=seeking, evacuated=evacuated, free=free)
    counts = {row.shape: row for row in scaling_sql.count_lines(MOST_COUNTED, shapes=shapes)}
    urgent = {row.shape: row.n for row in scaling_sql.count_urgent(shapes=shapes)}
    return _Demand(counts, urgent, seeking, evacuated, free, _read_labelled(rows, wanted))


def _read_labelled(
    rows: Sequence[PoolRow], wanted: WaitingDemand
) -> frozenset[tuple[int, str, str]]:
    """The pools and lanes with free slots for the queues that ask for labels."""
    labels = sorted(
        {
            line.selector
            for row in rows
            for line in wanted.by_pool.get(row.name, ())
            if line.selector
        }
    )
    if not labels:
        return frozenset()
    found = scaling_sql.free_labelled(pools=[row.id for row in rows], labels=labels)
    return frozenset((row.pool_id, row.labels, row.lane) for row in found)


def _subject(
    row: PoolRow,
    members: list[ScaledMember],
    demand: _Demand,
    wanted: WaitingDemand,
    started: datetime | None,
) -> Subject:
    spec = read_stored(row.name, row.spec)
    limits, frozen_until = limits_of(row, spec)
    lines, hopeless = _queues_of(row, spec, demand, wanted)
    snapshot = Snapshot(
        pool=row.name,
        members=tuple(members),
        lines=tuple(lines),
        free=demand.free.get(row.id, {}),
        each=slots_per_member(row.name, row.spec),
        limits=limits,
        is_requested=row.is_requested,
        grown_since_request=row.grown_since_request,
        since_up=row.since_up,
        since_down=row.since_down,
        seen=row.seen,
        fresh=fresh_seconds(row.provider),
        runs_for=None if started is None else (row.moment - started).total_seconds(),
        blocked=wanted.blocked.get(row.id, 0),
        hopeless=hopeless,
        roll=Roll(
            is_wanted=spec.roll.policy == "idle" or row.is_roll_ordered,
            may_surge=spec.scaling is not None,
            could_surge=spec.scaling is not None and row.max_members > row.min_members,
            paused=row.roll_paused or "",
            stopped=row.roll_stopped or "",
            ready_within=spec.roll.ready_within,
        ),
        surge=row.surge_id,
    )
    return Subject(row, spec, snapshot, frozen_until)


def _queues_of(
    row: PoolRow, spec: PoolSpec, demand: _Demand, wanted: WaitingDemand
) -> tuple[list[DemandQueue], Mapping[str, int]]:
    """The queues that members of the pool can serve, and the other claims by their wait reason."""
    lines, hopeless = [], Counter[str]()
    for line in wanted.by_pool.get(row.name, ()):
        counted = demand.counts.get(line.shape)
        if counted is None:  # its claims were bound meanwhile
            continue
        lanes, each = _lanes_of(row.name, spec.layout, line)
        is_carried = not line.selector or matches(json.loads(line.selector), spec.member_labels)
        if not lanes or (line.code in HOPELESS and not (line.code == NO_LABELS and is_carried)):
            hopeless[line.code if line.code in HOPELESS else NO_LANES] += counted.n
            continue
        urgent = min(counted.n, demand.urgent.get(line.shape, 0)) * each
        # Parts compete for the lanes, so free slots of one lane may not help a waiting claim.
        fits = line.is_simple or line.code not in (MAY_LACK_A_LANE if line.parts else DOES_NOT_FIT)
        if line.selector:
            fits = fits and any((row.id, line.selector, lane) in demand.labelled for lane in lanes)
        lines.append(
            DemandQueue(
                tuple(lanes), counted.n, counted.n * each, urgent, counted.waited, fits, is_carried
            )
        )
    for seeking in demand.seeking.get(row.id, ()):
        if lanes := lanes_for(spec.layout, seeking.kind or default_kind(spec.layout) or ""):
            lines.append(DemandQueue(tuple(lanes), seeking.n, seeking.n, seeking.n))
    lines += [
        DemandQueue(tuple(lack.lanes), 1, lack.slots, fits_free=not lack.is_scattered)
        for lack in demand.evacuated.get(row.id, ())
    ]
    return lines, hopeless


def _lanes_of(pool: str, layout: Layout, line: scaling_sql.WantedLinesRow) -> tuple[list[str], int]:
    """The lanes of a pool that serve a queue, and the slots of the pool that each claim takes."""
    if not line.parts:
        kind = line.kind or default_kind(layout) or ""
        return lanes_for(layout, kind), line.size * (2 if pair_for(layout, line.kind) else 1)
    lanes, each = dict[str, None](), 0
    for part in json.loads(line.parts):
        if pool in part["pools"]:
            lanes |= dict.fromkeys(lanes_for(layout, part["kind"]))
            each += part.get("size", 1) * (2 if pair_for(layout, part["kind"]) else 1)
    return list(lanes), each


def fresh_seconds(provider: str) -> float:
    """Seconds after which an observation of the provider is too old to decide on: two looks, of
    which the watcher makes at most one in each of its turns.
    """
    known = known_providers().get(provider)
    every = known.look_every if known is not None else LOOK_EVERY
    return 2 * max(Watcher.resync, min(LOOK_EVERY, every))


@lru_cache(maxsize=4096)
def slots_per_member(name: str, spec: str) -> Mapping[str, int]:
    """The slots of a new member, by lane."""
    return Counter(lane for lane, _ in slots_of(read_stored(name, spec).layout))
