"""Detects that this database was restored from a dump or a base backup, by any tool.

A row names the place of the database: the server's identifier, the database's number, and the
server's timeline. A dump contains the row, but a restore happens in another place: a row that
names another place proves a restore.
"""

from project.kernel.db.sql import run
from project.kernel.embedded.backup import DUMP_LOCK

PLACE = """
INSERT INTO kernel_database_place AS p (id, server, database, timeline, since)
SELECT 1, system_identifier, d.oid::bigint, left(pg_walfile_name(pg_current_wal_lsn()), 8),
  clock_timestamp()
FROM pg_control_system(), pg_database d WHERE d.datname = current_database()
ON CONFLICT (id) DO UPDATE SET server = EXCLUDED.server, database = EXCLUDED.database,
  timeline = EXCLUDED.timeline,
  since = CASE WHEN (p.server, p.database, p.timeline) = (EXCLUDED.server, EXCLUDED.database,
    EXCLUDED.timeline)
    THEN p.since ELSE EXCLUDED.since END
RETURNING since > clock_timestamp() - make_interval(secs => %(seconds)s) AS is_new"""

DUMPED = """
SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
  WHERE d.datname = current_database() AND locktype = 'advisory' AND classid = %(space)s
    AND objid = %(key)s) AS is_dumped"""


def was_restored_within(seconds: float) -> bool:
    """True if the row changed in the last `seconds`. This includes the first start on a new
    database or after an upgrade from a version without the row, which may follow a restore.
    """
    return bool(run(PLACE, {"seconds": seconds}, prepare=False)[0].is_new)


def is_dumped_now() -> bool:
    """True while `make dump` copies this database and its files."""
    return bool(
        run(DUMPED, {"space": DUMP_LOCK[0], "key": DUMP_LOCK[1]}, prepare=False)[0].is_dumped
    )
