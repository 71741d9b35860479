"""Pacers of tests, in place of the buckets in the database."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pools.providers.pacing import Pacer
from project.kernel.outbox.budgets import CallBudget
from project.kernel.outbox.operations import Postponed


class UnlimitedPacer(Pacer):
    def take(self, budget: CallBudget, calls: int = 1) -> None:
        """All calls are granted."""


class KilledHere(BaseException):
    """The worker is killed: no handler of an Exception runs."""


@dataclass
class KillingPacer(Pacer):
    """Kills the worker before call `at`, that is after all effects of the calls before it."""

    at: int
    calls: int = 0

    def take(self, budget: CallBudget, calls: int = 1) -> None:
        self.calls += calls
        if self.calls == self.at:
            raise KilledHere


@dataclass
class MemoryPacer(Pacer):
    """Token buckets like those in the database, for the threads of one process."""

    clock: Callable[[], float] = time.monotonic
    taken: list[str] = field(default_factory=list)
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, budget: CallBudget, calls: int = 1) -> None:
        with self._lock:
            now = self.clock()
            left, at = self._left.get(budget.key, (budget.burst, now))
            left = min(budget.burst, left + (now - at) * budget.rate)
            if left < calls:
                self._left[budget.key] = left, now
                raise Postponed(max(0.01, (calls - left) / budget.rate))
            self._left[budget.key] = left - calls, now
            self.taken.append(budget.key)
