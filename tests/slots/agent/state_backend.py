"""A Terraform state backend over HTTP with locks, as the `http` backend calls it."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest


class Calls(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "StateServer"  # type: ignore[assignment]

    def log_message(self, *args: object) -> None:
        pass

    def answer(self, status: int, data: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        state = self.server.states.get(urlsplit(self.path).path)
        self.answer(404 if state is None else 200, state or b"")

    def do_POST(self) -> None:
        self.server.states[urlsplit(self.path).path] = self.body()
        self.answer(200)

    def do_LOCK(self) -> None:
        info = self.body()
        holder = self.server.locks.setdefault(self.path, info)
        self.answer(200 if holder is info else 423, holder)

    def do_UNLOCK(self) -> None:
        self.body()
        self.server.locks.pop(self.path, None)
        self.answer(200)

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))


class StateServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Calls)
        self.states: dict[str, bytes] = {}
        self.locks: dict[str, bytes] = {}
        threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def block(self, name: str) -> str:
        """The backend block of a module whose state this server keeps."""
        address = f"http://127.0.0.1:{self.server_address[1]}/{name}"
        lines = [f'{part} = "{address}"' for part in ("address", "lock_address", "unlock_address")]
        return 'backend "http" {\n    ' + "\n    ".join([*lines, "retry_max = 0"]) + "\n  }"


@pytest.fixture
def kept() -> Iterator[StateServer]:
    server = StateServer()
    yield server
    server.shutdown()
    server.server_close()
