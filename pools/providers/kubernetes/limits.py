"""How long a call may take as a whole. The timeouts of a socket begin anew with each byte that comes: a server that sends one now and then
would hold its caller for ever. Here what a call goes through is shut when its time is over, and whoever reads there finds the end."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_of_thread = threading.local()


class Clock:
    """Of one call."""

    def __init__(self, seconds: float) -> None:
        self.is_over = False
        self._is_done = False
        self._socket: Any = None
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._ring)
        self._timer.daemon = True

    def start(self) -> None:
        self._timer.start()

    def end(self) -> None:
        """From now on its connection may be another call's."""
        with self._lock:
            self._is_done = True
        self._timer.cancel()

    def hold(self, found: Any) -> None:
        with self._lock:
            self._socket = found
            if self.is_over:
                raise TimeoutError("its time is over")

    def _ring(self) -> None:
        with self._lock:
            if self._is_done:
                return
            self.is_over = True
            if self._socket is not None:
                shut(self._socket)


@contextmanager
def within(seconds: float) -> Iterator[Clock]:
    """Every connection that this thread uses in here, if its pool is limited, ends after so long."""
    outer, clock = getattr(_of_thread, "clock", None), Clock(seconds)
    _of_thread.clock = clock
    clock.start()
    try:
        yield clock
    finally:
        clock.end()
        _of_thread.clock = outer


def limit_pools(manager: Any) -> None:
    """Connections of this pool manager, through whatever proxy, heed the clock of the thread that uses them."""
    manager.pool_classes_by_scheme = {scheme: _limited(kind) for scheme, kind in manager.pool_classes_by_scheme.items()}


def _limited(kind: Any) -> Any:
    connection = kind.ConnectionCls
    heeding = type(f"Heeding{connection.__name__}", (_Heeding, connection), {})
    return type(f"Limited{kind.__name__}", (kind,), {"ConnectionCls": heeding})


class _Heeding:
    sock: Any

    def _new_conn(self) -> Any:
        found = super()._new_conn()  # type: ignore[misc]
        _hold(found)  # what a proxy says comes before TLS, which has a limit of its own
        return found

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        _hold(self.sock)

    def request(self, *arguments: Any, **more: Any) -> None:
        if self.sock is not None:
            _hold(self.sock)
        super().request(*arguments, **more)  # type: ignore[misc]


def _hold(found: Any) -> None:
    clock: Clock | None = getattr(_of_thread, "clock", None)
    if clock is not None:
        clock.hold(found)


def shut(found: Any) -> None:
    """While another thread reads there, so past TLS: its own way to say so is for the thread that reads."""
    inner = getattr(found, "socket", found)
    with suppress(OSError):
        socket.socket.shutdown(inner, socket.SHUT_RDWR)
