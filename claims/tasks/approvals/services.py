"""Approve and reject plans.

Approval is atomic: one transaction locks the row of the claim, checks plan, deadline and rights,
adds the approval, and starts the apply with the last required one. The statements `resume` and
`unpark` (`claims/statements.sql`) check the deadline again. Each competing change of the claim
needs the same row lock, so the second caller gets an error that names the first decision.

An approval names the plan that its approver read by digest, and counts while the approver may
decide in the pool. Rights are read under the claim's lock and locked until the transaction ends.
They are read again when the apply starts (`claims/tasks/runs/start.py`).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import transaction

from claims import claims_sql
from claims.lifecycle import tasks_sql
from claims.lifecycle.end_hold import approval_of, pool_name
from claims.lifecycle.release import Ending, end_unheld, lock_claim, release_slots
from claims.models import Plan
from claims.statements import repeat
from claims.states import PENDING
from claims.tasks.approvals.reservations import too_late
from claims.tasks.plans.outlines import make_outline_of
from claims.tasks.plans.plan_outline import NotAPlan
from claims.tasks.valid_approvals import find_faults
from pools.access.permissions import APPROVER, Identity, load_identities, lock_rights, refusal
from pools.config.approval_spec import ApprovalSpec
from project.kernel.actor import current_actor
from project.kernel.errors import (
    BerthError,
    Conflict,
    Forbidden,
    Invalid,
    Refused,
    wrong_field,
)
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from project.kernel.ui.formatting import rfc3339
from project.kernel.validation import LONGEST_REASON

MAX_VOTES = 500  # in one call


@dataclass(frozen=True, slots=True)
class ApprovalResult:
    """The state of the claim after a decision. With fewer approvals than needed it goes on
    waiting.
    """

    state: str
    needed: int
    given: int


@dataclass(frozen=True, slots=True)
class ApprovalVote:
    """One decision of a bulk call."""

    claim_id: int
    digest: str
    is_yes: bool
    by: Identity
    comment: str = ""
    via: str = "api"


@dataclass(frozen=True, slots=True)
class _LockedPlan:
    """A locked claim that waits for a decision, and its current plan."""

    claim: claims_sql.LockClaimRow
    plan: tasks_sql.CurrentPlanRow
    approval: ApprovalSpec


def approve_plan(
    *, claim_id: int, digest: str, by: Identity, comment: str = "", via: str = "browser"
) -> ApprovalResult:
    """A repeated approval of the same user counts once. With the last required approval the apply
    starts: in the reserved slot, or first in the queue for a slot.
    """
    return _approve_checked(partial(_approve, claim_id, digest, by, _check_comment(comment), via))


def reject_plan(
    *, claim_id: int, digest: str, by: Identity, comment: str, via: str = "browser"
) -> ApprovalResult:
    """One rejection ends the claim, regardless of its approvals."""
    note = _check_comment(comment)
    if not note:
        raise wrong_field(
            "comment",
            "comment is required to reject.",
            "Give the reason for the requester.",
        )
    return repeat(partial(_reject, claim_id, digest, by, note, via))


def apply_votes(votes: Sequence[ApprovalVote]) -> list[ApprovalResult | BerthError]:
    """Each decision succeeds or fails by itself. A plan that destroys or replaces resources needs a
    call of its own, because people do not read each plan of a bulk approval.
    """
    if len(votes) > MAX_VOTES:
        raise Invalid(
            f"{len(votes)} decisions are too many for one call.",
            way_out=f"Send at most {MAX_VOTES}.",
        )
    return [_apply_vote(vote) for vote in votes]


def _apply_vote(v: ApprovalVote) -> ApprovalResult | BerthError:
    try:
        if not v.is_yes:
            return reject_plan(
                claim_id=v.claim_id, digest=v.digest, by=v.by, comment=v.comment, via=v.via
            )
        note = _check_comment(v.comment)
        return _approve_checked(
            partial(_approve, v.claim_id, v.digest, v.by, note, v.via, is_one_of_many=True)
        )
    except BerthError as error:
        return error


class _Unchecked(Exception):
    """A plan of an earlier release, whose counts were never compared with its list of changes."""

    def __init__(self, plan_id: int) -> None:
        super().__init__()
        self.plan_id = plan_id


def _approve_checked(approve: Callable[[], ApprovalResult]) -> ApprovalResult:
    """Checks an unchecked plan between two transactions, because a child process reads it."""
    try:
        return repeat(approve)
    except _Unchecked as unchecked:
        with suppress(NotAPlan):  # the plan now records the mismatch
            make_outline_of(Plan.objects.get(pk=unchecked.plan_id))
    return repeat(approve)


def _approve(
    claim_id: int,
    digest: str,
    by: Identity,
    comment: str,
    via: str,
    *,
    is_one_of_many: bool = False,
) -> ApprovalResult:
    with transaction.atomic():
        # Shared row lock: the workspace cannot be locked before this transaction ends.
        workspace = claims_sql.share_workspace_of(claim=claim_id)
        found = _lock_plan(claim_id, digest, by)
        if isinstance(found, ApprovalResult):
            return found
        claim, plan, approval = found.claim, found.plan, found.approval
        if plan.is_unchecked and not plan.mismatch:
            raise _Unchecked(plan.id)
        if plan.mismatch:
            text = f"The plan of claim {claim_id} cannot be approved. {plan.mismatch}"
            raise Conflict(
                text,
                code="counts_differ",
                way_out="Plan again. If the counts still differ, check the agent.",
            )
        if is_one_of_many and tasks_sql.is_destroying(plan=plan.id):
            text = f"The plan of claim {claim_id} destroys or replaces resources."
            raise Refused(text, code="destroys", way_out="Read the plan and approve it by itself.")
        earlier = tasks_sql.approvals_of(plan=plan.id)
        lock_rights([by.user_id, *(row.user_id for row in earlier if row.user_id is not None)])
        _require_approver(by, claim)
        if not approval.own and by.requester == claim.requested_by:
            text = (
                f"{by.requester} requested claim {claim_id}, and its pool does not count the "
                "requester’s approval."
            )
            raise Refused(text, code="own_plan", way_out="Ask another approver of the pool.")
        if claim.pool_id is not None and tasks_sql.is_deleting(pool=claim.pool_id):
            text = f"The pool of claim {claim_id} is being deleted, so the claim ends."
            raise Conflict(
                text, code="pool_deleting", way_out="Create a new claim in another pool."
            )
        if workspace is not None and workspace.is_locked:
            text = (
                f"Workspace {workspace.name} is locked by {workspace.locked_by}: "
                f"{workspace.lock_reason}. No claim of the workspace starts."
            )
            raise Conflict(text, code="workspace_locked", way_out="Unlock it, then approve.")
        tasks_sql.add_approval(
            plan=plan.id,
            user=by.user_id,
            by=by.requester,
            is_yes=True,
            comment=comment,
            via=via,
        )
        # Counted by the current rule of the pool.
        yes = [row for row in tasks_sql.approvals_of(plan=plan.id) if row.is_yes]
        given = find_faults(
            yes, pool_id=claim.pool_id, requested_by=claim.requested_by, rule=approval
        ).count("")
        if given < approval.needed:
            record(
                "approval", pool_id=claim.pool_id, claim_id=claim.id, generation=claim.generation,
                before=claim.state, after=claim.state, reason=comment,
                data={"given": given, "needed": approval.needed},
            )  # fmt: skip
            publish("events")
            return ApprovalResult(claim.state, approval.needed, given)
        return ApprovalResult(_start_apply(claim, plan.id, comment), approval.needed, given)


def _start_apply(claim: claims_sql.LockClaimRow, plan_id: int, comment: str) -> str:
    """Returns the new state. The statement checks the deadline again and decides."""
    is_reserved = claim.state == "reserved"
    if is_reserved and claim.pool_id is not None and tasks_sql.is_frozen(pool=claim.pool_id):
        # A frozen pool starts no apply. The claim waits first in the queue, near its plan and
        # without a deadline, until the freeze is over.
        release_slots(
            claim.id,
            claim.generation,
            Ending("parked", "", "park", "its pool is frozen", is_clean=True),
        )
        is_reserved = False
    start = claims_sql.resume if is_reserved else claims_sql.unpark
    rows = start(
        claim=claim.id,
        generation=claim.generation,
        plan=plan_id,
        actor=current_actor(),
        reason=comment,
    )
    publish("slots" if is_reserved else "claims", "events")
    if not rows:
        raise too_late(claim)
    return "bound" if is_reserved else "waiting"


def _reject(claim_id: int, digest: str, by: Identity, comment: str, via: str) -> ApprovalResult:
    with transaction.atomic():
        found = _lock_plan(claim_id, digest, by, is_yes=False)
        if isinstance(found, ApprovalResult):
            return found
        claim, plan = found.claim, found.plan
        lock_rights([by.user_id])
        _require_approver(by, claim)
        tasks_sql.add_rejection(
            plan=plan.id, user=by.user_id, by=by.requester, comment=comment, via=via
        )
        given = sum(row.is_yes for row in tasks_sql.approvals_of(plan=plan.id))
        tasks_sql.stale_plans(claim=claim_id)
        if claim.state == "reserved":
            release_slots(
                claim_id,
                claim.generation,
                Ending(outcome="rejected", verb="reject", reason=comment, is_clean=True),
            )
        else:
            end_unheld(claim_id, "rejected", "reject", comment)
        return ApprovalResult("ended", found.approval.needed, given)


def _require_approver(by: Identity, claim: claims_sql.LockClaimRow) -> None:
    """Checks the role again with rights locked: the caller may have lost the role since the request
    was authorised.
    """
    now = load_identities([by.user_id]).get(by.user_id)
    if now is None:
        raise Forbidden(
            f"{by.requester} is deactivated.", role=APPROVER, pool=None, way_out="Ask an admin."
        )
    if not now.may("decide", claim.pool_id):
        raise refusal(now, APPROVER, claim.pool_id, pool_name(claim.pool_id))


def _lock_plan(
    claim_id: int, digest: str, by: Identity, *, is_yes: bool = True
) -> _LockedPlan | ApprovalResult:
    """Locks the claim and its plan. A repeated decision of the same user gets its earlier
    result.
    """
    claim = lock_claim(claim_id)
    approval = approval_of(claim.pool_id)
    if claim.state not in PENDING:
        return _answer_decided(claim, digest, by, approval, is_yes=is_yes)
    if claim.is_over:
        raise too_late(claim)
    plan = tasks_sql.current_plan(claim=claim_id)
    if plan is None:
        raise Conflict(
            f"Claim {claim_id} has no plan to approve or reject.",
            code="no_plan",
            way_out="Plan again.",
        )
    if bytes(plan.digest).hex() != digest.strip().lower():
        text = f"The plan of claim {claim_id} has changed since it was read."
        raise Conflict(
            text,
            code="plan_changed",
            way_out="Read the current plan, then decide.",
            digest=bytes(plan.digest).hex(),
        )
    return _LockedPlan(claim, plan, approval)


def _answer_decided(
    claim: claims_sql.LockClaimRow,
    digest: str,
    by: Identity,
    approval: ApprovalSpec,
    *,
    is_yes: bool,
) -> ApprovalResult:
    """Raises with the earlier decision, unless the same user made it."""
    plan = tasks_sql.last_plan(claim=claim.id)
    votes = [] if plan is None else tasks_sql.approvals_of(plan=plan.id)
    no = next((row for row in votes if not row.is_yes), None)
    yes = [row for row in votes if row.is_yes]
    if claim.state == "ended" and claim.outcome == "rejected" and no is not None:
        if not is_yes and no.user_id == by.user_id:
            return ApprovalResult("ended", approval.needed, len(yes))
        raise _lost_to(claim, "rejected", f"was {_describe_vote('rejected', no)}: {no.comment}", no)
    if claim.step == "apply" and yes and plan is not None:
        is_same = bytes(plan.digest).hex() == digest.strip().lower()
        if is_yes and is_same and any(row.user_id == by.user_id for row in yes):
            return ApprovalResult(claim.state, approval.needed, len(yes))
        raise _lost_to(claim, "approved", f"was {_describe_vote('approved', yes[-1])}", yes[-1])
    if claim.state == "ended" and claim.outcome == "expired":
        raise _lost_to(claim, "expired", "has expired: no decision was made in time")
    if claim.state == "ended":
        raise _lost_to(claim, "ended", f"has ended: {claim.outcome}")
    text = (
        f"Claim {claim.id} does not wait for an approval: it is {claim.state}, at its "
        f"{claim.step or 'hold'}."
    )
    raise Conflict(
        text, code="not_pending", way_out="Wait until its plan is finished.", state=claim.state
    )


def _describe_vote(what: str, vote: tasks_sql.ApprovalsOfRow) -> str:
    return f"{what} by {vote.by_user} at {vote.at:%H:%M:%S} UTC"


def _lost_to(
    claim: claims_sql.LockClaimRow,
    code: str,
    text: str,
    vote: tasks_sql.ApprovalsOfRow | None = None,
) -> Conflict:
    data: dict[str, Any] = {} if vote is None else {"by": vote.by_user, "at": rfc3339(vote.at)}
    return Conflict(
        f"Claim {claim.id} {text}.",
        code=code,
        way_out="No decision is needed.",
        state=claim.state,
        **data,
    )


def _check_comment(comment: str) -> str:
    note = comment.strip()
    if len(note) > LONGEST_REASON:
        raise wrong_field(
            "comment",
            f"{len(note)} characters are too many.",
            f"Use at most {LONGEST_REASON}.",
        )
    return note
