"""Repeats statements that another transaction has disturbed."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from django.db import DatabaseError, connection

from project.kernel import metrics
from project.kernel.errors import BerthError, Unavailable

# Serialisation failure, deadlock, lock timeout: the database has rolled back, so the call may
# succeed when repeated.
AGAIN = frozenset({"40001", "40P01", "55P03"})
QUEUE_KEY = "claims_claim_shape_id_"  # prefix of the foreign key from claims to queues
# A rule of the database has refused the statement: another transaction was faster, or Berth has a
# bug.
RULES = frozenset({"BR001", "BR002"})
TAKEN = RULES | {"23505"}
TIMES = 4

R = TypeVar("R")


def sqlstate(error: BaseException) -> str:
    """The code of the psycopg error behind a Django error, or ""."""
    return str(getattr(error.__cause__, "sqlstate", None) or "")


def constraint(error: BaseException) -> str:
    diagnostics = getattr(error.__cause__, "diag", None)
    return str(getattr(diagnostics, "constraint_name", None) or "")


def is_transient(error: BaseException) -> bool:
    """Whether another transaction was in the way, or has just deleted the queue as unused. Any
    other missing row is a bug and no transient error.
    """
    return sqlstate(error) in AGAIN or (
        sqlstate(error) == "23503" and constraint(error).startswith(QUEUE_KEY)
    )


def attempt(work: Callable[[], R]) -> R | BerthError:
    """The result or the error of one item of a call, whose other items go on."""
    try:
        return work()
    except BerthError as error:
        return error


def repeat(work: Callable[[], R], *, also: frozenset[str] = frozenset()) -> R:
    """Calls `work` again after a transient error, or an error with a code in `also`. Inside a
    transaction of the caller it runs once, because the error has aborted that transaction.
    """
    for turn in range(1, TIMES + 1):
        try:
            return work()
        except DatabaseError as error:
            code = sqlstate(error)
            if code in RULES and code not in also:
                metrics.BROKEN_RULES.labels(code).inc()
            if not (is_transient(error) or code in also) or connection.in_atomic_block:
                raise
            if turn == TIMES:
                raise Unavailable(
                    "Other calls are changing the same rows.", way_out="Send the same call again."
                ) from error
            time.sleep(random.uniform(0.001, 0.01) * turn)
    raise AssertionError("unreachable")
