"""What a page shows of the calls to a pool's provider: the call budgets and the open operations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pools.lifecycle.selectors import LIVE, spec_of
from pools.models import Member, Pool
from pools.providers.base import known_providers
from project.kernel.outbox import outbox_sql
from project.kernel.outbox.budgets import BudgetUse, CallBudget, list_uses
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
class BudgetView:
    name: str
    budget: CallBudget
    use: BudgetUse

    @property
    def rate(self) -> str:
        return f"{self.budget.rate:g}"

    @property
    def percent_left(self) -> int:
        return max(0, min(100, round(100 * self.use.available / self.budget.burst)))


@dataclass(frozen=True, slots=True)
class ProviderCalls:
    budgets: list[BudgetView] = field(default_factory=list)  # empty: the provider has none
    lanes: list[QueuedCalls] = field(default_factory=list)  # the fullest first

    @property
    def tightest(self) -> BudgetView | None:
        """The budget that lets the next call wait first; of equals the one with most calls."""
        found = self.used or self.budgets
        return min(found, key=lambda each: (each.percent_left, -each.use.spent_today), default=None)

    @property
    def used(self) -> list[BudgetView]:
        """The budgets that calls were taken from today, or that the provider throttled."""
        return [each for each in self.budgets if each.use.spent_today or each.use.throttled_today]

    @property
    def throttled_today(self) -> int:
        return sum(each.use.throttled_today for each in self.budgets)

    @property
    def throttled_at(self) -> datetime | None:
        """When the last call was throttled today."""
        found = (each.use for each in self.budgets if each.use.throttled_today)
        return max((use.throttled_at for use in found if use.throttled_at), default=None)

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
    found = {} if provider is None else provider.list_budgets(spec_of(pool).options, pool.place)
    uses = list_uses(found.values()) if found else []
    budgets = [
        BudgetView(name, budget, use)
        for (name, budget), use in zip(found.items(), uses, strict=True)
    ]
    members = dict(Member.objects.filter(LIVE, pool=pool).values_list("pk", "name"))
    return ProviderCalls(budgets, _list_lanes(members))


def _list_lanes(members: Mapping[int, str]) -> list[QueuedCalls]:
    names = {lane_of(member_id): name for member_id, name in members.items()}
    found = [
        QueuedCalls(names[row.lane], row.n, row.due, row.throttled, row.failed, row.next_at)
        for row in outbox_sql.open_by_lane(lanes=list(names))
    ]
    return sorted(found, key=lambda lane: (-lane.count, lane.member))
