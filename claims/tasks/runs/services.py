"""Reports of agents about their tasks: started, ended, lost, stopped. A report names a generation
and is accepted only from the member that holds it.

A generation starts once: the row of its run is written before the agent executes anything. A late
report changes nothing and is recorded as an event.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, TypedDict

from django.db import transaction

from claims import claims_sql
from claims.allocation.claim_view import ClaimView
from claims.allocation.selectors import view_claim
from claims.lifecycle import tasks_sql
from claims.lifecycle.end_hold import (
    NEVER_RAN,
    LockedHold,
    approval_of,
    end_run,
    lock_after_lost_apply,
    lock_hold,
    lose_hold,
)
from claims.lifecycle.release import Ending, lock_claim, release_slots
from claims.statements import repeat
from claims.tasks.runs.start import LONGEST_BOOT, write_start
from claims.tasks.runs.work_order import REPORT_START
from claims.tasks.states.services import record_rescued
from claims.tasks.task_result import OF_APPLY, OF_PLAN, TaskResult, describe_mismatch
from pools.models import Member
from project.kernel.actor import current_actor
from project.kernel.errors import BerthError, Conflict, StaleGeneration
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from slots.members.services import clean_slot

SERIAL = "plan_and_apply"
VERBS = {
    "applied": "applied",
    "planned": "finish",
    "no_changes": "finish",
    "failed": "failed",
    "cancelled": "cancel",
}
ENDS_AS = {
    "applied": "applied",
    "planned": "planned",
    "no_changes": "planned",
    "failed": "failed",
    "cancelled": "cancelled",
}


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The state of the claim after its run. `keep`: the apply needs the work directory again."""

    state: str
    outcome: str
    keep: bool


class ReportedRun(TypedDict):
    """The status of a run as a restarted agent knows it."""

    claim: int
    generation: int
    status: str


class RunFiles(TypedDict, total=False):
    """Files that the agent uploaded before the result."""

    plan: str
    plan_digest: str
    plan_size: int
    json: str
    json_counts: dict[str, int]
    outline: str


def start_run(
    *, claim_id: int, generation: int, member: Member, boot: str, place: str = ""
) -> None:
    """Called before the agent executes anything. Repeating the call is harmless for the same start
    of the agent and rejected for another start.
    """
    if write_start(claim_id=claim_id, generation=generation, member=member, boot=boot, place=place):
        publish("events")
        return
    run = tasks_sql.run_of(claim=claim_id, generation=generation)
    holder = tasks_sql.holder_of(claim=claim_id, generation=generation)
    if run is None or holder is None or holder.member_id != member.pk or run.ended_at is not None:
        raise _refuse_late(claim_id, generation, member, "started")
    if run.boot != boot[:LONGEST_BOOT]:
        text = (
            f"Another start of this agent has started generation {generation} of claim {claim_id}."
        )
        way_out = "Do not execute the run: report it as lost."
        raise Conflict(text, code="already_started", way_out=way_out)


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
        raise _refuse_late(claim_id, generation, member, result.outcome)
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
    raise _over(view_claim(claim_id), generation)


def lose_runs(member: Member, boot: str, runs: Iterable[ReportedRun]) -> int:
    """Ends the runs that a restarted agent reports as lost, and those that an earlier start of the
    agent started and that it no longer knows. Returns the number of lost runs.
    """
    statuses = {(run["claim"], run["generation"]): run["status"] for run in runs}
    for row in tasks_sql.open_runs(member=member.pk):
        if row.boot != boot:
            statuses.setdefault((row.claim_id, row.generation), "lost")
    lost = [pair for pair, status in statuses.items() if status in ("lost", NEVER_RAN)]
    return sum(repeat(partial(_lose_run, member, *pair, statuses[pair])) for pair in sorted(lost))


def confirm_stopped(member: Member, slots: Sequence[tuple[int, int]]) -> int:
    """Frees draining slots whose processes have ended. Slots of other members stay unchanged."""
    mine = {
        row.id
        for row in tasks_sql.slots_on_member(slots=[slot for slot, _ in slots], member=member.pk)
    }
    return sum(
        clean_slot(slot_id=slot, generation=generation)
        for slot, generation in slots
        if slot in mine
    )


def _lose_run(member: Member, claim_id: int, generation: int, status: str) -> bool:
    if tasks_sql.holder_of(claim=claim_id, generation=generation) is None:
        return False  # the run is over, so no lock is needed
    with transaction.atomic():
        held = lock_hold(claim_id)
        holder = tasks_sql.holder_of(claim=claim_id, generation=generation)
        run = tasks_sql.run_of(claim=claim_id, generation=generation)
        if (
            holder is None
            or holder.member_id != member.pk
            or run is None
            or run.ended_at is not None
        ):
            return False  # the run is over; or it never started, and the agent gets the order again
        if status == NEVER_RAN:
            end_run(held.claim, NEVER_RAN, NEVER_RAN, "its agent ended before it executed the run")
            lose_hold(held._replace(is_started=False), what="its agent ended before it ran")
        else:
            lose_hold(held, what="its agent has lost it")
    return True


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
        if result.outcome == "planned" and json.loads(claim.spec).get("task") == SERIAL:
            return _wait_for_decision(claim)
    outcome, is_clean = ENDS_AS[result.outcome], not result.left_running
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


def _refuse_late(claim_id: int, generation: int, member: Member, report: str) -> BerthError:
    """Records the report and returns the error for it."""
    claim: ClaimView = view_claim(claim_id)
    is_holder = any(slot.member_id == member.pk for slot in claim.slots)
    verb = "stale_report" if is_holder or generation != claim.generation else "refused_agent"
    record(
        verb,
        pool_id=claim.pool_id,
        member_id=member.pk,
        claim_id=claim_id,
        generation=generation,
        before=claim.state,
        after=claim.state,
        reason=(
            f"agent of {member.name} reports {report} for generation {generation}, the current "
            f"generation is {claim.generation}"
        ),
    )
    if claim.holds and not is_holder:
        return Conflict(
            f"Claim {claim_id} is not on this member.",
            code="not_yours",
            way_out="Stop, and ask for orders again.",
        )
    return _over(claim, generation)


def _over(claim: ClaimView, generation: int) -> StaleGeneration:
    """For an agent both cases mean the same, to stop: the claim has ended, or another member holds
    it.
    """
    what = (
        f"has ended: {claim.outcome}"
        if claim.state == "ended"
        else f"is {claim.state}, at generation {claim.generation}"
    )
    text = f"Generation {generation} of claim {claim.id} is over: the claim {what}."
    return StaleGeneration(
        text, way_out="Stop its processes.", generation=claim.generation, state=claim.state
    )
