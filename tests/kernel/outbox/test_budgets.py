"""Call budgets of provider accounts: one bucket shared by all workers."""

import pytest
from django.db import connection, transaction

from project.kernel.db.guards import InsideTransaction
from project.kernel.models import Budget
from project.kernel.outbox.budgets import (
    BudgetUse,
    CallBudget,
    count_throttled,
    list_uses,
    take_budget,
)
from tests.kernel.conftest import run_together

pytestmark = pytest.mark.django_db(transaction=True)


def test_budget_is_spent_and_refills_with_time():
    assert take_budget("acct", 8, rate=10, burst=10).is_granted
    refused = take_budget("acct", 8, rate=10, burst=10)
    assert not refused.is_granted
    assert 0.3 < refused.wait <= 0.6
    with connection.cursor() as cursor:
        cursor.execute("UPDATE kernel_budget SET filled_at = filled_at - interval '1 s'")
    assert take_budget("acct", 8, rate=10, burst=10).is_granted


def test_budget_never_exceeds_its_burst():
    take_budget("acct", 1, rate=10, burst=10)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE kernel_budget SET filled_at = filled_at - interval '1 day'")
    take_budget("acct", 10, rate=10, burst=10)
    assert not take_budget("acct", 5, rate=10, burst=10).is_granted


def test_eight_workers_together_spend_no_more_than_the_budget():
    granted = run_together(
        8, lambda k: sum(take_budget("acct", 1, rate=0.001, burst=20).is_granted for _ in range(10))
    )
    assert sum(granted) == 20
    assert Budget.objects.get().spent_today == 20


def test_spent_calls_are_counted_per_day():
    take_budget("acct", 3, rate=1, burst=10)
    Budget.objects.update(spent_on="2020-01-01")
    take_budget("acct", 2, rate=1, burst=10)
    assert Budget.objects.get().spent_today == 2


def test_clock_going_back_takes_nothing_away():
    take_budget("acct", 1, rate=10, burst=10)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE kernel_budget SET filled_at = filled_at + interval '1 hour'")
    assert take_budget("acct", 9, rate=10, burst=10).is_granted


@pytest.mark.parametrize(("n", "rate", "burst"), [(0, 1, 1), (2, 1, 1), (1, 0, 1), (-1, 1, 1)])
def test_amount_that_never_fits_is_refused(n, rate, burst):
    with pytest.raises(ValueError, match="never fit"):
        take_budget("acct", n, rate=rate, burst=burst)


def test_budget_is_not_taken_inside_a_transaction():
    with pytest.raises(InsideTransaction), transaction.atomic():
        take_budget("acct", 1, rate=1, burst=1)


def test_throttled_calls_of_a_day_are_counted_beside_the_spent_ones():
    budget, other = CallBudget("acct", 1, 10), CallBudget("other", 1, 10)
    for each in (budget, other):
        take_budget(each.key, 3, rate=1, burst=10)
    count_throttled(budget)
    count_throttled(budget)
    used, untouched, unknown = list_uses([budget, other, CallBudget("new", 1, 7)])
    assert (used.spent_today, used.throttled_today) == (3, 2)
    assert used.throttled_at is not None
    assert (untouched.spent_today, untouched.throttled_today) == (3, 0)
    assert unknown == BudgetUse(available=7)
    Budget.objects.update(throttled_at="2020-01-01T12:00:00Z")
    assert list_uses([budget])[0].throttled_today == 0
    count_throttled(budget)
    assert list_uses([budget])[0].throttled_today == 1


def test_throttled_call_of_a_bucket_without_a_row_is_not_counted():
    count_throttled(CallBudget("acct", 1, 10))
    assert not Budget.objects.exists()


def test_throttled_call_is_not_counted_inside_a_transaction():
    with transaction.atomic(), pytest.raises(RuntimeError):
        count_throttled(CallBudget("acct", 1, 10))
