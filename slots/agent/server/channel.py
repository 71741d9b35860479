"""An open connection to the server, where a library for WebSocket is there: `websockets`,
or `websocket-client`.

It carries what the long-poll answers, sooner and with less effort, and the heartbeat.
Nothing depends on it: whatever goes wrong with it, the agent goes on by REST at once, and
tries again later.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import random
import socket
import threading
import time
from typing import Any, Callable

from ..common.errors import ServerUnavailable
from ..common.log import Journal
from .client import MOST_JSON, BerthClient, describe, parse

PATH = "/ws/agent/"
OPENING = 10.0  # seconds for the connection to be there; the agent polls meanwhile
ANSWER = 10.0  # for the answer to a heartbeat
FIRST_AGAIN, MOST_AGAIN = 1.0, 600.0  # between two tries
SOON = 60.0  # one that held this long was good: it is tried again soon
TOKEN_CODES = (4401, 4410)  # there may be another one


class ConnectionCut(Exception):
    """The connection is over."""

    def __init__(self, reason: str, code: int = 0) -> None:
        super().__init__(reason)
        self.code = code


class ByWebsockets:
    """The library `websockets`, its client for threads."""

    needs = "websockets.sync.client"

    def __init__(
        self, module: Any, url: str, sock: socket.socket, header: str, timeout: float
    ) -> None:
        sock.settimeout(None)  # it minds its own deadlines
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
        self.line = self.stack.enter_context(opened)  # the one way in that all its versions know

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
    """In the place of a socket: no message grows beyond what a server of ours sends."""

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


LIBRARIES: tuple[Any, ...] = (ByWebsockets, ByWebsocketClient)


def find_library(libraries: tuple[Any, ...] = LIBRARIES) -> tuple[Any, Any] | None:
    """The first that is there. Asked once: what is installed while the agent runs, its next
    start finds.
    """
    for library in libraries:
        # Whatever another's module does as it is imported: the agent does without.
        with contextlib.suppress(Exception):
            return library, importlib.import_module(library.needs)
    return None


class Channel:
    """One connection. Used by one thread."""

    def __init__(self, line: Any, sock: socket.socket, beat_s: float) -> None:
        self.line, self.sock, self.beat_s = line, sock, beat_s
        self.opened_at = time.monotonic()
        self.beat_at = 0.0
        self.unanswered_since: float | None = None

    def beat(self, version: str, load: dict[str, Any] | None) -> None:
        body: dict[str, Any] = {"have": version}
        if load is not None:
            body["load"] = load
        now = time.monotonic()
        self.beat_at = now
        self.unanswered_since = self.unanswered_since or now
        self._guard(self.line.send, json.dumps(body))

    def receive(self, timeout: float) -> dict[str, Any] | None:
        """What the server says; None: nothing yet. Raises Cut."""
        now = time.monotonic()
        if self.unanswered_since is not None and now - self.unanswered_since > ANSWER:
            raise ConnectionCut(
                f"the server has not answered for {now - self.unanswered_since:.0f} s"
            )
        text = self._guard(self.line.receive, timeout)
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
        with contextlib.suppress(Exception):  # it is over in any case
            self.line.close()
        self.sock.close()

    def _guard(self, call: Callable[..., Any], *given: Any) -> Any:
        try:
            return call(*given)
        except ConnectionCut:
            raise
        except Exception as error:  # each library has its own, and the socket's
            raise self.line.why(error) from error


class ChannelOpener:
    """Opens the connection beside the polls, so that one that takes its time, or is refused,
    holds up nothing.
    """

    def __init__(self, client: BerthClient, journal: Journal) -> None:
        self.client, self.journal = client, journal
        self.library: tuple[Any, Any] | None = None
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
    def until_look(self) -> float:
        """Seconds until it is worth asking for the connection again."""
        if self.is_opening:
            return 0.0
        return self.until_due if self.library is not None else MOST_AGAIN

    def take(self) -> Channel | None:
        """The connection, once it is there. A try begins where one is due."""
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
        """It is tried again: soon, if it was good; never all agents of a server at the
        same moment.
        """
        channel.close()
        if time.monotonic() - channel.opened_at > SOON:
            self.failures = 0
        self._wait()
        self.journal.note(
            "connection over, asking by polls", error=why, again_s=round(self.until_due, 1)
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
            # What encrypts is in the socket.
            url = f"ws://{self.client.netloc}{self.client.root}{PATH}"
            line = library(module, url, sock, f"Bearer {self.client.token}", OPENING)
            self.found = Channel(line, sock, self.beat_s)
            self.journal.note("connected", by=library.needs)
        except Exception as error:
            # A proxy that knows no WebSocket, a server that is away: polls go on.
            if sock is not None:
                sock.close()
            self._wait()
            self.journal.note(
                "no open connection, polls go on",
                error=describe(error)[:200],
                again_s=round(self.until_due),
            )
