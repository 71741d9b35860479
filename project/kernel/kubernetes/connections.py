"""One kept connection for each context, as long as its files are unchanged and the server accepts
its credentials.
"""

import threading
import time
from collections.abc import Hashable
from dataclasses import dataclass, field

from project.kernel.kubernetes.credentials import Connection, connect, describe_context, stamp_of
from project.kernel.outbox.operations import ProviderError

SIGN_IN = 15.0  # seconds to wait for another thread that signs in
REFUSED_FOR = 5.0  # seconds in which a failed sign-in is not repeated


@dataclass(slots=True)
class ClusterConnection:
    """The connection to a context. A slow sign-in delays only the callers of this context."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    connection: Connection | None = None
    error: ProviderError | None = None
    stamp: Hashable = None  # of the files of the failed sign-in
    closed_until: float = 0.0  # monotonic

    def open(self, context: str) -> Connection:
        if not self.lock.acquire(timeout=SIGN_IN):
            raise ProviderError(
                f"Signing in to {describe_context(context)} takes long. Berth tries again.",
                retry_after=REFUSED_FOR,
            )
        try:
            stamp = stamp_of(context)
            if self.connection is not None and self.connection.stamp == stamp:
                return self.connection
            if self.error and self.stamp == stamp and time.monotonic() < self.closed_until:
                raise type(self.error)(str(self.error), retry_after=REFUSED_FOR)
            self.connection, self.error, self.stamp = None, None, stamp
            try:
                self.connection = connect(context)
            except ProviderError as error:
                self.error, self.closed_until = error, time.monotonic() + REFUSED_FOR
                raise
            return self.connection
        finally:
            self.lock.release()


_connections: dict[str, ClusterConnection] = {}
_lock = threading.Lock()


def open_connection(context: str) -> Connection:
    """Raises Misconfigured, which names the file and the fault."""
    with _lock:
        found = _connections.setdefault(context, ClusterConnection())
    return found.open(context)


def forget(connection: Connection | None = None) -> None:
    """Make the next call sign in again; None: in all contexts, also after a failed sign-in."""
    with _lock:
        if connection is None:
            _connections.clear()
        for found in _connections.values():
            if found.connection is connection:
                found.connection = None
