"""Prepared statements through libpq: a statement is one call of libpq, which waits without the GIL.

psycopg's cursor sends, polls and receives in Python, so that asynchronous code can share its code.
For a small statement this costs three times the work of the server, and with eight threads on two
cores each step may wait for the GIL again. psycopg still converts values and rows, with the same
types and adapters as Django's cursor, in the open transaction of the connection.
"""

import functools
import itertools
import re
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
import psycopg.abc
from psycopg import pq
from psycopg.adapt import PyFormat, Transformer

Row = Any  # a named tuple of the statement, or an anonymous one
Types = tuple[int, ...]
Connection = psycopg.Connection[Any]
RowClass = type[tuple[Any, ...]]
MakeRow = Callable[[Sequence[Any]], tuple[Any, ...]]

MOST_PREPARED = 300  # in one session; the least recently used statement is deallocated
PLACEHOLDER = re.compile(r"%(?:\((\w+)\)s|%)")
DONE = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)


@dataclass(slots=True)
class PreparedQuery:
    """A text with $1, $2 instead of names."""

    text: bytes
    names: tuple[str, ...]
    formats: list[PyFormat]


@dataclass(slots=True)
class Prepared:
    """A prepared statement of a session. Its columns never change: the server rejects a statement
    whose columns have changed.
    """

    name: bytes
    make_row: MakeRow | None = None
    row: RowClass | None = None  # the class of make_row; two callers may share a text

    def row_maker(self, result: pq.abc.PGresult, row: RowClass | None) -> MakeRow:
        if self.make_row is None or self.row is not row:
            names = tuple((result.fname(i) or b"").decode() for i in range(result.nfields))
            self.make_row, self.row = _make_of(row, names), row
        return self.make_row


Session = OrderedDict[tuple[str, Types], Prepared]

_numbers = itertools.count(1)
_queries: dict[str, PreparedQuery] = {}
_sessions: WeakKeyDictionary[Connection, Session] = WeakKeyDictionary()


def execute(
    connection: Connection,
    text: str,
    values: Mapping[str, object],
    row: RowClass | None = None,
) -> list[Row]:
    """All rows, as instances of `row` (a named tuple with the columns of the result, or `tuple`).
    Raises errors of psycopg.
    """
    query = _queries.get(text) or _read(text)
    with connection.lock:
        _begin(connection)
        transformer = Transformer(connection)
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
    connection: Connection, text: str, query: PreparedQuery, transformer: psycopg.abc.Transformer
) -> Prepared:
    """The statement for values of these types in this session, prepared at its first use."""
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
    connection: Connection,
    query: PreparedQuery,
    transformer: psycopg.abc.Transformer,
    prepared: Session,
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


def _begin(connection: Connection) -> None:
    """Like psycopg, begins a transaction before the first statement outside of autocommit."""
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


def _call(
    connection: Connection, function: Callable[..., pq.abc.PGresult], *arguments: object
) -> pq.abc.PGresult:
    try:
        result = function(*arguments)
    except MemoryError:
        # psycopg raises MemoryError if libpq could not send the request.
        if connection.pgconn.status == pq.ConnStatus.OK:
            raise
        raise psycopg.OperationalError(_message(connection))
    if result.status in DONE:
        return result
    if connection.pgconn.status != pq.ConnStatus.OK:
        raise psycopg.OperationalError(_message(connection))
    raise psycopg.errors.error_from_result(result, encoding="utf-8")


def _message(connection: Connection) -> str:
    return connection.pgconn.get_error_message() or "the connection is lost"


def _make_of(row: RowClass | None, names: tuple[str, ...]) -> MakeRow:
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
    """The text with $1, $2 instead of names, and the names in that order."""
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
