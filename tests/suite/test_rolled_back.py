"""The fixture `tables`: the outermost block of a test's code ends as with a commit, and its rows
are rolled back.
"""

from functools import partial

import pytest
from django.db import IntegrityError, connection, transaction

from project.kernel.db.guards import InsideTransaction, outside_transaction

pytestmark = pytest.mark.usefixtures("tables")


def test_hooks_run_at_the_end_of_the_outermost_block() -> None:
    seen: list[str] = []
    with transaction.atomic():
        with transaction.atomic():
            transaction.on_commit(lambda: seen.append("hook"))
        seen.append("outer")
    assert seen == ["outer", "hook"]


def test_hooks_outside_of_any_block_run_at_once() -> None:
    seen: list[str] = []
    transaction.on_commit(lambda: seen.append("hook"))
    assert seen == ["hook"]


def test_hooks_of_a_rolled_back_block_do_not_run() -> None:
    seen: list[str] = []
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        transaction.on_commit(lambda: seen.append("hook"))
        raise ZeroDivisionError
    assert seen == []


def test_robust_hook_without_a_name_fails_as_after_a_commit() -> None:
    fail = partial(int, "no number")
    with pytest.raises(AttributeError, match="__qualname__"), transaction.atomic():
        transaction.on_commit(fail, robust=True)


def test_deferred_constraints_are_checked_at_the_end_of_the_outermost_block() -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        insert_a_row_without_its_parent()
    assert not connection.needs_rollback


def insert_a_row_without_its_parent() -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE suite_a (id int PRIMARY KEY)")
        cursor.execute(
            "CREATE TABLE suite_b (a int REFERENCES suite_a DEFERRABLE INITIALLY DEFERRED)"
        )
        cursor.execute("INSERT INTO suite_b VALUES (1)")


def test_only_a_block_of_the_code_counts_as_a_transaction() -> None:
    call = outside_transaction(lambda: "called")
    assert call() == "called"
    with pytest.raises(InsideTransaction), transaction.atomic():
        call()


@pytest.mark.parametrize("turn", [1, 2])
def test_rows_are_rolled_back(turn: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('suite_rows')")
        assert cursor.fetchone() == (None,)
        cursor.execute("CREATE TABLE suite_rows (id int)")
