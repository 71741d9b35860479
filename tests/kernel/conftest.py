"""Fixtures of the kernel's tests."""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from django.db import connections

from project.kernel.outbox import operations

R = TypeVar("R")


def run_in_thread(work: Callable[[], R]) -> R:
    """In a session of its own, to the end."""
    found: list[Any] = []
    raised: list[BaseException] = []

    def body() -> None:
        try:
            found.append(work())
        except BaseException as error:
            raised.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=body)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "it hangs"
    if raised:
        raise raised[0]
    return found[0]


def run_together(n: int, work: Callable[[int], R]) -> list[R]:
    """n threads that start at the same moment; what each found, in order."""
    barrier = threading.Barrier(n, timeout=60)
    found: dict[int, Any] = {}
    raised: list[BaseException] = []

    def body(k: int) -> None:
        try:
            barrier.wait()
            found[k] = work(k)
        except BaseException as error:
            raised.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=body, args=(k,)) for k in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if raised:
        raise raised[0]
    return [found[k] for k in range(n)]


@pytest.fixture
def in_thread() -> Callable[[Callable[[], R]], R]:
    return run_in_thread


@pytest.fixture
def performers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry of the test's own."""
    monkeypatch.setattr(operations, "_performers", {})
    monkeypatch.setattr(operations, "_batch_performers", {})
    monkeypatch.setattr(operations, "_interrupted", [])
