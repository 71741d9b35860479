"""Emptying the tables at the end of a test wins against a page that still reads them."""

import pytest
from django.db import OperationalError, connection, transaction

from tests.slots.concurrent_actors import Actor

pytestmark = pytest.mark.django_db(transaction=True)


def empty() -> str:
    connection.ops.execute_sql_flush(["TRUNCATE pools_pool, claims_claim CASCADE"])
    return "empty"


def test_reader_gives_way_to_emptying_of_tables():
    with (
        connection.cursor() as cursor,
        pytest.raises(OperationalError, match="deadlock"),
        transaction.atomic(),
    ):
        cursor.execute("SELECT FROM claims_claim")
        emptying = Actor(empty).begin()
        assert emptying.until_blocked_or_done() == "blocked"
        cursor.execute("SELECT FROM pools_pool")
    assert emptying.result() == "empty"
