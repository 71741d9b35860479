"""Pools of ports written in bulk, past the triggers, on the scratch database of a bench."""

from django.db import connection

from claims.benches.rows.seed import MEMBERS, without_triggers
from pools.config.layout import LAST_PORT
from pools.lifecycle.services import create_pool
from pools.models import Pool
from project.kernel.db.guards import patient

FIRST = 30_000


def fill_ports(name: str, members: int, each: int, *, queue: str = "") -> Pool:
    """A pool of load balancers with shared listeners, all ready and free."""
    slots = {"ports": f"{FIRST}-{FIRST + each - 1}", "shared": True, "quota": each}
    pool = create_pool({"name": name, "slots": slots, "members": {"max": members}})
    Pool.objects.filter(pk=pool.pk).update(queue=queue)
    with patient(), without_triggers("slots_slot", "claims_claim"), connection.cursor() as cursor:
        cursor.execute(MEMBERS, [[pool.pk], members - 1])
        cursor.execute(SLOTS, [FIRST, each - 1, pool.pk])
        cursor.execute("VACUUM ANALYZE pools_pool, pools_member, slots_slot, claims_claim")
    return pool


def close_numbers(
    pool: Pool,
    *,
    step: int = 1,
    rest: int = 0,
    end: int = LAST_PORT + 1,
    last_end: int | None = None,
) -> None:
    """Take the numbers below `end` that leave this rest; on the last member those below
    `last_end`.
    """
    values = {
        "pool": pool.pk,
        "step": step,
        "rest": rest,
        "end": end,
        "last_end": end if last_end is None else last_end,
    }
    with patient(), without_triggers("slots_slot"), connection.cursor() as cursor:
        cursor.execute(CLOSE, values)
        cursor.execute("VACUUM ANALYZE slots_slot")


SLOTS = """
INSERT INTO slots_slot (pool_id, member_id, lane, number, rank)
SELECT m.pool_id, m.id, 'port', %s + g, m.position
FROM pools_member m, generate_series(0, %s) AS g WHERE m.pool_id = %s"""
CLOSE = """
UPDATE slots_slot s SET is_open = false
FROM (SELECT id, lead(id) OVER (ORDER BY position) IS NULL AS is_last FROM pools_member
  WHERE pool_id = %(pool)s) m
WHERE m.id = s.member_id AND s.pool_id = %(pool)s AND s.number %% %(step)s = %(rest)s
  AND s.number < CASE WHEN m.is_last THEN %(last_end)s ELSE %(end)s END"""
