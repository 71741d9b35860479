"""`manage.py bench ports`: allocation of ports alone, and whole syncs with the strict clouds."""

from collections.abc import Mapping

from claims.benches.ports.allocation import measure_claims
from claims.benches.ports.clouds import running_clouds
from claims.benches.ports.load_balancers import measure_aws, measure_tencent
from claims.benches.ports.searches import measure_searches
from claims.benches.ports.waiters import measure_waiters
from project.kernel.bench.registry import AT_LEAST, AT_MOST, BenchRun, Goal, bench


@bench(
    "ports",
    "listeners of 4,800 and 2,500 claimed ports on strict clouds, and allocation of ports alone",
    [
        Goal("ratio_to_bare", 1.2, AT_MOST),
        Goal("ratio_to_pacing", 1.05, AT_MOST),
        Goal("unthrottled", 1.0, AT_LEAST),
        Goal("slots_ratio", 1.0, AT_LEAST),
        Goal("claim_p99_ms", 50.0, AT_MOST),
        Goal("waiters_ratio", 1.2, AT_MOST),
        Goal("contiguous_ms", 10.0, AT_MOST),
        Goal("three_pools_ms", 10.0, AT_MOST),
    ],
)
def bench_ports(run: BenchRun) -> Mapping[str, object]:
    with running_clouds() as clouds:
        return {
            **measure_claims(run),
            **measure_searches(run),
            **measure_waiters(run),
            **measure_tencent(run, clouds),
            **measure_aws(run, clouds),
        }
