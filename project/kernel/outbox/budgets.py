"""Calls left for a provider account: one token bucket for all workers, because a limit in each
worker is none.
"""

from typing import NamedTuple

from project.kernel.db.guards import refuse_inside_transaction
from project.kernel.outbox import outbox_sql


class BudgetResult(NamedTuple):
    is_granted: bool
    wait: float  # seconds until so many will be there


def take_budget(key: str, n: int, *, rate: float, burst: float) -> BudgetResult:
    """Ask before a batch of `n` calls. `rate` tokens come back each second, up to `burst`. One
    short UPDATE, never in a transaction.
    """
    if not 0 < n <= burst or rate <= 0:
        raise ValueError(f"{n} calls never fit a bucket of {burst} that fills at {rate} a second")
    refuse_inside_transaction("take_budget")  # the row is everybody's: nobody may keep it locked
    if outbox_sql.take_budget(key=key, calls=n, rate=rate, burst=burst) is not None:
        return BudgetResult(True, 0.0)
    left = outbox_sql.budget_left(key=key, rate=rate, burst=burst)
    return BudgetResult(False, max(0.01, (n - float(left or 0.0)) / rate))
