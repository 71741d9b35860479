"""Client for Berth's REST API: limited answers, a deadline for the whole call, no redirects, and
one persistent connection for each thread.
"""

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
from typing import IO, TYPE_CHECKING, Any, Callable, Mapping, NamedTuple, Protocol, Union

from ..common.errors import (
    AnswerTooLarge,
    RequestRefused,
    ServerUnavailable,
    TaskFailed,
    TokenRejected,
    Unusable,
)
from ..common.json_types import Json
from ..common.state import open_private

if TYPE_CHECKING:
    from hashlib import _Hash

BASE = "/api/v1/agent/"
MOST_JSON = 4_000_000
READ_BYTES = 1 << 16
RETRY_LATER = (408, 425, 429)

Body = Union[bytes, IO[bytes], None]


class Writer(Protocol):
    def write(self, data: bytes, /) -> object: ...


class Call(NamedTuple):
    method: str
    path: str
    body: Body
    headers: dict[str, str]
    timeout: float
    into: Writer
    most: int  # bytes of the answer


class RetryDelay:
    """Delays of 0.5, 1, 2 ... s up to a limit, each reduced at random, so that agents do not return
    at the same moment.
    """

    def __init__(self, first: float = 0.5, most: float = 30.0) -> None:
        self.first, self.most = first, most
        self.failures = 0

    def next(self) -> float:
        delay = min(self.most, self.first * 2 ** min(self.failures, 16))
        self.failures += 1
        return delay * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        self.failures = 0


class LimitedSocket:
    """Wraps the socket of http.client: a whole call ends at its deadline, also with a server that
    sends single bytes.
    """

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
        """Like a socket, stay open until the answer was read."""
        self.is_closed = True
        if self.readers <= 0:
            self.sock.close()


class BodyReader(io.RawIOBase):
    def __init__(self, wire: LimitedSocket) -> None:
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
                f"--url {url!r} is not the address of a Berth server. Use one like "
                "https://berth.example."
            )
        self.host = parts.hostname
        try:
            self.port = parts.port
        except ValueError as error:
            raise Unusable(f"--url {url!r} has an invalid port: {error}.") from error
        self.is_secure = parts.scheme == "https"
        self.netloc, self.root = parts.netloc, parts.path.rstrip("/")
        self.prefix = self.root + BASE
        self.context = ssl.create_default_context(cafile=ca_file) if self.is_secure else None
        self.read_token = read_token
        self.token = read_token()
        self.refused = ""  # a token of the file that the server refused
        self.own = threading.local()

    # Calls

    def get(self, path: str, timeout: float = 20) -> Json:
        return self.call("GET", path, timeout=timeout)

    def post(self, path: str, body: Mapping[str, object], timeout: float = 20) -> Json:
        return self.call(
            "POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"}, timeout
        )

    def put(self, path: str, file: Path, kind: str, headers: dict[str, str] | None = None) -> Json:
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            more = {"Content-Type": kind, "Content-Length": str(size), **(headers or {})}
            return self.call("PUT", path, stream, more, 60 + size / 100_000)

    def call(
        self,
        method: str,
        path: str,
        body: Body = None,
        headers: dict[str, str] | None = None,
        timeout: float = 20,
    ) -> Json:
        into = io.BytesIO()
        self._exchange(Call(method, path, body, headers or {}, timeout, into, MOST_JSON))
        return parse(into.getvalue())

    def download(self, path: str, file: Path, most: int) -> str:
        """Download into a new file; returns its SHA-256."""
        digest = hashlib.sha256()
        with open_private(file) as stream:
            into = Hashed(stream, digest)
            self._exchange(Call("GET", path, None, {}, 60 + most / 100_000, into, most))
        return digest.hexdigest()

    def renew(self, load: Mapping[str, object]) -> bool:
        """Use a new token of the token file if the server accepts it. True: the token changed."""
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
        except ServerUnavailable:  # not known yet; the former token is known to be valid
            self.token = former
            raise
        return True

    def _exchange(self, call: Call) -> None:
        try:
            self._try(call)
        except TokenRejected:
            try:
                fresh = self.read_token()
            except Unusable:
                fresh = self.token
            if fresh == self.token:
                raise
            self.token = fresh  # the file has a new token
            self._try(call)

    def _try(self, call: Call) -> None:
        deadline = time.monotonic() + call.timeout
        headers = {
            "Accept": "application/json, */*",
            "Accept-Encoding": "identity",
            "User-Agent": "berth-agent",
            **call.headers,
        }
        headers["Authorization"] = f"Bearer {self.token}"
        for is_last in (False, True):
            connection, is_used = self._connection(deadline)
            try:
                response = send(connection, self.prefix, call, headers)
                break
            except (http.client.RemoteDisconnected, ConnectionError) as error:
                self.close()
                # The server may have closed a persistent connection, so the call is repeated.
                if is_last or not is_used:
                    raise ServerUnavailable(f"no answer: {describe(error)}") from error
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.close()
                raise ServerUnavailable(f"no answer: {describe(error)}") from error
        try:
            self._judge(response, call.into, call.most)
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

    def _judge(self, response: http.client.HTTPResponse, into: Writer, most: int) -> None:
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
            body = parse(text.getvalue())
            # An error without a code comes from a proxy.
            code = body.get("code")
            if isinstance(code, str):
                detail = str(body.get("detail") or "")[:500]
                raise RequestRefused(response.status, code, detail, body)
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
        connection.sock = LimitedSocket(connection.sock)
        connection.sock.deadline = deadline
        connection.auto_open = 0
        self.own.connection = connection
        return connection, False

    def open_socket(self, timeout: float) -> socket.socket:
        """A new socket to the server, for another protocol."""
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
    connection: http.client.HTTPConnection, prefix: str, call: Call, headers: dict[str, str]
) -> http.client.HTTPResponse:
    if call.body is not None and not isinstance(call.body, bytes):
        call.body.seek(0)
    try:
        connection.request(call.method, prefix + call.path, call.body, headers)
    except (BrokenPipeError, ConnectionResetError) as error:
        try:
            return connection.getresponse()  # the server may have answered before it closed
        except (OSError, http.client.HTTPException):
            raise error from None
    return connection.getresponse()


class Hashed:
    def __init__(self, stream: IO[bytes], digest: _Hash) -> None:
        self.stream, self.digest = stream, digest

    def write(self, data: bytes, /) -> None:
        try:
            self.stream.write(data)
        except OSError as error:
            raise TaskFailed(
                "disk_full", f"The agent cannot write to its disk: {error.strerror}."
            ) from error
        self.digest.update(data)


def copy(response: http.client.HTTPResponse, into: Writer, most: int) -> None:
    left = most
    while True:
        data = response.read(min(READ_BYTES, left + 1))
        if not data:
            break
        left -= len(data)
        if left < 0:
            raise AnswerTooLarge(f"the server sends more than {most:,} bytes")
        into.write(data)
    if response.length:  # None if chunked, 0 after the complete answer
        raise ServerUnavailable("the server's answer ends too early")


def parse(data: bytes) -> Json:
    try:
        body = json.loads(data or b"{}")
    except (ValueError, RecursionError) as error:
        raise ServerUnavailable(
            "the server's answer is not JSON; check that --url is the address of Berth"
        ) from error
    if not isinstance(body, dict):
        raise ServerUnavailable("the server's answer is not a JSON object")
    return body


def describe(error: BaseException) -> str:
    return str(error) or type(error).__name__
