"""Prepared statements straight through libpq: a hand-over is one call of it, which waits without the GIL.

psycopg's cursor sends, polls and receives in Python, so that asynchronous code can share it. That costs three times what a small
statement costs the server, and with eight threads on two cores each of its steps may wait for the GIL anew. Values and rows are
converted by psycopg all the same (same types, same adapters of Django), in the transaction that is open on the connection.
"""

import itertools
import re
from collections import OrderedDict, namedtuple
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg import pq
from psycopg.adapt import PyFormat, Transformer

Row = Any
Types = tuple[int, ...]

MOST_PREPARED = 300  # in one session; the one not used for longest goes
PLACEHOLDER = re.compile(r"%(?:\((\w+)\)s|%)")
DONE = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)


@dataclass(slots=True)
class Query:
    """A text with $1, $2 in place of names, and what its rows are made into."""

    text: bytes
    names: tuple[str, ...]
    formats: list[PyFormat]
    rows: dict[tuple[bytes | None, ...], Any] = field(default_factory=dict)

    def make_row(self, result: Any) -> Any:
        names = tuple(result.fname(i) for i in range(result.nfields))
        made = self.rows.get(names)
        if made is None:
            kind = namedtuple("Row", [(name or b"").decode() for name in names], rename=True)  # type: ignore[misc]
            made = self.rows[names] = kind._make
        return made


_numbers = itertools.count(1)
_queries: dict[str, Query] = {}
_sessions: WeakKeyDictionary[Any, OrderedDict[tuple[str, Types], bytes]] = WeakKeyDictionary()


def execute(connection: psycopg.Connection[Any], text: str, values: Mapping[str, Any]) -> list[Row]:
    """All rows. Errors are psycopg's."""
    query = _queries.get(text) or _read(text)
    with connection.lock:
        _begin(connection)
        result, transformer = _send(connection, text, query, values)
        if not result.nfields:
            return []
        transformer.set_pgresult(result)
        return transformer.load_rows(0, result.ntuples, query.make_row(result))


def _send(connection: psycopg.Connection[Any], text: str, query: Query, values: Mapping[str, Any]) -> tuple[Any, Any]:
    prepared = _sessions.get(connection)
    if prepared is None:
        prepared = _sessions[connection] = OrderedDict()
    transformer: Any = Transformer(connection)
    params = transformer.dump_sequence([values[name] for name in query.names], query.formats)
    key = (text, tuple(transformer.types or ()))
    known = prepared.get(key)
    if known is None:
        known = prepared[key] = _prepare(connection, query, transformer, prepared)
    else:
        prepared.move_to_end(key)
    return _call(connection, connection.pgconn.exec_prepared, known, params, transformer.formats), transformer


def _prepare(connection: psycopg.Connection[Any], query: Query, transformer: Any, prepared: OrderedDict[Any, Any]) -> bytes:
    if len(prepared) >= MOST_PREPARED and connection.pgconn.transaction_status != pq.TransactionStatus.INERROR:
        _, oldest = prepared.popitem(last=False)
        _call(connection, connection.pgconn.exec_, b"DEALLOCATE " + oldest)
    name = b"berth_%d" % next(_numbers)
    _call(connection, connection.pgconn.prepare, name, query.text, transformer.types)
    return name


def _begin(connection: psycopg.Connection[Any]) -> None:
    """As psycopg does: outside of autocommit the first statement begins a transaction."""
    if not connection.autocommit and connection.pgconn.transaction_status == pq.TransactionStatus.IDLE:
        level = connection.isolation_level
        _call(
            connection, connection.pgconn.exec_, b"BEGIN" + (b" ISOLATION LEVEL " + level.name.replace("_", " ").encode() if level else b"")
        )


def _call(connection: psycopg.Connection[Any], function: Any, *arguments: Any) -> Any:
    try:
        result = function(*arguments)
    except MemoryError:  # libpq gave no result: what psycopg makes of a request that could not even be sent
        if connection.pgconn.status == pq.ConnStatus.OK:
            raise
        raise psycopg.OperationalError(_message(connection))
    if result.status in DONE:
        return result
    if connection.pgconn.status != pq.ConnStatus.OK:
        raise psycopg.OperationalError(_message(connection))
    raise psycopg.errors.error_from_result(result, encoding="utf-8")


def _message(connection: psycopg.Connection[Any]) -> str:
    return connection.pgconn.get_error_message() or "the connection is lost"


def _read(text: str) -> Query:
    names: dict[str, int] = {}

    def place(match: re.Match[str]) -> str:
        if match[1] is None:
            return "%"
        return f"${names.setdefault(match[1], len(names) + 1)}"

    written = PLACEHOLDER.sub(place, text)
    query = _queries[text] = Query(written.encode(), tuple(names), [PyFormat.AUTO] * len(names))
    if len(_queries) > 10 * MOST_PREPARED:
        _queries.clear()
    return query
