from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    _Integer = models.BigIntegerField[int, int]
else:
    _Integer = models.BigIntegerField


class TransactionIdField(_Integer):
    """PostgreSQL's xid8: the full transaction id, which never wraps around. An int in Python.

    A driver that sends an int would ask for `xid8 = bigint`, which does not exist: values
    travel as text.
    """

    description = "Transaction id (xid8)"

    def db_type(self, connection: Any) -> str:
        return "xid8"

    def rel_db_type(self, connection: Any) -> str:
        return "xid8"

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> int | None:
        return None if value is None else int(value)

    def get_prep_value(self, value: Any) -> str | None:
        number = super().get_prep_value(value)
        return None if number is None else str(number)

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        return value if prepared else self.get_prep_value(value)

    def get_placeholder(self, value: Any, compiler: Any, connection: Any) -> str:
        return "%s::xid8"
