"""A gate before a real API server that injects the faults which the fake one has built in."""

import http.client
import queue
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress

from tests.kubernetes_cluster.faults import Faults, met, split, verb_of
from tests.kubernetes_cluster.http_front import Answer, Front, Request

BEAT = 0.25
CUT, END = b"cut", None
PASSED_ON = ("authorization", "content-type", "accept", "user-agent")


class Gate:
    def __init__(self, host: str, port: int, ca: str) -> None:
        self.host, self.port = host, port
        self.context = ssl.create_default_context(cafile=ca)
        self.faults = Faults()
        self.front = Front(self.answer)

    def answer(self, request: Request) -> Answer:
        return met(self.faults, request, self.forward_or_cut, self.front)

    def forward_or_cut(self, request: Request) -> Answer:
        try:
            return self.forward(request)
        except (OSError, http.client.HTTPException):
            return Answer(0, is_cut=True)

    def forward(self, request: Request) -> Answer:
        connection = http.client.HTTPSConnection(
            self.host, self.port, timeout=60, context=self.context
        )
        is_watch = False
        try:
            headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
            connection.request(request.method, request.target, request.body or None, headers)
            answer = connection.getresponse()
            kept = {
                name: value
                for name in ("Content-Type", "Retry-After", "Warning")
                if (value := answer.getheader(name))
            }
            _, _, _, name, _ = split(request.path)
            is_watch = (
                answer.status == 200 and verb_of(request.method, name, request.query) == "watch"
            )
            if is_watch:
                following = Following(connection, answer)
                return Answer(200, headers=kept, stream=iter(following), end=following.end)
            return Answer(answer.status, answer.read(), kept)
        finally:
            if not is_watch:
                connection.close()


class Following:
    """The pieces of a stream, and an empty piece after each pause."""

    def __init__(
        self, connection: http.client.HTTPSConnection, answer: http.client.HTTPResponse
    ) -> None:
        self.connection, self.response = connection, answer
        self.pieces: queue.Queue[bytes | None] = queue.Queue()
        assert connection.sock is not None
        self.sock = connection.sock
        self.sock.settimeout(None)
        self.thread = threading.Thread(target=self.pump, daemon=True, name="gate")
        self.thread.start()

    def pump(self) -> None:
        try:
            while piece := self.response.read1(65536):
                self.pieces.put(piece)
        except (OSError, ValueError, http.client.HTTPException):
            self.pieces.put(CUT)  # the server has gone: so does our stream
        else:
            self.pieces.put(END)
        finally:
            self.response.close()
            self.connection.close()

    def __iter__(self) -> Iterator[bytes]:
        while True:
            try:
                piece = self.pieces.get(timeout=BEAT)
            except queue.Empty:
                yield b""
                continue
            if piece is CUT:
                raise ConnectionResetError("the server has gone")
            if piece is None:
                return
            yield piece

    def end(self) -> None:
        """The thread closes what it reads from."""
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join(10)
