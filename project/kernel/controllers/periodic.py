"""What the finalizer does: short steps, each looked at by its own timer. Every app adds its own;
the lowest ones need not know it.

A chore finds its work by looking at rows that are due, does a little of it in its own transactions
and says whether there is more. A row it cannot deal with gets a later due time first, then the
error is raised, so that one bad row holds up neither the others nor the chores after it.
"""

import logging
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from django.db import InterfaceError, OperationalError

from project.kernel import metrics
from project.kernel.retry import Backoff, delay_after

logger = logging.getLogger(__name__)

BACKOFF = Backoff(1.0, 60.0)

T = TypeVar("T")
Step = Callable[[], bool]  # True: there is more to do, call again


# Django calls them the same as a database that is away: nothing was done because of other
# transactions, or it took too long.
IN_THE_WAY = {"55P03", "57014", "40001", "40P01"}


def is_unavailable(error: BaseException) -> bool:
    return (
        isinstance(error, OperationalError | InterfaceError)
        and getattr(error.__cause__, "sqlstate", None) not in IN_THE_WAY
    )


def run_each(found: Iterable[T], act: Callable[[T], object]) -> None:
    """Each in turn, also after one that can't be dealt with; its error is raised at the end. A
    database that is away ends it at once.
    """
    failed: list[Exception] = []
    for item in found:
        try:
            act(item)
        except Exception as error:
            if is_unavailable(error):
                raise
            logger.warning("%r could not be dealt with, once more later: %s", item, error)
            failed.append(error)
    if failed:
        raise failed[0]


@dataclass(frozen=True, slots=True)
class Chore:
    name: str
    every: float  # seconds between two looks
    step: Step


_chores: dict[str, Chore] = {}


def chore(name: str, *, every: float = 1.0) -> Callable[[Step], Step]:
    """Register a step of the finalizer. `every`: the longest a due row may go unseen."""

    def register(step: Step) -> Step:
        _chores[name] = Chore(name, every, step)
        return step

    return register


def list_chores() -> list[Chore]:
    return [_chores[name] for name in sorted(_chores)]


@dataclass
class PeriodicRunner:
    """Goes through the chores that are due, in turn. Each keeps its own time and its
    own back-off.
    """

    clock: Callable[[], float] = time.monotonic
    due: dict[str, float] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)

    def step(self) -> bool:
        """True: one of them has more to do. What fails waits longer each time and is raised once
        all others have had their turn.
        """
        is_more, failed = False, list[Exception]()
        for found in list_chores():
            if self.clock() < self.due.get(found.name, 0.0):
                continue
            self.due[found.name] = self.clock() + found.every
            try:
                if found.step():
                    is_more = True
                    self.due[found.name] = 0.0
                self.failures.pop(found.name, None)
            except Exception as error:
                if is_unavailable(error):
                    raise  # that is no fault of this chore, and the next one would meet the same
                self.failures[found.name] = count = self.failures.get(found.name, 0) + 1
                self.due[found.name] = self.clock() + delay_after(count, BACKOFF, random.random())
                metrics.CHORES_FAILED.labels(found.name).inc()
                logger.warning(
                    "%s failed, once more in %.0f s: %s",
                    found.name,
                    self.due[found.name] - self.clock(),
                    error,
                )
                failed.append(error)
        if failed:
            raise failed[0]
        return is_more
