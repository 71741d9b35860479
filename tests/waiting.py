"""Waits for a state that another thread or process brings about."""

import os
import time
from collections.abc import Callable
from typing import TypeVar

LOOK_AGAIN = 0.02  # seconds; a loop without a pause takes a core away from what it waits for
PATIENCE = 60.0  # seconds on an idle machine; only a test that fails waits that long

Found = TypeVar("Found")


def load() -> float:
    """Runnable processes per core, at least 1: time limits of tests are multiplied by it."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def wait_until(
    read: Callable[[], Found | None],
    what: str | Callable[[], object] = "the state is not reached",
    *,
    patience: float = PATIENCE,
) -> Found:
    """The first true value of `read()`; after the deadline an AssertionError with `what`."""
    begin = time.monotonic()
    while not (found := read()):
        if time.monotonic() - begin > patience * load():
            raise AssertionError(what() if callable(what) else what)
        time.sleep(LOOK_AGAIN)
    return found
