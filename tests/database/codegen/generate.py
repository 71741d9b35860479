"""Generates the modules of all files of named statements, or of some."""

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tests.database.codegen.annotated import AnnotatedStatements
from tests.database.codegen.describe import (
    Connection,
    Description,
    Field,
    StatementError,
    describe,
    read_catalog,
)
from tests.database.codegen.render import module_path, render

ROOT = Path(__file__).resolve().parents[3]
APPS = ("project", "pools", "slots", "claims")
ANY_NUMBER = 1  # instead of {n}


def find_files() -> list[Path]:
    return sorted(path for app in APPS for path in (ROOT / app).rglob("*.sql"))


def generate(connection: Connection, files: Iterable[Path]) -> dict[Path, str]:
    """The text of each module by its path."""
    catalog = read_catalog(connection)
    found: dict[Path, str] = {}
    for path in files:
        statements = AnnotatedStatements(path)
        descriptions = {}
        for name in statements.texts:
            try:
                described = describe(connection, catalog, statements.text(name, ANY_NUMBER))
            except StatementError as error:
                raise StatementError(f"{path}, {name}: {error}") from error
            descriptions[name] = _apply_marks(statements, name, described)
        found[module_path(path)] = _format(render(statements, descriptions))
    return found


def _apply_marks(statements: AnnotatedStatements, name: str, found: Description) -> Description:
    """`-- @nullable a, b` and `-- @not_null c` in a statement override the generator."""
    marks = statements.marks[name]
    known = {field.name for field in (*found.parameters, *found.columns)}
    if missing := sorted(marks.keys() - known):
        raise StatementError(
            f"{statements.path}, {name}: there is no parameter and no column {missing[0]}"
        )

    def marked(field: Field) -> Field:
        mark = marks.get(field.name)
        if mark == "null_items":
            return replace(field, has_null_items=True)
        return field if mark is None else replace(field, is_null=mark == "nullable")

    return replace(
        found,
        parameters=[marked(field) for field in found.parameters],
        columns=[marked(field) for field in found.columns],
    )


def _format(text: str) -> str:
    """Formats like `make format`."""
    for command in (["check", "--quiet", "--select", "I", "--fix"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", "x_sql.py", "-"]
        text = subprocess.run(
            ruff, input=text, capture_output=True, text=True, check=True, cwd=ROOT
        ).stdout
    return text
