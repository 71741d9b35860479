"""An HTTP server that keeps its port while it is down and answers each connection in its own
thread.
"""

import json
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]  # names in small letters
    body: bytes
    target: str = ""

    def json(self) -> Any:
        return json.loads(self.body) if self.body else {}


@dataclass
class Answer:
    """`stream`: pieces as they come; an empty piece stands for a pause. `is_cut`: the
    connection ends instead.
    """

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    stream: Iterator[bytes] | None = None
    end: Callable[[], object] = bool  # called once, whether it was sent or not
    is_cut: bool = False


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256
    front: "Front"

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "127.0.0.1", self.socket.getsockname()[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        self.front.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.front.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Callers go away in the middle, and that is what tests are about. What we get wrong
        ourselves is kept.
        """
        self.front.note_error()


class Front:
    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        self.answer = answer
        self.held = socket.socket()  # never listened on
        self.held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.held.bind(("127.0.0.1", 0))
        self.port: int = self.held.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.connections: set[socket.socket] = set()
        self.down = threading.Event()
        self.muted: set[str] = set()  # streams of these paths are silent and stay open
        self.server: _Server | None = None
        self.errors: list[BaseException] = []

    def start(self) -> None:
        assert self.server is None
        self.down = threading.Event()
        handler = type("_Bound", (_Handler,), {"front": self, "down": self.down})
        self.server = _Server(("127.0.0.1", self.port), handler)
        self.server.front = self
        threading.Thread(
            target=self.server.serve_forever,
            kwargs={"poll_interval": 0.05},
            daemon=True,
            name="front",
        ).start()

    def kill(self) -> None:
        """As kill -9: every connection ends, and the port is closed."""
        if self.server is None:
            return
        self.down.set()
        self.server.shutdown()
        self.server.server_close()
        self.server = None
        self.cut()

    def cut(self) -> None:
        """Every connection ends; new ones are taken."""
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.kill()
        self.held.close()

    def note_error(self) -> None:
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, OSError):
            self.errors.append(error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    front: Front
    down: threading.Event

    def handle_one(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(
            self.command,
            parts.path,
            dict(parse_qsl(parts.query, keep_blank_values=True)),
            headers,
            body,
            self.path,
        )
        answer = self.front.answer(request)
        try:
            self._send(answer, request.path)
        finally:
            answer.end()

    # The names are http.server's.
    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_one  # noqa: N815

    def _send(self, answer: Answer, path: str) -> None:
        if answer.is_cut or self.down.is_set():
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in ({"Content-Type": "application/json"} | answer.headers).items():
            self.send_header(name, value)
        if answer.stream is not None:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._send_stream(answer.stream, path)
            return
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def _send_stream(self, stream: Iterator[bytes], path: str) -> None:
        self.wfile.flush()
        is_mute = False
        for piece in stream:
            if self.down.is_set() or (not piece and self._is_left()):
                self.close_connection = True
                return
            is_mute = is_mute or path in self.front.muted
            if piece and not is_mute:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if is_mute:
            self.down.wait(600)
            self.close_connection = True
            return
        self.wfile.write(b"0\r\n\r\n")

    def _is_left(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def log_message(self, format: str, *args: Any) -> None:
        """Drops the line."""
