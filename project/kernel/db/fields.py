from typing import TYPE_CHECKING, SupportsInt

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

if TYPE_CHECKING:
    _Integer = models.BigIntegerField[int, int]
else:
    _Integer = models.BigIntegerField


class TransactionIdField(_Integer):
    """PostgreSQL's xid8: the full transaction id, which never wraps around. An int in Python.

    Values are sent as text, because PostgreSQL has no operator `xid8 = bigint`.
    """

    description = "Transaction id (xid8)"

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        return "xid8"

    def rel_db_type(self, connection: BaseDatabaseWrapper) -> str:
        return "xid8"

    def from_db_value(
        self, value: str | SupportsInt | None, expression: object, connection: object
    ) -> int | None:
        return None if value is None else int(value)

    def get_prep_value(self, value: object) -> str | None:
        number = super().get_prep_value(value)
        return None if number is None else str(number)

    def get_db_prep_value(
        self, value: object, connection: BaseDatabaseWrapper, prepared: bool = False
    ) -> object:
        return value if prepared else self.get_prep_value(value)

    def get_placeholder(self, value: object, compiler: object, connection: object) -> str:
        return "%s::xid8"
