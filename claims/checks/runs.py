"""Runs and plans: I14 a plan that waits has a timer, I27 a lost apply has locked its workspace, I28
a run belongs to a bound claim.
"""

from collections.abc import Iterator
from functools import partial

from django.db import transaction

from claims.checks import repairs_sql
from claims.checks.holding import REASON
from claims.lifecycle import tasks_sql
from claims.lifecycle.end_hold import lock_after_lost_apply, lock_hold
from claims.tasks.task_result import BY_SIGNAL, CUT_OFF
from project.kernel.db.sql import run
from project.kernel.doctor.registry import Finding, check
from project.kernel.events.log import record

UNTIMED = """
SELECT id, state, expires_at, due_at FROM claims_claim
WHERE state IN ('reserved', 'parked')
  AND (due_at IS NULL OR due_at > expires_at + interval '1 s') ORDER BY id LIMIT 1000"""

# A run with a recorded outcome is settled. A run that never began has no boot.
UNLOCKED = f"""
SELECT c.id, w.name, r.outcome FROM claims_run r JOIN claims_claim c ON c.id = r.claim_id
  JOIN claims_workspace w ON w.id = c.workspace_id
WHERE r.step = 'apply' AND r.ended_at IS NOT NULL AND c.state = 'ended'
  AND (r.outcome IN ('lost', 'cancelled', 'expired') OR r.code IN {CUT_OFF} OR r.outcome = 'failed'
    AND r.exit_code IN {BY_SIGNAL})
  AND r.boot <> '' AND NOT r.facts ? 'settled'
    AND (w.locked_at IS NULL OR w.lost_claim_id IS DISTINCT FROM c.id)
ORDER BY c.id LIMIT 1000"""  # noqa: S608  (constants)

OPEN = """
SELECT r.claim_id, r.generation, r.step, r.member, c.state, c.generation AS now
FROM claims_run r LEFT JOIN claims_claim c ON c.id = r.claim_id
WHERE r.ended_at IS NULL
  AND (c.id IS NULL OR c.state <> 'bound' OR c.generation <> r.generation) ORDER BY r.claim_id
  LIMIT 1000"""


@check(
    "I14",
    "A plan that waits for its approval is checked by its deadline",
    "It would wait, and hold its slot, for ever.",
)
def find_untimed() -> Iterator[Finding]:
    for row in run(UNTIMED, prepare=False):
        when = "never" if row.due_at is None else f"at {row.due_at:%Y-%m-%d %H:%M} UTC"
        detail = f"{row.state} until {row.expires_at:%Y-%m-%d %H:%M} UTC, next check {when}"
        yield Finding(
            f"claim {row.id}", detail, "--repair makes it due now.", partial(_check_now, row.id)
        )


@check(
    "I27",
    "The workspace of a lost apply is locked until its outcome is recorded",
    "The next apply would start from the unknown state that the lost apply left.",
)
def find_unlocked() -> Iterator[Finding]:
    for row in run(UNLOCKED, prepare=False):
        detail = f"the apply of claim {row.id} ended as {row.outcome}, and no outcome is recorded"
        yield Finding(f"workspace {row.name}", detail, "--repair locks it.", partial(_lock, row.id))


@check(
    "I28",
    "An open run belongs to a bound claim",
    "The end of the run was not recorded: the page of the claim shows it as running.",
)
def find_open_runs() -> Iterator[Finding]:
    for row in run(OPEN, prepare=False):
        what = "does not exist" if row.state is None else f"is {row.state}, at generation {row.now}"
        detail = (
            f"{row.step} of generation {row.generation} on {row.member} has not ended; "
            f"its claim {what}"
        )
        yield Finding(
            f"run of claim {row.claim_id}",
            detail,
            "--repair records it as lost.",
            partial(_end, row.claim_id, row.generation),
        )


def _check_now(claim_id: int) -> None:
    with transaction.atomic():
        if repairs_sql.make_plan_due(claim=claim_id):
            record("repair", claim_id=claim_id, reason=REASON)


def _lock(claim_id: int) -> None:
    with transaction.atomic():
        lock_after_lost_apply(lock_hold(claim_id), "was lost while it applied")
        record("repair", claim_id=claim_id, reason=REASON)


def _end(claim_id: int, generation: int) -> None:
    with transaction.atomic():
        ended = tasks_sql.end_run(
            claim=claim_id, generation=generation, outcome="lost", code="repair", reason=REASON,
            exit_code=None, facts="{}",
        )  # fmt: skip
        if ended:
            record("repair", claim_id=claim_id, generation=generation, reason=REASON)
