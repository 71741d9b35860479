"""End a hold from outside: cancelled, forced, expired or lost. Locks are taken in the order
workspace, claim, slots.

An apply that may have begun and did not finish leaves its workspace in an unknown state. The
transaction that ends the hold also locks the workspace, so that no other claim of the workspace
starts in between.
"""

import json
from typing import NamedTuple, TypedDict

from claims import claims_sql
from claims.lifecycle import draining_sql, tasks_sql
from claims.lifecycle.policy import Fate, fate_of_lost
from claims.lifecycle.release import Ending, lock_claim, release_slots
from claims.workspaces.services import block_waiting
from pools.config.approval_spec import ApprovalSpec
from pools.lifecycle.selectors import read_stored
from project.kernel.actor import current_actor
from project.kernel.events.log import record
from project.kernel.events.notify import publish

NEVER_RAN = "not_started"


class HoldFacts(TypedDict):
    """The facts of a claim that decide its fate when it loses its slots."""

    step: str
    is_retried: bool
    is_reserved: bool
    is_started: bool
    has_task: bool


class LockedHold(NamedTuple):
    """A locked claim and its locked workspace."""

    claim: claims_sql.LockClaimRow
    workspace: claims_sql.LockWorkspaceOfRow | None
    is_started: bool  # work of the claim may run, or may have run

    @property
    def holds(self) -> bool:
        return self.claim.state in ("bound", "reserved")

    @property
    def facts(self) -> HoldFacts:
        claim = self.claim
        return {
            "step": claim.step,
            "is_retried": bool(json.loads(claim.spec).get("retry")),
            "is_reserved": claim.state == "reserved",
            "is_started": self.is_started,
            "has_task": claim.has_task,
        }


def lock_hold(claim_id: int) -> LockedHold:
    """Lock a claim in the transaction that ends it. Its workspace is locked first; a claim
    never changes its workspace.
    """
    workspace = claims_sql.lock_workspace_of(claim=claim_id)
    claim = lock_claim(claim_id)
    return LockedHold(claim, workspace, was_started(claim))


def was_started(claim: claims_sql.LockClaimRow) -> bool:
    """Whether work of a locked claim may have begun. The start of a run takes the same lock. A
    bound claim without a task counts as started, because no agent reports on it.
    """
    if claim.state != "bound":
        return False
    if not claim.has_task:
        return True
    run = tasks_sql.run_of(claim=claim.id, generation=claim.generation)
    return run is not None and run.outcome != NEVER_RAN


def end_hold(held: LockedHold, ending: Ending, *, words: str = "") -> list[claims_sql.GiveBackRow]:
    """Release the slots, end the run, and lock the workspace of an apply that was cut off.

    `words` completes "claim 5 ..." in the reason of that lock, such as "was lost".
    """
    claim = held.claim
    never_ran = claim.state == "reserved" or (claim.has_task and not held.is_started)
    rows = release_slots(
        claim.id, claim.generation, ending._replace(is_clean=ending.is_clean or never_ran)
    )
    if not rows:
        return rows
    if ending.to == "ended" and ending.outcome != "lost":
        tasks_sql.stale_plans(claim=claim.id)
    if held.is_started and claim.has_task:
        end_run(claim, ending.outcome or "lost", ending.verb, ending.reason)
    if held.is_started and claim.step == "apply" and ending.to == "ended":
        lock_after_lost_apply(held, words or ending.reason)
    return rows


def end_run(claim: claims_sql.LockClaimRow, outcome: str, code: str, reason: str) -> None:
    tasks_sql.end_run(
        claim=claim.id,
        generation=claim.generation,
        outcome=outcome,
        code=code,
        reason=reason,
        exit_code=None,
        facts="{}",
    )


def lock_after_lost_apply(held: LockedHold, words: str) -> None:
    """Lock the workspace of an apply that was cut off. No claim of the workspace starts until an
    operator or approver records how far the apply came.
    """
    claim, workspace = held.claim, held.workspace
    about = {"step": "apply"} if workspace is None else {"workspace": workspace.name}
    why = f"claim {claim.id} {words}"
    record(
        "apply_lost",
        pool_id=claim.pool_id,
        claim_id=claim.id,
        generation=claim.generation,
        reason=why,
        data=about,
    )
    if workspace is None:
        return
    claims_sql.set_lost_apply(
        workspace=workspace.id, claim=claim.id, by=current_actor(), reason=why
    )
    block_waiting(workspace.id, why)
    if not workspace.is_locked:
        record("lock", pool_id=workspace.pool_id, reason=why, data={"workspace": workspace.name})
    publish("claims")


def lose_hold(held: LockedHold, *, what: str, lost_member: int | None = None) -> Fate:
    """Apply the fate that the policy gives to a lost claim, and return it. Slots that still drain
    for the claim are released in the same transaction.
    """
    draining_sql.end_drains(claim=held.claim.id)
    fate = fate_of_lost(**held.facts, attempts=held.claim.attempts, what=what)
    apply_fate(held, fate, lost_member=lost_member)
    return fate


def apply_fate(
    held: LockedHold,
    fate: Fate,
    *,
    verb: str = "lose",
    words: str = "was lost while it applied",
    lost_member: int | None = None,
    note: str = "",
) -> None:
    """End the hold as `fate` says. `words`: see `end_hold`."""
    claim = held.claim
    to: str = fate.to
    if to == "waiting" and held.workspace is not None and held.workspace.is_locked:
        to = "blocked"
    ending = Ending(
        to=to,
        outcome=fate.outcome,
        verb="park" if to == "parked" else verb,
        reason=f"{fate.reason}: {note}" if note else fate.reason,
        wait=fate.wait,
        lost_member=lost_member,
        rank=fate.rank,
        step=fate.step,
        is_seeking=to == "parked" and approval_of(claim.pool_id).holds(claim.waited or 0.0),
    )
    end_hold(held, ending, words=words)
    publish("claims")


def pool_name(pool_id: int | None) -> str:
    rows = [] if pool_id is None else claims_sql.pools_by_id(pools=[pool_id])
    return str(rows[0].name) if rows else ""


def approval_of(pool_id: int | None) -> ApprovalSpec:
    rows = [] if pool_id is None else claims_sql.pools_by_id(pools=[pool_id])
    return read_stored(rows[0].name, rows[0].spec).approval if rows else ApprovalSpec()
