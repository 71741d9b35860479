"""Prepared statements straight through libpq: a hand-over is one call of it, which waits
without the GIL.

psycopg's cursor sends, polls and receives in Python, so that asynchronous code can share it. That
costs three times what a small statement costs the server, and with eight threads on two cores each
of its steps may wait for the GIL anew. Values and rows are converted by psycopg all the same (same
types, same adapters of Django), in the transaction that is open on the connection.
"""

import functools
import itertools
import re
from collections import OrderedDict, namedtuple
from collections.abc import Mapping
from dataclasses import dataclass
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
class PreparedQuery:
    """A text with $1, $2 in place of names."""

    text: bytes
    names: tuple[str, ...]
    formats: list[PyFormat]


@dataclass(slots=True)
class Prepared:
    """In one session. Its columns never change: the server would rather refuse it."""

    name: bytes
    make_row: Any = None
    row: type[tuple[Any, ...]] | None = None  # what make_row makes; two callers may share a text

    def row_maker(self, result: Any, row: type[tuple[Any, ...]] | None) -> Any:
        if self.make_row is None or self.row is not row:
            names = tuple((result.fname(i) or b"").decode() for i in range(result.nfields))
            self.make_row, self.row = _make_of(row, names), row
        return self.make_row


_numbers = itertools.count(1)
_queries: dict[str, PreparedQuery] = {}
_sessions: WeakKeyDictionary[Any, OrderedDict[tuple[str, Types], Prepared]] = WeakKeyDictionary()


def execute(
    connection: psycopg.Connection[Any],
    text: str,
    values: Mapping[str, Any],
    row: type[tuple[Any, ...]] | None = None,
) -> list[Row]:
    """All rows, as instances of `row` (a named tuple with the columns of the result, or `tuple`).
    Errors are psycopg's.
    """
    query = _queries.get(text) or _read(text)
    with connection.lock:
        _begin(connection)
        transformer: Any = Transformer(connection)
        params = transformer.dump_sequence([values[name] for name in query.names], query.formats)
        prepared = _find(connection, text, query, transformer)
        result = _call(
            connection, connection.pgconn.exec_prepared, prepared.name, params, transformer.formats
        )
        if not result.nfields:
            return []
        transformer.set_pgresult(result)
        return transformer.load_rows(0, result.ntuples, prepared.row_maker(result, row))


def _find(
    connection: psycopg.Connection[Any], text: str, query: PreparedQuery, transformer: Any
) -> Prepared:
    """The statement for values of these types in this session, prepared if it is new here."""
    session = _sessions.get(connection)
    if session is None:
        session = _sessions[connection] = OrderedDict()
    key = (text, tuple(transformer.types or ()))
    known = session.get(key)
    if known is None:
        known = session[key] = Prepared(_prepare(connection, query, transformer, session))
    else:
        session.move_to_end(key)
    return known


def _prepare(
    connection: psycopg.Connection[Any],
    query: PreparedQuery,
    transformer: Any,
    prepared: OrderedDict[Any, Prepared],
) -> bytes:
    if (
        len(prepared) >= MOST_PREPARED
        and connection.pgconn.transaction_status != pq.TransactionStatus.INERROR
    ):
        _, oldest = prepared.popitem(last=False)
        _call(connection, connection.pgconn.exec_, b"DEALLOCATE " + oldest.name)
    name = b"berth_%d" % next(_numbers)
    _call(connection, connection.pgconn.prepare, name, query.text, transformer.types)
    return name


def _begin(connection: psycopg.Connection[Any]) -> None:
    """As psycopg does: outside of autocommit the first statement begins a transaction."""
    if (
        not connection.autocommit
        and connection.pgconn.transaction_status == pq.TransactionStatus.IDLE
    ):
        level = connection.isolation_level
        _call(
            connection,
            connection.pgconn.exec_,
            b"BEGIN"
            + (b" ISOLATION LEVEL " + level.name.replace("_", " ").encode() if level else b""),
        )


def _call(connection: psycopg.Connection[Any], function: Any, *arguments: Any) -> Any:
    try:
        result = function(*arguments)
    except MemoryError:
        # Libpq gave no result: what psycopg makes of a request that could not even be sent.
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


def _make_of(row: type[tuple[Any, ...]] | None, names: tuple[str, ...]) -> Any:
    if row is None:
        return _row_kind(names)._make
    if row is tuple:
        return tuple
    fields = getattr(row, "_fields", ())
    if fields != names:
        raise TypeError(
            f"{row.__name__} has the fields {fields}, the statement returns {names}. "
            "Run `make statements`."
        )
    return row._make  # type: ignore[attr-defined]


@functools.cache
def _row_kind(names: tuple[str, ...]) -> Any:
    return namedtuple("Row", names, rename=True)


def read_placeholders(text: str) -> tuple[str, tuple[str, ...]]:
    """The text with $1, $2 in place of names, and the names in that order."""
    names: dict[str, int] = {}

    def place(match: re.Match[str]) -> str:
        if match[1] is None:
            return "%"
        return f"${names.setdefault(match[1], len(names) + 1)}"

    return PLACEHOLDER.sub(place, text), tuple(names)


def _read(text: str) -> PreparedQuery:
    written, names = read_placeholders(text)
    query = _queries[text] = PreparedQuery(written.encode(), names, [PyFormat.AUTO] * len(names))
    if len(_queries) > 10 * MOST_PREPARED:
        _queries.clear()
    return query
