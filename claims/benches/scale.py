"""The time of one scaler cycle: over many pools, over few pools, and with waiting claims."""

import statistics
import time
from collections.abc import Mapping, Sequence

from django.db import connection
from django.db.models.functions import Now

from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import ClaimRequest
from claims.benches.rows.seed import MEMBERS, add_waiting, without_triggers
from claims.scaling.scaler import scale_pools
from claims.scaling.snapshot import read_wanted
from pools.lifecycle.services import create_pool
from pools.models import Pool
from project.kernel.bench.registry import AT_MOST, BenchRun, Goal, bench
from project.kernel.db.guards import patient

SLOTS = ["any", "plan", "plan"]
HELD = 0.5  # of the slots: between the thresholds, so the scaler changes no pool
WAITING = 10_000
ROUNDS = 5


@bench(
    "scale",
    "one cycle of the scaler over 1,000 pools of 100 members with 3 slots, one process",
    [
        Goal("cycle_s", 5.0, AT_MOST),
        Goal("growth", 1.2, AT_MOST),
        Goal("waiting_ratio", 1.05, AT_MOST),
    ],
)
def bench_scale(run: BenchRun) -> Mapping[str, object]:
    pools, members = (20, 4) if run.is_quick else (1000, 100)
    few = max(1, pools // 10)
    ids = fill(pools, members)
    cycle(ids)  # the first cycle writes a decision for each pool, later cycles update it
    whole: list[float] = []
    growth: list[float] = []
    own: list[float] = []
    # Cycles over few pools run before and after, so that other load affects both figures.
    for turn in range(run.slices(ROUNDS, 1)):
        before = [cycle(ids[:few]) for _ in range(pools // few // 2)]
        busy = time.process_time()
        whole.append(cycle(ids))
        own.append(time.process_time() - busy)
        after = [cycle(ids[:few]) for _ in range(pools // few // 2)]
        each = statistics.mean(before + after) / few
        growth.append(whole[-1] / pools / each)
        run.log(
            f"  {turn + 1}: {whole[-1]:.2f} s for {pools} pools, {1000 * each:.2f} ms "
            f"for each of {few}"
        )
    cycle_s = statistics.median(whole)
    more = wait(run, ids, ids[:few])
    return {
        "cycle_s": round(cycle_s, 3),
        "cycles_s": [round(seconds, 3) for seconds in whole],
        # CPU time of this process only, without PostgreSQL.
        "own_cpu_s": round(statistics.median(own), 3),
        "ms_a_pool": round(1000 * cycle_s / pools, 3),
        "growth": round(statistics.median(growth), 3),
        "waiting_ratio": round(1 + statistics.median(more) / cycle_s, 3),
        "waiting_ms": [round(1000 * seconds, 1) for seconds in more],
        "pools": pools,
        "members": members,
    }


def cycle(ids: Sequence[int]) -> float:
    """One cycle of the controller, without its pauses."""
    Pool.objects.filter(pk__in=ids).update(observed_at=Now())
    began = time.perf_counter()
    decided = scale_pools(ids, read_wanted())
    seconds = time.perf_counter() - began
    if len(decided) != len(ids) or any(decision.delta for decision in decided.values()):
        raise RuntimeError("a pool was left out or changed")
    return seconds


def wait(run: BenchRun, ids: Sequence[int], few: Sequence[int]) -> list[float]:
    """The extra seconds of a cycle with waiting claims in a pool that is full and at its maximum.

    Measured in turn with and without these claims, over few pools: their cost does not depend on
    the number of pools, and short cycles measure it sooner.
    """
    count = 50 if run.is_quick else WAITING
    pool = Pool.objects.get(pk=ids[0])
    head = create_claim(
        ClaimRequest(
            pools=(pool.name,), kind="plan", owner="bench", requested_by="bench", key="head"
        )
    )
    with connection.cursor() as cursor, patient():
        add_waiting([head.id], count - 1)
        cursor.execute("VACUUM ANALYZE claims_claim, claims_shape")
    more = []
    for turn in range(run.slices(2 * ROUNDS, 1)):
        took = {}
        for is_waiting in ((True, False), (False, True))[turn % 2]:
            show(is_waiting)
            # The fastest: other programs of the machine only add to a cycle of milliseconds.
            took[is_waiting] = min(cycle(few) for _ in range(7))
        more.append(took[True] - took[False])
        run.log(
            f"  {turn + 1}: {took[True]:.3f} s with {count:,} that wait, "
            f"{took[False]:.3f} s without"
        )
    return more


def show(is_waiting: bool) -> None:
    """Queues these claims, or ends them."""
    text = "SET state = 'waiting', outcome = '' WHERE outcome = 'cancelled'"
    if not is_waiting:
        text = "SET state = 'ended', outcome = 'cancelled' WHERE state = 'waiting'"
    with patient(), without_triggers("claims_claim"), connection.cursor() as cursor:
        cursor.execute(f"UPDATE claims_claim {text}")
        cursor.execute("VACUUM ANALYZE claims_claim")


def fill(pools: int, members: int) -> list[int]:
    """Writes the rows of the services in bulk, past the triggers. The first pool is full and at its
    maximum, so claims wait there.
    """
    policy = {"policy": "utilisation", "cooldown": {"up": "0s"}}
    ids = []
    for n in range(pools):
        most = members if n == 0 else members + 10
        limits = {"min": 0, "max": most}
        config = {
            "name": f"scale{n}",
            "provider": "local",
            "slots": SLOTS,
            "members": limits,
            "scaling": policy,
        }
        ids.append(create_pool(config).pk)
    Pool.objects.filter(pk__in=ids).update(state="active")
    with patient(), without_triggers("slots_slot", "claims_claim"), connection.cursor() as cursor:
        cursor.execute(MEMBERS, [ids, members - 1])
        cursor.execute(SLOTS_SQL, [ids])
        head = create_claim(
            ClaimRequest(
                pools=("scale1" if pools > 1 else "scale0",),
                kind="plan",
                owner="x",
                requested_by="x",
                key="first",
            )
        )
        cursor.execute(HOLD, [ids[0], HELD, ids, head.id])
        cursor.execute("DELETE FROM claims_claim WHERE id = %s AND state = 'waiting'", [head.id])
        cursor.execute(
            "VACUUM ANALYZE pools_pool, pools_member, slots_slot, claims_claim, claims_shape"
        )
    return ids


SLOTS_SQL = """
INSERT INTO slots_slot (pool_id, member_id, lane, number, rank)
SELECT m.pool_id, m.id, CASE g WHEN 0 THEN 'any' ELSE 'plan' END, g, m.position
  FROM pools_member m, generate_series(0, 2) AS g
WHERE m.pool_id = ANY (%s::bigint[])"""
HOLD = """
WITH slot AS (
  SELECT s.id, s.pool_id, nextval('generation') AS generation,
    nextval(pg_get_serial_sequence('claims_claim', 'id')) AS claim_id
  FROM (SELECT id, pool_id, state, row_number() OVER (PARTITION BY pool_id ORDER BY rank,
    number) AS n,
          count(*) OVER (PARTITION BY pool_id) AS whole FROM slots_slot) s
  WHERE s.n <= s.whole * CASE WHEN s.pool_id = %s THEN 1
    ELSE %s END AND s.pool_id = ANY (%s::bigint[]) AND s.state = 'idle'),
c AS (
  INSERT INTO claims_claim (id, shape_id, pool_id, owner, requested_by, key, state, generation,
    bound_at)
  SELECT slot.claim_id, head.shape_id, slot.pool_id, 'filled', 'filled', slot.claim_id::text,
    'bound', slot.generation, now()
  FROM slot, claims_claim head WHERE head.id = %s)
UPDATE slots_slot SET state = 'held', claim_id = slot.claim_id, ordinal = 0,
  generation = slot.generation
FROM slot WHERE slots_slot.id = slot.id"""
