"""The UDP listener of a slot. The datagrams of one client are a flow: they leave from one socket,
so that the target tells clients apart and its replies find their way back.
"""

import asyncio
import contextlib
import socket
from collections.abc import Sequence

from pools.providers.forwarder.process.flow_table import FlowTable
from pools.providers.forwarder.process.plan import ListenerPlan
from pools.providers.forwarder.process.sockets import open_sockets
from pools.providers.forwarder.process.traffic import ForwarderLimits, TrafficCounts

BURST = 64  # datagrams read at once, so that other sockets get their turn
Client = tuple[object, ...]  # as a socket names it
FlowKey = tuple[int, Client]  # the descriptor of the listening socket, and the client


class UdpFlow:
    """`upstream` is connected to the target: the kernel drops datagrams of other senders."""

    def __init__(self, key: FlowKey, near: socket.socket, upstream: socket.socket) -> None:
        self.key, self.near, self.upstream = key, near, upstream


class UdpListener:
    def __init__(self, plan: ListenerPlan, limits: ForwarderLimits) -> None:
        self.plan = plan
        self.counts = TrafficCounts()
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._sockets: list[tuple[socket.socket, int]] = []
        self._flows: FlowTable[FlowKey, UdpFlow] = FlowTable(0, 0.0)
        self._deadline: asyncio.TimerHandle | None = None  # set: takes no new flows
        self.align()

    def open(self, addresses: Sequence[str]) -> None:
        """Raises BindFault."""
        self._sockets = open_sockets("udp", addresses, self.plan.number, self.plan.count)
        for each, offset in self._sockets:
            self._loop.add_reader(each, self._from_clients, each, offset)

    def update(self, plan: ListenerPlan) -> None:
        """Another target, on the same ports. The next datagram of each client goes there."""
        is_moved = plan.target != self.plan.target
        self.plan = plan
        if is_moved:
            self._end_flows(self._flows.clear())

    def align(self) -> None:
        """The options have changed."""
        self._flows.most = self._limits.options.flows
        self._flows.idle = self._limits.options.udp_idle

    def close(self, seconds: float) -> None:
        """Take no flows any more; those that exist have this time."""
        if seconds <= 0 or not len(self._flows):
            self.end()
        elif self._deadline is None:
            self._deadline = self._loop.call_later(seconds, self.end)

    def end(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._end_flows(self._flows.clear())
        for each, _ in self._sockets:
            self._loop.remove_reader(each)
            each.close()
        self._sockets = []

    def end_leaving(self) -> None:
        if self._deadline is not None:
            self.end()

    def sweep(self, now: float) -> None:
        self._end_flows(self._flows.expire(now))
        if self._deadline is not None and not len(self._flows):
            self.end()

    @property
    def active(self) -> int:
        return len(self._flows)

    @property
    def leaving(self) -> int:
        return len(self._flows) if self._deadline is not None else 0

    @property
    def health(self) -> str:
        return "" if self.plan.target is None else "unchecked"

    def _from_clients(self, near: socket.socket, offset: int) -> None:
        scratch, counts = self._limits.scratch, self.counts
        for _ in range(BURST):
            try:
                size, client = near.recvfrom_into(scratch)
            except OSError:  # also BlockingIOError: all is read
                return
            key = (near.fileno(), client)
            flow = self._flows.get(key, self._loop.time()) or self._open_flow(key, near, offset)
            if flow is None:
                counts.dropped += 1
            elif self._send(flow, scratch[:size]):
                counts.bytes_in += size
            else:
                counts.dropped += 1

    def _open_flow(self, key: FlowKey, near: socket.socket, offset: int) -> UdpFlow | None:
        target = self.plan.target
        if (
            target is None
            or self._deadline is not None
            or self._flows.is_full
            or self._limits.is_full
        ):
            self.counts.refused += 1
            return None
        family = socket.AF_INET6 if ":" in target.ip else socket.AF_INET
        upstream = None
        try:
            upstream = socket.socket(family, socket.SOCK_DGRAM)
            upstream.setblocking(False)
            upstream.connect((target.ip, target.port + offset))
        except OSError:
            self.counts.failed += 1
            if upstream is not None:
                upstream.close()
            return None
        flow = UdpFlow(key, near, upstream)
        self._flows.add(key, flow, self._loop.time())
        self._loop.add_reader(upstream, self._from_target, flow)
        self.counts.opened += 1
        self._limits.used += 1
        return flow

    def _send(self, flow: UdpFlow, data: memoryview) -> bool:
        for _ in range(2):
            try:
                flow.upstream.send(data)
                return True
            except ConnectionRefusedError:  # of an earlier datagram; this one was not sent
                continue
            except OSError:  # no space, no route, or larger than the path permits
                return False
        return False

    def _from_target(self, flow: UdpFlow) -> None:
        scratch = self._limits.scratch
        for _ in range(BURST):
            try:
                size = flow.upstream.recv_into(scratch)
            except ConnectionRefusedError:
                self.counts.failed += 1
                continue
            except OSError:
                return
            if self._flows.get(flow.key, self._loop.time()) is not flow:
                return  # it was ended by an earlier datagram of this burst
            try:
                flow.near.sendto(scratch[:size], flow.key[1])
            except OSError:
                self.counts.dropped += 1
            else:
                self.counts.bytes_out += size

    def _end_flows(self, flows: Sequence[UdpFlow]) -> None:
        for flow in flows:
            with contextlib.suppress(ValueError, OSError):
                self._loop.remove_reader(flow.upstream)
            flow.upstream.close()
            self._limits.used -= 1
