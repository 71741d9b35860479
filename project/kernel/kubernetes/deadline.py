"""One total timeout for a call: name lookup, connect, proxy, TLS, request and answer.

urllib3 limits each operation of a socket. A server that sends one byte now and then would hold its
caller forever. The sockets of this module limit each operation to the time that the call has left.
"""

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from http.client import HTTPException
from typing import TYPE_CHECKING

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import (
    ConnectTimeoutError,
    LocationParseError,
    NameResolutionError,
    NewConnectionError,
)
from urllib3.util.ssl_ import create_urllib3_context, resolve_cert_reqs

from project.kernel.kubernetes import dns

if TYPE_CHECKING:
    from _socket import _Address as Address

    from _typeshed import ReadableBuffer, WriteableBuffer


class Deadline:
    """The end of one call."""

    def __init__(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return max(0.0, self.until - time.monotonic())

    @property
    def is_over(self) -> bool:
        return not self.left


_deadline: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


def current_deadline() -> Deadline | None:
    return _deadline.get()


@contextmanager
def within(seconds: float) -> Iterator[Deadline]:
    """Limit all that this thread does on limited connections. A nested limit extends no outer
    one.
    """
    outer = current_deadline()
    deadline = Deadline(seconds if outer is None else min(seconds, outer.left))
    token = _deadline.set(deadline)
    try:
        yield deadline
    finally:
        _deadline.reset(token)


def limit(timeout: float | None) -> float | None:
    """The smaller of a timeout and the time that the call has left. Raises TimeoutError when no
    time is left.
    """
    deadline = current_deadline()
    if deadline is None:
        return timeout
    if deadline.is_over:
        raise TimeoutError("the total timeout of the call is over")
    return deadline.left if timeout is None else min(timeout, deadline.left)


class DeadlineSocket(socket.socket):
    """Limits each timeout to the time left of the thread's call."""

    timeout_of_operation: float | None = None

    def settimeout(self, value: float | None) -> None:
        self.timeout_of_operation = value
        super().settimeout(value)

    def _limit(self) -> None:
        super().settimeout(limit(self.timeout_of_operation))

    def connect(self, address: "Address") -> None:
        self._limit()
        super().connect(address)

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        self._limit()
        return super().recv(buflen, flags)

    def recv_into(
        self, buffer: "WriteableBuffer", nbytes: int | None = None, flags: int = 0
    ) -> int:
        self._limit()
        return super().recv_into(buffer, nbytes or 0, flags)  # 0: the size of the buffer

    def send(self, data: "ReadableBuffer", flags: int = 0) -> int:
        self._limit()
        return super().send(data, flags)

    def sendall(self, data: "ReadableBuffer", flags: int = 0) -> None:
        self._limit()
        super().sendall(data, flags)


class DeadlineTLSSocket(DeadlineSocket, ssl.SSLSocket):
    def do_handshake(self, block: bool = False) -> None:
        self._limit()  # Python limits the handshake as a whole
        super().do_handshake(block)


def limit_tls(context: ssl.SSLContext) -> ssl.SSLContext:
    """Make the TLS connections of this context respect the deadline."""
    context.sslsocket_class = DeadlineTLSSocket
    return context


class DeadlineConnection(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        try:
            return self._connect_to_any(
                dns.resolve_host(self._dns_host, self.port, limit(dns.PATIENCE) or 0.0)
            )
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error
        except UnicodeError as error:
            raise LocationParseError(f"'{self.host}', label empty or too long") from error
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"{self.host} does not answer") from error
        except OSError as error:
            raise NewConnectionError(self, f"Failed to establish a connection: {error}") from error

    def _connect_to_any(self, targets: list[dns.Target]) -> socket.socket:
        """The first address that accepts. The certificate is checked against the name."""
        failure: OSError = OSError("the name has no address")
        for family, target in targets:
            found = DeadlineSocket(family, socket.SOCK_STREAM)
            try:
                for option in self.socket_options or ():
                    found.setsockopt(*option)
                found.settimeout(self.timeout if isinstance(self.timeout, int | float) else None)
                found.connect(target)
                return found
            except OSError as error:
                found.close()
                failure = error
        raise failure

    def _tunnel(self) -> None:
        try:
            super()._tunnel()
        except (OSError, HTTPException):
            # urllib3 would take the proxy for reached, and report a fault of the server.
            self.close()
            raise


class DeadlineTLSConnection(DeadlineConnection, HTTPSConnection):
    def connect(self) -> None:
        if self.ssl_context is None:
            self.ssl_context = create_urllib3_context(cert_reqs=resolve_cert_reqs(self.cert_reqs))
            if not (self.ca_certs or self.ca_cert_data):
                self.ssl_context.load_default_certs()
        limit_tls(self.ssl_context)
        super().connect()


class DeadlinePool(HTTPConnectionPool):
    ConnectionCls = DeadlineConnection


class DeadlineTLSPool(HTTPSConnectionPool):
    ConnectionCls = DeadlineTLSConnection


def limit_connections(manager: urllib3.PoolManager) -> None:
    """Make the connections of this manager, through any proxy, respect the deadline of the thread
    that uses them. The TLS context of a proxy comes from `limit_tls`.
    """
    manager.pool_classes_by_scheme = {"http": DeadlinePool, "https": DeadlineTLSPool}
