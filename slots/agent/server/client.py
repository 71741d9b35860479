"""Berth's REST API as the agent calls it: bounded answers, a deadline for all of a call, no redirects, one lasting connection a thread."""  # noqa: E501

from __future__ import annotations

import hashlib
import http.client
import io
import json
import os
import random
import socket
import ssl
import threading
import time
import urllib.parse
from pathlib import Path
from typing import IO, Any, Callable

from ..common.errors import (
    AnswerTooLarge,
    RequestRefused,
    ServerUnavailable,
    TaskFailed,
    TokenRejected,
    Unusable,
)

BASE = "/api/v1/agent/"
MOST_JSON = 4_000_000
PIECE = 1 << 16
RETRY_LATER = (408, 425, 429)


class RetryDelay:
    """0.5, 1, 2 ... s up to a limit, each with chance, so that a thousand agents do not come back at once."""  # noqa: E501

    def __init__(self, first: float = 0.5, most: float = 30.0) -> None:
        self.first, self.most = first, most
        self.failures = 0

    def next(self) -> float:
        delay = min(self.most, self.first * 2 ** min(self.failures, 16))
        self.failures += 1
        return delay * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        self.failures = 0


class DeadlineSocket:
    """In the place of http.client's socket: all of a call ends at its deadline, also with a server that sends a byte now and then."""  # noqa: E501

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.deadline = 0.0
        self.readers = 0
        self.is_closed = False

    def settimeout(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer takes too long")
        self.sock.settimeout(left)

    def makefile(self, mode: str) -> io.BufferedReader:
        self.readers += 1
        return io.BufferedReader(BodyReader(self))

    def sendall(self, data: bytes) -> None:
        self.settimeout()
        self.sock.sendall(data)

    def close(self) -> None:
        """As a socket does it: it stays until the answer was read."""
        self.is_closed = True
        if self.readers <= 0:
            self.sock.close()


class BodyReader(io.RawIOBase):
    def __init__(self, wire: DeadlineSocket) -> None:
        self.wire = wire

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.wire.settimeout()
        return self.wire.sock.recv_into(buffer)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self.wire.readers -= 1
            if self.wire.is_closed:
                self.wire.close()


class BerthClient:
    def __init__(self, url: str, read_token: Callable[[], str], ca_file: str | None = None) -> None:
        parts = urllib.parse.urlsplit(url)
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or parts.username
            or parts.query
            or parts.fragment
        ):
            raise Unusable(
                f"--url {url!r} is no address of a Berth server. Give one like "
                "https://berth.example."
            )
        self.host = parts.hostname
        try:
            self.port = parts.port
        except ValueError as error:
            raise Unusable(f"--url {url!r} has no port that can be: {error}.") from error
        self.is_secure = parts.scheme == "https"
        self.netloc, self.root = parts.netloc, parts.path.rstrip("/")
        self.prefix = self.root + BASE
        self.context = ssl.create_default_context(cafile=ca_file) if self.is_secure else None
        self.read_token = read_token
        self.token = read_token()
        self.refused = ""  # stood in the file once and was not let in
        self.own = threading.local()

    # Calls

    def get(self, path: str, timeout: float = 20) -> dict[str, Any]:
        return self.call("GET", path, timeout=timeout)

    def post(self, path: str, body: dict[str, Any], timeout: float = 20) -> dict[str, Any]:
        return self.call(
            "POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"}, timeout
        )

    def put(
        self, path: str, file: Path, kind: str, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            more = {"Content-Type": kind, "Content-Length": str(size), **(headers or {})}
            return self.call("PUT", path, stream, more, 60 + size / 100_000)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        timeout: float = 20,
    ) -> dict[str, Any]:
        into = io.BytesIO()
        self._exchange(method, path, body, headers or {}, timeout, into, MOST_JSON)
        return parse(into.getvalue())

    def download(self, path: str, file: Path, most: int) -> str:
        """Into a new file; its sha256."""
        digest = hashlib.sha256()
        with open(
            os.open(
                file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            ),
            "wb",
        ) as stream:
            self._exchange("GET", path, None, {}, 60 + most / 100_000, Hashed(stream, digest), most)
        return digest.hexdigest()

    def renew(self, load: dict[str, Any]) -> bool:
        """Another token in its file while the present one still opens: taken from here on, unless it is not let in."""  # noqa: E501
        try:
            fresh = self.read_token()
        except Unusable:
            return False
        if fresh in (self.token, self.refused):
            return False
        former, self.token = self.token, fresh
        try:
            self.post("heartbeat/", {"load": load})
        except TokenRejected:
            self.token, self.refused = former, fresh
            return False
        except (
            ServerUnavailable
        ):  # what it opens is not known yet: the one that is known to open goes on
            self.token = former
            raise
        return True

    def _exchange(
        self,
        method: str,
        path: str,
        body: Any,
        headers: dict[str, str],
        timeout: float,
        into: Any,
        most: int,
    ) -> None:
        try:
            self._try(method, path, body, headers, timeout, into, most)
        except TokenRejected:
            try:
                fresh = self.read_token()
            except Unusable:
                fresh = self.token
            if fresh == self.token:
                raise
            self.token = fresh  # rotated meanwhile
            self._try(method, path, rewind(body), headers, timeout, into, most)

    def _try(
        self,
        method: str,
        path: str,
        body: Any,
        headers: dict[str, str],
        timeout: float,
        into: Any,
        most: int,
    ) -> None:
        deadline = time.monotonic() + timeout
        headers = {
            "Accept": "application/json, */*",
            "Accept-Encoding": "identity",
            "User-Agent": "berth-agent",
            **headers,
        }
        headers["Authorization"] = f"Bearer {self.token}"
        for is_last in (False, True):
            connection, is_used = self._connection(deadline)
            try:
                response = send(connection, method, self.prefix + path, rewind(body), headers)
                break
            except (http.client.RemoteDisconnected, ConnectionError) as error:
                self.close()
                if (
                    is_last or not is_used
                ):  # a lasting connection may have been closed by now: that says nothing yet
                    raise ServerUnavailable(f"no answer: {describe(error)}") from error
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.close()
                raise ServerUnavailable(f"no answer: {describe(error)}") from error
        try:
            self._judge(response, into, most)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise ServerUnavailable(f"broken answer: {describe(error)}") from error
        except (TokenRejected, RequestRefused):
            if response.will_close:
                self.close()
            raise
        except Exception:
            self.close()
            raise
        if response.will_close:
            self.close()

    def _judge(self, response: http.client.HTTPResponse, into: Any, most: int) -> None:
        if 200 <= response.status < 300:
            copy(response, into, most)
            return
        text = io.BytesIO()
        copy(response, text, MOST_JSON)
        if response.status == 401:
            raise TokenRejected("the server refuses this agent's token")
        if 300 <= response.status < 400:
            raise ServerUnavailable(
                f"the server redirects ({response.status}): name its final address in --url"
            )
        if 400 <= response.status < 500 and response.status not in RETRY_LATER:
            body = parse(
                text.getvalue()
            )  # without a reason of Berth's own it came from something in between
            if isinstance(body.get("code"), str):
                raise RequestRefused(
                    response.status, body["code"], str(body.get("detail") or "")[:500], body
                )
        raise ServerUnavailable(f"the server answers {response.status}")

    # Connections

    def _connection(self, deadline: float) -> tuple[http.client.HTTPConnection, bool]:
        connection = getattr(self.own, "connection", None)
        if connection is not None:
            connection.sock.deadline = deadline
            return connection, True
        left = max(0.1, min(20.0, deadline - time.monotonic()))
        try:
            if self.context is not None:
                connection = http.client.HTTPSConnection(
                    self.host, self.port, timeout=left, context=self.context
                )
            else:
                connection = http.client.HTTPConnection(self.host, self.port, timeout=left)
            connection.connect()
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ServerUnavailable(f"not reachable: {describe(error)}") from error
        connection.sock = DeadlineSocket(connection.sock)
        connection.sock.deadline = deadline
        connection.auto_open = 0
        self.own.connection = connection
        return connection, False

    def open_socket(self, timeout: float) -> socket.socket:
        """Of its own, for another protocol than HTTP's."""
        sock = socket.create_connection(
            (self.host, self.port or (443 if self.is_secure else 80)), timeout
        )
        try:
            return (
                sock
                if self.context is None
                else self.context.wrap_socket(sock, server_hostname=self.host)
            )
        except BaseException:
            sock.close()
            raise

    def close(self) -> None:
        connection = getattr(self.own, "connection", None)
        self.own.connection = None
        if connection is not None:
            connection.close()


