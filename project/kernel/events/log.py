"""The log of what happened: who, what, before, after, why.

Readers follow it in the order of commits. Ids are drawn before the commit, so a reader that
remembers only the last id loses the event of a transaction that drew its id early and committed
late. A position is (tx, id), and only events of transactions below the snapshot's xmin are read:
everything below it has ended, so nothing can appear there any more.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection, transaction

from project.kernel.actor import LONGEST, current_actor
from project.kernel.db.locks import RENUMBER, lock_in_transaction
from project.kernel.db.sql import run

from .notify import publish

INSERT = """
INSERT INTO kernel_event (verb, pool_id, member_id, slot_id, claim_id, generation, before, after,
  actor, reason, data)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s::jsonb)"""

# LIMIT stands in the text: as a parameter it spoils the plan. The order names the table, because a
# bare `tx` would be the answer's column, converted, which no index has: every read would sort the
# whole log. Parameters: tx, id.
READ_EVENTS = """
SELECT tx::text::bigint, id, at, verb, pool_id, member_id, slot_id, claim_id, generation, before,
  after, actor, reason, data::text
FROM kernel_event
WHERE (tx, id) > (%(tx)s::text::xid8, %(id)s::bigint)
  AND tx < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY kernel_event.tx, kernel_event.id LIMIT {limit}"""

NOW_POSITION = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"

# Seconds that the oldest committed event has been waiting for a transaction that began before it
# and is still open.
HELD_UP = """
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(at)), 0)::float8 FROM kernel_event
WHERE tx >= pg_snapshot_xmin(pg_current_snapshot())"""

# By id, events are as good as in the order of time: a binary search on the primary key replaces an
# index that every bind would pay for.
FIRST_FROM = "SELECT id, at FROM kernel_event WHERE id >= %s ORDER BY id LIMIT 1"

FUTURE = """
SELECT count(*) AS n, min(id) AS first, max(id) AS last FROM kernel_event
  WHERE tx >= pg_snapshot_xmax(pg_current_snapshot())"""

# One transaction id for all of them, that of the renumbering: by id they stay in the order in which
# they were written.
RENUMBER_FUTURE = """
UPDATE kernel_event SET tx = pg_current_xact_id() WHERE tx >= %(limit)s::text::xid8"""


class Position(NamedTuple):
    tx: int
    id: int

    def __str__(self) -> str:
        return f"{self.tx}.{self.id}"

    @classmethod
    def parse(cls, text: str) -> "Position":
        tx, dot, event_id = text.partition(".")
        if not (
            dot and tx.isascii() and tx.isdigit() and event_id.isascii() and event_id.isdigit()
        ):
            raise ValueError(f"not a position: {text[:40]!r}")
        position = cls(int(tx), int(event_id))
        if position.tx >= 1 << 63 or position.id >= 1 << 63:
            raise ValueError(f"not a position: {text[:40]!r}")
        return position


START = Position(0, 0)


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event as read from the log. The fields stand in the order of READ_EVENTS."""

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
    data: Any = None,
    actor: str | None = None,
) -> None:
    """Say what happened, in the transaction that made it so. Listeners hear of it after
    the commit.
    """
    who = (current_actor() if actor is None else actor)[:LONGEST]
    more = None if data is None else json.dumps(data, cls=DjangoJSONEncoder)
    with connection.cursor() as cursor:
        cursor.execute(
            INSERT,
            [
                verb,
                pool_id,
                member_id,
                slot_id,
                claim_id,
                generation,
                before,
                after,
                who,
                reason,
                more,
            ],
        )
    publish("events")


def now_position() -> Position:
    """Where somebody starts who takes a snapshot now. Ask for it before (or in) the
    snapshot's transaction.

    An event of a transaction that was open at that moment may be both in the snapshot and after the
    position, never in neither.
    """
    with connection.cursor() as cursor:
        cursor.execute(NOW_POSITION)
        return Position(int(cursor.fetchone()[0]), 0)


def read_events(after: Position, limit: int = 1000) -> tuple[list[EventRow], Position]:
    """The next events in the order of commits, and the position behind them."""
    with connection.cursor() as cursor:
        cursor.execute(READ_EVENTS.format(limit=int(limit)), {"tx": str(after.tx), "id": after.id})
        rows = [row_of(r) for r in cursor.fetchall()]
    return rows, rows[-1].position if rows else after


def row_of(columns: tuple[Any, ...]) -> EventRow:
    """From a row of READ_EVENTS, whoever ran it: `data` travels as text, because Django's
    connections decode jsonb differently.
    """
    data: str | None = columns[-1]
    values: Any = (*columns[:-1], None if data is None else json.loads(data))
    return EventRow(*values)


def held_up_seconds() -> float:
    with connection.cursor() as cursor:
        cursor.execute(HELD_UP)
        return float(cursor.fetchone()[0])


def first_id_at(moment: datetime) -> int:
    """The first id that was written at or after this moment; behind the last one if
    there is none.
    """
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
    """Called when controllers start: after a restore, the log goes on from here. The number of
    events that had to be changed.
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
