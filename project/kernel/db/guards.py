"""What may run where. The timeouts themselves are connection options in settings; here are the
exceptions to them.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from django.db import connection, transaction

P = ParamSpec("P")
R = TypeVar("R")

PATIENT = {
    "lock_timeout": "0",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}


class InsideTransaction(RuntimeError):
    """A bug: something slow or irrevocable was about to happen while row locks may be held."""


def refuse_inside_transaction(what: str) -> None:
    # A thread that only asks the world needs none, and gets none by this question.
    is_connected = connection.connection is not None
    if connection.in_atomic_block or (is_connected and not connection.get_autocommit()):
        raise InsideTransaction(
            f"{what} inside a transaction: row locks would be held while the world answers"
        )


def outside_transaction(function: Callable[P, R]) -> Callable[P, R]:
    """For whatever talks to the world outside. Such a call may take seconds and cannot be
    rolled back.
    """

    @functools.wraps(function)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_inside_transaction(function.__qualname__)
        return function(*args, **kwargs)

    return inner


@contextmanager
def reporting() -> Iterator[None]:
    """Lists and reports may scan tables; hot connections never do. Inside a transaction, at
    whose end the setting is gone.
    """
    with transaction.atomic():
        before = _set({"enable_seqscan": "on"}, is_local=True)
        yield
        # This may be a part of a longer transaction, which stays hot.
        if not connection.needs_rollback:
            _set(before, is_local=True)


@contextmanager
def patient() -> Iterator[None]:
    """No timeouts and scans allowed on this connection, until the block ends: migrate,
    doctor, export.
    """
    before = _set({**PATIENT, "enable_seqscan": "on"})
    try:
        yield
    finally:
        if connection.connection is not None and not connection.needs_rollback:
            _set(before)


def _set(values: dict[str, str], *, is_local: bool = False) -> dict[str, str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name, current_setting(name) FROM unnest(%s::text[]) AS name", [list(values)]
        )
        before = dict(cursor.fetchall())
        cursor.execute(
            "SELECT set_config(name, value, %s) FROM unnest(%s::text[], %s::text[]) AS "
            "s (name, value)",
            [is_local, list(values), list(values.values())],
        )
    return before
