"""The time from the release of a slot to the bind of the waiting claim, in an idle system."""

import time
from collections.abc import Mapping
from typing import Any

from claims.allocation.claim_view import ClaimView
from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import ClaimRequest
from claims.benches.processes import controller
from claims.benches.rows.seed import WHO, fill_pools
from claims.lifecycle.release import release_claim
from project.kernel.bench.registry import AT_MOST, BenchRun, Goal, bench
from project.kernel.bench.workers import latency_figures
from project.kernel.db.direct_connection import connect_direct

# Idle seconds before and after: hints are then sent at once, not ten times a second.
QUIET = 0.3
POLL_INTERVAL = 0.0002
MAX_WAIT = 10.0


@bench(
    "wake",
    "commit of the release of a slot to the bind of the waiting claim, idle system",
    [Goal("p50_ms", 5.0, AT_MOST), Goal("p99_ms", 20.0, AT_MOST)],
)
def bench_wake(run: BenchRun) -> Mapping[str, object]:
    rounds = 5 if run.is_quick else 200
    names = fill_pools("wake", 1, 1).names
    latencies: list[float] = []
    with (
        run.reference_around() as around,
        controller("allocate", "allocate"),
        connect_direct("bench") as watcher,
    ):
        held = claim(names[0])
        for _ in range(rounds):
            time.sleep(QUIET)
            waiting = claim(names[0])
            time.sleep(QUIET)
            release_claim(claim_id=held.id, generation=held.generation)
            latencies.append(seconds_until_bound(watcher, waiting))
            held = waiting
    return {**latency_figures(sorted(latencies)), "rounds": rounds, **around}


def claim(name: str) -> ClaimView:
    return create_claim(ClaimRequest(pools=(name,), owner="bench", requested_by=WHO))


def seconds_until_bound(watcher: Any, waiting: ClaimView) -> float:
    """Polls on another connection, and sets the generation of the bound claim."""
    start = time.perf_counter()
    while True:
        row = watcher.execute(
            "SELECT generation FROM claims_claim WHERE id = %s AND state = 'bound'", [waiting.id]
        ).fetchone()
        now = time.perf_counter()
        if row is not None:
            waiting.generation = row[0]
            return now - start
        if now - start > MAX_WAIT:
            raise RuntimeError(f"claim {waiting.id} is not bound after {MAX_WAIT:.0f} s")
        time.sleep(POLL_INTERVAL)
