"""Waiting claims that a new load balancer wakes: the work of the allocator depends on the free
slots, not on the number of claims that wait.
"""

import statistics
import time
from collections.abc import Mapping
from typing import NamedTuple

from django.db import connection

from claims.allocation.create import create_claim
from claims.allocation.queues.allocator import allocate
from claims.allocation.requests.claim_request import parse_claim
from claims.benches.ports.allocation import PORTS
from claims.benches.ports.seed import close_numbers, fill_ports
from claims.benches.rows.seed import WHO
from pools.models import Member
from project.kernel.bench.registry import BenchRun, NothingMeasured
from project.kernel.db.guards import patient
from slots.members.services import record_sync_result

EACH = 48  # ports of a new load balancer


class WaitingPool(NamedTuple):
    """A full pool with waiting claims, and load balancers that become ready one by one."""

    id: int
    head: int
    waiting: int
    woken: int  # claims that a new load balancer serves


def measure_waiters(run: BenchRun) -> Mapping[str, object]:
    """The allocator's work for one new load balancer of 48 ports: 48 claims of one port, or three
    of 16. The worse of the two ratios counts.
    """
    few, many = (60, 120) if run.is_quick else (500, 5000)
    rounds = 1 if run.is_quick else 15
    found: dict[str, object] = {}
    ratios = list[float]()
    for field, ports in (("one", "8000/TCP"), ("sixteen", PORTS)):
        pools = [make_waiting(f"{field}-{n}", ports, n, rounds + 1) for n in (few, many)]
        took: list[list[float]] = [[], []]
        for turn in range(rounds + 1):
            for i in (0, 1) if turn % 2 == 0 else (1, 0):
                took[i].append(wake(pools[i]))
        pairs = [other / one for one, other in zip(*took, strict=True)][1:]  # the first warms up
        ratios.append(statistics.median(pairs))
        found[f"waiters_{field}_ms"] = [round(1000 * statistics.median(each), 2) for each in took]
        run.log(f"  {field}: {found[f'waiters_{field}_ms']} ms, ratio {ratios[-1]:.2f}")
    return {"waiters_ratio": round(max(ratios), 3), **found, "waiters": [few, many]}


def make_waiting(name: str, ports: str, waiting: int, balancers: int) -> WaitingPool:
    pool = fill_ports(name, balancers, EACH)
    Member.objects.filter(pool=pool).update(state="creating")
    close_numbers(pool)
    body = {"pool": name, "owner": "pod:0", "ports": ports}
    head = create_claim(parse_claim(body, requested_by=WHO))
    if head.state != "waiting":
        raise NothingMeasured(f"pool {name} has free ports before its claims wait")
    made = WaitingPool(pool.pk, head.id, waiting, EACH // (ports.count(",") + 1))
    queue_more(made, waiting - 1)
    with patient(), connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE claims_claim, claims_claimpart, claims_shape, slots_slot")
    serve()
    return made


def wake(pool: WaitingPool) -> float:
    """Seconds of the allocator from a new load balancer until it finds no more work."""
    member = Member.objects.filter(pool=pool.id, state="creating").order_by("position").first()
    assert member is not None
    record_sync_result(member_id=member.pk, is_gone=False, is_ready=True)
    began = time.perf_counter()
    bound = serve()
    seconds = time.perf_counter() - began
    if bound != pool.woken:
        raise NothingMeasured(f"{bound} claims were bound, not {pool.woken}")
    queue_more(pool, bound)
    return seconds


def serve() -> int:
    """Steps of the allocator, as its controller makes them."""
    total = 0
    while True:
        step = allocate()
        total += step.bound
        if not step.bound and not step.is_more:
            return total


def queue_more(pool: WaitingPool, count: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(MORE, {"head": pool.head, "count": count})


MORE = """
WITH head AS (SELECT * FROM claims_claim WHERE id = %(head)s),
made AS (
  INSERT INTO claims_claim (shape_id, pool_id, owner, requested_by, key, rank, spec, size)
  SELECT shape_id, pool_id, owner, requested_by, gen_random_uuid()::text, rank, spec, size
  FROM head, generate_series(1, %(count)s) RETURNING id)
INSERT INTO claims_claimpart (claim_id, index, kind, pools, count, first, options)
SELECT made.id, p.index, p.kind, p.pools, p.count, p.first, p.options
FROM made, claims_claimpart p WHERE p.claim_id = %(head)s"""
