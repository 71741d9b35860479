"""Which queue gets the threads of a worker."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from project.kernel.outbox import turns
from project.kernel.outbox.operations import add_operation
from project.kernel.outbox.turns import IsOver, Turns, until, wait

QUEUES = ("busy", "other", "third")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(turns.time, "monotonic", clock.monotonic)
    return clock


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_busy_queue_leaves_a_thread_for_the_others(stack: ExitStack) -> None:
    """Red while each hint of the busy queue took a thread."""
    shared = Turns(4, QUEUES)
    busy = [stack.enter_context(shared.take("busy")) for _ in range(5)]
    assert [is_over is not None for is_over in busy] == [True, True, True, False, False]
    assert stack.enter_context(shared.take("other")) is not None


def test_queue_gives_one_thread_back_once_none_is_free(stack: ExitStack) -> None:
    shared = Turns(4, QUEUES)
    busy = [stack.enter_context(shared.take("busy")) for _ in range(3)]
    assert not any(map(over, busy))
    other = stack.enter_context(shared.take("other"))
    assert [over(each) for each in (other, *busy)] == [False, True, False, False]
    assert over(busy[0]), "it stays over"
    assert stack.enter_context(shared.take("busy")) is None
    assert stack.enter_context(shared.take("third")) is not None


def test_ended_turn_leaves_its_thread_once() -> None:
    shared = Turns(2, QUEUES)
    for _ in range(3):
        with shared.take("busy") as first, shared.take("other"):
            assert first is not None and shared._running.total() == 2
        assert shared._running.total() == 0


def test_worker_without_threads_of_its_own_refuses_no_turn(stack: ExitStack) -> None:
    shared = Turns()
    for _ in range(9):
        is_over = stack.enter_context(shared.take("busy"))
        assert is_over is not None and not is_over()


@pytest.mark.django_db(transaction=True)
def test_due_queue_without_a_thread_takes_one_over(
    stack: ExitStack, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "LATE", 0.0)
    shared = Turns(2, QUEUES)
    busy, other = (stack.enter_context(shared.take(queue)) for queue in QUEUES[:2])
    add_operation(lane="somewhere else", kind="any", queue="unserved")
    clock.now += turns.SHORTEST
    assert not over(busy) and not over(other)
    add_operation(lane="third", kind="any", queue="third")
    assert not over(busy), "the database was asked a moment ago"
    clock.now += turns.SHORTEST
    assert over(busy) and not over(other)


def test_wait_ends_once_the_thread_is_needed() -> None:
    slept: list[float] = []
    assert wait(3.0, slept.append)
    assert slept == [3.0], "nothing else needs the thread"
    slept.clear()
    with until(lambda: len(slept) == 2):
        assert not wait(3.0, slept.append)
    assert slept == [turns.SLICE] * 2
    slept.clear()
    with until(lambda: False):
        assert wait(0.6, slept.append)
    assert sum(slept) == pytest.approx(0.6)


def over(is_over: IsOver | None) -> bool:
    assert is_over is not None
    return is_over()
