"""Helpers for the database tests: tables filled in plain SQL, a connection for each actor, the
named statements, and the audit.

No service is used here: these tests prove the database and the statements for every caller.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from django.db import DatabaseError
from psycopg.rows import namedtuple_row

from claims import claims_sql
from claims.constraints import CLAIM_CONSTRAINT
from project.kernel.db.direct_connection import connect_direct
from project.kernel.db.row_constraint import RowConstraint
from project.kernel.outbox import outbox_sql
from slots.members import members_sql
from slots.rules import SLOT_CONSTRAINT

ROOT = Path(__file__).resolve().parents[2]
SLOTS, CLAIMS, KERNEL = members_sql.statements, claims_sql.statements, outbox_sql.statements

Connection = psycopg.Connection[Any]

TABLES = """
    claims_backendconflict, claims_backendtarget, claims_claimpart, claims_approval, claims_plan, claims_lease, claims_logchunk, claims_claim, claims_claimset, claims_shape,
    claims_workspaceshare, claims_workspace,
    slots_slot, pools_heartbeat, pools_member, pools_decision, pools_sample, pools_secret, pools_grant, pools_pool,
    kernel_event, kernel_operation, kernel_pendingcall, kernel_budget, kernel_beat"""  # noqa: E501

# Rules that hold independently of the constraints, read from the rows alone.
AUDIT = {
    "a claim that holds lacks slots, has too many, or of another generation": """
        SELECT count(*) FROM claims_claim c
        LEFT JOIN (SELECT claim_id, count(*) n, max(ordinal) top, min(generation) low,
          max(generation) high, min(state) one,
                          max(state) other FROM slots_slot GROUP BY 1) s ON s.claim_id = c.id
        WHERE c.state IN ('bound', 'reserved')
          AND (s.n IS DISTINCT FROM c.size::bigint OR s.top <> c.size - 1 OR s.low <> c.generation
            OR s.high <> c.generation
               OR s.one <> s.other OR s.one <> CASE c.state WHEN 'bound' THEN 'held'
                 ELSE 'reserved' END)""",
    "a slot is held by a claim that does not hold": """
        SELECT count(*) FROM slots_slot s LEFT JOIN claims_claim c ON c.id = s.claim_id
        WHERE s.claim_id IS NOT NULL AND (c.id IS NULL OR c.state NOT IN ('bound', 'reserved'))""",
    "a slot names a holder without being held, or the other way round": """
        SELECT count(*) FROM slots_slot
          WHERE (claim_id IS NOT NULL) <> (state IN ('held', 'reserved'))""",
}


def connect() -> Connection:
    """As a web process or controller connects: with all guards."""
    connection = connect_direct("model")
    connection.prepare_threshold = None  # each call says itself whether it is prepared
    return connection


def empty() -> None:
    """Deleted, not truncated: new files for a hundred indexes take longer than everything a
    test does.
    """
    with connect() as c, c.transaction():
        # No trigger and no foreign key has a say in this.
        c.execute("SET LOCAL session_replication_role = replica")
        for table in TABLES.split(","):
            c.execute(f"DELETE FROM {table}")  # type: ignore[arg-type]


def run(c: Connection, name: str, /, n: int | None = 100, **values: Any) -> list[Any]:
    """A named statement of the product, prepared, as it is called in life."""
    home = next(s for s in (SLOTS, CLAIMS, KERNEL) if name in s.texts)
    with c.cursor(row_factory=namedtuple_row) as cursor:
        cursor.execute(home.text(name, n), values, prepare=True)  # type: ignore[arg-type]
        return cursor.fetchall() if cursor.description else []


def value(c: Connection, text: str, *values: Any) -> Any:
    row = c.execute(text, values).fetchone()  # type: ignore[arg-type]
    return None if row is None else row[0]


def violations(c: Connection) -> dict[str, int]:
    with c.transaction():
        c.execute("SET LOCAL enable_seqscan = on")
        return {name: n for name, query in AUDIT.items() if (n := value(c, query))}


def load(
    *, slots: int = 20, pools: int = 2, claims: int = 20, per_member: int = 5, queue: str = ""
) -> None:
    """Slots 0.. in members of `per_member`, members dealt out to the pools; claims 0.. wait in
    one line a pool. A queue: slots drain.
    """
    empty()
    with connect() as c, c.transaction():
        c.execute(
            """INSERT INTO pools_pool (id, name, state, queue, lanes, spec)
               SELECT g, 'p' || g, 'active', %s, '{any}', '{}' FROM generate_series(0, %s) g""",
            [queue, pools - 1],
        )
        c.execute(
            """INSERT INTO pools_member (id, pool_id, name, position, state)
               SELECT g, g %% %s, 'm' || g, g / %s, 'ready' FROM generate_series(0, %s) g""",
            [pools, pools, slots // per_member - 1],
        )
        c.execute(
            """INSERT INTO slots_slot (id, pool_id, member_id, lane, number, rank)
               SELECT g, (g / %(k)s) %% %(p)s, g / %(k)s, 'any', g %% %(k)s,
                 (g / %(k)s) / %(p)s FROM generate_series(0, %(n)s) g""",
            {"k": per_member, "p": pools, "n": slots - 1},
        )
        for shape in range(pools):
            add_shape(c, shape, pool=shape)
        c.execute(
            """INSERT INTO claims_claim (id, shape_id, pool_id, owner, requested_by, key)
               SELECT g, g %% %(p)s, g %% %(p)s, 'pod:' || g, 'test', md5(g::text)
                 FROM generate_series(0, %(n)s) g""",
            {"p": pools, "n": claims - 1},
        )
        for table, last in (
            ("claims_claim", claims),
            ("slots_slot", slots),
            ("pools_pool", pools),
            ("claims_shape", pools),
        ):
            c.execute(
                "SELECT setval(pg_get_serial_sequence(%s, 'id'), greatest(%s, 1))", [table, last]
            )
        c.execute(
            "SELECT setval(pg_get_serial_sequence('pools_member', 'id'), greatest(%s, 1))",
            [slots // per_member],
        )


def add_shape(c: Connection, shape: int, *, pool: int, size: int = 1, kind: str = "any") -> None:
    c.execute(
        """INSERT INTO claims_shape (id, digest, pools, kind, lanes, size, is_simple)
           VALUES (%s, %s, ARRAY['p' || %s], %s, '{any}', %s, %s)""",
        [shape, f"shape {shape}".encode(), pool, kind, size, size == 1],
    )


def sqlstate(error: BaseException) -> str:
    """The SQLSTATE of a psycopg error, or of the Django error around it."""
    found = error if isinstance(error, psycopg.Error) else error.__cause__
    return (
        str(getattr(found, "sqlstate", None) or "")
        if isinstance(error, (psycopg.Error, DatabaseError))
        else ""
    )


@contextmanager
def without(*rules: str) -> Iterator[None]:
    """The database with these triggers, constraints and unique indexes taken away, put back
    afterwards on empty tables.
    """
    with connect() as c:
        undo = [_take_away(c, rule) for rule in rules]
        try:
            yield
        finally:
            empty()
            for statement in undo:
                c.execute(statement)  # type: ignore[arg-type]


KINDS = {
    "trigger": (
        "SELECT tgrelid::regclass::text, '' FROM pg_trigger WHERE tgname = %s "
        "AND NOT tgisinternal AND tgenabled = 'O'"
    ),
    "constraint": (
        "SELECT conrelid::regclass::text, pg_get_constraintdef(oid) "
        "FROM pg_constraint WHERE conname = %s"
    ),
    "index": "SELECT '', pg_get_indexdef(oid) FROM pg_class WHERE relname = %s AND relkind = 'i'",
}


SOUND = (SLOT_CONSTRAINT, CLAIM_CONSTRAINT)


def said_by(rule: str) -> RowConstraint | None:
    """Rules about one row stand in a function, all those of a table together."""
    return next((sound for sound in SOUND if rule in sound.rules), None)


def table_of(rule: str) -> str:
    sound = said_by(rule)
    return "" if sound is None else sound.table


def exists(c: Connection, rule: str) -> bool:
    if (sound := said_by(rule)) is not None:
        return body_of(c, sound) == sound.body() and exists(c, sound.name)
    return any(c.execute(query, [rule]).fetchone() for query in KINDS.values())  # type: ignore[arg-type]


def body_of(c: Connection, sound: RowConstraint) -> str:
    return str(value(c, "SELECT prosrc FROM pg_proc WHERE proname = %s", f"is_{sound.name}"))


def _take_away(c: Connection, rule: str) -> str:
    """Takes it away and says how to bring it back, in the database's own words."""
    if (sound := said_by(rule)) is not None:
        c.execute(sound.function(rule))  # type: ignore[arg-type]
        return sound.function()
    for kind, query in KINDS.items():
        if found := c.execute(query, [rule]).fetchone():  # type: ignore[arg-type]
            table, definition = found
            away, back = {
                "trigger": (
                    f"ALTER TABLE {table} DISABLE TRIGGER {rule}",
                    f"ALTER TABLE {table} ENABLE TRIGGER {rule}",
                ),
                "constraint": (
                    f"ALTER TABLE {table} DROP CONSTRAINT {rule}",
                    f"ALTER TABLE {table} ADD CONSTRAINT {rule} {definition}",
                ),
                "index": (f"DROP INDEX {rule}", definition),
            }[kind]
            c.execute(away)  # type: ignore[arg-type]
            return back
    raise LookupError(f"the database has no rule {rule}")
