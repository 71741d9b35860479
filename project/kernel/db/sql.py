"""Named SQL statements in files, executed as prepared statements on Django's own connection.

Django's cursor binds parameters on the client, so it never prepares a statement, and planning a
small statement costs more than executing it. These statements use the same psycopg connection, and
so the same transaction.

A statement starts at `-- name: description` and ends at the next one. `{n}` becomes part of the
text, because a parameter of LIMIT would spoil the plan. `{other}` inserts the fragment `--
_other:`.

`make statements` writes a module with a typed function for each statement beside the file. A mark
after the name sets the result, as in aiosql: `-- name^:` returns one row or None, `-- name$:` the
only column of one row or None, `-- name:` all rows. A statement that always returns a row, such as
a single INSERT, has no None. Lines `-- @nullable a, b` and `-- @not_null c` in a statement set for
parameters and columns what the generator cannot know. `-- @null_items d` lets the elements of an
array parameter be NULL.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psycopg
from django.db import connections
from psycopg.rows import namedtuple_row

from .prepared import execute

Row = Any
R = TypeVar("R", bound=tuple[Any, ...])
HEADING = re.compile(
    r"^-- (_?[a-z_]+)([\^$]?): ?([^\n]*)\n(.*?)(?=^-- _?[a-z_]+[\^$]?:|\Z)", re.S | re.M
)
MARK = re.compile(r"-- @(nullable|not_null|null_items) ([a-z_, ]+)\n")


class IdRow(NamedTuple):
    """The row of the many statements that return only an id."""

    id: int


class Statements:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.fragments: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        for name, _, _, body in HEADING.findall(path.read_text()):
            (self.fragments if name.startswith("_") else self.texts)[name] = body.strip()
        for name, text in self.texts.items():
            self.texts[name] = MARK.sub("", self.insert_fragments(text))

    def insert_fragments(self, text: str) -> str:
        for name, body in self.fragments.items():
            text = text.replace("{" + name + "}", body)
        return text

    def text(self, name: str, n: int | None = None) -> str:
        text = self.texts[name]
        if "{n}" in text:
            if n is None:
                raise ValueError(f"{name} needs n")
            text = text.replace("{n}", str(int(n)))
        return text

    def fetch_rows(
        self, name: str, row: type[R], values: Mapping[str, object], n: int | None = None
    ) -> list[R]:
        return run(self.text(name, n), values, row=row)

    def fetch_one(
        self, name: str, row: type[R], values: Mapping[str, object], n: int | None = None
    ) -> R | None:
        found = run(self.text(name, n), values, row=row)
        return found[0] if found else None

    def fetch_sole(
        self, name: str, row: type[R], values: Mapping[str, object], n: int | None = None
    ) -> R:
        """The row of a statement that always returns one."""
        (found,) = run(self.text(name, n), values, row=row)
        return found

    def fetch_value(self, name: str, values: Mapping[str, object], n: int | None = None) -> Any:
        found = run(self.text(name, n), values, row=tuple)
        return found[0][0] if found else None

    def fetch_sole_value(
        self, name: str, values: Mapping[str, object], n: int | None = None
    ) -> Any:
        ((found,),) = run(self.text(name, n), values, row=tuple)
        return found

    def execute(self, name: str, values: Mapping[str, object], n: int | None = None) -> None:
        run(self.text(name, n), values)


def run(
    text: str,
    values: Mapping[str, object] | None = None,
    *,
    prepare: bool = True,
    row: type[tuple[Any, ...]] | None = None,
) -> list[Row]:
    """Executes a statement on Django's connection, in its open transaction. Raises Django's error
    classes.
    """
    connection = connections["default"]
    connection.ensure_connection()
    connection.validate_no_broken_transaction()
    raw: psycopg.Connection[Any] = connection.connection
    with connection.wrap_database_errors:
        if prepare:
            return execute(raw, text, values or {}, row)
        with psycopg.Cursor(raw, row_factory=namedtuple_row) as cursor:
            cursor.execute(text, values or None, prepare=False)
            return cursor.fetchall() if cursor.description else []
