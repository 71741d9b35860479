"""Tells a server error of one port from an outage of the cloud, within one sync.

A server error (5xx) blames the cloud and names no cause. While other calls about ports succeed in
the same sync, it is the fault of its port, which is set apart: the sync goes on with the next port.
A sync in which none succeeds is an outage, and blames no port.

A call that fails for three ports without a success is not made again in this sync. The next sync
of this process begins with ports without a server error, then come the oldest errors, so that each
port has its turn.
"""

import threading
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from project.kernel.outbox.operations import ProviderError

MOST_IN_VAIN = 3  # ports for which a call fails while it succeeds for none
MOST_MEMBERS = 1000  # whose ports are remembered; the longest unused are forgotten

T = TypeVar("T")

# Ports with a server error, by pool and member; the oldest error is first.
_faulty: dict[Hashable, dict[Hashable, None]] = {}
_lock = threading.Lock()


def forget_faults() -> None:
    """For tests: their clouds use the same ids."""
    _faulty.clear()


class ServerFaults:
    """The server errors of one sync of a member of a pool. A port is a number, or a lane and a
    number.
    """

    def __init__(self, pool_id: int, member_id: int) -> None:
        self._key = pool_id, member_id
        with _lock:
            self._before = {port: place for place, port in enumerate(_faulty.get(self._key, ()))}
        self._failed: dict[str, set[Hashable]] = {}  # ports by call
        self._succeeded: set[str] = set()
        self.first: ProviderError | None = None

    def order(self, items: Iterable[T], port_of: Callable[[T], Hashable]) -> list[T]:
        """Ports with a server error in an earlier sync come last, the oldest error first."""
        return sorted(items, key=lambda item: self._before.get(port_of(item), -1))

    def record_success(self, call: str) -> None:
        self._succeeded.add(call)

    def record(self, call: str, port: Hashable, error: ProviderError) -> None:
        self.first = self.first or error
        self._failed.setdefault(call, set()).add(port)
        with _lock:
            ports = _faulty.pop(self._key, {})
            ports.pop(port, None)
            _faulty[self._key] = {**ports, port: None}
            while len(_faulty) > MOST_MEMBERS:
                del _faulty[next(iter(_faulty))]

    @property
    def ports(self) -> frozenset[Hashable]:
        """The ports with a server error in this sync."""
        return frozenset().union(*self._failed.values())

    def is_in_vain(self, call: str) -> bool:
        """Whether the call is not to be made again in this sync."""
        return len(self._failed.get(call, ())) >= MOST_IN_VAIN and call not in self._succeeded

    def is_outage(self, calls: Iterable[str]) -> bool:
        """At the end of a sync. `calls`: those about ports."""
        return self.first is not None and self._succeeded.isdisjoint(calls)
