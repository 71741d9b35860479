"""Counts for pages: claims by class, waiting claims by pool, recent waits."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from claims.display import MATCHES, filter_of_class
from project.kernel.db.guards import reporting
from project.kernel.db.sql import run

# For each pool name in a live claim, whether the pool exists or not. The query groups by queue
# (claims_shape) first, because queues are few and claims are many.
WAITING = """
SELECT name, sum(n)::int AS n, sum(blocked)::int AS blocked, min(oldest) AS oldest,
  min(first_id) AS first_id FROM (
  SELECT shape_id, count(*) AS n, count(*) FILTER (WHERE state = 'blocked') AS blocked,
    min(created_at) AS oldest, min(id) AS first_id
  FROM claims_claim WHERE state IN ('waiting', 'blocked') GROUP BY 1) c
JOIN claims_shape ON claims_shape.id = c.shape_id, unnest(pools) AS name GROUP BY 1"""

# Counts all live claims, but only the newest of the ended claims, to bound the cost.
COUNT = """
SELECT state, step, outcome, count(*)::int AS n FROM claims_claim
  WHERE state <> 'ended' AND {tests} GROUP BY 1, 2, 3
UNION ALL SELECT state, step, outcome, count(*)::int FROM (
  SELECT * FROM claims_claim ORDER BY id DESC LIMIT 20000) claims_claim
WHERE state = 'ended' AND changed_at > now() - interval '1 day' AND {tests} GROUP BY 1, 2, 3"""

LATELY = """
SELECT count(*)::int AS n, min(created_at) > now() - interval '1 hour'
  AND count(*) = 5000 AS is_more,
  extract(epoch FROM percentile_cont(0.5) WITHIN GROUP (ORDER BY bound_at - created_at))::float8 AS
    median,
  extract(epoch FROM percentile_cont(0.9) WITHIN GROUP (ORDER BY bound_at - created_at))::float8 AS
    ninetieth
FROM (SELECT * FROM claims_claim ORDER BY id DESC LIMIT 5000) claims_claim
  WHERE bound_at > now() - interval '1 hour' AND {tests}"""


@dataclass(frozen=True, slots=True)
class Queue:
    """The waiting claims of a pool."""

    count: int = 0
    blocked: int = 0
    oldest: datetime | None = None
    first_id: int | None = None


@dataclass(frozen=True, slots=True)
class RecentStats:
    bound: int = 0
    is_more: bool = False  # only the newest claims were counted
    median: float | None = None
    ninetieth: float | None = None


def count_waiting() -> dict[str, Queue]:
    """The queues by name of the pool, also for pools that do not exist."""
    with reporting():
        return {
            row.name: Queue(row.n, row.blocked, row.oldest, row.first_id) for row in run(WAITING)
        }


def count_claims(tests: str = "true", values: dict[str, object] | None = None) -> dict[str, int]:
    """Claims by class; ended claims of the last day only."""
    with reporting():
        rows = run(COUNT.format(tests=tests), values, prepare=False)
    counts: dict[str, int] = {}
    names = [*MATCHES, *{row.outcome for row in rows if row.outcome}]
    for name in names:
        match = filter_of_class(name)
        counts[name] = sum(
            row.n
            for row in rows
            if row.state in match.states
            and (match.steps is None or row.step in match.steps)
            and (match.outcomes is None or row.outcome in match.outcomes)
        )
    return counts


def bound_lately(pools: Iterable[int] | None) -> RecentStats:
    """Claims bound in the last hour: their number, median wait and 90th percentile."""
    tests, values = in_pools(pools)
    with reporting():
        row = run(LATELY.format(tests=tests), values, prepare=False)[0]
    return RecentStats(row.n, bool(row.is_more), row.median, row.ninetieth)


def in_pools(pools: Iterable[int] | None) -> tuple[str, dict[str, object]]:
    return (
        ("true", {})
        if pools is None
        else ("pool_id = ANY (%(pools)s::bigint[])", {"pools": sorted(pools)})
    )
