"""/healthz, /readyz and /metrics of a process that serves no pages: controllers and workers.

The server listens on loopback, unless BERTH_PROBE_BIND names another address. BERTH_PROBE_PORT
is the default port; 0 means no probe server.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from django.db import connections
from prometheus_client import CONTENT_TYPE_LATEST

from project.kernel import metrics

Check = Callable[[], str]  # "" if healthy, else the fault
MOST_OPEN = 32  # connections; probes and Prometheus need two or three
TEXT = "text/plain; charset=utf-8"


def default_port() -> int:
    return int(os.environ.get("BERTH_PROBE_PORT") or 0)


class Probe(BaseHTTPRequestHandler):
    server: "ProbeServer"
    timeout = 5  # seconds: a silent connection does not keep its thread

    def do_GET(self) -> None:
        if self.path == "/healthz":
            self._answer_check(self.server.is_alive)
        elif self.path == "/readyz":
            self._answer_check(self.server.is_ready)
        elif self.path == "/metrics":
            self._answer_metrics()
        else:
            self._answer(404, "not found", TEXT)

    def log_message(self, format: str, *args: object) -> None:
        """Probes come every few seconds, so they are not logged."""

    def _answer_check(self, check: Check) -> None:
        wrong = check()
        self._answer(503 if wrong else 200, wrong or "ok", TEXT)

    def _answer_metrics(self) -> None:
        is_local = self.client_address[0] in metrics.LOOPBACK
        if not metrics.may_read(self.headers.get("Authorization", ""), is_local=is_local):
            self._answer(403, metrics.REFUSAL, TEXT)
            return
        try:
            self._answer(200, metrics.render().decode(), CONTENT_TYPE_LATEST)
        finally:
            connections.close_all()

    def _answer(self, status: int, text: str, kind: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class ProbeServer(ThreadingHTTPServer):
    """`is_alive` answers /healthz, where a failure asks for a restart. `is_ready` answers /readyz.

    Each connection has a thread. Above MOST_OPEN connections the oldest one is closed, so that
    silent clients use neither threads nor descriptors.
    """

    daemon_threads = True

    def __init__(self, port: int, is_alive: Check, is_ready: Check) -> None:
        self.is_alive, self.is_ready = is_alive, is_ready
        self._open: dict[socket.socket, None] = {}  # the oldest first
        self._guard = threading.Lock()
        super().__init__((os.environ.get("BERTH_PROBE_BIND", "127.0.0.1"), port), Probe)
        threading.Thread(target=self.serve_forever, name="probe", daemon=True).start()

    def process_request(self, request: Any, client_address: object) -> None:
        with self._guard:
            self._open[request] = None
            if len(self._open) > MOST_OPEN:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with contextlib.suppress(OSError):  # the connection has just ended
                    oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def close(self) -> None:
        self.shutdown()
        self.server_close()
