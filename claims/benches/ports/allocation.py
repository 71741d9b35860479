"""Claims of 16 ports from 2,000 load balancers, without a cloud."""

from collections.abc import Mapping

from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import parse_claim
from claims.benches.ports.seed import fill_ports
from claims.benches.rows.seed import WHO, analyze_claims
from project.kernel.bench.registry import BenchRun, NothingMeasured
from project.kernel.bench.workers import percentile_ms

CLAIMER = "claims.benches.ports.allocation.PortClaimer"
SIZE, TCP = 16, 12
PORTS = ",".join(f"{8000 + i}/{'TCP' if i < TCP else 'UDP'}" for i in range(SIZE))
EACH = 50  # ports of a load balancer
QUEUE = "bench"  # of operations: every bind writes one, and no worker performs it
CLAIMS, PROCESSES = 5000, 4
# Seconds of a slice of single claims: 5,100 claims before leave ports for 1,150.
SINGLE = 0.2
ONE_CALL = 1e-6  # seconds of a slice in which each worker does its share once


def measure_claims(run: BenchRun) -> Mapping[str, object]:
    """5,000 claims of 16 ports by several processes, then the time of single claims."""
    balancers, claims, slices = (20, 8, 1) if run.is_quick else (2000, CLAIMS, 5)
    processes = 2 if run.is_quick else PROCESSES
    pool = fill_ports("claims", balancers, EACH, queue=QUEUE)
    share = claims // slices // processes
    late = list[float]()
    with run.workers(CLAIMER, processes, pool=pool.name) as workers:
        workers.slice(ONE_CALL, claims=share // 10 or 1)
        analyze_claims()
        compared = run.compare(lambda: workers.slice(ONE_CALL, claims=share).rate, slices)
        for _ in range(run.slices(3)):
            late += workers.slice(run.seconds(SINGLE, ONE_CALL)).latencies
    return {
        "slots_ratio": round(SIZE * compared.ratio, 3),
        "slots_per_second": round(SIZE * compared.rate),
        "r_per_second": round(compared.reference),
        "claims": share * slices * processes,
        "claim_p99_ms": round(percentile_ms(sorted(late), 0.99), 2),
    }


class PortClaimer:
    """Claims of 16 ports, `claims` in each call."""

    def __init__(self, k: int, n: int, pool: str) -> None:
        self.body = {"pool": pool, "owner": f"pod:{k}", "ports": PORTS}
        self.claims = 1

    def begin(self, claims: int = 1) -> None:
        self.claims = claims

    def __call__(self) -> int:
        for _ in range(self.claims):
            if create_claim(parse_claim(self.body, requested_by=WHO)).state != "bound":
                raise NothingMeasured(f"pool {self.body['pool']} has no 16 free ports left.")
        return self.claims
