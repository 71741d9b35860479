"""/healthz and /metrics of a process that serves no pages. On loopback, unless BERTH_PROBE_BIND names another address."""

import os
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from django.db import connections
from prometheus_client import CONTENT_TYPE_LATEST

from . import metrics

Check = Callable[[], str]  # "" while all is well, else what is wrong


class Probe(BaseHTTPRequestHandler):
    server: "ProbeServer"

    def do_GET(self) -> None:
        if self.path == "/healthz":
            wrong = self.server.check()
            self._answer(503 if wrong else 200, wrong or "ok", "text/plain; charset=utf-8")
        elif self.path == "/metrics":
            try:
                self._answer(200, metrics.render().decode(), CONTENT_TYPE_LATEST)
            finally:
                connections.close_all()
        else:
            self._answer(404, "not found", "text/plain; charset=utf-8")

    def log_message(self, format: str, *args: object) -> None:
        """Probes come every few seconds; their log says nothing."""

    def _answer(self, status: int, text: str, kind: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class ProbeServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, check: Check) -> None:
        self.check = check
        super().__init__((os.environ.get("BERTH_PROBE_BIND", "127.0.0.1"), port), Probe)
        threading.Thread(target=self.serve_forever, name="probe", daemon=True).start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()
