"""A committing test empties the tables that it touched, also while a page still uses them."""

import pytest
from django.contrib.auth.models import Permission, User
from django.db import OperationalError, connection, transaction

from pools.models import Pool
from project.kernel.models import Event
from tests.api.helpers import make_pool
from tests.clean_tables import LARGEST_DELETED, empty_touched_tables
from tests.slots.concurrent_actors import Actor

pytestmark = pytest.mark.django_db(transaction=True)
KEPT = {"django_migrations", "django_content_type", "auth_permission"}


def empty() -> str:
    empty_touched_tables("default")
    return "empty"


def bytes_of(table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_relation_size(%s)", [table])
        return int(cursor.fetchone()[0])


def test_all_tables_but_permissions_are_empty_afterwards():
    make_pool("one")
    User.objects.create_user("ana")
    permissions = Permission.objects.count()
    empty()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_class "
            "WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        )
        tables = [name for (name,) in cursor.fetchall()]
        assert len(tables) > 30
        for table in tables:
            cursor.execute(f"SELECT EXISTS (SELECT FROM {table})")
            assert cursor.fetchone() == (table in KEPT,), table
    assert permissions == Permission.objects.count() > 0


def test_large_table_is_truncated_and_a_small_table_is_not():
    Event.objects.bulk_create(
        Event(verb="note", reason="x" * 1000) for _ in range(LARGEST_DELETED // 1000)
    )
    make_pool("one")
    assert bytes_of("kernel_event") > LARGEST_DELETED > bytes_of("pools_pool") > 0
    empty()
    assert bytes_of("kernel_event") == 0 < bytes_of("pools_pool")
    assert not Pool.objects.exists()


def test_rows_of_an_uncommitted_page_are_deleted_after_its_commit():
    with transaction.atomic():
        make_pool("one")
        emptying = Actor(empty).begin()
        assert emptying.until_blocked_or_done() == "blocked"
    assert emptying.result() == "empty"
    assert not Pool.objects.exists()


def test_reader_does_not_delay_emptying():
    make_pool("one")
    with transaction.atomic():
        assert Pool.objects.get().name == "one"
        assert Actor(empty).begin().result() == "empty"


def test_page_and_not_the_emptying_is_the_victim_of_a_deadlock():
    make_pool("one")
    User.objects.create_user("ana")
    with (
        pytest.raises(OperationalError, match="deadlock"),
        transaction.atomic(),
    ):
        Pool.objects.update(queue="local")
        emptying = Actor(empty).begin()
        assert emptying.until_blocked_or_done() == "blocked"
        User.objects.update(first_name="Ana")  # auth_user is locked before pools_pool
    assert emptying.result() == "empty"
