"""Advisory locks. They save work and keep an order; the correctness of rows does not depend on
them.

A lock is (space, key). The number of a space never changes, and the key is the hash of a name.

A process that stands still (SIGSTOP, a stopped virtual machine) keeps its sessions. So that its
locks end, PostgreSQL ends a session with a lock that was not used for LOST_AFTER seconds. A thread
uses the sessions of a living process, also during long outside calls.
"""

import os
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from django.db import connection
from psycopg import pq

LOST_AFTER = 30.0  # seconds
USED_EVERY = 5.0  # seconds
LANE = 7301  # performing operations of a lane
RETENTION = 7302  # deleting old rows of a kind
RENUMBER = 7303  # renumbering events after a restore
SAMPLE = 7305  # loading or removing the sample
CONTROLLER = 7306  # a controller of which one instance works at a time
MEMBER_IDS = 7307  # raising the sequence of member ids
SHARED_PORTS = 7308  # which ports of a shared address a member offers
SOURCE_QUOTA = 7321  # counting the sources of a user
# 7320, 0: making a dump (project.kernel.embedded.backup, which does not import Django)


def key_of(name: str) -> int:
    """A signed 32-bit number for PostgreSQL. Two names with the same number only wait for each
    other.
    """
    unsigned = zlib.crc32(name.encode())
    return unsigned - (1 << 32) if unsigned >= 1 << 31 else unsigned


@contextmanager
def try_lock(space: int, name: str) -> Iterator[bool]:
    """Hold a session lock during the block, also across transactions. False: another session holds
    it.

    The lock belongs to the session, so this does not work behind a transaction pooler.
    """
    connection.ensure_connection()
    session = connection.connection
    key = key_of(name)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT got, before, CASE WHEN got THEN "
            "set_config('idle_session_timeout', %s, false) END "
            "FROM (SELECT pg_try_advisory_lock(%s, %s) AS got, "
            "current_setting('idle_session_timeout') AS before OFFSET 0) AS tried",
            [f"{LOST_AFTER}s", space, key],
        )
        got, limit, _ = cursor.fetchone()
    if got:
        _in_use.add(session)
    try:
        yield bool(got)
    finally:
        if got:
            _in_use.remove(session)
        # The end of a session has released its locks.
        if got and connection.connection is session and not session.closed:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT pg_advisory_unlock(%s, %s), "
                    "set_config('idle_session_timeout', %s, false)",
                    [space, key, limit],
                )


class _SessionsInUse:
    """Sessions with locks, which a thread uses every few seconds."""

    def __init__(self) -> None:
        self._sessions: list[psycopg.Connection[Any]] = []  # one with two locks is there twice
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, session: psycopg.Connection[Any]) -> None:
        with self._change:
            self._sessions.append(session)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="locks", daemon=True)
                self._thread.start()
            self._change.notify_all()

    def remove(self, session: psycopg.Connection[Any]) -> None:
        with self._change:
            self._sessions.remove(session)

    def _run(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._sessions)
            time.sleep(USED_EVERY)  # most locks are returned sooner, without a query here
            with self._change:
                sessions = set(self._sessions)
            for session in sessions:
                # The thread of the lock meets the error at its next statement. psycopg raises
                # MemoryError if libpq could not send.
                with suppress(psycopg.Error, MemoryError):
                    _use(session)


def _use(session: psycopg.Connection[Any]) -> None:
    """Through libpq: psycopg may begin a transaction in the session of another thread."""
    with session.lock:
        if session.pgconn.transaction_status == pq.TransactionStatus.IDLE:
            session.pgconn.exec_(b"SELECT 1")


_in_use = _SessionsInUse()


def _renew_sessions() -> None:
    global _in_use
    _in_use = _SessionsInUse()


os.register_at_fork(after_in_child=_renew_sessions)  # the sessions and the thread are the parent's


def lock_in_transaction(space: int, name: str) -> None:
    """Wait for the lock and hold it until the end of the current transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [space, key_of(name)])
