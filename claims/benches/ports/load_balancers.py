"""Ports on the strict clouds, from bound claims to confirmed listeners: rows, operations, worker
threads, providers, and the call budgets in the database.
"""

from collections.abc import Mapping

from claims.benches.ports.bare_calls import CALLS_PER_SECOND, seconds_of_bare_calls
from claims.benches.ports.clouds import Clouds
from claims.benches.ports.performers import Performers, performing
from claims.benches.ports.scene import make_balancers, make_claims, seconds_until_ready
from pools.models import Member, Pool
from pools.providers.aws.options import ENDPOINTS
from project.kernel.bench.registry import BenchRun
from slots.models import Slot

LATENCY = 0.04  # seconds of each call
PORTS = 50  # listeners of a load balancer
# Tencent Cloud: 300 claims of 16 ports. A write is a task of a second.
CLAIMS, TCP, UDP = 300, 8, 8
APART = {"ports": "30000-30049", "protocols": ["tcp", "udp"]}
TASK_SECONDS = 1.0
CLB_THREADS = 48  # each waits for the tasks of one load balancer
# AWS: 2,500 ports, two writes each, at the rate and burst of the strict server.
NLB_CLAIMS, NLB_SIZE = 250, 10
SHARED = {"ports": "30000-30049", "shared": True}
WRITES_A_PORT, WRITES_A_SECOND, WRITE_BURST = 2, 3.0, 20.0
SCALE = 8.0  # of all rates of AWS, so that the run ends in four minutes
NLB_THREADS = 4  # as many as `make up` has


def measure_tencent(run: BenchRun, clouds: Clouds) -> Mapping[str, object]:
    """Bare calls on internal load balancers, then Berth with the same numbers on open ones: an
    account has 100 of each.
    """
    claims = 3 if run.is_quick else CLAIMS
    count = -(-claims * (TCP + UDP) // PORTS)
    task_seconds = 0.1 if run.is_quick else TASK_SECONDS
    limits = {
        "latency": LATENCY,
        "write_seconds": task_seconds,
        "calls_per_second": CALLS_PER_SECOND,
    }
    with performing("tencent", 2 if run.is_quick else CLB_THREADS) as performers:
        bare_pool = _make_clbs("clb-bare", "INTERNAL", clouds, count, performers)
        pool = _make_clbs("clb", "OPEN", clouds, count, performers)
        ports = [f"{1000 + i}/{'TCP' if i < TCP else 'UDP'}" for i in range(TCP + UDP)]
        made = make_claims(pool.name, claims, ports)
        ids = Member.objects.filter(pool=bare_pool).order_by("id").values_list("external_id")
        work = dict(zip([name for (name,) in ids], _list_numbers(pool), strict=False))
        clouds.ask("tencent", **limits)
        bare = seconds_of_bare_calls(bare_pool, work, task_seconds)
        bare_calls = clouds.ask("tencent")["calls"]
        run.log(f"  tencent: the bare calls take {bare:.2f} s: {bare_calls}")
        clouds.ask("tencent", **limits)
        seconds = seconds_until_ready(made, 20 * bare + 60, performers)
        report = clouds.ask("tencent")
    run.log(f"  tencent: Berth takes {seconds:.2f} s: {report}")
    return {
        "ratio_to_bare": round(seconds / bare, 3),
        "tencent_s": round(seconds, 2),
        "bare_s": round(bare, 2),
        "tencent_ports": claims * (TCP + UDP),
        "tencent_calls": report["calls"],
        "bare_calls": bare_calls,
        "tencent_throttled": report["throttled"],
    }


def _make_clbs(name: str, kind: str, clouds: Clouds, count: int, performers: Performers) -> Pool:
    balancer = {"type": kind, "vpc_id": "vpc-12345678"}
    if kind == "INTERNAL":
        balancer["subnet_id"] = "subnet-12345678"
    provider = {
        "kind": "tencent",
        "region": "ap-guangzhou",
        "endpoint": clouds.addresses["tencent"],
        "load_balancer": balancer,
    }
    return make_balancers(name, provider, APART, count, performers)


def _list_numbers(pool: Pool) -> list[dict[str, list[int]]]:
    """The held numbers of each load balancer, by protocol."""
    found: dict[int, dict[str, list[int]]] = {}
    held = Slot.objects.filter(pool=pool, state="held").order_by("member_id", "number")
    for member, lane, number in held.values_list("member_id", "lane", "number"):
        found.setdefault(member, {}).setdefault(lane.upper(), []).append(number)
    return list(found.values())


def measure_aws(run: BenchRun, clouds: Clouds) -> Mapping[str, object]:
    """Against the time that the bucket of writes allows at best. The buckets of reads and
    registrations allow more.
    """
    claims, scale = (1, 100.0) if run.is_quick else (NLB_CLAIMS, SCALE)
    ports = claims * NLB_SIZE
    provider = {
        "kind": "aws",
        "region": "eu-west-1",
        **dict.fromkeys(ENDPOINTS.values(), clouds.addresses["aws"]),
        "subnets": ["subnet-00000000", "subnet-00000001"],
    }
    # A quick run has fewer writes than the burst.
    pacing = max(1.0, ports * WRITES_A_PORT - WRITE_BURST) / (WRITES_A_SECOND * scale)
    with performing("aws", NLB_THREADS, pace=scale) as performers:
        pool = make_balancers("nlb", provider, SHARED, -(-ports // PORTS), performers)
        made = make_claims(pool.name, claims, [f"{1000 + i}/TCP" for i in range(NLB_SIZE)])
        clouds.ask("aws", latency=LATENCY, scale=scale)
        run.log(f"  aws: {ports} ports take at least {pacing:.2f} s at {scale:g} times the rates")
        seconds = seconds_until_ready(made, 20 * pacing + 60, performers)
        report = clouds.ask("aws")
    run.log(f"  aws: Berth takes {seconds:.2f} s: {report}")
    calls = sum(report["calls"].values())
    return {
        "ratio_to_pacing": round(seconds / pacing, 3),
        "unthrottled": round(1 - report["throttled"] / calls, 4),
        "aws_s": round(seconds, 2),
        "pacing_s": round(pacing, 2),
        "aws_ports": ports,
        "aws_scale": scale,
        "aws_calls": report["calls"],
        "aws_throttled": report["throttled"],
    }
