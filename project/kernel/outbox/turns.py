"""Turns of this process's threads at the queues: no queue waits until another queue has no work.

A call to an outside may wait for seconds, for its answer or for its call budget. A queue with many
due lanes would take all threads, and the hints for other queues would wait behind its own. So a
queue takes the last free thread only as its first, and gives one back once no thread is free.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from project.kernel.outbox.operations import list_due_queues

SLICE = 0.25  # seconds between two checks of a thread that waits
SHORTEST = 1.0  # seconds of a turn before a queue without a thread may end it
LATE = 0.5  # seconds that operations of such a queue are due

IsOver = Callable[[], bool]
_is_over: ContextVar[IsOver | None] = ContextVar("is_over", default=None)


class Turns:
    """The threads of one process. Without a number of threads, no turn is refused."""

    def __init__(self, threads: int = 0, queues: Collection[str] = ()) -> None:
        self.threads, self._queues = threads, frozenset(queues)
        self._running = Counter[str]()
        self._lock = threading.Lock()
        self._look_at = 0.0

    def configure(self, threads: int, queues: Collection[str]) -> None:
        """`queues`: those that this process serves."""
        self.threads, self._queues = threads, frozenset(queues)

    @contextmanager
    def take(self, queue: str) -> Iterator[IsOver | None]:
        """Whether the turn is over, as a function. None: the queue gets no further thread."""
        turn = self._begin(queue)
        if turn is None:
            yield None
            return
        try:
            with until(turn.is_over):
                yield turn.is_over
        finally:
            self._end(turn)

    def _begin(self, queue: str) -> "_Turn | None":
        with self._lock:
            free = self.threads - self._running.total()
            if self.threads and self._running[queue] and free <= 1:
                return None
            self._running[queue] += 1
            return _Turn(self, queue)

    def _end(self, turn: "_Turn") -> None:
        with self._lock:
            self._leave(turn)

    def _leave(self, turn: "_Turn") -> None:
        if not turn.has_ended:
            turn.has_ended = True
            self._running[turn.queue] -= 1

    def ends(self, turn: "_Turn") -> bool:
        """Whether the thread is needed for another queue. It counts as free from then on."""
        with self._lock:
            if turn.has_ended or not self.threads or self._running.total() < self.threads:
                return turn.has_ended
            if self._running[turn.queue] > 1:
                self._leave(turn)
                return True
            now = time.monotonic()
            if now < max(turn.begun + SHORTEST, self._look_at):
                return False
            self._look_at = now + SHORTEST
        return self._ends_for_others(turn)

    def _ends_for_others(self, turn: "_Turn") -> bool:
        """Each thread works for another queue: a due queue without a thread takes one over."""
        due = self._queues.intersection(list_due_queues(LATE))
        with self._lock:
            if any(not self._running[queue] for queue in due):
                self._leave(turn)
            return turn.has_ended


class _Turn:
    def __init__(self, turns: Turns, queue: str) -> None:
        self._turns, self.queue = turns, queue
        self.begun = time.monotonic()
        self.has_ended = False

    def is_over(self) -> bool:
        return self._turns.ends(self)


TURNS = Turns()


@contextmanager
def until(is_over: IsOver) -> Iterator[None]:
    """Calls of `wait` in this block end early once the turn of the thread is over."""
    token = _is_over.set(is_over)
    try:
        yield
    finally:
        _is_over.reset(token)


def wait(seconds: float, sleep: Callable[[float], None] = time.sleep) -> bool:
    """Wait so long. False: another queue needs the thread, which should return at once."""
    is_over = _is_over.get()
    if is_over is None:
        sleep(seconds)
        return True
    while seconds > 0:
        if is_over():
            return False
        sleep(min(seconds, SLICE))
        seconds -= SLICE
    return True
