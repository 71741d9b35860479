"""Prepared statements over libpq return the same values, rows and errors as a cursor and share
its transaction.
"""

import threading
import time
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from django.db import IntegrityError, OperationalError, connection, transaction
from psycopg.rows import namedtuple_row

from project.kernel.db import prepared, sql

VALUES: dict[str, Any] = {
    "small": 7,
    "big": 1 << 40,
    "text": "a'b%\\",
    "nothing": None,
    "yes": True,
    "raw": b"\x00\xff",
    "ids": [1, 1 << 40],
    "names": ["a,b", 'c"d', ""],
    "none": [],
    "at": datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
    "share": 0.1,
}
TEXT = """
SELECT %(small)s::bigint AS small, %(big)s::bigint AS big, %(text)s::text AS text,
  %(nothing)s::text AS nothing, %(yes)s::bool AS yes,
  %(raw)s::bytea AS raw, %(ids)s::bigint[] AS ids, %(names)s::text[] AS names,
    %(none)s::bigint[] AS none, %(at)s::timestamptz AS at,
  %(share)s::float8 AS share, 17 %% 5 AS modulo, %(small)s::int + %(small)s::int AS twice,
    '{"a": 1}'::jsonb AS doc"""


@pytest.mark.django_db
def test_prepared_statement_returns_the_rows_of_a_cursor() -> None:
    found = sql.run(TEXT, VALUES)
    with psycopg.Cursor(connection.connection, row_factory=namedtuple_row) as cursor:
        expected = cursor.execute(TEXT, VALUES).fetchall()
    assert [tuple(row) for row in found] == [tuple(row) for row in expected]
    assert found[0].twice == 14
    assert sql.run("SELECT 1 AS one WHERE false") == []


@pytest.mark.django_db(transaction=True)
def test_prepared_statement_joins_the_transaction_and_raises_django_errors() -> None:
    sql.run("CREATE TABLE prepared_probe (id int PRIMARY KEY)", prepare=False)
    try:
        with pytest.raises(IntegrityError, match="prepared_probe_pkey") as caught:
            with transaction.atomic():
                sql.run("INSERT INTO prepared_probe VALUES (%(id)s) RETURNING id", {"id": 1})
                sql.run("INSERT INTO prepared_probe VALUES (%(id)s) RETURNING id", {"id": 1})
        assert getattr(caught.value.__cause__, "sqlstate", None) == "23505"
        assert caught.value.__cause__.diag.constraint_name == "prepared_probe_pkey"  # type: ignore[union-attr]
        assert sql.run("SELECT id FROM prepared_probe") == [], (
            "the first one went back with the second"
        )
        with transaction.atomic():
            sql.run("INSERT INTO prepared_probe VALUES (%(id)s)", {"id": 2})
        assert [row.id for row in sql.run("SELECT id FROM prepared_probe")] == [2]
    finally:
        sql.run("DROP TABLE prepared_probe", prepare=False)


@pytest.mark.django_db(transaction=True)
def test_lost_connection_is_an_operational_error_and_is_replaced() -> None:
    sql.run("SELECT pg_backend_pid() AS pid")
    with pytest.raises(OperationalError):
        sql.run("SELECT pg_terminate_backend(pg_backend_pid())")
    assert connection.connection.closed
    connection.close()
    assert sql.run("SELECT 1 AS one")[0].one == 1


@pytest.mark.django_db(transaction=True)
def test_waiting_statement_releases_the_gil() -> None:
    seen: list[float] = []

    def count() -> None:
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            seen.append(time.monotonic())

    counting = threading.Thread(target=count)
    counting.start()
    sql.run("SELECT pg_sleep(0.3)")
    counting.join()
    assert len(seen) > 10_000, "with the GIL held the other thread would have stood still"


@pytest.mark.django_db(transaction=True)
def test_least_recently_used_prepared_statement_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "MOST_PREPARED", 3)
    connection.close()  # a new session, in which nothing is prepared
    for _ in range(2):
        for n in range(6):
            assert sql.run(f"SELECT %(x)s::int + {n} AS sum", {"x": 1})[0].sum == n + 1
    kept = sql.run(
        "SELECT count(*) AS n FROM pg_prepared_statements WHERE name LIKE 'berth%%' "
        "AND statement LIKE '%%AS sum%%' AND %(x)s::int = 1",
        {"x": 1},
    )
    assert kept[0].n <= 3


@pytest.mark.django_db
def test_equal_moments_of_a_result_are_parsed_once() -> None:
    text = "SELECT now() + make_interval(secs => n %% 2) AS at FROM generate_series(0, 3) n"
    first, second, third, fourth = (row.at for row in sql.run(text))
    assert (first is third, second is fourth) == (True, True)
    assert (second - first).total_seconds() == 1
    assert first.tzinfo is UTC
