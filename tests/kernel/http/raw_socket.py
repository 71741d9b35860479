"""Raw sockets to a real web process: what a hostile client sends is not what a library would."""

import socket
from contextlib import suppress
from urllib.parse import urlsplit

PATIENCE = 30.0  # seconds; a test that waits so long has failed


class Raw:
    """One connection. `source` is the address it comes from: all of 127.0.0.0/8 is ours."""

    def __init__(self, url: str, source: str = "127.0.0.1") -> None:
        at = urlsplit(url)
        assert at.hostname and at.port
        self.socket = socket.create_connection((at.hostname, at.port), PATIENCE, (source, 0))
        self.heard = b""

    def send(self, data: bytes) -> "Raw":
        self.socket.sendall(data)
        return self

    def flood(self, data: bytes, times: int) -> "Raw":
        """As much of it as the server takes."""
        with suppress(ConnectionError):
            for _ in range(times):
                self.socket.sendall(data)
        return self

    def read_to_end(self) -> bytes:
        """What the server says until it closes the connection. Fails if it keeps it open."""
        with suppress(ConnectionError):
            while part := self.socket.recv(65536):
                self.heard += part
        return self.heard

    def read_answer(self) -> bytes:
        """Up to the end of one answer that says its length."""
        while b"\r\n\r\n" not in self.heard:
            self._read_more()
        head, _, rest = self.heard.partition(b"\r\n\r\n")
        length = next(
            int(line[15:])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length:")
        )
        while len(rest) < length:
            self._read_more()
            rest = self.heard.partition(b"\r\n\r\n")[2]
        found, self.heard = self.heard, b""
        return found

    def _read_more(self) -> None:
        part = self.socket.recv(65536)
        assert part, f"closed after {self.heard!r}"
        self.heard += part

    def close(self) -> None:
        self.socket.close()


def head(method: str, path: str, *headers: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


HEALTH = head("GET", "/healthz")
