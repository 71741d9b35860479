"""The rate of binds: in batches, one by one, in a full pool, among a million slots, and after ten
minutes.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Any

from django.core.management import call_command
from django.db import connection, connections

from claims.benches.rows.seed import analyze_claims, count_waiting, fill_pools, refill
from project.kernel.bench.registry import BenchRun, Goal, NothingMeasured, bench
from project.kernel.bench.workers import WorkerGroup
from project.kernel.db.guards import reporting
from project.kernel.db.sql import run as run_sql

WORKERS = "claims.benches.worker_jobs."
QUEUE = "bench"  # of operations: every bind writes one, and no worker performs it
ENOUGH = 3  # waiting claims, as a multiple of a slice, so that no pool runs out of claims


@bench(
    "bind",
    "waiting claims bound by the allocator, all rules, events and operations on, 2 processes",
    [Goal("ratio", 3.0)],
)
def bench_bind(run: BenchRun) -> Mapping[str, object]:
    pools, each = (4, 12_800) if run.is_quick else (50, 4000)
    filled = fill_pools("bind", pools, each, queue=QUEUE, waiting=each)
    most = 0  # claims bound in one slice
    with run.workers(WORKERS + "make_allocator", 2) as workers:

        def measure() -> float:
            nonlocal most
            if count_waiting(filled) < ENOUGH * most:
                refill(filled)
            before = count_bound()
            done = workers.slice(run.seconds(1.0, 0.3))
            bound = count_bound() - before
            if not count_waiting(filled):
                raise NothingMeasured(
                    f"all {pools * each} claims were bound before the slice ended."
                )
            most = max(most, bound)
            return bound / done.seconds

        measure()
        compared = run.compare(measure)
    return {**compared.as_dict(), "processes": 2, "pools": pools}


@bench("claim", "one synchronous claim through the service, 8 processes", [Goal("ratio", 0.25)])
def bench_claim(run: BenchRun) -> Mapping[str, object]:
    pools, each = (4, 2560) if run.is_quick else (50, 6400)
    processes = 2 if run.is_quick else 8
    filled = fill_pools("claim", pools, each)
    late: list[float] = []
    with run.workers(WORKERS + "make_claimer", processes, names=filled.names) as workers:

        def measure() -> float:
            done = workers.slice(run.seconds(1.0, 0.3))
            late.append(done.percentile_ms(0.99))
            return done.rate

        measure()
        analyze_claims()
        measure()  # plans anew
        late.clear()
        compared = run.compare(measure)
    return {**compared.as_dict(), "p99_ms": round(median(late), 2), "processes": processes}


@bench("hot", "one pool 95 % full against 100 half-full pools", [Goal("ratio", 0.95)])
def bench_hot(run: BenchRun) -> Mapping[str, object]:
    pools, each = (4, 64) if run.is_quick else (100, 128)
    hot = fill_pools("hot", 1, pools * each, held=0.95)
    cool = fill_pools("cool", pools, each, held=0.5)
    processes = 2 if run.is_quick else 4
    with run.workers(WORKERS + "ClaimReleaseWorker", processes) as workers:
        for names in (hot.names, cool.names):
            workers.slice(run.seconds(1.0, 0.2), names=names)
        with run.reference_around() as around:
            ratio, ratios = run.interleave(
                lambda: workers.slice(run.seconds(2.0), names=hot.names).rate,
                lambda: workers.slice(run.seconds(2.0), names=cool.names).rate,
                run.slices(9),
            )
    return {"ratio": round(ratio, 3), "ratios": [round(r, 3) for r in ratios], **around}


@bench(
    "growth",
    "1,000,000 slots against 10,000: claim and release, one by one and in batches",
    [Goal("ratio", 0.95)],
)
def bench_growth(run: BenchRun) -> Mapping[str, object]:
    pools, few, many = (4, 64, 128) if run.is_quick else (100, 100, 10_000)
    found: dict[str, Any] = {}
    with small_database() as small:
        with using(small):
            names = fill_pools("grow", pools, few, held=0.5).names
        fill_pools("grow", pools, many, held=0.5)
        with run.reference_around() as around:
            for field, worker, options in (
                ("single", "ClaimReleaseWorker", {}),
                ("batch", "BatchClaimReleaseWorker", {"kept": 16, "batch": 16}),
            ):
                ratio, ratios = compare_sizes(run, worker, {"names": names, **options}, small)
                found |= {field: round(ratio, 3), f"{field}_ratios": [round(r, 3) for r in ratios]}
    return {
        "ratio": min(found["single"], found["batch"]),
        **found,
        "slots": pools * many,
        **around,
    }


def compare_sizes(
    run: BenchRun, worker: str, options: Mapping[str, object], small: str
) -> tuple[float, list[float]]:
    """The ratio of the rates of two workers in this database and in the small one."""
    with using(small):
        few = WorkerGroup(WORKERS + worker, 2, options)
    with few, WorkerGroup(WORKERS + worker, 2, options) as many:
        for workers in (few, many):
            workers.slice(run.seconds(2.0))
        return run.interleave(
            lambda: many.slice(run.seconds(2.0)).rate,
            lambda: few.slice(run.seconds(2.0)).rate,
            run.slices(9),
        )


@bench(
    "churn",
    "10 minutes of bind and release, 95 % full: the last minute against the first",
    [Goal("ratio", 0.95)],
)
def bench_churn(run: BenchRun) -> Mapping[str, object]:
    pools, each = (4, 64) if run.is_quick else (20, 500)
    minute, middle = run.seconds(60.0, 1.0), run.seconds(480.0, 0.5)
    filled = fill_pools("churn", pools, each, held=0.7)
    options = {
        "names": filled.names,
        "kept": int(each * 0.25) - 50 if not run.is_quick else 4,
        "batch": 50 if not run.is_quick else 4,
    }
    with run.workers(WORKERS + "BatchClaimReleaseWorker", 2, **options) as workers:
        workers.slice(run.seconds(5.0))
        slices = run.slices(5)
        first = run.compare(lambda: workers.slice(minute / slices).rate, slices)
        sizes = relation_sizes()
        end = time.monotonic() + middle
        while (left := end - time.monotonic()) > 0:
            workers.slice(min(30.0, left))
        last = run.compare(lambda: workers.slice(minute / slices).rate, slices)
    return {
        "ratio": round(last.ratio / first.ratio, 3),
        "first": first.as_dict(),
        "last": last.as_dict(),
        "kb_before": sizes,
        "kb_after": relation_sizes(),
    }


def count_bound() -> int:
    text = "SELECT count(*) AS n FROM kernel_event WHERE verb = 'bind'"
    with reporting():
        return int(run_sql(text, prepare=False)[0].n)


def relation_sizes() -> dict[str, int]:
    names = [
        "slots_slot",
        "slot_free",
        "slot_place",
        "slot_seat",
        "claims_claim",
        "claim_line",
        "kernel_event",
    ]
    text = """
    SELECT name, pg_relation_size(name::regclass) / 1024 AS kb
    FROM unnest(%(names)s::text[]) AS name"""
    return {row.name: row.kb for row in run_sql(text, {"names": names}, prepare=False)}


@contextmanager
def small_database() -> Iterator[str]:
    """A second, migrated database."""
    name = f"{connection.settings_dict['NAME']}_small"
    with using("postgres"), connection.cursor() as cursor:
        cursor.execute(f'CREATE DATABASE "{name}"')
    try:
        with using(name):
            call_command("migrate", verbosity=0, interactive=False)
        yield name
    finally:
        with using("postgres"), connection.cursor() as cursor:
            cursor.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@contextmanager
def using(name: str) -> Iterator[None]:
    """Connections and processes that start in this block use this database."""
    settings = connections["default"].settings_dict
    before = settings["NAME"]
    connection.close()
    settings["NAME"] = name
    try:
        yield
    finally:
        connection.close()
        settings["NAME"] = before
