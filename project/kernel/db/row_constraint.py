"""What is always true of a row, said once: rules by name, of which one CHECK and its
function are made.

PostgreSQL reads the stored text of every CHECK anew for each statement that writes to its table.
Nine of them cost a statement that makes one claim 100 us, a sixth of its time; a function is read
once a session. It says which rule was broken, as a CHECK would.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.db import models
from django.db.models import F


@dataclass(frozen=True)
class Column:
    type: str
    field: str = ""  # the model's name for it, if that is another


@dataclass(frozen=True)
class RowConstraint:
    name: str  # of the CHECK; its function is is_<name>
    table: str
    columns: Mapping[str, Column]  # what the rules look at
    rules: Mapping[str, str]  # name -> what must not be false

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
        """All rules in one expression; only when that fails they are asked one by one,
        for the name.
        """
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
