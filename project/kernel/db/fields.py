"""Fields of models that several apps declare."""

from datetime import date, datetime
from typing import TYPE_CHECKING, SupportsInt

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.expressions import Combinable

if TYPE_CHECKING:
    _Integer = models.BigIntegerField[int, int]
    _Moment = models.DateTimeField[str | datetime | date | Combinable | None, datetime | None]
    _ShortText = models.CharField[str | int | Combinable, str]
    _LongText = models.TextField[str | Combinable, str]
else:
    _Integer = models.BigIntegerField


def optional_moment() -> "_Moment":
    """A time, or null."""
    return models.DateTimeField(null=True, blank=True)


def short_text(longest: int) -> "_ShortText":
    """A text that is empty unless a row sets it."""
    return models.CharField(max_length=longest, blank=True, default="", db_default="")


def long_text() -> "_LongText":
    """A text of any length that is empty unless a row sets it."""
    return models.TextField(blank=True, default="", db_default="")


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
