"""Tasks and sets: I12 no claim waits in a locked workspace, I13 an apply is approved, I21 a set has
at most its maximum of claims.
"""

from collections.abc import Iterator
from functools import partial

from django.db import transaction

from claims import claims_sql
from claims.checks.holding import REASON
from claims.workspaces.services import CHUNK
from project.kernel.actor import current_actor
from project.kernel.db.sql import run
from project.kernel.doctor.registry import Finding, check
from project.kernel.events.notify import publish

WAITING_IN_LOCKED = """
SELECT w.id, w.name, w.locked_by, w.lock_reason, array_agg(c.id ORDER BY c.id) AS claims
FROM claims_workspace w JOIN claims_claim c ON c.workspace_id = w.id AND c.state = 'waiting'
WHERE w.locked_at IS NOT NULL GROUP BY w.id ORDER BY w.name LIMIT 1000"""

SERIAL_TWICE = """
SELECT w.name, array_agg(c.id ORDER BY c.id) AS claims FROM claims_workspace w
  JOIN claims_claim c ON c.workspace_id = w.id
WHERE c.is_serial AND c.state IN ('waiting', 'bound', 'reserved', 'parked') GROUP BY w.id
  HAVING count(*) > 1 ORDER BY w.name LIMIT 1000"""

# A pool may require several approvals. One is the minimum of every pool.
UNAPPROVED = """
SELECT c.id, c.state, p.id IS NULL AS is_missing, p.claim_id <> c.id AS is_foreign, p.is_stale,
  a.yes, a.no
FROM claims_claim c LEFT JOIN claims_plan p ON p.id = c.approved_plan_id
CROSS JOIN LATERAL (
  SELECT count(*) FILTER (WHERE is_yes) AS yes, count(*) FILTER (WHERE NOT is_yes) AS no
    FROM claims_approval WHERE plan_id = p.id) a
WHERE c.step = 'apply' AND c.state <> 'ended'
  AND (p.id IS NULL OR p.claim_id <> c.id OR p.is_stale OR a.yes = 0 OR a.no > 0)
ORDER BY c.id LIMIT 1000"""

TOO_MANY = """
SELECT s.name, s.replicas, s.max_surge, count(*) AS n FROM claims_claimset s
  JOIN claims_claim c ON c.claim_set_id = s.id
WHERE c.state <> 'ended' AND s.state = 'active' GROUP BY s.id
  HAVING count(*) > s.replicas + s.max_surge ORDER BY s.name LIMIT 1000"""


@check(
    "I12",
    "No claim waits in a locked workspace, and at most one serial claim is under way",
    "No task may start in a locked workspace.",
)
def find_waiting_in_locked() -> Iterator[Finding]:
    for row in run(WAITING_IN_LOCKED, prepare=False):
        detail = (
            f"is locked by {row.locked_by} ({row.lock_reason}); still queued: claim "
            f"{', '.join(map(str, row.claims[:20]))}"
        )
        yield Finding(
            f"workspace {row.name}",
            detail,
            "--repair blocks them until the workspace is unlocked.",
            partial(_block, row.id),
        )
    for row in run(SERIAL_TWICE, prepare=False):
        detail = f"serial claims {', '.join(map(str, row.claims))} are under way together"
        yield Finding(f"workspace {row.name}", detail, "Check each of them; cancel all but one.")


@check(
    "I13",
    "An apply has an approved, current plan of its own",
    "Changes are applied without an approval.",
)
def find_unapproved() -> Iterator[Finding]:
    for row in run(UNAPPROVED, prepare=False):
        faults = {
            "it names no plan": row.is_missing,
            "its plan is of another claim": row.is_foreign,
            "its plan is out of date": row.is_stale,
            "its plan has no approval": not row.is_missing and not row.yes,
            "its plan is rejected": bool(row.no),
        }
        why = "; ".join(words for words, is_so in faults.items() if is_so)
        yield Finding(
            f"claim {row.id}",
            f"applies, {row.state}: {why}",
            "Force its release, check the result, and plan again.",
        )


@check(
    "I21",
    "A set has no more claims than its replicas and its surge",
    "It takes capacity for which other claims wait.",
)
def find_sets_too_large() -> Iterator[Finding]:
    for row in run(TOO_MANY, prepare=False):
        detail = f"{row.n} claims, at most {row.replicas}, and {row.max_surge} more during a change"
        yield Finding(
            f"claim set {row.name}", detail, "Start `finalize`, or cancel the newest claims."
        )


def _block(workspace: int) -> None:
    with transaction.atomic():
        row = claims_sql.lock_workspace_row(workspace=workspace)
        if row is None or not row.is_locked:
            return
        reason = f"{REASON}: workspace {row.name} is locked"
        while (
            len(
                claims_sql.block_waiting(
                    CHUNK, workspace=row.id, actor=current_actor(), reason=reason
                )
            )
            == CHUNK
        ):
            pass
        publish("claims", "events")
