"""Record the results of runs: check the report, store the plan, and move the claim.

A late report changes no row and is recorded as an event.
"""

import json
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, TypedDict

from django.db import transaction

from claims import claims_sql
from claims.allocation.selectors import view_claim
from claims.lifecycle import tasks_sql
from claims.lifecycle.end_hold import (
    LockedHold,
    approval_of,
    lock_after_lost_apply,
)
from claims.lifecycle.release import Ending, lock_claim, release_slots
from claims.statements import repeat
from claims.tasks.run_spec import APPLYING
from claims.tasks.runs.services import explain_over, refuse_late
from claims.tasks.runs.work_order import REPORT_START
from claims.tasks.states.services import record_rescued
from claims.tasks.task_result import OF_APPLY, OF_PLAN, TaskResult, describe_mismatch
from pools.models import Member
from project.kernel.actor import current_actor
from project.kernel.errors import Conflict
from project.kernel.events.log import record
from project.kernel.events.notify import publish

VERBS = {
    "applied": "applied",
    "planned": "finish",
    "no_changes": "finish",
    "failed": "failed",
    "cancelled": "cancel",
}


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The state of the claim after its run. `keep`: the apply needs the work directory again."""

    state: str
    outcome: str
    keep: bool


class RunFiles(TypedDict, total=False):
    """Files that the agent uploaded before the result."""

    plan: str
    plan_digest: str
    plan_size: int
    json: str
    json_counts: dict[str, int]
    outline: str


def record_result(*, claim_id: int, generation: int, member: Member, result: TaskResult) -> RunEnd:
    """A repeated report gets the same answer. A report for a generation that is over changes
    nothing and is recorded.
    """
    try:
        settled = repeat(partial(_record_result, claim_id, generation, member, result))
    except Conflict as error:
        record(
            "refused_agent",
            member_id=member.pk,
            claim_id=claim_id,
            generation=generation,
            reason=f"{result.outcome}: {error.detail}"[:500],
        )
        raise
    if settled is not None:
        return settled
    run = tasks_sql.run_of(claim=claim_id, generation=generation)
    if run is None or run.member_id != member.pk:
        raise refuse_late(claim_id, generation, member, result.outcome)
    if result.rescued_bytes is not None:  # the run is over, but its agent has the only copy
        with transaction.atomic():
            record_rescued(
                claim_id=claim_id, generation=generation, member=member, size=result.rescued_bytes
            )
    facts = json.loads(run.facts)
    if "answer" in facts and run.outcome == result.outcome:
        return RunEnd(**facts["answer"])
    if "report" not in facts:
        report = {
            "outcome": result.outcome,
            "exit_code": result.exit_code,
            "code": result.code,
            "reason": result.reason,
        }
        tasks_sql.add_run_facts(
            claim=claim_id, generation=generation, facts=json.dumps({"report": report})
        )
        claim = view_claim(claim_id)
        text = f"the agent reports for the {run.step}: {result.outcome} {result.explanation}"
        record(
            "stale_report",
            pool_id=claim.pool_id,
            member_id=member.pk,
            claim_id=claim_id,
            generation=generation,
            before=claim.state,
            after=claim.state,
            data=report,
            reason=text.strip()[:500],
        )
    raise explain_over(view_claim(claim_id), generation)


def _record_result(
    claim_id: int, generation: int, member: Member, result: TaskResult
) -> RunEnd | None:
    """None: the member no longer holds the claim."""
    with transaction.atomic():
        # The workspace is locked before the claim, which may have to return to its queue. Only a
        # result that may lock the workspace needs the exclusive row lock.
        locked = claims_sql.lock_workspace_of(claim=claim_id) if result.is_cut_off else None
        workspace = locked or claims_sql.share_workspace_of(claim=claim_id)
        claim = lock_claim(claim_id)
        holder = tasks_sql.holder_of(claim=claim_id, generation=generation)
        if claim.generation != generation or holder is None or holder.member_id != member.pk:
            return None
        # An upload that replaces the saved plan comes either before this lock or is rejected.
        run = tasks_sql.lock_run(claim=claim_id, generation=generation)
        if run is not None and run.ended_at is not None:
            return None
        files: RunFiles = json.loads("{}" if run is None else run.facts).get("files", {})
        _check_result(claim, run, result)
        result = _check_plan_file(result, files)
        if result.rescued_bytes is not None:
            record_rescued(
                claim_id=claim_id, generation=generation, member=member, size=result.rescued_bytes
            )
        settled = _apply_result(
            claim, workspace is not None and workspace.is_locked, member, result, files
        )
        if result.is_cut_off and claim.step == "apply" and run is not None:
            lock_after_lost_apply(
                LockedHold(claim, locked, is_started=True),
                f"was cut off while it applied: {result.explanation}"[:500],
            )
        _write_run_end(claim, holder, run, member, result, settled)
        publish("events")
        return settled


def _check_result(
    claim: claims_sql.LockClaimRow, run: tasks_sql.LockRunRow | None, result: TaskResult
) -> None:
    if result.outcome not in (OF_APPLY if claim.step == "apply" else OF_PLAN):
        text = f"Claim {claim.id} is at its {claim.step}, which does not end as {result.outcome}."
        raise Conflict(text, code="wrong_outcome", way_out="Read the order again.")
    if run is None and result.outcome in ("planned", "no_changes", "applied"):
        text = f"Generation {claim.generation} of claim {claim.id} has not started."
        raise Conflict(text, code="not_started", way_out=REPORT_START)


def _apply_result(
    claim: claims_sql.LockClaimRow,
    is_locked: bool,
    member: Member,
    result: TaskResult,
    files: RunFiles,
) -> RunEnd:
    if result.outcome == "plan_again":
        return _plan_again(claim, is_locked, result)
    if claim.step == "plan" and result.outcome in ("planned", "no_changes"):
        _store_plan(claim, member, result, files)
        if result.outcome == "planned" and json.loads(claim.spec).get("task") == APPLYING:
            return _wait_for_decision(claim)
    outcome = "planned" if result.outcome == "no_changes" else result.outcome
    is_clean = not result.left_running
    release_slots(
        claim.id,
        claim.generation,
        Ending(
            outcome=outcome,
            verb=VERBS[result.outcome],
            reason=result.explanation,
            is_clean=is_clean,
        ),
    )
    return RunEnd("ended", outcome, keep=False)


def _plan_again(claim: claims_sql.LockClaimRow, is_locked: bool, result: TaskResult) -> RunEnd:
    """The approved plan is outdated: the claim returns to its queue, with its own priority, to plan
    again.
    """
    tasks_sql.stale_plans(claim=claim.id)
    to = "blocked" if is_locked else "waiting"
    release_slots(
        claim.id,
        claim.generation,
        Ending(
            to=to,
            outcome="",
            verb="plan_again",
            reason=result.explanation,
            is_clean=not result.left_running,
            step="plan",
        ),
    )
    publish("claims")
    return RunEnd(to, "", keep=False)


def _check_plan_file(result: TaskResult, files: RunFiles) -> TaskResult:
    """Fails a plan whose uploaded file has another digest than the result names. Rejecting the
    report instead would leave the slot held for ever.
    """
    known = files.get("plan_digest")
    if (
        result.outcome not in ("planned", "no_changes")
        or not known
        or (result.digest is not None and known == result.digest.hex())
    ):
        return result
    text = (
        "The uploaded plan has another digest than the result names: the plan file changed after "
        "the plan was made."
    )
    return replace(result, outcome="failed", code="plan_differs", reason=text)


def _store_plan(
    claim: claims_sql.LockClaimRow, member: Member, result: TaskResult, files: RunFiles
) -> None:
    tasks_sql.stale_plans(claim=claim.id)
    listed = files.get("json_counts")
    summary = dict(result.summary or listed or {})
    plan = tasks_sql.add_plan(
        claim=claim.id,
        generation=claim.generation,
        digest=result.digest or b"",
        summary=json.dumps(summary),
        facts=json.dumps(dict(result.facts)),
        member=member.pk,
        file=files.get("plan") or "",
        json_file=files.get("json") or "",
        outline_file=files.get("outline") or "",
        size=files.get("plan_size") or 0,
        mismatch=describe_mismatch(summary, listed),
    )
    about = summary | {"plan": plan, "digest": (result.digest or b"").hex()}
    record(
        "plan",
        pool_id=claim.pool_id,
        member_id=member.pk,
        claim_id=claim.id,
        generation=claim.generation,
        data=about,
    )


def _wait_for_decision(claim: claims_sql.LockClaimRow) -> RunEnd:
    """Reserves the slot for the apply, unless the pool releases the slots of waiting plans."""
    approval = approval_of(claim.pool_id)
    if approval.hold == 0:
        why = "its pool keeps no slot for plans that wait"
        release_slots(
            claim.id,
            claim.generation,
            Ending("parked", "", "park", why, wait=approval.expires, is_clean=True),
        )
        return RunEnd("parked", "", keep=True)
    ttl = f"{approval.expires} s"
    claims_sql.reserve(claim=claim.id, generation=claim.generation, ttl=ttl, actor=current_actor())
    return RunEnd("reserved", "", keep=True)


def _write_run_end(
    claim: claims_sql.LockClaimRow,
    holder: tasks_sql.HolderOfRow,
    run: tasks_sql.LockRunRow | None,
    member: Member,
    result: TaskResult,
    settled: RunEnd,
) -> None:
    facts: dict[str, object] = {
        **result.facts, "log": asdict(result.log), "answer": asdict(settled)
    }  # fmt: skip
    if result.left_running:
        facts["left_running"] = result.left_running
    values: dict[str, Any] = {
        "claim": claim.id, "generation": claim.generation, "outcome": result.outcome,
        "code": result.code, "reason": result.reason, "exit_code": result.exit_code,
        "facts": json.dumps(facts),
    }  # fmt: skip
    if run is not None:
        tasks_sql.end_run(**values)
    else:
        place = f"{holder.lane}-{holder.number}"
        tasks_sql.add_ended_run(
            step=claim.step,
            member=member.pk,
            name=member.name,
            place=place,
            **values,
        )
