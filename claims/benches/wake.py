"""The time from the release of a slot to the bind of the waiting claim, in an idle system."""

import time
from collections.abc import Mapping
from typing import Any

from claims.allocation.claim_view import ClaimView
from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import ClaimRequest
from claims.benches.processes import controller
from claims.benches.seed import WHO, fill_pools
from claims.lifecycle.release import release_claim
from project.kernel.bench.registry import AT_MOST, BenchRun, Goal, bench
from project.kernel.db.direct_connection import connect_direct

# Idle seconds before and after: hints are then sent at once, not ten times a second.
QUIET = 0.3
POLL_INTERVAL = 0.0002
LONGEST = 10.0


@bench(
    "wake",
    "commit of the release of a slot to the bind of the waiting claim, idle system",
    [Goal("p50_ms", 5.0, AT_MOST), Goal("p99_ms", 20.0, AT_MOST)],
)
def bench_wake(run: BenchRun) -> Mapping[str, object]:
    rounds = 5 if run.is_quick else 200
    names = fill_pools("wake", 1, 1).names
    latencies: list[float] = []
    before = run.reference.measure(run.seconds(1.0))
    with controller("allocate", "allocate"), connect_direct("bench") as watcher:
        held = claim(names[0])
        for _ in range(rounds):
            time.sleep(QUIET)
            waiting = claim(names[0])
            time.sleep(QUIET)
            release_claim(claim_id=held.id, generation=held.generation)
            latencies.append(seconds_until_bound(watcher, waiting))
            held = waiting
    latencies.sort()
    after = run.reference.measure(run.seconds(1.0))
    return {
        "p50_ms": round(1000 * latencies[len(latencies) // 2], 2),
        "p99_ms": round(1000 * latencies[min(len(latencies) - 1, int(len(latencies) * 0.99))], 2),
        "max_ms": round(1000 * latencies[-1], 2),
        "rounds": rounds,
        "r_before": round(before),
        "r_after": round(after),
    }


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
        if now - start > LONGEST:
            raise RuntimeError(f"claim {waiting.id} is not bound after {LONGEST:.0f} s")
        time.sleep(POLL_INTERVAL)
