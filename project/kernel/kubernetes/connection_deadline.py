"""Connections that heed a clock. The timeouts of a socket begin anew with each byte that comes: a
server that sends one now and then would hold its caller for ever. And the system's own look-up of a
name has none at all."""

import socket
from contextlib import suppress
from http.client import HTTPException
from typing import Any

from urllib3.connection import HTTPConnection
from urllib3.exceptions import ConnectTimeoutError, LocationParseError, NameResolutionError

from project.kernel.kubernetes import dns
from project.kernel.kubernetes.deadline import current_deadline


def limit_pools(manager: Any) -> None:
    """Connections of this pool manager, through whatever proxy, heed the clock of the thread
    that uses them.
    """
    manager.pool_classes_by_scheme = {
        scheme: _limited(kind) for scheme, kind in manager.pool_classes_by_scheme.items()
    }


def _limited(kind: Any) -> Any:
    connection = kind.ConnectionCls
    # One for SOCKS connects in a way of its own.
    resolves = connection._new_conn is HTTPConnection._new_conn
    bases = (_DeadlineMixin, *((_Resolving,) if resolves else ()), connection)
    heeding = type(f"Heeding{connection.__name__}", bases, {})
    return type(f"Limited{kind.__name__}", (kind,), {"ConnectionCls": heeding})


class _DeadlineMixin:
    sock: Any

    def _new_conn(self) -> Any:
        found = super()._new_conn()  # type: ignore[misc]
        _hold(found)  # what a proxy says, and the handshake of TLS, are to come
        return found

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        _hold(self.sock)

    def _tunnel(self) -> None:
        try:
            super()._tunnel()  # type: ignore[misc]
        except (OSError, HTTPException):
            # Else the library takes its proxy for reached, and the fault for the server's.
            self.close()  # type: ignore[attr-defined]
            raise

    def request(self, *arguments: Any, **more: Any) -> None:
        if self.sock is not None:
            _hold(self.sock)
        super().request(*arguments, **more)  # type: ignore[misc]


class _Resolving:
    host: str
    port: int
    _dns_host: str

    def _new_conn(self) -> Any:
        """To one of its addresses, one after the other. The certificate is still that
        of the name.
        """
        name, addresses = self._dns_host, self._find()
        try:
            for address in addresses[:-1]:
                self._dns_host = address
                with suppress(ConnectTimeoutError):
                    return super()._new_conn()  # type: ignore[misc]
                _check_time()
            self._dns_host = addresses[-1]
            return super()._new_conn()  # type: ignore[misc]
        finally:
            self._dns_host = name

    def _find(self) -> list[str]:
        clock = current_deadline()
        seconds = dns.PATIENCE if clock is None else min(dns.PATIENCE, clock.left)
        try:
            return dns.resolve_host(self._dns_host, self.port, seconds)
        except socket.gaierror as error:
            connection: Any = self
            raise NameResolutionError(self.host, connection, error) from error
        except UnicodeError as error:
            raise LocationParseError(f"'{self.host}', label empty or too long") from error


def _hold(found: Any) -> None:
    if (clock := current_deadline()) is not None:
        clock.hold(found)


def _check_time() -> None:
    clock = current_deadline()
    if clock is not None and clock.is_over:
        raise TimeoutError("its time is over")
