"""Creates pools, members, slots and claims in bulk, on the scratch database of a bench.

The services would take longer than the bench, so the rows are written past the triggers.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import connection

from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import ClaimRequest
from claims.models import Claim
from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from project.kernel.db.guards import patient, reporting
from slots.members.liveness import mark_ready
from slots.members.services import activate_pool
from slots.members.tokens import issue_token

SLOTS_A_MEMBER = 64
WHO = "bench"


@dataclass(frozen=True)
class FilledPools:
    pools: list[int]
    names: list[str]


def fill_pools(
    prefix: str,
    count: int,
    slots_each: int,
    *,
    held: float = 0.0,
    queue: str = "",
    waiting: int = 0,
) -> FilledPools:
    """Creates `count` pools. Claims hold the share `held` of the slots. `waiting` claims wait in
    the queue of each pool.
    """
    names = [f"{prefix}{i}" for i in range(count)]
    members = -(-slots_each // SLOTS_A_MEMBER)
    pools = [
        create_pool(
            {"kind": "Pool", "name": n, "slots": SLOTS_A_MEMBER, "members": {"max": members}}
        ).pk
        for n in names
    ]
    Pool.objects.filter(pk__in=pools).update(queue=queue)
    heads = [
        create_claim(
            ClaimRequest(pools=(name,), owner=WHO, requested_by=WHO, key=f"head:{name}")
        ).id
        for name in names
    ]
    with patient(), without_triggers("slots_slot", "claims_claim"), connection.cursor() as cursor:
        cursor.execute(MEMBERS, [pools, members - 1])
        cursor.execute(SLOTS, [SLOTS_A_MEMBER - 1, pools, SLOTS_A_MEMBER, slots_each])
        if held:
            cursor.execute(HELD, [int(slots_each * held), pools, heads])
        if waiting:
            add_waiting(heads, waiting - 1)
        else:
            cursor.execute("DELETE FROM claims_claim WHERE id = ANY (%s)", [heads])
        cursor.execute(
            "VACUUM ANALYZE pools_pool, pools_member, slots_slot, claims_claim, claims_shape"
        )
    return FilledPools(pools, names)


def make_agents(pool_name: str, count: int, slots: Sequence[str]) -> list[str]:
    """Creates a pool of ready agents. Returns their tokens."""
    names = [f"agent-{i}" for i in range(count)]
    members = {"max": count, "list": names}
    pool = create_pool(
        {"name": pool_name, "provider": "agents", "slots": list(slots), "members": members}
    )
    activate_pool(pool_id=pool.pk)
    tokens = []
    for member in Member.objects.filter(pool=pool).order_by("position"):
        mark_ready(member_id=member.pk, incarnation=member.incarnation)
        tokens.append(issue_token(member_id=member.pk))
    return tokens


def add_waiting(heads: Sequence[int], count: int) -> None:
    """Adds `count` claims to the queue of each of these claims."""
    with connection.cursor() as cursor:
        cursor.execute(WAITING, [count, list(heads)])


def refill(filled: FilledPools) -> None:
    """Queues the bound claims again and frees their slots."""
    with patient(), without_triggers("slots_slot", "claims_claim"), connection.cursor() as cursor:
        for statement in REFILL:
            cursor.execute(statement, [filled.pools])
        cursor.execute("VACUUM ANALYZE slots_slot, claims_claim")


def analyze_claims() -> None:
    """Gives the planner the statistics that autovacuum gathers in a running installation. While the
    statistics say that there are no claims, all partial indexes cost the same, and the plan of
    `create_gathered` may read all claims instead of the waiting claims.
    """
    with patient(), connection.cursor() as cursor:
        cursor.execute("ANALYZE claims_claim, slots_slot")


def count_waiting(filled: FilledPools) -> int:
    with reporting():
        return Claim.objects.filter(state="waiting", pool__in=filled.pools).count()


@contextmanager
def without_triggers(*tables: str) -> Iterator[None]:
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        try:
            yield
        finally:
            for table in tables:
                cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


MEMBERS = """
INSERT INTO pools_member (pool_id, name, position, state)
SELECT p, 'm' || g, g, 'ready' FROM unnest(%s::bigint[]) AS p, generate_series(0, %s) AS g"""
SLOTS = """
INSERT INTO slots_slot (pool_id, member_id, lane, number, rank)
SELECT m.pool_id, m.id, 'slot', g, m.position FROM pools_member m, generate_series(0, %s) AS g
WHERE m.pool_id = ANY (%s::bigint[]) AND m.position * %s + g < %s"""
HELD = """
WITH slot AS (
  SELECT s.id, s.pool_id, nextval('generation') AS generation,
    nextval(pg_get_serial_sequence('claims_claim', 'id')) AS claim_id
  FROM (SELECT id, pool_id, row_number() OVER (PARTITION BY pool_id ORDER BY rank, number) AS n
    FROM slots_slot) s
  WHERE s.n <= %s AND s.pool_id = ANY (%s::bigint[])),
c AS (
  INSERT INTO claims_claim (id, shape_id, pool_id, owner, requested_by, key, state, generation,
    bound_at)
  SELECT slot.claim_id, head.shape_id, slot.pool_id, 'filled', 'filled', slot.claim_id::text,
    'bound', slot.generation, now()
  FROM slot JOIN claims_claim head ON head.pool_id = slot.pool_id AND head.id = ANY (%s::bigint[]))
UPDATE slots_slot SET state = 'held', claim_id = slot.claim_id, ordinal = 0,
  generation = slot.generation
FROM slot WHERE slots_slot.id = slot.id"""
REFILL = (
    """UPDATE slots_slot SET state = 'idle', claim_id = NULL, ordinal = NULL
      WHERE state = 'held' AND pool_id = ANY (%s)""",
    """UPDATE claims_claim SET state = 'waiting', named_generation = generation, bound_at = NULL
       WHERE state = 'bound' AND pool_id = ANY (%s)""",
)
WAITING = """
INSERT INTO claims_claim (shape_id, pool_id, owner, requested_by, key, rank, spec)
SELECT shape_id, pool_id, owner, requested_by, gen_random_uuid()::text, rank, spec
  FROM claims_claim, generate_series(1, %s)
WHERE id = ANY (%s::bigint[])"""
