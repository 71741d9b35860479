"""The TCP listener of a slot: its sockets, and the connections that they accepted."""

import asyncio
import socket
from collections.abc import Sequence

from pools.providers.forwarder.process.health import HealthCheck
from pools.providers.forwarder.process.plan import ListenerPlan
from pools.providers.forwarder.process.sockets import open_sockets, reset
from pools.providers.forwarder.process.tcp_connection import TcpConnection
from pools.providers.forwarder.process.traffic import ForwarderLimits, TrafficCounts

ACCEPTS = 64  # connections accepted at once, so that other sockets get their turn
REST = 0.2  # seconds without accepting after the machine had no memory or file left


class TcpListener:
    def __init__(self, plan: ListenerPlan, limits: ForwarderLimits) -> None:
        self.plan = plan
        self.counts = TrafficCounts()
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._sockets: list[tuple[socket.socket, int]] = []
        self._connections: set[TcpConnection] = set()
        self._check: HealthCheck | None = None

    def open(self, addresses: Sequence[str]) -> None:
        """Raises BindFault."""
        self._sockets = open_sockets("tcp", addresses, self.plan.number, self.plan.count)
        for each, offset in self._sockets:
            self._loop.add_reader(each, self._accept, each, offset)
        self._watch()

    def update(self, plan: ListenerPlan) -> None:
        """Another target, on the same ports. Connections to the earlier target end."""
        is_moved = plan.target != self.plan.target
        self.plan = plan
        if is_moved:
            self._leave_all()
            self._watch()

    def align(self) -> None:
        """The options have changed."""
        if (self._check is not None) is not self._is_checked:
            self._watch()

    def close(self, seconds: float) -> None:
        """Take no connections any more; those that exist have this time to end."""
        self._close_sockets()
        for each in list(self._connections):
            each.leave(seconds)

    def end(self) -> None:
        self._close_sockets()
        self.end_leaving(is_all=True)

    def end_leaving(self, *, is_all: bool = False) -> None:
        for each in list(self._connections):
            if is_all or each.is_leaving:
                each.end()

    def sweep(self, now: float) -> None:
        idle = self._limits.options.tcp_idle
        for each in list(self._connections):
            if each.is_idle(now, idle):
                each.end()

    @property
    def active(self) -> int:
        return len(self._connections)

    @property
    def leaving(self) -> int:
        """Connections to an earlier target."""
        return sum(each.is_leaving for each in self._connections)

    @property
    def health(self) -> str:
        if self.plan.target is None:
            return ""
        return "unchecked" if self._check is None else self._check.record.state

    @property
    def _is_checked(self) -> bool:
        return self.plan.target is not None and self._limits.options.health is not None

    def _watch(self) -> None:
        if self._check is not None:
            self._check.stop()
            self._check = None
        if self.plan.target is not None and self._is_checked:
            self._check = HealthCheck(self.plan.target, self._limits.health, self._limits.is_proxy)

    def _leave_all(self) -> None:
        for each in list(self._connections):
            each.leave(self._limits.options.drain)

    def _close_sockets(self) -> None:
        if self._check is not None:
            self._check.stop()
            self._check = None
        for each, _ in self._sockets:
            self._loop.remove_reader(each)
            each.close()
        self._sockets = []

    def _accept(self, listener: socket.socket, offset: int) -> None:
        for _ in range(ACCEPTS):
            try:
                client, _ = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:  # the client has given up already
                continue
            except OSError:  # no file or memory: the event loop would call at once again
                self.counts.refused += 1
                self._loop.remove_reader(listener)
                self._loop.call_later(REST, self._resume, listener, offset)
                return
            self._serve(client, offset)

    def _resume(self, listener: socket.socket, offset: int) -> None:
        if listener.fileno() >= 0:
            self._loop.add_reader(listener, self._accept, listener, offset)

    def _serve(self, client: socket.socket, offset: int) -> None:
        limits, target = self._limits, self.plan.target
        if target is None or len(self._connections) >= limits.options.connections or limits.is_full:
            self.counts.refused += 1
            reset(client)
            return
        client.setblocking(False)
        self.counts.opened += 1
        limits.used += 1
        self._connections.add(
            TcpConnection(client, target, offset, limits, self.counts, self._forget)
        )

    def _forget(self, connection: TcpConnection) -> None:
        self._connections.discard(connection)
        self._limits.used -= 1
