"""The bench runner: ratios to the reference R, parallel workers, one JSON object on stdout."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from psycopg.conninfo import make_conninfo

from project.kernel.bench import baseline, registry
from project.kernel.bench.baseline import Reference, find_pgbench
from project.kernel.bench.registry import (
    AT_MOST,
    BenchRun,
    Goal,
    NothingMeasured,
    get_bench,
    run_bench,
)
from project.kernel.bench.workers import Slice, WorkerGroup
from project.kernel.db.direct_connection import connect_direct
from project.kernel.errors import Invalid


class Steady:
    """An R that is known."""

    by = "a test"

    def __init__(self, *rates: float) -> None:
        self.rates = list(rates)

    def measure(self, seconds: float = 1.0) -> float:
        return self.rates.pop(0) if len(self.rates) > 1 else self.rates[0]


def run_with(*rates: float) -> BenchRun:
    return BenchRun(Steady(*rates))  # type: ignore[arg-type]


def test_each_slice_is_measured_between_two_reference_slices():
    rates = iter([300.0, 300.0, 400.0])
    found = run_with(100.0, 200.0, 100.0, 100.0).compare(lambda: next(rates), slices=3)
    assert found.ratios == [2.0, 2.0, 4.0]
    assert found.ratio == 2.0


def test_interleaved_slices_alternate_which_goes_first():
    order = []

    def measure(name: str, rate: float) -> Callable[[], float]:
        return lambda: order.append(name) or rate  # type: ignore[func-returns-value]

    ratio, ratios = run_with(1.0).interleave(measure("a", 50.0), measure("b", 100.0), slices=3)
    assert (ratio, ratios) == (0.5, [0.5] * 3)
    assert "".join(order) == "abbaab"


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_empty_slice_fails_the_bench(rate):
    with pytest.raises(NothingMeasured, match="slice 2"):
        run_with(100.0).compare(iter([50.0, rate, 50.0]).__next__, slices=3)
    with pytest.raises(NothingMeasured, match="slice 1"):
        run_with(1.0).interleave(lambda: rate, lambda: 50.0, slices=1)
    with pytest.raises(NothingMeasured, match="slice 1"):
        run_with(1.0).interleave(lambda: 50.0, lambda: rate, slices=1)


def test_empty_reference_slice_fails_the_bench():
    with pytest.raises(NothingMeasured, match="R is 0"):
        run_with(100.0, 0.0).compare(lambda: 50.0, slices=1)


def test_zero_in_a_field_with_a_goal_fails_the_bench(monkeypatch):
    monkeypatch.setattr(registry, "_benches", {})
    registry.bench("x", "about", [Goal("p99_ms", 20.0, AT_MOST)])(lambda run: {"p99_ms": 0.0})
    with pytest.raises(NothingMeasured, match="p99_ms is 0"):
        run_bench(get_bench("x"), run_with(1.0))


@pytest.mark.parametrize(
    ("goal", "value", "met", "by"),
    [
        (Goal("ratio", 3.0), 3.0, True, ""),
        (Goal("ratio", 3.0), 2.7, False, "10%"),
        (Goal("p99_ms", 20.0, AT_MOST), 20.0, True, ""),
        (Goal("p99_ms", 20.0, AT_MOST), 25.0, False, "25%"),
    ],
)
def test_missed_goal_says_by_how_much(goal, value, met, by):
    judged = goal.judge(value)
    assert (judged["met"], judged["missed_by"]) == (met, by)


def test_result_has_fields_goals_and_the_reference_conditions(monkeypatch):
    monkeypatch.setattr(registry, "_benches", {})
    registry.bench("x", "about", [Goal("ratio", 2.0)])(lambda run: {"ratio": 2.5})
    found = run_bench(get_bench("x"), run_with(1.0))
    assert (found["bench"], found["ratio"], found["goals"]["ratio"]["met"], found["r_by"]) == (
        "x",
        2.5,
        True,
        "a test",
    )
    with pytest.raises(ValueError, match="twice"):
        registry.bench("x", "", [])(lambda run: {})
    with pytest.raises(Invalid, match="There is no bench y"):
        get_bench("y")


def test_slice_reports_its_percentiles():
    found = Slice(100, 2.0, [n / 1000 for n in range(100)])
    assert (
        found.rate,
        found.percentile_ms(0.5),
        found.percentile_ms(0.99),
        found.percentile_ms(1.0),
    ) == (50.0, 50.0, 99.0, 99.0)
    assert Slice(0, 1.0, []).percentile_ms(0.5) == 0.0


# Processes ----------------------------------------------------------------------------------------


def make_worker(k: int, n: int) -> Callable[[], int]:
    return Worker(k)


class Worker:
    def __init__(self, k: int) -> None:
        self.k = k
        self.fails = False

    def begin(self, fails: bool = False) -> None:
        self.fails = fails

    def __call__(self) -> int:
        if self.fails and self.k == 1:
            raise ValueError("worker 1 cannot")
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_database()")
            assert cursor.fetchone()[0].startswith("test_")
        return 1


@pytest.mark.django_db(transaction=True)
def test_worker_group_measures_in_parallel_and_reports_a_worker_error():
    with WorkerGroup("tests.kernel.bench.test_bench.make_worker", 2) as workers:
        for _ in range(2):
            found = workers.slice(0.05)
            assert found.count >= 2
            assert found.latencies == sorted(found.latencies)
        with pytest.raises(RuntimeError, match="worker 1 cannot"):
            workers.slice(0.05, fails=True)


# R ------------------------------------------------------------------------------------------------


@pytest.fixture
def conninfo(transactional_db: None) -> Any:
    with connect_direct("test") as session:
        yield make_conninfo(
            **(session.info.get_parameters() | {"password": session.info.password, "options": ""})
        )
        session.execute("DROP SCHEMA IF EXISTS r CASCADE")


@pytest.mark.parametrize("by", ["pgbench", "psycopg"])
def test_reference_is_measured_with_and_without_pgbench(conninfo, by, monkeypatch):
    monkeypatch.setattr(baseline, "CLIENTS", 2)
    found = Reference(conninfo, claims=60_000, pgbench=find_pgbench() if by == "pgbench" else None)
    assert by in found.by
    assert found.measure(0.2) > 50
    with connect_direct("test") as session:
        row = session.execute(
            "SELECT count(*), count(DISTINCT claim_id) FROM r.slot WHERE claim_id IS NOT NULL"
        ).fetchone()
    assert row is not None
    assert row[0] == row[1] > 10, "it really binds"


# The command --------------------------------------------------------------------------------------


def test_bench_command_prints_one_object_and_drops_its_scratch_database(transactional_db):
    command = [sys.executable, "manage.py", "bench", "events", "--json", "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert (found["bench"], found["quick"]) == ("events", True)
    assert found["read_per_second"] > 0
    scratch = re.search(r"measuring in (\w+)", done.stderr)
    assert scratch is not None
    with connect_direct("test") as session:
        assert (
            session.execute("SELECT FROM pg_database WHERE datname = %s", [scratch[1]]).fetchone()
            is None
        )
