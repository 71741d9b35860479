"""The scaling overview: members, limits, last decision and orders of every pool with scaling.

All facts are read from the stored decisions, so a thousand pools cost a few queries.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from claims.models import Lift
from claims.scaling import scaling_sql
from claims.scaling.decision_cards import Card, card_of
from claims.scaling.freeze_lifts import list_lifts
from pools.lifecycle.selectors import spec_of
from pools.models import Decision as Row
from pools.models import Pool
from pools.scaling import Occurrence, list_occurrences
from slots.pages.dashboard_queries import ShownMemberCounts, count_members

HOUR = 3600.0
Filter = Literal["all", "attention", "blocked", "orders", "frozen", "outdated"]
FILTERS: dict[Filter, str] = {
    "all": "All pools",
    "attention": "Attention",
    "blocked": "Blocked",
    "orders": "Pinned or paused",
    "frozen": "Frozen",
    "outdated": "Outdated",
}


@dataclass(frozen=True, slots=True)
class PoolScalingRow:
    pool: Pool
    members: ShownMemberCounts
    card: Card | None  # the last decision
    policy: str  # empty: no scaling
    grown: int
    shrunk: int
    outdated: int
    now: datetime
    lifts: Sequence[Lift] = ()  # of open and future freezes

    @property
    def low(self) -> int:
        """The minimum now, which a schedule may change."""
        return int(self._inputs.get("min", self.pool.min_members))

    @property
    def high(self) -> int:
        return int(self._inputs.get("max", self.pool.max_members))

    @property
    def window(self) -> str:
        return str(self._inputs.get("window", ""))

    @property
    def _inputs(self) -> Mapping[str, Any]:
        return self.card.inputs if self.card and self.policy else {}

    @property
    def is_pinned(self) -> bool:
        return self.pool.pin_count is not None and (
            self.pool.pin_until is None or self.pool.pin_until > self.now
        )

    @property
    def is_paused(self) -> bool:
        return any(
            until is not None and until > self.now
            for until in (self.pool.scaling_paused_until, self.pool.paused_until)
        )

    @property
    def is_roll_paused(self) -> bool:
        return self.pool.roll_paused_until is not None and self.pool.roll_paused_until > self.now

    @property
    def is_frozen(self) -> bool:
        return self.pool.frozen_until is not None

    @property
    def is_lifted(self) -> bool:
        return self.lifted_until is not None

    @property
    def lifted_until(self) -> datetime | None:
        """The end of the open freeze, if it is lifted."""
        ends = [lift.ends_at for lift in self.lifts if lift.starts_at <= self.now < lift.ends_at]
        if self.pool.unfrozen_until is not None and self.pool.unfrozen_until > self.now:
            ends.append(self.pool.unfrozen_until)
        return max(ends, default=None)

    @property
    def lifted_ahead(self) -> Sequence[Lift]:
        return [lift for lift in self.lifts if lift.starts_at > self.now]

    @property
    def is_blocked(self) -> bool:
        return self.card is not None and self.card.verdict == "blocked"

    @property
    def needs_look(self) -> bool:
        return self.pool.roll_stopped_at is not None or (
            self.card is not None and self.card.verdict in ("failed", "stopped")
        )

    @property
    def css(self) -> str:
        if self.pool.state != "active":
            return "deleting" if self.pool.state == "gone" else self.pool.state
        return "frozen" if self.is_frozen else "paused" if self.is_paused else "active"

    def fits(self, name: Filter) -> bool:
        match name:
            case "attention":
                return self.needs_look
            case "blocked":
                return self.is_blocked
            case "orders":
                return self.is_pinned or self.is_paused or self.is_roll_paused
            case "frozen":
                return self.is_frozen or self.is_lifted
            case "outdated":
                return bool(self.outdated) or self.pool.surge_id is not None
            case _:
                return True


def list_scaling_rows(pools: Iterable[Pool], now: datetime) -> list[PoolScalingRow]:
    """Rows for pools with scaling or with outdated members; pools that need attention first."""
    found = list(pools)
    ids = [pool.pk for pool in found]
    outdated = {row.pool: row.n for row in scaling_sql.count_outdated(pools=ids)}
    shown = [
        pool
        for pool in found
        if spec_of(pool).scaling is not None or outdated.get(pool.pk) or pool.roll_stopped_at
    ]
    ids = [pool.pk for pool in shown]
    latest = list_latest(ids)
    changes = {
        row.pool: (row.grown, row.shrunk)
        for row in scaling_sql.count_changes(pools=ids, seconds=HOUR)
    }
    members, lifts = count_members(ids), list_lifts(ids)
    lines = [
        PoolScalingRow(
            pool, members[pool.pk], latest.get(pool.pk), _policy_of(pool),
            *changes.get(pool.pk, (0, 0)), outdated.get(pool.pk, 0), now, lifts.get(pool.pk, ()),
        )
        for pool in shown
    ]  # fmt: skip
    return sorted(lines, key=lambda line: (not line.needs_look, line.pool.name))


def list_latest(pools: Iterable[int]) -> dict[int, Card]:
    """The last decision, by pool."""
    return {
        row.pool: card_of(
            Row(
                id=row.id,
                at=row.at,
                last_at=row.last_at,
                seen_again=row.seen_again,
                inputs=json.loads(row.inputs),
                delta=row.delta,
                reason=row.reason,
            )
        )
        for row in scaling_sql.latest_decisions(pools=list(pools))
    }


def _policy_of(pool: Pool) -> str:
    scaling = spec_of(pool).scaling
    return "" if scaling is None else scaling.policy


# Freezes and other limits by the clock ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PoolWindows:
    """The freeze and schedule windows of a pool, by time."""

    pool: Pool
    freezes: Sequence[Occurrence]
    limits: Sequence[Occurrence]  # of the schedule
    lifts: Mapping[datetime, Lift] = field(default_factory=dict)  # by when the freeze begins

    def is_lifted(self, freeze: Occurrence, now: datetime) -> bool:
        """Whether this window is lifted, ahead of its start or since."""
        until = self.pool.unfrozen_until
        # A window that ends after `until` freezes the pool again.
        return freeze.start in self.lifts or (
            until is not None and freeze.start <= now < freeze.end <= until
        )


def list_windows(pools: Iterable[Pool], first: datetime, last: datetime) -> list[PoolWindows]:
    """The windows of all pools that have any, by pool name."""
    found, all_of_them = [], list(pools)
    lifts = list_lifts(pool.pk for pool in all_of_them)
    for pool in all_of_them:
        scaling = spec_of(pool).scaling
        if scaling is None or not (scaling.freeze or scaling.schedule):
            continue
        freezes, limits = (
            list_occurrences(windows, first, last) for windows in (scaling.freeze, scaling.schedule)
        )
        found.append(
            PoolWindows(
                pool, freezes, limits, {lift.starts_at: lift for lift in lifts.get(pool.pk, ())}
            )
        )
    return sorted(found, key=lambda each: each.pool.name)


def zones_of(pools: Iterable[Pool]) -> list[str]:
    """The time zones of the windows, and UTC."""
    scalings = [scaling for pool in pools if (scaling := spec_of(pool).scaling) is not None]
    return sorted(
        {window.zone for scaling in scalings for window in (*scaling.freeze, *scaling.schedule)}
        | {"UTC"}
    )
