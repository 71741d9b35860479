"""Asks PostgreSQL for the parameters and result columns of a statement."""

from dataclasses import dataclass

import psycopg
from psycopg import pq

from project.kernel.db.prepared import read_placeholders
from tests.database.codegen.node_tree import Node, parse, walk
from tests.database.codegen.nullability import Catalog, Nullability

Connection = psycopg.Connection[tuple[object, ...]]


class StatementError(Exception):
    """PostgreSQL or the generator cannot work with a statement."""


@dataclass(frozen=True)
class Field:
    """A parameter or a result column."""

    name: str
    type: str  # as PostgreSQL writes it, for example `bigint[]`
    is_null: bool
    has_null_items: bool = False


@dataclass(frozen=True)
class Description:
    parameters: list[Field]
    columns: list[Field]
    has_one_row: bool = False


def read_catalog(connection: Connection) -> Catalog:
    columns = connection.execute(
        "SELECT attrelid::int8, attnum::int8 FROM pg_attribute WHERE attnotnull AND attnum > 0"
    )
    functions = connection.execute("SELECT oid::int8, proname::text FROM pg_proc")
    operators = connection.execute("SELECT oid::int8, oprname::text FROM pg_operator")
    return Catalog(
        frozenset((_number(relation), _number(column)) for relation, column in columns),
        {_number(oid): str(name) for oid, name in functions},
        {_number(oid): str(name) for oid, name in operators},
    )


def describe(connection: Connection, catalog: Catalog, text: str) -> Description:
    """Parameters in the order of their first use, and columns.

    A function with the statement as its body holds the parsed query. It is rolled back.
    """
    query, names = read_placeholders(text)
    with connection.transaction(force_rollback=True):
        prepared = connection.pgconn.prepare(b"described", query.encode())
        if prepared.status != pq.ExecStatus.COMMAND_OK:
            raise StatementError(prepared.error_message.decode(errors="replace"))
        described = connection.pgconn.describe_prepared(b"described")
        connection.pgconn.exec_(b"DEALLOCATE described")
        types = [described.param_type(i) for i in range(described.nparams)]
        outputs = [
            ((described.fname(i) or b"").decode(), described.ftype(i))
            for i in range(described.nfields)
        ]
        written = _type_names(connection, [*types, *(kind for _, kind in outputs)])
        parsed = _parse_query(connection, query, [written[kind] for kind in types], bool(outputs))
    found = Nullability(parsed, catalog, frozenset())
    nulls = found.columns() if outputs else []
    return Description(
        [
            Field(name, written[kind], number in found.null_parameters)
            for number, (name, kind) in enumerate(zip(names, types, strict=True), 1)
        ],
        [
            Field(name, written[kind], is_null)
            for (name, kind), is_null in zip(outputs, nulls, strict=True)
        ],
        has_one_row=bool(outputs) and found.has_one_row(),
    )


def _type_names(connection: Connection, types: list[int]) -> dict[int, str]:
    rows = connection.execute(
        "SELECT t::int8, format_type(t::oid, NULL) FROM unnest(%s::int8[]) AS t", [types]
    )
    return {_number(oid): str(name) for oid, name in rows}


def _parse_query(connection: Connection, query: str, types: list[str], has_rows: bool) -> Node:
    returns = "SETOF record" if has_rows else "void"
    definition = (
        f"CREATE FUNCTION pg_temp.described({', '.join(types)}) RETURNS {returns} "
        f"LANGUAGE sql BEGIN ATOMIC {query}\n; END"
    )
    made = connection.pgconn.exec_(definition.encode())
    if made.status != pq.ExecStatus.COMMAND_OK:
        raise StatementError(made.error_message.decode(errors="replace"))
    row = connection.execute(
        "SELECT prosqlbody::text FROM pg_proc WHERE oid = 'pg_temp.described'::regproc"
    ).fetchone()
    assert row is not None
    return next(node for node in walk(parse(str(row[0]))) if node.kind == "QUERY")


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value
