"""Every bench runs for a few seconds through its real code; the figures are not compared."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from psycopg.conninfo import make_conninfo

from claims.benches.processes import database_environment
from project.kernel.bench.baseline import Reference, find_pgbench
from project.kernel.bench.registry import BenchRun, get_bench, list_benches, run_bench
from project.kernel.db.direct_connection import direct_parameters
from project.kernel.discovery import discover

discover("benches")

GOALS = {
    "bind": {"ratio"},
    "claim": {"ratio"},
    "http": {"ratio_to_healthz", "bulk_ratio"},
    "hot": {"ratio"},
    "life": {"ratio"},
    "events": {"read_per_second"},
    "growth": {"ratio"},
    "wake": {"p50_ms", "p99_ms"},
    "live": {"p99_ms"},
    "churn": {"ratio"},
    "agents": {"cpu_share", "cpu_share_sockets", "log_mb_per_min"},
    "approve": {"p99_ms"},
    "scale": {"cycle_s", "growth", "waiting_ratio"},
    "ports": {
        "ratio_to_bare",
        "ratio_to_pacing",
        "unthrottled",
        "slots_ratio",
        "claim_p99_ms",
        "waiters_ratio",
        "contiguous_ms",
        "three_pools_ms",
    },
}
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.xdist_group("bench")]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> BenchRun:
    """On the database of this test, where the processes of a bench find it, too."""
    for name, value in database_environment().items():
        monkeypatch.setenv(name, value)
    keys = ("host", "port", "user", "password", "dbname")
    conninfo = make_conninfo(
        **{k: v for k, v in direct_parameters("bench").items() if k in keys and v}
    )
    return BenchRun(Reference(conninfo, claims=8000, pgbench=find_pgbench()), is_quick=True)


@pytest.mark.parametrize("name", sorted(GOALS))
def test_a_bench_reports_exactly_the_fields_of_its_goals(name: str, run: BenchRun) -> None:
    found: dict[str, Any] = json.loads(json.dumps(run_bench(get_bench(name), run)))
    assert set(found["goals"]) == GOALS[name]
    assert all(found[field] > 0 for field in GOALS[name])
    assert found["bench"] == name


def test_every_bench_has_its_goals_in_the_table_above() -> None:
    assert {bench.name for bench in list_benches()} == set(GOALS)
    assert os.environ["DATABASE_URL"] and connections["default"]


def test_docs_describe_every_bench_and_the_figure_of_every_goal() -> None:
    text = (Path(__file__).parents[2] / "docs" / "bench.md").read_text()
    described, figures = (
        [
            [cell.strip() for cell in line.split("|")[1:3]]
            for line in part.splitlines()
            if "|" in line
        ]
        for part in text.split("## What they measure")[1].split("## Figures")
    )
    assert {name for name, _ in described[2:]} == set(GOALS)
    found = {(name, field) for name, fields in figures[2:] for field in fields.split(", ")}
    assert found == {(name, field) for name, fields in GOALS.items() for field in fields}
