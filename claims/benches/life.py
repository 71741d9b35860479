"""The rate of whole lives of claims: created and bound in bulk, then released in bulk."""

from collections.abc import Mapping

from claims.benches.rows.seed import analyze_claims, fill_pools
from claims.models import Claim
from project.kernel.bench.registry import BenchRun, Goal, NothingMeasured, bench
from project.kernel.db.guards import reporting

WORKER = "claims.benches.worker_jobs.LifeWorker"
QUEUE = "bench"  # of operations: every bind and release writes one, and no worker performs it
PROCESSES = 2
ONE_CALL = 1e-6  # seconds of a slice in which each worker does its share once
CLAIMS = 200_000


@bench(
    "life",
    "claims created, bound and released in bulk calls of 1,000, all rules, events and operations "
    "on, 2 processes",
    [Goal("ratio", 1.2)],
)
def bench_life(run: BenchRun) -> Mapping[str, object]:
    """A released slot drains, and no worker performs its operation, so it serves one claim only."""
    slices, batch = run.slices(10), 1000 if not run.is_quick else 50
    batches = CLAIMS // batch // slices if not run.is_quick else 4  # of one slice
    pools = 50 if not run.is_quick else 2
    rounds = slices + 1  # one more to warm up
    filled = fill_pools("life", pools, -(-rounds * batches // pools) * batch, queue=QUEUE)
    options = {"names": filled.names, "batch": batch, "batches": batches // PROCESSES}
    with run.workers(WORKER, PROCESSES, **options) as workers:
        workers.slice(ONE_CALL)
        analyze_claims()
        compared = run.compare(lambda: workers.slice(ONE_CALL).rate, slices)
    with reporting():
        ended = Claim.objects.filter(pool__in=filled.pools, outcome="released").count()
    if ended != rounds * batches * batch:
        raise NothingMeasured(f"{ended} claims were released, not {rounds * batches * batch}.")
    return {**compared.as_dict(), "claims": slices * batches * batch, "processes": PROCESSES}
