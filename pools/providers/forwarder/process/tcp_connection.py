"""One TCP connection of a client, and the connection to its target."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from pools.providers.forwarder.process.health import connect
from pools.providers.forwarder.process.plan import ForwardTarget
from pools.providers.forwarder.process.proxy_header import write_header
from pools.providers.forwarder.process.sockets import RESET, keep_alive, reset
from pools.providers.forwarder.process.traffic import ForwarderLimits, TrafficCounts

HALF_CLOSED = 300.0  # quiet seconds after which a connection with one closed direction ends


class TcpPipe(asyncio.BufferedProtocol):
    """One end of a connection. Its data goes to the other end; it stops reading while that end
    cannot send.
    """

    peer: "TcpPipe"
    transport: asyncio.Transport

    def __init__(
        self, scratch: memoryview, count: Callable[[int], None], lost: Callable[[], None]
    ) -> None:
        self.is_open = False
        self.is_ended = False  # its sender has closed its direction
        self._is_linked = False
        self._early = b""  # data that came before the other end was there
        self._scratch, self._count, self._lost = scratch, count, lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.is_open = True
        self.transport.set_write_buffer_limits(high=0)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        self._count(nbytes)
        data = bytes(self._scratch[:nbytes])
        if self._is_linked:
            self.peer.transport.write(data)
        else:
            self._early += data
            self.transport.pause_reading()

    def link(self) -> None:
        """Both ends are there."""
        self._is_linked = True
        if self._early:
            self.peer.transport.write(self._early)
            self._early = b""
        if self.is_ended:
            self._pass_end()
        else:
            self.transport.resume_reading()

    def eof_received(self) -> bool:
        """True: the other direction stays open."""
        self.is_ended = True
        if self._is_linked:
            self._pass_end()
        return True

    def _pass_end(self) -> None:
        try:
            self.peer.transport.write_eof()
        except OSError:  # the peer has reset its connection
            self.peer.transport.abort()
        if self.peer.is_ended:
            self.transport.close()
            self.peer.transport.close()

    def pause_writing(self) -> None:
        self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if not self.peer.is_ended:  # a transport would report its end a second time
            self.peer.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self.peer.is_open:
            if exc is None:
                self.peer.transport.close()
            else:
                self.peer.reset()
        self._lost()

    def reset(self) -> None:
        made = self.transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.transport.abort()


class TcpConnection:
    """`on_end` is called once, when both sockets are closed."""

    def __init__(
        self,
        client: socket.socket,
        target: ForwardTarget,
        offset: int,
        limits: ForwarderLimits,
        counts: TrafficCounts,
        on_end: "Callable[[TcpConnection], None]",
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits, self._counts, self._on_end = limits, counts, on_end
        self.used_at = self._loop.time()
        self._pipes = (
            TcpPipe(limits.scratch, self._count_in, self._pipe_lost),
            TcpPipe(limits.scratch, self._count_out, self._pipe_lost),
        )
        near, far = self._pipes
        near.peer, far.peer = far, near
        self._deadline: asyncio.TimerHandle | None = None
        self._client = client
        self._task = self._loop.create_task(self._run(replace(target, port=target.port + offset)))
        self._task.add_done_callback(self._started)

    @property
    def is_leaving(self) -> bool:
        return self._deadline is not None

    def leave(self, seconds: float) -> None:
        """End after this time, unless it ends by itself before."""
        if seconds <= 0:
            self.end()
        elif self._deadline is None:
            self._deadline = self._loop.call_later(seconds, self.end)

    def end(self) -> None:
        self._task.cancel()
        for pipe in self._pipes:
            if pipe.is_open:
                pipe.reset()

    def is_idle(self, now: float, idle: float | None) -> bool:
        if any(pipe.is_ended for pipe in self._pipes):
            idle = HALF_CLOSED if idle is None else min(idle, HALF_CLOSED)
        return idle is not None and now - self.used_at >= idle

    async def _run(self, target: ForwardTarget) -> None:
        near, far = self._pipes
        try:
            upstream = await connect(target, self._limits.options.connect)
        except OSError:  # also TimeoutError
            self._counts.failed += 1
            return
        try:
            header = self._header() if self._limits.options.is_proxy else b""
            keep_alive(self._client)
            keep_alive(upstream)
            await self._loop.create_connection(lambda: far, sock=upstream)
            await self._loop.connect_accepted_socket(lambda: near, self._client)
        except BaseException:
            upstream.close()
            raise
        if header:
            far.transport.write(header)
        near.link()
        far.link()

    def _header(self) -> bytes:
        return write_header(self._client.getpeername()[:2], self._client.getsockname()[:2])

    def _started(self, task: "asyncio.Task[None]") -> None:
        """The pipes own the sockets now; without them, the connection is over."""
        if not task.cancelled() and (error := task.exception()) is not None:
            if not isinstance(error, OSError):  # the client may be gone already
                self._loop.call_exception_handler({"message": "connection", "exception": error})
            self._counts.failed += 1
        if not all(pipe.is_open for pipe in self._pipes):
            for pipe in self._pipes:
                if pipe.is_open:
                    pipe.reset()
            reset(self._client)
            self._pipe_lost()

    def _pipe_lost(self) -> None:
        if self._task.done() and not any(pipe.is_open for pipe in self._pipes):
            if self._deadline is not None:
                self._deadline.cancel()
            self._on_end(self)

    def _count_in(self, size: int) -> None:
        self._counts.bytes_in += size
        self.used_at = self._loop.time()

    def _count_out(self, size: int) -> None:
        self._counts.bytes_out += size
        self.used_at = self._loop.time()
