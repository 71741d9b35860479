"""Samples of the use of every pool, one a minute, for charts and replays.

Samples by minute are kept for a week, samples by hour for 90 days. Any number of processes may
take samples: the unique key lets the first of each minute win.
"""

from project.kernel.controllers.periodic import chore
from project.kernel.db.guards import reporting
from project.kernel.db.sql import run
from project.kernel.events.retention import retention_rule

MISSING = """
SELECT id FROM pools_pool pool WHERE state <> 'gone'
  AND NOT EXISTS (SELECT FROM pools_sample WHERE pool_id = pool.id
    AND at = date_trunc('minute', now()) AND NOT is_hourly)"""

# Counts slots by stored state, without retired ones, and waiting claims by their first pool.
TAKE = """
WITH waits AS (
  SELECT pool_id, count(*) AS n FROM (
    SELECT pool_id FROM claims_claim WHERE state = 'waiting'
    UNION ALL SELECT pool_id FROM claims_claim WHERE state = 'blocked') c GROUP BY 1),
there AS (
  SELECT member.pool_id, count(DISTINCT member.id) AS members, count(slot.id) AS slots,
    count(*) FILTER (WHERE slot.state = 'held') AS held,
    count(*) FILTER (WHERE slot.state = 'reserved') AS reserved
  FROM pools_member member LEFT JOIN slots_slot slot ON slot.member_id = member.id
    AND slot.state <> 'retired'
  WHERE member.state <> 'gone' AND member.pool_id = ANY (%(pools)s::bigint[]) GROUP BY 1)
INSERT INTO pools_sample (pool_id, at, is_hourly, members, slots, held, reserved, waiting)
SELECT pool.id, date_trunc('minute', now()), false, coalesce(members, 0), coalesce(slots, 0),
  coalesce(held, 0), coalesce(reserved, 0),
  coalesce(n, 0)
FROM pools_pool pool LEFT JOIN there ON there.pool_id = pool.id
  LEFT JOIN waits ON waits.pool_id = pool.id
WHERE pool.id = ANY (%(pools)s::bigint[])
ON CONFLICT DO NOTHING"""

# Averages the samples of the last full hour.
ROUND_UP = """
INSERT INTO pools_sample (pool_id, at, is_hourly, members, slots, held, reserved, waiting)
SELECT pool_id, date_trunc('hour', at), true, round(avg(members)), round(avg(slots)),
  round(avg(held)), round(avg(reserved)),
  round(avg(waiting))
FROM pools_sample minute
WHERE NOT is_hourly AND at >= date_trunc('hour', now()) - interval '1 hour'
  AND at < date_trunc('hour', now())
  AND NOT EXISTS (
    SELECT FROM pools_sample WHERE pool_id = minute.pool_id
      AND at = date_trunc('hour', now()) - interval '1 hour' AND is_hourly)
GROUP BY 1, 2
ON CONFLICT DO NOTHING"""

# LIMIT is part of the text: as a parameter it would prevent a good query plan.
FORGET = """
WITH old AS (SELECT id FROM pools_sample WHERE is_hourly = %(is_hourly)s
  AND at < now() - make_interval(secs => %(age)s) LIMIT {n})
DELETE FROM pools_sample WHERE id IN (SELECT id FROM old) RETURNING id"""


@chore("samples", every=10.0)
def take_samples() -> bool:
    with reporting():
        if pools := [row.id for row in run(MISSING)]:
            run(TAKE, {"pools": pools}, prepare=False)
            run(ROUND_UP, prepare=False)
    return False


@retention_rule("samples by minute", days=7)
def forget_minutes(days: float, most: int) -> int:
    return _forget(days, most, is_hourly=False)


@retention_rule("samples by hour", days=90)
def forget_hours(days: float, most: int) -> int:
    return _forget(days, most, is_hourly=True)


def _forget(days: float, most: int, *, is_hourly: bool) -> int:
    with reporting():
        return len(
            run(
                FORGET.format(n=int(most)),
                {"is_hourly": is_hourly, "age": days * 86400},
                prepare=False,
            )
        )
