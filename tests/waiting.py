"""Waits for a state that another thread or process brings about."""

import os
import time
from collections.abc import Callable
from typing import TypeVar

LOOK_AGAIN = 0.02  # seconds; a loop without a pause takes a core away from what it waits for
PATIENCE = 60.0  # seconds on an idle machine; only a test that fails waits that long
MOST_SLACK = 2.0

Found = TypeVar("Found")


def load() -> float:
    """Runnable processes per core, at least 1: the patience of a test is multiplied by it."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def slack() -> float:
    """The load, at most MOST_SLACK: a bound that a test asserts is multiplied by it. So the bound
    also fails on a busy machine.
    """
    return min(load(), MOST_SLACK)


def stretch(patience: float, within: float | None) -> float:
    """Seconds after which a wait fails: `within`, a bound that the test asserts, times the slack;
    without a bound, `patience` times the load.
    """
    return patience * load() if within is None else within * slack()


def wait_until(
    read: Callable[[], Found | None],
    what: str | Callable[[], object] = "the state is not reached",
    *,
    patience: float = PATIENCE,
    within: float | None = None,
    pause: float = LOOK_AGAIN,
) -> Found:
    """The first true value of `read()`; after the deadline an AssertionError with `what`. A test
    that asserts a bound gives `within` instead of `patience`. `pause`: seconds between two reads
    that cost much.
    """
    begin = time.monotonic()
    while not (found := read()):
        if time.monotonic() - begin > stretch(patience, within):
            raise AssertionError(what() if callable(what) else what)
        time.sleep(pause)
    return found
