"""The event log: actor, verb, state before and after, reason.

Readers follow the log in the order of commits. Ids are drawn before the commit, so a reader that
remembers only the last id loses the event of a transaction that drew its id early and committed
late. Therefore a position is (tx, id), and readers see only events of transactions below the
snapshot's xmin: all of these have ended, so no further event can appear there.
"""

import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection, transaction

from project.kernel.actor import MAX_ACTOR_LENGTH, current_actor
from project.kernel.db.locks import RENUMBER, lock_in_transaction
from project.kernel.db.sql import run

from .notify import publish

INSERT = """
INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, before, after,
  actor, reason, data)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s::jsonb)"""

# LIMIT is part of the text, because a parameter spoils the plan. ORDER BY names the table: a bare
# `tx` would be the converted column of the result, which has no index, so each read would sort the
# whole log. Parameters: tx, id.
READ_EVENTS = """
SELECT tx::text::bigint, id, at, verb, pool_id, member_id, slot_id, claim_id, generation, before,
  after, actor, reason, data::text
FROM kernel_event
WHERE (tx, id) > (%(tx)s::text::xid8, %(id)s::bigint)
  AND tx < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY kernel_event.tx, kernel_event.id LIMIT {limit}"""

NOW_POSITION = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"

# Seconds since the oldest committed event that still waits for an older open transaction.
HELD_UP = """
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(at)), 0)::float8 FROM kernel_event
WHERE tx >= pg_snapshot_xmin(pg_current_snapshot())"""

# Ids are almost in the order of time. A binary search on the primary key replaces an index on time,
# which would slow down each bind.
FIRST_FROM = "SELECT id, at FROM kernel_event WHERE id >= %s ORDER BY id LIMIT 1"

FUTURE = """
SELECT count(*) AS n, min(id) AS first, max(id) AS last FROM kernel_event
  WHERE tx >= pg_snapshot_xmax(pg_current_snapshot())"""

# All events get the transaction id of the renumbering; their ids keep the order.
RENUMBER_FUTURE = """
UPDATE kernel_event SET tx = pg_current_xact_id() WHERE tx >= %(limit)s::text::xid8"""


class Position(NamedTuple):
    tx: int
    id: int

    def __str__(self) -> str:
        return f"{self.tx}.{self.id}"

    @classmethod
    def parse(cls, text: str) -> "Position":
        found = re.fullmatch(r"([0-9]{1,19})\.([0-9]{1,19})", text)
        position = cls(int(found[1]), int(found[2])) if found else None
        if position is None or max(position) >= 1 << 63:
            raise ValueError(f"not a position: {text[:40]!r}")
        return position


START = Position(0, 0)


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event of the log. The fields have the order of READ_EVENTS."""

    tx: int
    id: int
    at: datetime
    verb: str
    pool_id: int | None
    member_id: int | None
    slot_id: int | None
    claim_id: int | None
    generation: int | None
    before: str
    after: str
    actor: str
    reason: str
    data: Any

    @property
    def position(self) -> Position:
        return Position(self.tx, self.id)


def record(
    verb: str,
    *,
    pool_id: int | None = None,
    member_id: int | None = None,
    slot_id: int | None = None,
    claim_id: int | None = None,
    generation: int | None = None,
    before: str = "",
    after: str = "",
    reason: str = "",
    data: object = None,
    actor: str | None = None,
) -> None:
    """Write an event in the transaction of its change. Listeners are notified after the commit."""
    actor = (current_actor() if actor is None else actor)[:MAX_ACTOR_LENGTH]
    more = None if data is None else json.dumps(data, cls=DjangoJSONEncoder)
    values = [
        verb, pool_id, member_id, slot_id, claim_id, generation, before, after, actor, reason, more,
    ]  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(INSERT, values)
    publish("events")


def now_position() -> Position:
    """The position at which a reader of a new snapshot starts. Read the position before the
    snapshot, or in its transaction.

    An event of a transaction that is open at this moment may be both in the snapshot and after the
    position, but never in neither.
    """
    with connection.cursor() as cursor:
        cursor.execute(NOW_POSITION)
        return Position(int(cursor.fetchone()[0]), 0)


def read_events(after: Position, limit: int = 1000) -> tuple[list[EventRow], Position]:
    """The next events in the order of commits, and the position after them."""
    with connection.cursor() as cursor:
        cursor.execute(READ_EVENTS.format(limit=int(limit)), {"tx": str(after.tx), "id": after.id})
        rows = [row_of(r) for r in cursor.fetchall()]
    return rows, rows[-1].position if rows else after


def row_of(columns: tuple[Any, ...]) -> EventRow:
    """An event from a row of READ_EVENTS. `data` is read as text, because Django's connections
    decode jsonb differently.
    """
    data: str | None = columns[-1]
    values: Any = (*columns[:-1], None if data is None else json.loads(data))
    return EventRow(*values)


def first_id_at(moment: datetime) -> int:
    """The first id that was written at or after this moment; without one, the last id plus 1."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(min(id), 0), coalesce(max(id), 0) + 1 FROM kernel_event")
        low, high = cursor.fetchone()
        while low < high:
            middle = (low + high) // 2
            cursor.execute(FIRST_FROM, [middle])
            row = cursor.fetchone()
            if row is None or row[1] >= moment:
                high = middle
            else:
                low = row[0] + 1
    return int(low)


def renumber_future_events() -> int:
    """Gives future transaction ids of a restored log the current id, and returns the number of
    changed events. Called when controllers start.
    """
    with transaction.atomic():
        if not run(FUTURE)[0].n:
            return 0
        lock_in_transaction(RENUMBER, "event")
        limit = run("SELECT pg_snapshot_xmax(pg_current_snapshot())::text AS xmax")[0].xmax
        with connection.cursor() as cursor:
            cursor.execute(
                "SET LOCAL berth.retention = 'renumber'; SET LOCAL statement_timeout = 0"
            )
            cursor.execute(RENUMBER_FUTURE, {"limit": limit})
            changed = int(cursor.rowcount)
            cursor.execute("SET LOCAL berth.retention = ''")
        if changed:
            record("renumber", reason="the log came from another server", data={"events": changed})
    return changed