def send(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: Any,
    headers: dict[str, str],
) -> http.client.HTTPResponse:
    try:
        connection.request(method, path, body, headers)
    except (BrokenPipeError, ConnectionResetError) as error:
        try:
            return connection.getresponse()  # it may have said why it takes no more
        except (OSError, http.client.HTTPException):
            raise error from None
    return connection.getresponse()


class Hashed:
    def __init__(self, stream: IO[bytes], digest: Any) -> None:
        self.stream, self.digest = stream, digest

    def write(self, data: bytes) -> None:
        try:
            self.stream.write(data)
        except OSError as error:
            raise TaskFailed(
                "disk_full", f"The agent's disk takes no more: {error.strerror}."
            ) from error
        self.digest.update(data)


def copy(response: http.client.HTTPResponse, into: Any, most: int) -> None:
    left = most
    while True:
        data = response.read(min(PIECE, left + 1))
        if not data:
            break
        left -= len(data)
        if left < 0:
            raise AnswerTooLarge(f"the server sends more than {most:,} bytes")
        into.write(data)
    if response.length:  # None where chunked, 0 at the whole end
        raise ServerUnavailable("the server's answer ends too early")


def rewind(body: Any) -> Any:
    if hasattr(body, "seek"):
        body.seek(0)
    return body


def parse(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data or b"{}")
    except (ValueError, RecursionError) as error:
        raise ServerUnavailable(
            "the server's answer is no JSON: is this address Berth's?"
        ) from error
    if not isinstance(body, dict):
        raise ServerUnavailable("the server's answer is no JSON object")
    return body


def describe(error: BaseException) -> str:
    return str(error) or type(error).__name__
