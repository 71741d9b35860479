"""Connections that are kept: one for each context, for as long as its files are the same and the
server takes what we sign in with.
"""

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from project.kernel.kubernetes.credentials import Connection, connect, describe_context, stamp_of
from project.kernel.outbox.operations import ProviderError

SIGN_IN = 15.0  # seconds to wait for another thread that signs in
REFUSED_FOR = 5.0  # seconds in which who could not sign in need not be asked again


@dataclass(slots=True)
class ClusterConnection:
    """To a context. Signing in may take long, or for ever: it holds up who wants to go there,
    and nobody who goes elsewhere.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    connection: Connection | None = None
    error: ProviderError | None = None
    stamp: Any = None  # of the files that it was refused with
    closed_until: float = 0.0  # monotonic

    def open(self, context: str) -> Connection:
        if not self.lock.acquire(timeout=SIGN_IN):
            raise ProviderError(
                f"Signing in to {describe_context(context)} takes long. "
                "It is asked again by itself.",
                retry_after=REFUSED_FOR,
            )
        try:
            known = self.connection
            if known is not None and known.stamp == stamp_of(context):
                return known
            if (
                self.error is not None
                and self.stamp == stamp_of(context)
                and time.monotonic() < self.closed_until
            ):
                raise type(self.error)(str(self.error), retry_after=REFUSED_FOR)
            return self._sign_in(context)
        finally:
            self.lock.release()

    def _sign_in(self, context: str) -> Connection:
        self.connection, self.error, self.stamp = None, None, stamp_of(context)
        try:
            self.connection = connect(context)
        except ProviderError as error:
            self.error, self.closed_until = error, time.monotonic() + REFUSED_FOR
            raise
        return self.connection


_connections: dict[str, ClusterConnection] = {}
_looking_up = threading.Lock()


def open_connection(context: str) -> Connection:
    """Raises Misconfigured, whose words say which file lacks what."""
    with _looking_up:
        door = _connections.setdefault(context, ClusterConnection())
    return door.open(context)


def forget(connection: Connection | None = None) -> None:
    """Signs in anew with the next call. None: everywhere, and who failed is tried at once."""
    with _looking_up:
        if connection is None:
            _connections.clear()
        for door in _connections.values():
            if door.connection is connection:
                door.connection = None
