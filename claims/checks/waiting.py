"""Progress: I16 every waiting claim is tried, unblocked or checked in time, I17 no claim waits
while its slots are free.
"""

import json
from collections.abc import Iterator
from functools import partial

from django.db import transaction

from claims.allocation.bind import is_held_back
from claims.allocation.queues.allocator import allocate
from claims.allocation.requests.demands import kind_in, slot_demand_in, slot_demand_of
from claims.allocation.requests.policy import STRICT_AFTER
from claims.allocation.requests.pool_facts import find_pools
from claims.allocation.search.slot_search import find_slots
from claims.checks import repairs_sql
from claims.checks.holding import REASON
from claims.workspaces.services import free_workspace
from pools.config.layout import PAIRED
from project.kernel.db.sql import run
from project.kernel.doctor.registry import Finding, check
from project.kernel.events.log import record

LIMIT = 60.0  # seconds for every timer and every queue
ALLOCATE = "Start `allocate`. --repair allocates once."
AT_ONCE = 5.0  # seconds for which a slot may be free while a claim waits for it

# A queue with recent binds was tried, although no try is recorded.
UNTRIED = """
SELECT sh.id, sh.pools, count(*) AS n, extract(epoch FROM now() - sh.tried_at)::float8 AS age
FROM claims_shape sh JOIN claims_claim c ON c.shape_id = sh.id AND c.state = 'waiting'
WHERE coalesce(sh.tried_at, 'epoch') < now() - make_interval(secs => %(limit)s::float8)
  AND NOT EXISTS (SELECT FROM claims_claim b
    WHERE b.shape_id = sh.id AND b.bound_at > now() - make_interval(secs => %(limit)s::float8))
GROUP BY sh.id HAVING min(c.changed_at) < now() - make_interval(secs => %(limit)s::float8)
  ORDER BY sh.id LIMIT 1000"""

STUCK = """
SELECT c.id, c.workspace_id FROM claims_claim c
  LEFT JOIN claims_workspace w ON w.id = c.workspace_id
WHERE c.state = 'blocked' AND c.due_at IS NULL AND w.locked_at IS NULL
  AND c.changed_at < now() - make_interval(secs => %(limit)s::float8)
  AND NOT (c.is_serial AND EXISTS (
    SELECT FROM claims_claim o WHERE o.workspace_id = c.workspace_id AND o.is_serial
      AND (o.state IN ('waiting', 'bound', 'reserved', 'parked') OR o.state = 'blocked'
        AND o.due_at > now())))
ORDER BY c.id LIMIT 1000"""

OVERDUE = """
SELECT id, state, extract(epoch FROM now() - due_at)::float8 AS age FROM claims_claim
WHERE due_at < now() - make_interval(secs => %(limit)s::float8) AND state <> 'ended'
  ORDER BY due_at LIMIT 1000"""


@check(
    "I16a",
    "Every queue is tried within a minute",
    "The allocator does not run, or fails on the queue.",
)
def find_untried_queues() -> Iterator[Finding]:
    for row in run(UNTRIED, {"limit": LIMIT}, prepare=False):
        tried = "never tried" if row.age is None else f"last tried {row.age:.0f} s ago"
        repair = "Start `allocate`; its log shows errors. --repair tries the queue once."
        yield Finding(
            f"queue {row.id} for {', '.join(row.pools)}",
            f"{row.n} claims wait, {tried}",
            repair,
            _allocate,
        )


@check(
    "I16b",
    "A blocked claim has a lock, an earlier claim or a timer",
    "Without one of them the claim would stay blocked for ever.",
)
def find_stuck_claims() -> Iterator[Finding]:
    for row in run(STUCK, {"limit": LIMIT}, prepare=False):
        repair = "--repair unblocks the claim."
        yield Finding(
            f"claim {row.id}",
            "blocked without a reason",
            repair,
            partial(_unblock, row.id, row.workspace_id),
        )


@check(
    "I16c",
    "No timer of a claim is older than a minute",
    "The finalizer does not run, or fails on the claim.",
)
def find_overdue_claims() -> Iterator[Finding]:
    for row in run(OVERDUE, {"limit": LIMIT}, prepare=False):
        repair = "Start `finalize`; its log shows errors."
        yield Finding(f"claim {row.id}", f"{row.state}, due for {row.age:.0f} s", repair)


@check("I17", "No claim waits for a free slot", "A claim could hold its slots and does not.")
def find_passed_over() -> Iterator[Finding]:
    paired = list(PAIRED)
    for row in repairs_sql.passed_over(strict=STRICT_AFTER, limit=AT_ONCE, paired=paired):
        detail = (
            f"waits for {row.size} of pool {row.pool}, and {row.n} have been free for it for "
            f"{row.age:.0f} s"
        )
        yield Finding(f"claim {row.claim}", detail, ALLOCATE, _allocate)
    for searched in repairs_sql.searched(limit=AT_ONCE, paired=paired):
        free = _search(searched)
        if free is not None and free >= AT_ONCE:
            each = "" if len(searched.pools) == 1 else " each"
            detail = (
                f"waits for {searched.size} of {', '.join(searched.pools)}{each}, and these slots "
                f"have been free for {min(free, searched.age or 0.0):.0f} s"
            )
            yield Finding(f"claim {searched.claim}", detail, ALLOCATE, _allocate)


def _search(row: repairs_sql.SearchedRow) -> float | None:
    """How long the slots that a queue needs have been free, by the search of the allocator. None:
    too few of them are free.
    """
    known = find_pools(row.pools)
    pools = [known[name] for name in row.pools if name in known and known[name].state == "active"]
    if len(pools) < len(row.pools):
        return None
    kind = kind_in(pools, row.kind)
    wanted = slot_demand_in(slot_demand_of(row.size, json.loads(row.terms)), pools, kind)
    with transaction.atomic():
        slots = find_slots(wanted, pools, kind, row.claim)
        if slots is not None and is_held_back(row.claim, slots):
            slots = None
        (found,) = repairs_sql.free_for(slots=slots or [])
        transaction.set_rollback(True)  # releases the locks
    return None if found.age is None or found.is_paused else float(found.age)


def _allocate() -> None:
    allocate()


def _unblock(claim: int, workspace: int | None) -> None:
    if workspace is not None:
        free_workspace(workspace)
        return
    with transaction.atomic():
        if repairs_sql.make_claim_due(claim=claim):
            record("repair", claim_id=claim, before="blocked", after="blocked", reason=REASON)
