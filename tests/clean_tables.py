"""`-p tests.clean_tables`: the tables that a committing test touched are emptied at its end.

Django truncates every table and creates all permissions again, which takes longer than most tests.
"""

from collections.abc import Iterator

import pytest
from django.db import connections
from django.test import TransactionTestCase

LARGEST_DELETED = 256 * 1024  # bytes

# A table with a file counts as touched. A small one is deleted from; a large one is truncated,
# because its dead rows would slow down each later DELETE. The web process may still answer a page
# whose test has ended: LOCK waits for its writes, and the page is the victim of a deadlock.
CLEAN = f"""
DO $$
DECLARE
    small text; large text; name text;
BEGIN
    SET LOCAL deadlock_timeout = '10min';
    SET LOCAL lock_timeout = '1min';
    SET LOCAL statement_timeout = 0;
    SET LOCAL session_replication_role = replica;
    WITH touched AS (
        SELECT oid::regclass::text AS name, pg_relation_size(oid) > {LARGEST_DELETED} AS is_large
        FROM pg_class
        WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
          AND relname NOT IN ('django_migrations', 'django_content_type', 'auth_permission')
          AND pg_relation_size(oid) > 0)
    SELECT string_agg(touched.name, ', ' ORDER BY touched.name) FILTER (WHERE NOT is_large),
           string_agg(touched.name, ', ' ORDER BY touched.name) FILTER (WHERE is_large)
    FROM touched INTO small, large;
    IF large IS NOT NULL THEN
        EXECUTE 'TRUNCATE ' || large || ' CASCADE';
    END IF;
    IF small IS NOT NULL THEN
        EXECUTE 'LOCK TABLE ' || small || ' IN SHARE ROW EXCLUSIVE MODE';
        FOREACH name IN ARRAY string_to_array(small, ', ') LOOP
            EXECUTE 'DELETE FROM ' || name;
        END LOOP;
    END IF;
END $$
"""


def empty_touched_tables(alias: str) -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute(CLEAN)


def tear_down(case: TransactionTestCase) -> None:
    for alias in case._databases_names(include_mirrors=False):
        empty_touched_tables(alias)


@pytest.fixture(scope="session", autouse=True)
def clean_touched_tables() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", tear_down)
        yield
