"""How long something may take as a whole: a clock, and one thread that rings all of them."""

import itertools
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from heapq import heapify, heappop, heappush
from typing import Any

SPARE = 100  # clocks that were not needed are kept until there are so many of them


class Handle:
    """On a connection that somebody reads: to shut it from another thread. One of our own, because
    TLS takes the one of its socket away before it shakes hands, and a number that was closed may be
    another's by then."""

    def __init__(self, found: Any) -> None:
        self._lock = threading.Lock()
        self._number: int | None = os.dup(found.fileno())

    def shut(self) -> None:
        """Past TLS, whose own way to say so is for the thread that reads."""
        with self._lock:
            if self._number is not None:
                with suppress(OSError), socket.socket(fileno=os.dup(self._number)) as found:
                    found.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self._lock:
            if self._number is not None:
                os.close(self._number)
                self._number = None


class Deadline:
    """Of one call. What the call goes through is shut when its time is over, and whoever reads
    there finds the end.
    """

    def __init__(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds
        self.is_over = self.is_done = False
        self._handle: Handle | None = None
        self._lock = threading.Lock()

    @property
    def left(self) -> float:
        return max(0.0, self.until - time.monotonic())

    def hold(self, found: Any) -> None:
        with self._lock:
            if self.is_over:
                raise TimeoutError("its time is over")
            self._let_go()
            self._handle = Handle(found)

    def end(self) -> None:
        """From now on its connection may be another call's."""
        with self._lock:
            self.is_done = True
            self._let_go()

    def ring(self) -> None:
        with self._lock:
            if self.is_done:
                return
            self.is_over = True
            if self._handle is not None:
                self._handle.shut()

    def _let_go(self) -> None:
        if self._handle is not None:
            self._handle.close()
            self._handle = None


class DeadlineWatcher:
    """Begun with the first clock, and it ends with the process."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._set: list[tuple[float, int, Deadline]] = []  # a heap
        self._numbers = itertools.count()
        self._spare = 0  # among them
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._set)

    def set(self, clock: Deadline) -> None:
        with self._news:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="clocks", daemon=True)
                thread.start()
                self._thread = thread
            heappush(self._set, (clock.until, next(self._numbers), clock))
            if self._set[0][2] is clock:
                self._news.notify()

    def drop(self, clock: Deadline) -> None:
        """It has ended. Most do so long before their time, and are taken out many at once."""
        if clock.is_over:
            return
        with self._news:
            self._spare += 1
            if self._spare > SPARE and self._spare * 2 > len(self._set):
                self._set = [each for each in self._set if not each[2].is_done]
                heapify(self._set)
                self._spare = 0

    def _run(self) -> None:
        while True:
            with self._news:
                while not self._set or (left := self._set[0][0] - time.monotonic()) > 0:
                    self._news.wait(left if self._set else None)
                _, _, clock = heappop(self._set)
                self._spare -= clock.is_done
            clock.ring()


class _ProcessTimers:
    """Of this process: one that was forked has none of the threads."""

    ringer = DeadlineWatcher()


def _begin_anew() -> None:
    _ProcessTimers.ringer = DeadlineWatcher()


os.register_at_fork(after_in_child=_begin_anew)
_of_thread = threading.local()


@contextmanager
def within(seconds: float) -> Iterator[Deadline]:
    """Every connection that this thread uses in here, if its pool is limited, ends
    after so long.
    """
    outer, clock, ringer = current_deadline(), Deadline(seconds), _ProcessTimers.ringer
    ringer.set(clock)
    _of_thread.clock = clock
    try:
        yield clock
    finally:
        _of_thread.clock = outer
        clock.end()
        ringer.drop(clock)


def current_deadline() -> Deadline | None:
    found: Deadline | None = getattr(_of_thread, "clock", None)
    return found
