"""Pacing of calls to a cloud: a provider takes a call from a bucket before it makes the call.

The buckets are in the database, shared by all workers (project/kernel/outbox/budgets.py). A
provider needs several: a cloud counts reads and writes apart.
"""

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import InterfaceError, OperationalError, connection

from pools.providers.base import MemberReport
from project.kernel.outbox.budgets import CallBudget, count_throttled, spend
from project.kernel.outbox.operations import Postponed
from project.kernel.outbox.turns import wait


class PartlySynced(Postponed):
    """The budget ended a sync that had done a part of its work. `report` says what is confirmed, so
    that ports are used and slots are free before the whole member is in order.
    """

    def __init__(self, seconds: float, report: MemberReport) -> None:
        self.report = report
        super().__init__(seconds)


class Pacer(ABC):
    @abstractmethod
    def take(self, budget: CallBudget, calls: int = 1) -> None:
        """Take calls from a bucket. Raises Postponed if it does not hold as many."""

    def record_throttled(self, budget: CallBudget) -> None:  # noqa: B027
        """The provider has refused a call that was taken from this bucket."""

    @contextmanager
    def session(self) -> Iterator[None]:
        """Around all calls of one sync or look."""
        yield

    @contextmanager
    def impatient(self) -> Iterator[None]:
        """Calls in this block do not wait for their bucket: Postponed is raised at once."""
        yield


class SharedPacer(Pacer):
    """The buckets of the installation."""

    def take(self, budget: CallBudget, calls: int = 1) -> None:
        with _whole_connection():
            spend(budget, calls)

    def record_throttled(self, budget: CallBudget) -> None:
        with _whole_connection():
            count_throttled(budget)

    @contextmanager
    def session(self) -> Iterator[None]:
        """A look runs in a thread that has no connection to the database. The connection that its
        pacing opens ends with the look, so that dozens of threads keep none.
        """
        was_connected = connection.connection is not None
        try:
            yield
        finally:
            if not was_connected:
                connection.close()


@contextmanager
def _whole_connection() -> Iterator[None]:
    """A thread of a look may keep its connection, which must not stay broken."""
    try:
        yield
    except (OperationalError, InterfaceError):
        connection.close()
        raise


class PatientPacer(Pacer):
    """Waits where the bucket is empty, for `patience` seconds in all, then raises Postponed. A
    short wait costs less than to begin a sync again, which reads its member first. `spread`: up to
    so many seconds more for each wait, because every waiting thread asks the database again. A
    wait ends early where another queue needs the thread.
    """

    def __init__(
        self,
        pacer: Pacer,
        patience: float,
        *,
        spread: float = 0.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._pacer, self._left, self._spread, self._sleep = pacer, patience, spread, sleep

    def take(self, budget: CallBudget, calls: int = 1) -> None:
        while True:
            try:
                return self._pacer.take(budget, calls)
            except Postponed as postponed:
                pause = postponed.seconds + random.uniform(0, self._spread)
                if pause > self._left:
                    raise
                self._left -= pause
                if not wait(pause, self._sleep):
                    raise

    def record_throttled(self, budget: CallBudget) -> None:
        self._pacer.record_throttled(budget)

    @contextmanager
    def impatient(self) -> Iterator[None]:
        left, self._left = self._left, 0.0
        try:
            yield
        finally:
            self._left = left

    @contextmanager
    def session(self) -> Iterator[None]:
        with self._pacer.session():
            yield
