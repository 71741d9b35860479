"""Workspaces of an installation from before workspaces belonged to a pool."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor

from tests.upgrade.scratch_database import scratch_database

pytestmark = pytest.mark.xdist_group("upgrade")

BEFORE = """
INSERT INTO pools_pool (id, name, state, lanes, spec) VALUES
  (1, 'tf', 'active', '{any}', '{}'), (2, 'dns', 'active', '{any}', '{}'),
    (3, 'old', 'gone', '{any}', '{}');
INSERT INTO claims_shape (id, digest, pools, kind, lanes) VALUES (1, 'a', '{tf}', 'plan', '{any}');
INSERT INTO claims_workspace (id, name, locked_at, locked_by, lock_reason) VALUES
  (1, 'applied-by-tf', NULL, '', ''), (2, 'only-dns', NULL, '', ''),
    (3, 'never-used', now(), 'ana', 'audit'),
  (4, 'left-by-old', NULL, '', '');
INSERT INTO claims_claim (id, shape_id, pool_id, workspace_id, step, state, outcome) VALUES
  (1, 1, 1, 1, 'plan', 'ended', 'applied'), (2, 1, 2, 1, 'plan', 'ended', 'planned'),
    (3, 1, 2, 2, 'plan', 'waiting', ''),
  (4, 1, 3, 4, 'plan', 'ended', 'planned'), (5, 1, 2, 4, 'plan', 'ended', 'planned'),
    (6, 1, 3, 1, 'plan', 'ended', 'planned');
INSERT INTO claims_run (claim_id, generation, step, member_id, member)
  VALUES (1, 1, 'apply', 1, 'tf-0');
"""


@pytest.fixture
def scratch(django_db_blocker: Any) -> Iterator[BaseDatabaseWrapper]:
    with django_db_blocker.unblock(), scratch_database("workspaces") as connection:
        yield connection


def test_workspace_gets_the_pool_of_its_last_apply_or_stays_undecided(
    scratch: BaseDatabaseWrapper,
) -> None:
    executor = MigrationExecutor(scratch)
    leaves = executor.loader.graph.leaf_nodes()
    before = [
        ("claims", "0018_rescued_states") if app == "claims" else (app, name)
        for app, name in leaves
    ]
    executor.migrate(before)
    with scratch.cursor() as cursor:
        cursor.execute(BEFORE)
    executor = MigrationExecutor(scratch)
    executor.migrate(leaves)
    with scratch.cursor() as cursor:
        cursor.execute(
            "SELECT w.name, p.name FROM claims_workspace w LEFT JOIN pools_pool p ON p.id = "
            "w.pool_id ORDER BY w.id"
        )
        assert cursor.fetchall() == [
            ("applied-by-tf", "tf"),
            ("only-dns", "dns"),
            ("never-used", None),
            ("left-by-old", "dns"),
        ]
        cursor.execute(
            """SELECT w.name, p.name, s.allowed_at FROM claims_workspaceshare s
               JOIN claims_workspace w ON w.id = s.workspace_id
               JOIN pools_pool p ON p.id = s.pool_id ORDER BY w.id"""
        )
        assert cursor.fetchall() == [("applied-by-tf", "dns", None)], (
            "a pool that is gone uses nothing any more"
        )
