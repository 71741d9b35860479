"""Commits inside of a test's transaction, which is rolled back at the end of the test.

The outermost `transaction.atomic()` of the code under test is a savepoint there. At its end, this
module does what a commit does: it checks deferred constraints and runs the `on_commit` functions.
A test that needs several connections, notifications or a call outside of any transaction commits.
"""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from project.kernel.db import guards

logger = logging.getLogger(__name__)


def is_outermost(database: BaseDatabaseWrapper) -> bool:
    return database.in_atomic_block and all(
        getattr(block, "_from_testcase", False) for block in database.atomic_blocks
    )


def ends_with(database: BaseDatabaseWrapper, block: transaction.Atomic) -> bool:
    """The block is the only one that the code under test has opened."""
    *others, last = database.atomic_blocks
    return last is block and all(getattr(other, "_from_testcase", False) for other in others)


def check_deferred_constraints(database: BaseDatabaseWrapper) -> None:
    with database.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED")


def run_hooks(database: BaseDatabaseWrapper) -> None:
    while database.run_on_commit:
        _, hook, is_robust = database.run_on_commit.pop(0)
        try:
            hook()
        except Exception as error:
            if not is_robust:
                raise
            # Like Django, whose report fails for a hook without a name.
            logger.error("Error calling %s in on_commit(): %s", hook.__qualname__, error)


class OutsideOfTest:
    """The connection, on which the test's own transaction does not count as one."""

    @property
    def in_atomic_block(self) -> bool:
        return connection.in_atomic_block and not is_outermost(connection)

    def get_autocommit(self) -> bool:
        return is_outermost(connection) or bool(connection.get_autocommit())

    def __getattr__(self, name: str) -> Any:
        return getattr(connection, name)


@contextmanager
def savepoints_commit() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        leave, on_commit = transaction.Atomic.__exit__, BaseDatabaseWrapper.on_commit

        def leave_and_commit(block: transaction.Atomic, *error: Any) -> None:
            database = transaction.get_connection(block.using)
            if error[0] is None and not database.needs_rollback and ends_with(database, block):
                try:
                    check_deferred_constraints(database)
                except DatabaseError:
                    leave(block, *sys.exc_info())
                    raise
            leave(block, *error)
            if error[0] is None and is_outermost(database) and not database.needs_rollback:
                run_hooks(database)

        def run_or_wait(
            database: BaseDatabaseWrapper, hook: Callable[[], object], robust: bool = False
        ) -> None:
            on_commit(database, hook, robust)
            if is_outermost(database):
                run_hooks(database)

        patch.setattr(guards, "connection", OutsideOfTest())
        patch.setattr(transaction.Atomic, "__exit__", leave_and_commit)
        patch.setattr(BaseDatabaseWrapper, "on_commit", run_or_wait)
        yield


@pytest.fixture
def tables(db: None) -> Iterator[None]:
    """Rows that are rolled back; what follows a commit follows each outermost block."""
    connection.ensure_connection()
    with savepoints_commit():
        yield


@pytest.fixture
def committed_tables(transactional_db: None) -> None:
    """Real commits, for tests with several connections or processes, and for those in which
    `now()` must move.
    """
