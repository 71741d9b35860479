"""A minimal HTTP client with one lasting connection."""

import socket


class HttpConnection:
    def __init__(self, host: str, port: int, token: str = "") -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.head = f"Host: {host}:{port}\r\nAccept: application/json\r\n" + (
            f"Authorization: Bearer {token}\r\n" if token else ""
        )
        self.rest = b""

    def get(self, path: str) -> tuple[int, bytes]:
        return self._call(f"GET {path} HTTP/1.1\r\n{self.head}\r\n".encode())

    def post(self, path: str, body: bytes, key: str = "") -> tuple[int, bytes]:
        more = f"Idempotency-Key: {key}\r\n" if key else ""
        head = (
            f"POST {path} HTTP/1.1\r\n{self.head}{more}Content-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return self._call(head.encode() + body)

    def close(self) -> None:
        self.socket.close()

    def _call(self, request: bytes) -> tuple[int, bytes]:
        self.socket.sendall(request)
        data = self.rest
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._more()
        head = data[:end].lower()
        status = int(head[9:12])
        at = head.find(b"content-length:")
        if at < 0:
            raise RuntimeError(f"an answer without a length: {data[:end]!r}")
        stop = head.find(b"\r\n", at)
        size = int(head[at + 15 : stop if stop >= 0 else len(head)])
        data = data[end + 4 :]
        while len(data) < size:
            data += self._more()
        self.rest = data[size:]
        return status, data[:size]

    def _more(self) -> bytes:
        got = self.socket.recv(65536)
        if not got:
            raise RuntimeError("the server closed the connection")
        return got
