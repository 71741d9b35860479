"""Guards of transactions, and exceptions to the timeouts of connections. The timeouts themselves
are connection options in the settings.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from django.db import connection, transaction

from project.kernel.db.sql import run

P = ParamSpec("P")
R = TypeVar("R")

PATIENT = {
    "lock_timeout": "0",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}


# A target list is evaluated from left to right.
SCAN = "SELECT current_setting('enable_seqscan'), set_config('enable_seqscan', 'on', true)"
SCAN_AS_BEFORE = "SELECT set_config('enable_seqscan', %(before)s, true)"


class InsideTransaction(RuntimeError):
    """A bug: a slow or irrevocable call inside a transaction, which may hold row locks."""


def refuse_inside_transaction(what: str) -> None:
    # The check opens no connection: a thread that only calls outside systems needs none.
    is_connected = connection.connection is not None
    if connection.in_atomic_block or (is_connected and not connection.get_autocommit()):
        raise InsideTransaction(
            f"{what} inside a transaction: row locks would be held during the outside call"
        )


def outside_transaction(function: Callable[P, R]) -> Callable[P, R]:
    """For calls to outside systems, which may take seconds and cannot be rolled back."""

    @functools.wraps(function)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_inside_transaction(function.__qualname__)
        return function(*args, **kwargs)

    return inner


@contextmanager
def reporting() -> Iterator[None]:
    """Allows table scans for lists and reports, which hot connections never do. The setting ends
    with its transaction.
    """
    with transaction.atomic():
        ((before, _),) = run(SCAN)
        yield
        # The block may be part of a longer transaction, which must not scan tables.
        if not connection.needs_rollback:
            run(SCAN_AS_BEFORE, {"before": before})


@contextmanager
def patient() -> Iterator[None]:
    """Removes timeouts and allows scans on this connection during the block: for migrate, doctor
    and export.
    """
    before = _set({**PATIENT, "enable_seqscan": "on"})
    try:
        yield
    finally:
        if connection.connection is not None and not connection.needs_rollback:
            _set(before)


def _set(values: dict[str, str]) -> dict[str, str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name, current_setting(name) FROM unnest(%s::text[]) AS name", [list(values)]
        )
        before = dict(cursor.fetchall())
        cursor.execute(
            "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS "
            "s (name, value)",
            [list(values), list(values.values())],
        )
    return before
