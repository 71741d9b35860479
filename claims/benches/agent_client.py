"""A minimal client of the agent protocol with two connections: one of them waits for orders."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

BASE = "/api/v1/agent/"
WAIT = 15  # seconds

OrderHandler = Callable[["SimulatedAgent", dict[str, Any]], Awaitable[None] | None]


class AsyncLine:
    """HTTP over one connection that stays open."""

    def __init__(self, host: str, port: int, token: str) -> None:
        self.host, self.port, self.headers = host, port, {"Authorization": f"Bearer {token}"}
        self.head = (
            f"Host: {host}:{port}\r\nAccept: application/json\r\nAuthorization: Bearer {token}\r\n"
        )
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Calls again on a new connection if the server has just closed an idle one."""
        is_new = self.reader is None
        try:
            return await self._call(method, path, body)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            if is_new or (isinstance(error, asyncio.IncompleteReadError) and error.partial):
                raise
            await self.close()
            self.reader = self.writer = None
            return await self._call(method, path, body)

    async def _call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        if self.reader is None or self.writer is None:
            self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        data = b"" if body is None else json.dumps(body).encode()
        kind = "" if body is None else "Content-Type: application/json\r\n"
        self.writer.write(
            (
                f"{method} {path} HTTP/1.1\r\n{self.head}{kind}Content-Length: {len(data)}\r\n\r\n"
            ).encode()
            + data
        )
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        at = head.find(b"content-length:")
        if at < 0:
            raise RuntimeError(f"an answer without a length: {head!r}")
        size = int(head[at + 15 : head.find(b"\r", at)])
        text = await self.reader.readexactly(size)
        return int(head[9:12]), json.loads(text) if text else None

    async def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            await asyncio.gather(self.writer.wait_closed(), return_exceptions=True)


async def stop(listeners: Iterable["asyncio.Task[None]"]) -> None:
    """Cancels the tasks. Raises the error of a task that has failed."""
    tasks = list(listeners)
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class SimulatedAgent:
    """Waits for orders and passes each answer to `on_orders`. Other calls use the second
    connection.
    """

    def __init__(self, host: str, port: int, token: str, boot: str) -> None:
        self.waiting, self.talking = AsyncLine(host, port, token), AsyncLine(host, port, token)
        self.boot, self.version = boot, ""
        self.talks = asyncio.Lock()

    async def hello(self) -> dict[str, Any]:
        answer = await self.call(
            "POST", "hello/", {"boot": self.boot, "version": "bench", "platform": "linux_amd64"}
        )
        self.version = answer["version"]
        return answer

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        async with self.talks:
            status, answer = await self.talking.call(method, BASE + path, body)
        if status >= 400:
            raise RuntimeError(f"{method} {path}: {status} {str(answer)[:300]}")
        return answer

    async def listen(self, on_orders: OrderHandler) -> None:
        while True:
            status, answer = await self.waiting.call(
                "GET", f"{BASE}orders/?wait={WAIT}&have={self.version}"
            )
            if status != 200:
                raise RuntimeError(f"orders: {status} {str(answer)[:300]}")
            self.version = answer["version"]
            pending = on_orders(self, answer)
            if pending is not None:
                await pending

    async def listen_by_socket(self, on_orders: OrderHandler) -> None:
        """Listens on a socket, with a heartbeat every WAIT seconds."""
        url = f"ws://{self.waiting.host}:{self.waiting.port}/ws/agent/"
        async with connect(
            url, additional_headers=self.waiting.headers, compression=None, ping_interval=None
        ) as socket:
            beating = asyncio.create_task(self._beat(socket))
            try:
                async for text in socket:
                    answer = json.loads(text)
                    self.version = answer["version"]
                    pending = on_orders(self, answer)
                    if pending is not None:
                        await pending
            finally:
                beating.cancel()
                await asyncio.gather(beating, return_exceptions=True)
        raise RuntimeError(f"the connection was closed: {socket.close_code} {socket.close_reason}")

    async def _beat(self, socket: ClientConnection) -> None:
        while True:
            await socket.send(json.dumps({"have": self.version, "load": {}}))
            await asyncio.sleep(WAIT)

    async def close(self) -> None:
        await self.waiting.close()
        await self.talking.close()
