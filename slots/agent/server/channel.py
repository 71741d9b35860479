"""The WebSocket to the server, if Python has the library `websockets` or `websocket-client`.

It carries orders and heartbeats faster and with less load than long polls. It is optional: if it
fails, the agent continues with REST at once and tries again later.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import random
import socket
import threading
import time
from types import ModuleType
from typing import Any, Callable, Type, TypeVar, Union

from ..common.errors import ServerUnavailable
from ..common.json_types import Json
from ..common.log import AgentLog
from .client import MOST_JSON, BerthClient, describe, parse

T = TypeVar("T")
R = TypeVar("R")

PATH = "/ws/agent/"
OPENING = 10.0  # seconds to open the connection; the agent polls meanwhile
ANSWER = 10.0  # seconds to wait for the answer to a heartbeat
FIRST_AGAIN, MOST_AGAIN = 1.0, 600.0  # seconds between two tries
SOON = 60.0  # seconds after which a connection counts as good and is soon reopened
TOKEN_CODES = (4401, 4410)  # close codes of an invalid or replaced token


class ConnectionCut(Exception):
    """The connection has ended."""

    def __init__(self, reason: str, code: int = 0) -> None:
        super().__init__(reason)
        self.code = code


class ByWebsockets:
    """The library `websockets`, its client for threads."""

    needs = "websockets.sync.client"

    def __init__(
        self, module: Any, url: str, sock: socket.socket, header: str, timeout: float
    ) -> None:
        sock.settimeout(None)  # the library has its own deadlines
        self.stack = contextlib.ExitStack()
        opened = module.connect(
            url,
            sock=sock,
            additional_headers={"Authorization": header},
            user_agent_header="berth-agent",
            compression=None,
            open_timeout=timeout,
            close_timeout=1,
            max_size=MOST_JSON,
        )
        self.line = self.stack.enter_context(opened)  # all versions support this

    def send(self, text: str) -> None:
        self.line.send(text)

    def receive(self, timeout: float) -> str | None:
        try:
            text = self.line.recv(timeout=timeout)
        except TimeoutError:
            return None
        return text if isinstance(text, str) else ""

    def why(self, error: BaseException) -> ConnectionCut:
        frame = getattr(error, "rcvd", None)
        return ConnectionCut(describe(error), int(getattr(frame, "code", 0) or 0))

    def close(self) -> None:
        self.stack.close()


class Measured:
    """Wraps a socket and limits the size of a message."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.left = MOST_JSON

    def recv(self, size: int) -> bytes:
        data = self.sock.recv(size)
        self.left -= len(data)
        if self.left < 0:
            raise ConnectionCut("the server sends too much")
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sock, name)


class ByWebsocketClient:
    """The library `websocket-client`."""

    needs = "websocket"

    def __init__(
        self, module: Any, url: str, sock: socket.socket, header: str, timeout: float
    ) -> None:
        self.module, self.sock = module, Measured(sock)
        headers = {"Authorization": header, "User-Agent": "berth-agent"}
        options = {"timeout": timeout, "suppress_origin": True, "redirect_limit": 0}
        self.line = module.create_connection(url, socket=self.sock, header=headers, **options)
        if self.line.getstatus() != 101:
            raise ConnectionCut(f"the server answers {self.line.getstatus()}")

    def send(self, text: str) -> None:
        self.line.settimeout(ANSWER)
        self.line.send(text)

    def receive(self, timeout: float) -> str | None:
        self.line.settimeout(timeout)
        try:
            opcode, data = self.line.recv_data()
        except self.module.WebSocketTimeoutException:
            return None
        if opcode == self.module.ABNF.OPCODE_CLOSE:
            raise ConnectionCut(
                data[2:].decode("utf-8", "replace") or "closed", int.from_bytes(data[:2], "big")
            )
        self.sock.left = MOST_JSON
        return data.decode("utf-8") if opcode == self.module.ABNF.OPCODE_TEXT else ""

    def why(self, error: BaseException) -> ConnectionCut:
        return ConnectionCut(describe(error))

    def close(self) -> None:
        self.line.close(timeout=1)


Line = Union[ByWebsockets, ByWebsocketClient]
Library = Union[Type[ByWebsockets], Type[ByWebsocketClient]]
LIBRARIES: tuple[Library, ...] = (ByWebsockets, ByWebsocketClient)


def find_library(libraries: tuple[Library, ...] = LIBRARIES) -> tuple[Library, ModuleType] | None:
    """The first installed library with its module. Called once per start of the agent."""
    for library in libraries:
        # A module that fails on import counts as missing.
        with contextlib.suppress(Exception):
            return library, importlib.import_module(library.needs)
    return None


