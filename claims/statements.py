"""The named statements that claims use, and how they are repeated when the database says that
somebody else was in the way.
"""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from django.db import DatabaseError, connection

from project.kernel import metrics
from project.kernel.errors import Unavailable

# Serialisation, deadlock, lock timeout: nothing was done, the same call may succeed.
AGAIN = frozenset({"40001", "40P01", "55P03"})
LINE = "claims_claim_shape_id_"  # how its foreign key begins
# A rule of the database refused: somebody was faster, or there is a bug.
RULES = frozenset({"BR001", "BR002"})
TAKEN = RULES | {"23505"}
TIMES = 4

R = TypeVar("R")


def sqlstate(error: BaseException) -> str:
    """Of a Django error around psycopg's."""
    return str(getattr(error.__cause__, "sqlstate", None) or "")


def constraint(error: BaseException) -> str:
    diagnostics = getattr(error.__cause__, "diag", None)
    return str(getattr(diagnostics, "constraint_name", None) or "")


def is_transient(error: BaseException) -> bool:
    """Others were in the way, or the line was deleted as unused at this moment. Any other
    missing row is a bug, and told as one.
    """
    return sqlstate(error) in AGAIN or (
        sqlstate(error) == "23503" and constraint(error).startswith(LINE)
    )


def repeat(work: Callable[[], R], *, also: frozenset[str] = frozenset()) -> R:
    """Do it, and again if nothing was done because of others. Inside a transaction of the caller
    only once: it is lost as a whole.
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
                    "Others are changing the same rows.", way_out="Send the same call again."
                ) from error
            time.sleep(random.uniform(0.001, 0.01) * turn)
    raise AssertionError("unreachable")
