"""Chores of the finalizer: short steps, each with its own timer. Each app registers its chores.

A chore reads due rows, handles some of them in its own transactions, and returns whether more rows
are due. A row that fails first gets a later due time, and then the chore raises the error, so that
one bad row delays neither other rows nor other chores.
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
Step = Callable[[], bool]  # True: more work is due, call again


# Lock timeouts, statement timeouts, serialisation failures and deadlocks: Django raises the same
# error classes for these as for an unavailable database.
IN_THE_WAY = {"55P03", "57014", "40001", "40P01"}


def is_unavailable(error: BaseException) -> bool:
    return (
        isinstance(error, OperationalError | InterfaceError)
        and getattr(error.__cause__, "sqlstate", None) not in IN_THE_WAY
    )


def run_each(found: Iterable[T], act: Callable[[T], object]) -> None:
    """Handles each item, also after a failure, and raises the first error at the end. An
    unavailable database ends the loop at once.
    """
    failed: list[Exception] = []
    for item in found:
        try:
            act(item)
        except Exception as error:
            if is_unavailable(error):
                raise
            logger.warning("%r failed and is retried later: %s", item, error)
            failed.append(error)
    if failed:
        raise failed[0]


@dataclass(frozen=True, slots=True)
class Chore:
    name: str
    every: float  # seconds between two steps
    step: Step


_chores: dict[str, Chore] = {}


def chore(name: str, *, every: float = 1.0) -> Callable[[Step], Step]:
    """Register a step of the finalizer. `every`: the longest delay of a due row, in seconds."""

    def register(step: Step) -> Step:
        _chores[name] = Chore(name, every, step)
        return step

    return register


def list_chores() -> list[Chore]:
    return [_chores[name] for name in sorted(_chores)]


@dataclass
class PeriodicRunner:
    """Runs due chores in turn. Each chore has its own timer and back-off."""

    clock: Callable[[], float] = time.monotonic
    due: dict[str, float] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)

    def step(self) -> bool:
        """True: a chore has more work. A failing chore waits longer each time, and its error is
        raised after all other chores have run.
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
                    raise  # the next chore would fail in the same way
                self.failures[found.name] = count = self.failures.get(found.name, 0) + 1
                self.due[found.name] = self.clock() + delay_after(count, BACKOFF, random.random())
                metrics.CHORES_FAILED.labels(found.name).inc()
                logger.warning(
                    "%s failed and is retried in %.0f s: %s",
                    found.name,
                    self.due[found.name] - self.clock(),
                    error,
                )
                failed.append(error)
        if failed:
            raise failed[0]
        return is_more
