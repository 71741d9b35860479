"""Rules of a row, declared once by name. One CHECK and its function are generated from them.

PostgreSQL parses the stored text of each CHECK again for each statement that writes to its table.
Nine CHECKs took 100 us of a statement that creates one claim, a sixth of its time; a function is
parsed once in a session. The error names the violated rule, like that of a CHECK.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.db import models
from django.db.models import F


@dataclass(frozen=True)
class Column:
    type: str
    field: str = ""  # the name of the model's field, if it differs


@dataclass(frozen=True)
class RowConstraint:
    name: str  # of the CHECK; its function is is_<name>
    table: str
    columns: Mapping[str, Column]  # the columns that the rules read
    rules: Mapping[str, str]  # name -> expression that must not be false

    def check(self) -> models.CheckConstraint:
        fields = [F(column.field or name) for name, column in self.columns.items()]
        condition = models.Func(
            *fields, function=f"is_{self.name}", output_field=models.BooleanField()
        )
        return models.CheckConstraint(name=self.name, condition=condition)

    def function(self, *without: str) -> str:
        columns = ", ".join(f"{name} {column.type}" for name, column in self.columns.items())
        head = (
            f"CREATE OR REPLACE FUNCTION is_{self.name}({columns}) RETURNS boolean\n"
            "LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE"
        )
        return f"{head} AS $${self.body(*without)}$$;"

    def body(self, *without: str) -> str:
        """Checks all rules in one expression, and only after a failure each rule, to name it."""
        rules = {name: rule for name, rule in self.rules.items() if name not in without}
        together = "\n    AND ".join(f"({rule})" for rule in rules.values()) or "true"
        one_by_one = "\n".join(self._refuse(name, rule) for name, rule in rules.items())
        return (
            f"\nBEGIN\n  IF {together} THEN\n    RETURN true;\n  END IF;\n"
            f"{one_by_one}\n  RETURN true;\nEND "
        )

    def _refuse(self, name: str, rule: str) -> str:
        text = f'new row for relation "{self.table}" violates check constraint "{name}"'
        return (
            f"  IF NOT ({rule}) THEN\n    RAISE EXCEPTION '{text}'\n      USING ERRCODE = "
            f"'check_violation', TABLE = '{self.table}', CONSTRAINT = '{name}';\n  END IF;"
        )


def one_of(column: str, values: Iterable[str]) -> str:
    return f"{column} = ANY ('{{{','.join(sorted(values))}}}')"
