"""Migrations upgrade the data of earlier versions, reverse completely, and give up on a lock
instead of blocking other sessions.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import IntegrityError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor

from project.kernel.embedded.backup import dump, restore
from project.kernel.embedded.postgres import tool
from project.settings import environment as env
from tests.upgrade.scratch_database import scratch_database, url_of
from tests.upgrade.snapshot import FOLDER, restore_snapshot

pytestmark = pytest.mark.xdist_group("upgrade")

OURS = ("claims", "slots", "pools", "kernel")
CASTS = re.compile(r"::(text|character varying)(\[\])?|[()\s]")
ROUTINES = """
SELECT proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = 'public'
  AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')"""


@pytest.fixture
def scratch(django_db_blocker: Any) -> Iterator[BaseDatabaseWrapper]:
    with django_db_blocker.unblock(), scratch_database("upgrade") as connection:
        yield connection


def migrate(connection: BaseDatabaseWrapper, *, back: bool = False) -> None:
    executor = MigrationExecutor(connection)
    executor.migrate([(app, None) for app in OURS] if back else executor.loader.graph.leaf_nodes())


def schema(name: str) -> str:
    """As pg_dump tells it, without what differs from one run to the next."""
    made = subprocess.run(
        [tool("pg_dump"), "--schema-only", "--no-owner", "--no-privileges"],
        env={"PATH": "/usr/bin:/bin", **env.libpq(url_of(name))},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [
        line
        for line in made.stdout.splitlines()
        if line and not line.startswith(("--", "\\", "SET ", "SELECT pg_catalog"))
    ]
    return "\n".join(lines)


def test_all_migrations_reverse_and_apply_again(scratch: BaseDatabaseWrapper) -> None:
    migrate(scratch)
    name = str(scratch.settings_dict["NAME"])
    first = schema(name)
    migrate(scratch, back=True)
    left = set(scratch.introspection.table_names())
    assert not [table for table in left if table.startswith(tuple(f"{app}_" for app in OURS))]
    with scratch.cursor() as cursor:
        cursor.execute(ROUTINES)
        assert cursor.fetchall() == []
        cursor.execute(
            "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE relkind = 'S' AND nspname = 'public'"
        )
        assert not [
            row for row in cursor.fetchall() if row[0].startswith(OURS) or row[0] == "generation"
        ]
    migrate(scratch)
    assert schema(name) == first


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.dump")), ids=lambda file: file.stem)
def test_data_of_an_earlier_version_migrates(scratch: BaseDatabaseWrapper, file: Path) -> None:
    """Every version that was released, so the tag before is among them. What comes out is the
    schema that a fresh start makes.
    """
    name = str(scratch.settings_dict["NAME"])
    restore_snapshot(file, url_of(name))
    before = counts(scratch)
    assert before["claims_claim"] and before["slots_slot"] and before["kernel_event"]
    migrate(scratch)
    assert not MigrationExecutor(scratch).migration_plan(
        MigrationExecutor(scratch).loader.graph.leaf_nodes()
    )
    after = counts(scratch)
    assert {
        table: count for table, count in after.items() if table in before and count < before[table]
    } == {}
    with scratch_database("upgrade_fresh") as fresh:
        migrate(fresh)
        expected = schema(str(fresh.settings_dict["NAME"]))
    assert sorted_lines(schema(name)) == sorted_lines(expected)


BROKEN = [
    ("UPDATE claims_claim SET size = 0", "claim_size"),
    ("UPDATE claims_claim SET outcome = 'released' WHERE state <> 'ended'", "claim_outcome"),
    ("UPDATE slots_slot SET ordinal = 0 WHERE claim_id IS NULL", "slot_holder"),
]


def test_dump_of_all_tables_is_restored(scratch: BaseDatabaseWrapper, tmp_path: Path) -> None:
    """What CHECKs and triggers call is there before the rows are, and found without a search
    path; then it refuses what it refused.
    """
    restore_snapshot(max(FOLDER.glob("*.dump")), url_of(str(scratch.settings_dict["NAME"])))
    migrate(scratch)
    made = dump(url_of(str(scratch.settings_dict["NAME"])), tmp_path)
    with scratch_database("restored") as restored:
        restore(url_of(str(restored.settings_dict["NAME"])), made)
        assert counts(restored) == counts(scratch)
        assert sorted_lines(schema(str(restored.settings_dict["NAME"]))) == sorted_lines(
            schema(str(scratch.settings_dict["NAME"]))
        )
        for text, rule in BROKEN:
            with pytest.raises(IntegrityError) as refused, restored.cursor() as cursor:
                cursor.execute(text)
            assert rule in str(refused.value)


def test_migrations_do_not_queue_behind_a_lock_for_long(scratch: BaseDatabaseWrapper) -> None:
    """Later sessions would queue behind the waiting migration. The test runs the command itself,
    in a new process.
    """
    migrate(scratch)
    name = str(scratch.settings_dict["NAME"])
    with psycopg.connect(url_of(name)) as reader:
        reader.execute("SELECT FROM claims_lease")
        done = subprocess.run(
            [sys.executable, "manage.py", "migrate", "claims", "zero"],
            env={**env.os.environ, "DATABASE_URL": url_of(name)},
            cwd=env.ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode
    assert "lock timeout" in done.stderr


def counts(connection: BaseDatabaseWrapper) -> dict[str, int]:
    with connection.cursor() as cursor:
        found = {}
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT count(*) FROM "{table}"')
            found[table] = cursor.fetchone()[0]
    return found


def sorted_lines(text: str) -> list[str]:
    """Columns that a migration added stand at the end of their table; in a fresh one they may
    stand elsewhere. And what was restored from a dump says the same expressions with other casts
    and brackets."""
    return sorted(CASTS.sub("", line).rstrip(",;") for line in text.splitlines())
