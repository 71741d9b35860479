"""Exact moments: a trigger stops a process inside of its transaction, on a lock of a test."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

LOCK = 4711


@dataclass(frozen=True)
class Trap:
    name: str
    table: str
    when: str  # BEFORE or AFTER, and INSERT or UPDATE
    condition: str = "true"
    performers: tuple[str, ...] = ()  # processes that take this step, by their names as victims


def install(cursor: Any, traps: Iterable[Trap]) -> None:
    """The number of a trap is its place in `traps`. An open trap stops no process."""
    for number, trap in enumerate(traps):
        cursor.execute(
            f"""CREATE FUNCTION trap_{trap.name}() RETURNS trigger LANGUAGE plpgsql AS
                $$BEGIN PERFORM pg_advisory_xact_lock_shared({LOCK}, {number}); RETURN NEW;
                  END$$"""
        )
        cursor.execute(
            f"CREATE TRIGGER trap_{trap.name} {trap.when} ON {trap.table} FOR EACH ROW "
            f"WHEN ({trap.condition}) EXECUTE FUNCTION trap_{trap.name}()"
        )


def remove(cursor: Any, traps: Iterable[Trap]) -> None:
    for trap in traps:
        cursor.execute(f"DROP FUNCTION IF EXISTS trap_{trap.name}() CASCADE")


def close_trap(cursor: Any, number: int) -> None:
    cursor.execute("SELECT pg_advisory_lock(%s, %s)", [LOCK, number])


def open_trap(cursor: Any, number: int) -> None:
    cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [LOCK, number])


def list_trapped(cursor: Any, number: int) -> list[int]:
    """Server processes that wait in this trap."""
    cursor.execute(
        "SELECT pid FROM pg_locks WHERE locktype = 'advisory' "
        "AND classid = %s AND objid = %s AND NOT granted",
        [LOCK, number],
    )
    return [row[0] for row in cursor.fetchall()]


def list_clients(cursor: Any, number: int) -> list[int]:
    """TCP ports from which the processes in this trap speak to the database."""
    cursor.execute(
        "SELECT client_port FROM pg_stat_activity WHERE pid = ANY(%s)",
        [list_trapped(cursor, number)],
    )
    return [row[0] for row in cursor.fetchall() if row[0] is not None]
