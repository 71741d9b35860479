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

from claims.benches.seed import count_waiting, fill_pools, refill
from project.kernel.bench.registry import BenchRun, Goal, NothingMeasured, bench
from project.kernel.bench.workers import WorkerGroup
from project.kernel.db.guards import reporting

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
    with run.crew(WORKERS + "make_allocator", 2) as crew:

        def measure() -> float:
            nonlocal most
            if count_waiting(filled) < ENOUGH * most:
                refill(filled)
            before = count_bound()
            done = crew.slice(run.seconds(1.0, 0.3))
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
    pools, each = (4, 640) if run.is_quick else (50, 6400)
    processes = 2 if run.is_quick else 8
    filled = fill_pools("claim", pools, each)
    late: list[float] = []
    with run.crew(WORKERS + "make_claimer", processes, names=filled.names) as crew:

        def measure() -> float:
            done = crew.slice(run.seconds(1.0, 0.3))
            late.append(done.percentile_ms(0.99))
            return done.rate

        measure()
        late.clear()
        compared = run.compare(measure)
    return {**compared.as_dict(), "p99_ms": round(median(late), 2), "processes": processes}


@bench("hot", "one pool 95 % full against 100 half-full pools", [Goal("ratio", 0.95)])
def bench_hot(run: BenchRun) -> Mapping[str, object]:
    pools, each = (4, 64) if run.is_quick else (100, 128)
    hot = fill_pools("hot", 1, pools * each, held=0.95)
    cool = fill_pools("cool", pools, each, held=0.5)
    processes = 2 if run.is_quick else 4
    with run.crew(WORKERS + "ClaimReleaseWorker", processes) as crew:
        for names in (hot.names, cool.names):
            crew.slice(run.seconds(1.0, 0.2), names=names)
        before = run.reference.measure(run.seconds(1.0))
        ratio, ratios = run.interleave(
            lambda: crew.slice(run.seconds(2.0), names=hot.names).rate,
            lambda: crew.slice(run.seconds(2.0), names=cool.names).rate,
            run.slices(9),
        )
        after = run.reference.measure(run.seconds(1.0))
    return {
        "ratio": round(ratio, 3),
        "ratios": [round(r, 3) for r in ratios],
        "r_before": round(before),
        "r_after": round(after),
    }


@bench(
    "growth",
    "1,000,000 slots against 10,000: claim and release, one by one and in batches",
    [Goal("ratio", 0.95)],
)
def bench_growth(run: BenchRun) -> Mapping[str, object]:
    pools, few, many = (4, 64, 128) if run.is_quick else (100, 100, 10_000)
    processes = 2
    with small_database() as small:
        with using(small):
            names = fill_pools("grow", pools, few, held=0.5).names
        fill_pools("grow", pools, many, held=0.5)
        before = run.reference.measure(run.seconds(1.0))
        found: dict[str, Any] = {}
        workers = {"single": "ClaimReleaseWorker", "batch": "BatchClaimReleaseWorker"}
        for field, worker in workers.items():
            options = (
                {"names": names} if field == "single" else {"names": names, "kept": 16, "batch": 16}
            )
            with using(small):
                one = WorkerGroup(WORKERS + worker, processes, options)
            with one, WorkerGroup(WORKERS + worker, processes, options) as other:
                for crew in (one, other):
                    crew.slice(run.seconds(2.0))
                ratio, ratios = run.interleave(
                    lambda crew=other: crew.slice(run.seconds(2.0)).rate,  # type: ignore[misc]
                    lambda crew=one: crew.slice(run.seconds(2.0)).rate,  # type: ignore[misc]
                    run.slices(9),
                )
            found |= {field: round(ratio, 3), f"{field}_ratios": [round(r, 3) for r in ratios]}
        after = run.reference.measure(run.seconds(1.0))
    return {
        "ratio": min(found["single"], found["batch"]),
        **found,
        "slots": pools * many,
        "r_before": round(before),
        "r_after": round(after),
    }


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
    with run.crew(WORKERS + "BatchClaimReleaseWorker", 2, **options) as crew:
        crew.slice(run.seconds(5.0))
        slices = run.slices(5)
        first = run.compare(lambda: crew.slice(minute / slices).rate, slices)
        sizes = relation_sizes()
        end = time.monotonic() + middle
        while (left := end - time.monotonic()) > 0:
            crew.slice(min(30.0, left))
        last = run.compare(lambda: crew.slice(minute / slices).rate, slices)
    return {
        "ratio": round(last.ratio / first.ratio, 3),
        "first": first.as_dict(),
        "last": last.as_dict(),
        "kb_before": sizes,
        "kb_after": relation_sizes(),
    }


def count_bound() -> int:
    with reporting(), connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM kernel_event WHERE verb = 'bind'")
        return int(cursor.fetchone()[0])


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
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name, pg_relation_size(name::regclass) / 1024 FROM unnest(%s::text[]) AS name",
            [names],
        )
        return dict(cursor.fetchall())


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
