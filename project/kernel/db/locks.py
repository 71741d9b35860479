"""Advisory locks, named once. They save work and keep an order; no row's correctness rests on one.

A lock is (space, key): the space says what is locked and never changes, the key is a hash of
which one.
"""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection

LANE = 7301  # who performs operations on this lane
RETENTION = 7302  # who deletes old rows of this kind
RENUMBER = 7303  # who renumbers events after a restore
SAMPLE = 7305  # who loads or removes the sample
CONTROLLER = 7306  # a controller that wants one instance to work at a time
SOURCE_QUOTA = 7321  # who counts what a user keeps
# 7320, 0: a dump is being made (project.kernel.embedded.backup, which has no Django)


def key_of(name: str) -> int:
    """A signed 32-bit number, as PostgreSQL wants it. Two names may share one: then they wait
    for each other, no more.
    """
    unsigned = zlib.crc32(name.encode())
    return unsigned - (1 << 32) if unsigned >= 1 << 31 else unsigned


@contextmanager
def try_lock(space: int, name: str) -> Iterator[bool]:
    """Hold a session lock while the block runs, also across transactions. False: somebody
    else has it.

    Not from a pooler that hands out a connection per transaction: the lock belongs to the session.
    """
    connection.ensure_connection()
    session: Any = connection.connection
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [space, key_of(name)])
        got = bool(cursor.fetchone()[0])
    try:
        yield got
    finally:
        # A lost session has let go by itself.
        if got and connection.connection is session and not session.closed:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [space, key_of(name)])


def lock_in_transaction(space: int, name: str) -> None:
    """Wait for the lock, hold it to the end of the present transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [space, key_of(name)])
