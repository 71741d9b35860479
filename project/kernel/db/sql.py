"""Named SQL statements, kept in one file an app, run as server-side prepared statements on Django's
own connection.

Django's cursor binds parameters on the client, so nothing it sends is ever prepared; a hand-over
planned anew each time costs more than the hand-over. These statements go to the same psycopg
connection (so to the same transaction) through a plain cursor.

A statement starts at `-- name: what it does` and ends at the next one. `{n}` is written into the
text: as a parameter of LIMIT it would spoil the plan. `{other}` with the name of a fragment (`--
_name:`) puts that text there.
"""

import re
from pathlib import Path
from typing import Any

import psycopg
from django.db import connections
from psycopg.rows import namedtuple_row

from .prepared import execute

Row = Any
HEADING = re.compile(r"^-- (_?[a-z_]+): ?([^\n]*)\n(.*?)(?=^-- _?[a-z_]+:|\Z)", re.S | re.M)


class Statements:
    def __init__(self, path: Path) -> None:
        self.path = path
        found = {
            name: (about, body.strip()) for name, about, body in HEADING.findall(path.read_text())
        }
        self.fragments = fragments = {
            name: body for name, (_, body) in found.items() if name.startswith("_")
        }
        self.about = {name: about for name, (about, _) in found.items() if not name.startswith("_")}
        self.texts: dict[str, str] = {}
        for name in self.about:
            text = found[name][1]
            for fragment, body in fragments.items():
                text = text.replace("{" + fragment + "}", body)
            self.texts[name] = text

    def text(self, name: str, n: int | None = None) -> str:
        text = self.texts[name]
        if "{n}" in text:
            if n is None:
                raise ValueError(f"{name} needs n")
            text = text.replace("{n}", str(int(n)))
        return text

    def rows(
        self, name: str, /, n: int | None = None, using: str = "default", **values: Any
    ) -> list[Row]:
        return run(self.text(name, n), values, using=using)

    def one(
        self, name: str, /, n: int | None = None, using: str = "default", **values: Any
    ) -> Row | None:
        found = self.rows(name, n, using, **values)
        return found[0] if found else None

    def value(
        self, name: str, /, n: int | None = None, using: str = "default", **values: Any
    ) -> Any:
        found = self.one(name, n, using, **values)
        return None if found is None else found[0]


def run(
    text: str, values: dict[str, Any] | None = None, *, using: str = "default", prepare: bool = True
) -> list[Row]:
    """One statement on Django's connection, in whatever transaction is open there; errors as
    Django's own classes.
    """
    connection = connections[using]
    connection.ensure_connection()
    connection.validate_no_broken_transaction()
    raw: psycopg.Connection[Any] = connection.connection
    with connection.wrap_database_errors:
        if prepare:
            return execute(raw, text, values or {})
        with psycopg.Cursor(raw, row_factory=namedtuple_row) as cursor:
            cursor.execute(text, values or None, prepare=False)
            return cursor.fetchall() if cursor.description else []
