"""What a page shows of the calls to a pool's provider: the call budget and the open operations.

Berth keeps no history of throttled calls: an operation has the error of its last attempt until it
succeeds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pools.lifecycle.selectors import LIVE, spec_of
from pools.models import Member, Pool
from pools.providers.base import known_providers
from project.kernel.outbox import outbox_sql
from project.kernel.outbox.budgets import BudgetUse, CallBudget, read_use
from slots.members.store import lane_of


@dataclass(frozen=True, slots=True)
class QueuedCalls:
    """Open operations of a member's lane, which one worker at a time performs."""

    member: str
    count: int
    due: int
    throttled: int
    failed: int
    next_at: datetime


@dataclass(frozen=True, slots=True)
class ProviderCalls:
    budget: CallBudget | None = None  # None: the provider has none
    use: BudgetUse | None = None
    lanes: list[QueuedCalls] = field(default_factory=list)  # the fullest first

    @property
    def percent_left(self) -> int:
        if self.budget is None or self.use is None:
            return 0
        return max(0, min(100, round(100 * self.use.available / self.budget.burst)))

    @property
    def count(self) -> int:
        return sum(lane.count for lane in self.lanes)

    @property
    def due(self) -> int:
        return sum(lane.due for lane in self.lanes)

    @property
    def throttled(self) -> int:
        return sum(lane.throttled for lane in self.lanes)


def read_calls(pool: Pool) -> ProviderCalls:
    """In three queries at most."""
    provider = known_providers().get(pool.provider)
    budget = provider.call_budget(spec_of(pool).options) if provider is not None else None
    members = dict(Member.objects.filter(LIVE, pool=pool).values_list("pk", "name"))
    return ProviderCalls(budget, None if budget is None else read_use(budget), _list_lanes(members))


def _list_lanes(members: Mapping[int, str]) -> list[QueuedCalls]:
    names = {lane_of(member_id): name for member_id, name in members.items()}
    found = [
        QueuedCalls(names[row.lane], row.n, row.due, row.throttled, row.failed, row.next_at)
        for row in outbox_sql.open_by_lane(lanes=list(names))
    ]
    return sorted(found, key=lambda lane: (-lane.count, lane.member))
