"""Delete old rows in small chunks, so that no other transaction waits for the deletion."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from django.conf import settings
from django.db import connection, transaction

from project.kernel.db.locks import RETENTION, try_lock

CHUNK = 2000

# Deletes rows older than so many days, at most so many, in one transaction. Returns their number.
Delete = Callable[[float, int], int]


@dataclass(frozen=True)
class RetentionRule:
    name: str
    days: float
    delete: Delete


_rules: dict[str, RetentionRule] = {}


def retention_rule(name: str, days: float) -> Callable[[Delete], Delete]:
    """Register a chunked delete. BERTH_KEEP_DAYS = {"events": 365} overrides the days; None keeps
    rows for ever.
    """

    def register(delete: Delete) -> Delete:
        _rules[name] = RetentionRule(name, days, delete)
        return delete

    return register


def retention_days(name: str) -> float | None:
    chosen: dict[str, float | None] = getattr(settings, "BERTH_KEEP_DAYS", {})
    return chosen.get(name, _rules[name].days)


def delete_chunk(name: str, chunk: int = CHUNK) -> int:
    """Deletes one chunk of a kind. 0: no row is old enough, or another process deletes this
    kind.
    """
    days = retention_days(name)
    if days is None:
        return 0
    with try_lock(RETENTION, name) as is_ours:
        return _rules[name].delete(days, chunk) if is_ours else 0


def delete_old() -> int:
    """Deletes one chunk of each kind. 0: no row is left to delete."""
    return sum(delete_chunk(name) for name in sorted(_rules))


# Reads only one chunk of rows: rows have the order of their age, so no old row follows a young one.
DELETE_EVENTS = """
WITH first AS MATERIALIZED (
  SELECT id, at < now() - make_interval(secs => %(days)s * 86400) AS is_old FROM kernel_event
    ORDER BY id LIMIT %(chunk)s)
DELETE FROM kernel_event WHERE id IN (SELECT id FROM first WHERE is_old)"""
DELETE_DONE = """
DELETE FROM kernel_operation WHERE id IN (
  SELECT id FROM kernel_operation
    WHERE done_at < now() - make_interval(secs => %(days)s * 86400) ORDER BY done_at
    LIMIT %(chunk)s)"""
DELETE_BEATS = """
DELETE FROM kernel_beat WHERE id IN (
  SELECT id FROM kernel_beat WHERE at < now() - make_interval(secs => %(days)s * 86400)
    LIMIT %(chunk)s)"""

DELETE_PENDING_CALLS = """
DELETE FROM kernel_pendingcall WHERE id IN (
  SELECT id FROM kernel_pendingcall WHERE until < now() - make_interval(secs => %(days)s * 86400)
    LIMIT %(chunk)s)"""


@retention_rule("events", days=90)
def delete_old_events(days: float, chunk: int) -> int:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL berth.retention = 'delete'")
        deleted = _execute(DELETE_EVENTS, days, chunk)
        cursor.execute("SET LOCAL berth.retention = ''")
    return deleted


def _execute(statement: str, days: float, chunk: int) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement, {"days": days, "chunk": chunk})
        return int(cursor.rowcount)


retention_rule("done operations", days=7)(partial(_execute, DELETE_DONE))
retention_rule("beats", days=1)(partial(_execute, DELETE_BEATS))
retention_rule("pending calls", days=7)(partial(_execute, DELETE_PENDING_CALLS))
