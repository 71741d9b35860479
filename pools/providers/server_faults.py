"""Tells a server error of one port from an outage of the cloud, within one sync.

A server error (5xx) blames the cloud and names no cause. While other calls about ports succeed in
the same sync, it is the fault of its port, which is set apart: the sync goes on with the next port.
A sync in which none succeeds is an outage, and blames no port.

A call that fails for three ports and succeeds for none is not made again in this sync. Ports that
met a server error come last in the next sync of this process, so that each port has its turn.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from project.kernel.outbox.operations import ProviderError

MOST_IN_VAIN = 3  # ports for which a call fails while it succeeds for none

T = TypeVar("T")

_faulty: dict[str, frozenset[Hashable]] = {}  # ports by load balancer, of its last sync


def forget_faults() -> None:
    """For tests: their clouds use the same ids."""
    _faulty.clear()


class ServerFaults:
    """The server errors of one sync. A port is a number, or a lane and a number."""

    def __init__(self, load_balancer: str) -> None:
        self._key = load_balancer
        self._before = _faulty.pop(load_balancer, frozenset())
        self._failed: dict[str, set[Hashable]] = {}  # ports by call
        self._succeeded: set[str] = set()
        self.first: ProviderError | None = None

    def order(self, items: Iterable[T], port_of: Callable[[T], Hashable]) -> list[T]:
        """Ports that met a server error in the last sync come last."""
        return sorted(items, key=lambda item: port_of(item) in self._before)

    def record_success(self, call: str) -> None:
        self._succeeded.add(call)

    def record(self, call: str, port: Hashable, error: ProviderError) -> None:
        self.first = self.first or error
        self._failed.setdefault(call, set()).add(port)
        _faulty[self._key] = _faulty.get(self._key, frozenset()) | {port}

    def is_in_vain(self, call: str) -> bool:
        """Whether the call is not to be made again in this sync."""
        return len(self._failed.get(call, ())) >= MOST_IN_VAIN and call not in self._succeeded

    def is_outage(self, calls: Iterable[str]) -> bool:
        """At the end of a sync. `calls`: those about ports."""
        return self.first is not None and self._succeeded.isdisjoint(calls)