class Channel:
    """One connection, used by one thread."""

    def __init__(self, line: Line, sock: socket.socket, beat_s: float) -> None:
        self.line, self.sock, self.beat_s = line, sock, beat_s
        self.opened_at = time.monotonic()
        self.beat_at = 0.0
        self.unanswered_since: float | None = None

    def beat(self, version: str, load: Json | None) -> None:
        body: Json = {"have": version}
        if load is not None:
            body["load"] = load
        now = time.monotonic()
        self.beat_at = now
        self.unanswered_since = self.unanswered_since or now
        self._guard(self.line.send, json.dumps(body))

    def receive(self, timeout: float) -> Json | None:
        """A message of the server; None: no message yet. Raises ConnectionCut."""
        now = time.monotonic()
        if self.unanswered_since is not None and now - self.unanswered_since > ANSWER:
            raise ConnectionCut(
                f"the server has not answered for {now - self.unanswered_since:.0f} s"
            )
        text: str | None = self._guard(self.line.receive, timeout)
        if text is None:
            return None
        self.unanswered_since = None
        try:
            return parse(text.encode())
        except ServerUnavailable as error:
            raise ConnectionCut(str(error)) from error

    @property
    def until_beat(self) -> float:
        return max(0.0, self.beat_at + self.beat_s - time.monotonic())

    def close(self) -> None:
        with contextlib.suppress(Exception):  # the connection may be broken
            self.line.close()
        self.sock.close()

    def _guard(self, call: Callable[[T], R], given: T) -> R:
        try:
            return call(given)
        except ConnectionCut:
            raise
        except Exception as error:  # each library has its own errors
            raise self.line.why(error) from error


class ChannelOpener:
    """Opens the connection in a thread, so that a slow or refused connection never delays polls."""

    def __init__(self, client: BerthClient, log: AgentLog) -> None:
        self.client, self.log = client, log
        self.library: tuple[Library, ModuleType] | None = None
        self.is_looked_for = False
        self.beat_s = 15.0
        self.failures = 0
        self.next_at = 0.0
        self.thread: threading.Thread | None = None
        self.found: Channel | None = None

    @property
    def is_opening(self) -> bool:
        return self.thread is not None and self.thread.is_alive()

    @property
    def until_due(self) -> float:
        return max(0.0, self.next_at - time.monotonic())

    @property
    def until_check(self) -> float:
        """Seconds until the connection may be open."""
        if self.is_opening:
            return 0.0
        return self.until_due if self.library is not None else MOST_AGAIN

    def get_open(self) -> Channel | None:
        """The open connection, or None. Starts a try if one is due."""
        if self.is_opening:
            return None
        found, self.found, self.thread = self.found, None, None
        if found is not None:
            return found
        if (self.library is not None or not self.is_looked_for) and self.until_due <= 0:
            self.thread = threading.Thread(target=self._open, name="channel", daemon=True)
            self.thread.start()
        return None

    def lose(self, channel: Channel, why: ConnectionCut) -> None:
        """Close the connection and schedule the next try: soon if it was good, and with a random
        delay, so that agents do not return at the same moment.
        """
        channel.close()
        if time.monotonic() - channel.opened_at > SOON:
            self.failures = 0
        self._wait()
        self.log.info(
            "connection ended, polls continue", error=why, again_s=round(self.until_due, 1)
        )

    def _wait(self) -> None:
        delay = min(MOST_AGAIN, FIRST_AGAIN * 4 ** min(self.failures, 8))
        self.failures += 1
        self.next_at = time.monotonic() + delay * random.uniform(1.0, 2.0)

    def _open(self) -> None:
        if not self.is_looked_for:
            self.library, self.is_looked_for = find_library(), True
        if self.library is None:
            return
        library, module = self.library
        sock = None
        try:
            sock = self.client.open_socket(OPENING)
            # The socket is already encrypted for https.
            url = f"ws://{self.client.netloc}{self.client.root}{PATH}"
            line = library(module, url, sock, f"Bearer {self.client.token}", OPENING)
            self.found = Channel(line, sock, self.beat_s)
            self.log.info("connected", by=library.needs)
        except Exception as error:
            # For example a proxy without WebSocket, or a server that is away.
            if sock is not None:
                sock.close()
            self._wait()
            self.log.info(
                "no connection, polls continue",
                error=describe(error)[:200],
                again_s=round(self.until_due),
            )
