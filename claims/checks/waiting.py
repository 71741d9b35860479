"""Everything moves: I16 every claim that waits is tried, unblocked or looked at in time, I17
nobody waits beside a free slot.
"""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from django.db import transaction

from claims.allocation.bind import is_held_back
from claims.allocation.queues.allocator import allocate
from claims.allocation.requests.policy import STRICT_AFTER
from claims.allocation.requests.resolve import find_pools, kind_in, slot_demand_in, slot_demand_of
from claims.allocation.slot_search import find_slots
from claims.checks import repairs_sql
from claims.checks.holding import REASON
from claims.workspaces.services import free_workspace
from pools.config.layout import PAIRED
from project.kernel.db.sql import run
from project.kernel.doctor.registry import Finding, check
from project.kernel.events.log import record

LIMIT = 60.0  # seconds for every timer and every line
ALLOCATE = "See that `allocate` runs. --repair allocates once."
AT_ONCE = 5.0  # seconds that a slot may stay free beside somebody who would take it

# A line whose heads are bound all the time is tried, though nobody notes it.
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
    "Every line is tried within a minute",
    "The allocator does not run, or can't deal with the line.",
)
def find_untried_queues() -> Iterator[Finding]:
    for row in run(UNTRIED, {"limit": LIMIT}, prepare=False):
        tried = "never tried" if row.age is None else f"last tried {row.age:.0f} s ago"
        repair = "See that `allocate` runs; its log says what it can't do. --repair tries it once."
        yield Finding(
            f"line {row.id} for {', '.join(row.pools)}",
            f"{row.n} claims wait, {tried}",
            repair,
            _allocate,
        )


@check(
    "I16b",
    "A claim is blocked by something",
    "Nothing will ever send it on: no lock, no claim before it, no timer.",
)
def find_stuck_claims() -> Iterator[Finding]:
    for row in run(STUCK, {"limit": LIMIT}, prepare=False):
        repair = "--repair sends it on."
        yield Finding(
            f"claim {row.id}",
            "blocked, and nothing blocks it",
            repair,
            partial(_send_on, row.id, row.workspace_id),
        )


@check(
    "I16c",
    "No timer of a claim is older than a minute",
    "The finalizer does not run, or can't deal with the claim.",
)
def find_overdue_claims() -> Iterator[Finding]:
    for row in run(OVERDUE, {"limit": LIMIT}, prepare=False):
        repair = "See that `finalize` runs; its log says what it can't do."
        yield Finding(
            f"claim {row.id}", f"{row.state}, to be looked at {row.age:.0f} s ago", repair
        )


@check("I17", "Nobody waits for a slot that is free", "Somebody could work and does not.")
def find_passed_over() -> Iterator[Finding]:
    asked: dict[str, Any] = {"limit": AT_ONCE, "paired": list(PAIRED)}
    for row in repairs_sql.passed_over(strict=STRICT_AFTER, **asked):
        detail = (
            f"waits for {row.size} of pool {row.pool}, and {row.n} have been free for it for "
            f"{row.age:.0f} s"
        )
        yield Finding(f"claim {row.claim}", detail, ALLOCATE, _allocate)
    for searched in repairs_sql.searched(**asked):
        free = _search(searched)
        if free is not None and free >= AT_ONCE:
            each = "" if len(searched.pools) == 1 else " each"
            detail = (
                f"waits for {searched.size} of {', '.join(searched.pools)}{each}, and what it asks "
                f"for has been free for {min(free, searched.age):.0f} s"
            )
            yield Finding(f"claim {searched.claim}", detail, ALLOCATE, _allocate)


def _search(row: Any) -> float | None:
    """For how long what a line asks for has been free, found as the allocator finds it; nothing
    is kept. None: it is not.
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
        transaction.set_rollback(True)  # nobody is to wait for its locks
    return None if found.age is None or found.is_paused else float(found.age)


def _allocate() -> None:
    allocate()


def _send_on(claim: int, workspace: int | None) -> None:
    if workspace is not None:
        free_workspace(workspace)
        return
    with transaction.atomic():
        if repairs_sql.look_now(claim=claim):
            record("repair", claim_id=claim, before="blocked", after="blocked", reason=REASON)
