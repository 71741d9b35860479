"""Pacing of calls by buckets that all workers share."""

import threading
from collections.abc import Iterator

import pytest
from django.db import connection

from pools.providers.pacing import PatientPacer, SharedPacer
from project.kernel.models import Budget
from project.kernel.outbox.budgets import CallBudget
from project.kernel.outbox.operations import Postponed
from tests.pools.providers.pacers import MemoryPacer

BUDGET = CallBudget("aws 1 eu-west-1 write", rate=2, burst=4)


class SleepingClock:
    """A clock that moves only while a pacer sleeps."""

    def __init__(self) -> None:
        self.now, self.naps = 0.0, list[float]()

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> SleepingClock:
    return SleepingClock()


def test_patient_pacer_waits_until_the_bucket_has_refilled(clock: SleepingClock) -> None:
    pacer = PatientPacer(MemoryPacer(clock), patience=10, sleep=clock.sleep)
    for _ in range(6):
        pacer.take(BUDGET)
    assert clock.naps == [0.5, 0.5]


def test_patience_counts_for_all_waits_of_a_call(clock: SleepingClock) -> None:
    pacer = PatientPacer(MemoryPacer(clock), patience=1.2, sleep=clock.sleep)
    with pytest.raises(Postponed) as caught:
        for _ in range(9):
            pacer.take(BUDGET)
    assert caught.value.seconds == 0.5
    assert clock.naps == [0.5, 0.5], "a wait that would be too long is not begun"


def test_waits_are_spread_because_every_waiting_thread_asks_the_database_again(
    clock: SleepingClock,
) -> None:
    pacer = PatientPacer(MemoryPacer(clock), patience=100, spread=0.2, sleep=clock.sleep)
    for _ in range(24):
        pacer.take(BUDGET)
    assert all(0.1 <= nap <= 0.7 for nap in clock.naps)
    assert len({round(nap, 4) for nap in clock.naps}) > 1


def test_buckets_are_apart(clock: SleepingClock) -> None:
    pacer = MemoryPacer(clock)
    pacer.take(BUDGET, 4)
    pacer.take(BUDGET._replace(key="aws 1 eu-west-1 read"), 4)
    with pytest.raises(Postponed):
        pacer.take(BUDGET)


@pytest.mark.django_db(transaction=True)
def test_shared_pacer_takes_from_the_bucket_of_the_installation() -> None:
    pacer = SharedPacer()
    pacer.take(BUDGET, 4)
    with pytest.raises(Postponed):
        SharedPacer().take(BUDGET)
    assert Budget.objects.get(key=BUDGET.key).spent_today == 4


@pytest.mark.django_db(transaction=True)
def test_session_ends_the_connection_that_it_opened_and_no_other() -> None:
    pacer = SharedPacer()

    def use() -> Iterator[bool]:
        with pacer.session():
            pacer.take(BUDGET)
            yield connection.connection is not None
        yield connection.connection is not None

    connection.ensure_connection()
    assert list(use()) == [True, True], "this thread had a connection"
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.extend(use()))
    thread.start()
    thread.join()
    assert found == [True, False]
