"""Advisory locks. They save work and keep an order; the correctness of rows does not depend on
them.

A lock is (space, key). The number of a space never changes, and the key is the hash of a name.
"""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

LANE = 7301  # performing operations of a lane
RETENTION = 7302  # deleting old rows of a kind
RENUMBER = 7303  # renumbering events after a restore
SAMPLE = 7305  # loading or removing the sample
CONTROLLER = 7306  # a controller of which one instance works at a time
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
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [space, key_of(name)])
        got = bool(cursor.fetchone()[0])
    try:
        yield got
    finally:
        # The end of a session has released its locks.
        if got and connection.connection is session and not session.closed:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [space, key_of(name)])


def lock_in_transaction(space: int, name: str) -> None:
    """Wait for the lock and hold it until the end of the current transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [space, key_of(name)])
