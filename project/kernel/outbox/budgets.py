"""Call budgets of provider accounts: one token bucket for all workers, because a limit in each
worker would not limit their sum.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from project.kernel.db.guards import refuse_inside_transaction
from project.kernel.outbox import outbox_sql
from project.kernel.outbox.operations import Postponed


class CallBudget(NamedTuple):
    """`rate` calls come back each second, up to `burst`."""

    key: str  # the account, for example "kubernetes prod"
    rate: float
    burst: float


class BudgetResult(NamedTuple):
    is_granted: bool
    wait: float  # seconds until the bucket holds enough calls


def take_budget(key: str, n: int, *, rate: float, burst: float) -> BudgetResult:
    """Take `n` calls from the bucket of an account, in one short UPDATE. Raises ValueError for an
    amount that the bucket never holds.
    """
    if not 0 < n <= burst or rate <= 0:
        raise ValueError(f"{n} calls never fit a bucket of {burst} that fills at {rate} a second")
    refuse_inside_transaction("take_budget")  # the row must not stay locked for other workers
    if outbox_sql.take_budget(key=key, calls=n, rate=rate, burst=burst) is not None:
        return BudgetResult(True, 0.0)
    left = outbox_sql.budget_left(key=key, rate=rate, burst=burst)
    return BudgetResult(False, max(0.01, (n - float(left or 0.0)) / rate))


class BudgetUse(NamedTuple):
    available: float  # calls that the bucket holds now
    spent_today: int = 0
    throttled_today: int = 0  # calls that the provider refused all the same
    throttled_at: datetime | None = None  # the last one, on whatever day


def list_uses(budgets: Iterable[CallBudget]) -> list[BudgetUse]:
    """What is left of each budget. A bucket that no worker has used yet is full."""
    wanted = list(budgets)
    found = outbox_sql.budget_uses(
        keys=[each.key for each in wanted],
        rates=[each.rate for each in wanted],
        bursts=[each.burst for each in wanted],
    )
    known = {
        row.key: BudgetUse(row.available, row.spent_today, row.throttled_today, row.throttled_at)
        for row in found
    }
    return [known.get(each.key, BudgetUse(each.burst)) for each in wanted]


def count_throttled(budget: CallBudget) -> None:
    """Count a call from this bucket that the provider refused, because it came too early for it."""
    refuse_inside_transaction("count_throttled")  # a rollback would forget the call
    outbox_sql.count_throttled(key=budget.key)


def spend(budget: CallBudget, calls: int = 1) -> None:
    """For performers, before the call. Raises Postponed, which sends the operations of the lane
    back until the budget has refilled.
    """
    result = take_budget(budget.key, calls, rate=budget.rate, burst=budget.burst)
    if not result.is_granted:
        raise Postponed(result.wait)
