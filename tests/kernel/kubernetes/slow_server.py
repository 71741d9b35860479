"""A server that answers as a test orders, at its own pace: an API server, an identity provider,
or a proxy.
"""

import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from project.kernel.kubernetes import client
from tests.slots.agent.fake_websocket import make_certificate

LIMIT = 0.5  # seconds for a call in these tests
PACE = 0.05  # seconds between two bytes
# Seconds after which a server that trickles has had enough: a test without the limit
# fails, and ends.
LASTS = 60.0
PODS = json.dumps({"kind": "PodList", "metadata": {}, "items": []}).encode()
Answer = Callable[["Slow", socket.socket, str], None]


class Slow:
    """Says what it is told to, at its own pace, until it is closed."""

    def __init__(self, folder: Path, answer: Answer, *, is_secure: bool) -> None:
        self.answer, self.stopped, self.asked = answer, threading.Event(), list[str]()
        certificate, key = make_certificate(folder)
        self.authority = str(certificate)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.is_secure, self.open = is_secure, list[int]()
        self.has_given_up = False  # no client ended the call before LASTS
        self.before = b""  # bytes sent slowly instead of a handshake; then silence
        self.url = f"http{'s' * is_secure}://127.0.0.1:{self.listener.getsockname()[1]}"
        self.threads = [threading.Thread(target=self.listen)]
        self.threads[0].start()

    def listen(self) -> None:
        with suppress(OSError):  # closed
            while True:
                raw, _ = self.listener.accept()
                self.open.append(os.dup(raw.fileno()))
                thread = threading.Thread(target=self.serve, args=(raw,))
                self.threads.append(thread)
                thread.start()

    def serve(self, raw: socket.socket) -> None:
        if self.before:
            with suppress(OSError), raw:
                self.trickle(raw, self.before)
            return
        with (
            suppress(OSError),
            self.context.wrap_socket(raw, server_side=True) if self.is_secure else raw as sock,
        ):
            sock.settimeout(LASTS)
            while head := read_head(sock):
                self.asked.append(head.splitlines()[0])
                self.answer(self, sock, head)

    def trickle(self, sock: socket.socket, text: bytes) -> None:
        until = time.monotonic() + LASTS
        for i in range(len(text)):
            sock.sendall(text[i : i + 1])
            if self.stopped.wait(PACE):
                return
            if time.monotonic() > until:
                self.has_given_up = True
                return

    def close(self) -> None:
        self.stopped.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for number in self.open:
            with socket.socket(fileno=number) as sock, suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()


def read_head(sock: socket.socket) -> str:
    """Reads the head, and the body that it announces."""
    text = b""
    while b"\r\n\r\n" not in text:
        piece = sock.recv(1)
        if not piece:
            return ""
        text += piece
    head = text.decode()
    length = next(
        (
            int(line.split(":")[1])
            for line in head.splitlines()
            if line.lower().startswith("content-length:")
        ),
        0,
    )
    while length > 0:
        length -= len(sock.recv(length)) or length
    return head


def said(body: bytes, status: str = "200 OK") -> bytes:
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def at_once(slow: Slow, sock: socket.socket, head: str) -> None:
    sock.sendall(said(PODS))


def in_its_head(slow: Slow, sock: socket.socket, head: str) -> None:
    slow.trickle(sock, b"HTTP/1.1 200 OK\r\nX: " + b"x" * 10_000)


def in_its_body(slow: Slow, sock: socket.socket, head: str) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
    slow.trickle(sock, b" " * 10_000)


def in_a_chunk(slow: Slow, sock: socket.socket, head: str) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2710\r\n")
    slow.trickle(sock, b" " * 10_000)


def in_a_refusal(slow: Slow, sock: socket.socket, head: str) -> None:
    sock.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 10000\r\n\r\n")
    slow.trickle(sock, b" " * 10_000)


def without_a_length(slow: Slow, sock: socket.socket, head: str) -> None:
    """Where the end of the connection is that of the answer: cut off, it looks whole."""
    sock.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + PODS)
    slow.trickle(sock, b" " * 10_000)


def not_at_all(slow: Slow, sock: socket.socket, head: str) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n{")
    slow.has_given_up = not slow.stopped.wait(LASTS)


SLOW = [in_its_head, in_its_body, in_a_chunk, in_a_refusal, without_a_length, not_at_all]
Begin = Callable[..., Slow]


def api() -> client.Api:
    """Of the kubeconfig that leads there."""
    return client.api_for({"context": "slow", "namespace": "n"})
