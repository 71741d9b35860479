"""The server's end of a WebSocket on the test server, under the test's control frame by frame."""

import base64
import hashlib
import json
import queue
import ssl
import struct
import subprocess
from pathlib import Path
from typing import Any

from .fake_berth import Exchange, Server

TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
SIGN = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455


class Line:
    """One open connection, as its thread on the server sees it."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.headers = dict(exchange.headers.items())
        self.said: queue.Queue[dict[str, Any] | None] = queue.Queue()  # None: it has gone

    def accept(self) -> None:
        key = base64.b64encode(
            hashlib.sha1((self.headers["Sec-WebSocket-Key"] + SIGN).encode()).digest()
        ).decode()
        self.exchange.send_response(101)
        for name, value in {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Accept": key,
        }.items():
            self.exchange.send_header(name, value)
        self.exchange.end_headers()
        self.exchange.close_connection = True

    def send(self, body: Any, opcode: int = TEXT) -> None:
        data = (
            body
            if isinstance(body, bytes)
            else (body if isinstance(body, str) else json.dumps(body)).encode()
        )
        size = (
            bytes([len(data)])
            if len(data) < 126
            else b"\x7e" + struct.pack(">H", len(data))
            if len(data) < 65536
            else b""
        )
        head = bytes([0x80 | opcode]) + (size or b"\x7f" + struct.pack(">Q", len(data)))
        # Written at once without a buffer, because the agent may end right after this message.
        self.exchange.wfile.write(head + data)

    def close(self, code: int) -> None:
        self.send(struct.pack(">H", code) + b"over", CLOSE)

    def cut(self) -> None:
        self.exchange.connection.shutdown(2)

    def listen(self) -> None:
        """Until it goes. Texts are for the test, pings are answered."""
        try:
            while True:
                first, size = self.exchange.rfile.read(2)
                length = size & 0x7F
                if length >= 126:
                    length = int.from_bytes(
                        self.exchange.rfile.read(2 if length == 126 else 8), "big"
                    )
                mask = self.exchange.rfile.read(4)
                data = bytes(
                    byte ^ mask[i % 4] for i, byte in enumerate(self.exchange.rfile.read(length))
                )
                if first & 15 == TEXT:
                    self.said.put(json.loads(data))
                elif first & 15 == PING:
                    self.send(data, PONG)
                elif first & 15 == CLOSE:
                    self.send(data, CLOSE)
                    break
        except (OSError, ValueError):
            pass
        self.said.put(None)


class Sockets:
    """Lets agents in at /ws/agent/ of a test server. `follow`: a line that behaves as
    Berth's does.
    """

    def __init__(self, server: Server, follow: bool = True) -> None:
        self.server, self.follow = server, follow
        self.lines: queue.Queue[Line] = queue.Queue()
        server.hooks["/ws/agent/"] = self.serve

    def serve(self, exchange: Exchange) -> None:
        line = Line(exchange)
        line.accept()
        if self.follow:
            line.send(self.server.lists())
        self.lines.put(line)
        line.listen()

    def next(self, timeout: float = 40) -> Line:
        return self.lines.get(timeout=timeout)


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate of this machine; clients trust it by its path."""
    certificate, key = folder / "tls.crt", folder / "tls.key"
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",  # made in a tenth of the time of an RSA key
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
        *names,
    ]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def encrypt(server: Server, folder: Path) -> Path:
    """From now on it speaks TLS. The certificate that agents are to trust."""
    certificate, key = make_certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return certificate
