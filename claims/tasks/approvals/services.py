"""Yes and no to plans. Whatever else happens to the claim at the same moment needs the same row
lock, so one comes first; the other is told who it was, and when.

A yes counts for the plan that was seen, by its digest. The deadline is the database's: a yes after
it is refused, whether anything has ended the claim by then or not.

An approval counts while its approver may decide in the pool. Rights are read under the claim's lock
and held until the transaction ends; they are read again when the apply starts
(`tasks/runs/start.py`).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import transaction

from claims import claims_sql
from claims.allocation import decisions_sql
from claims.lifecycle.end_hold import approval_of, pool_name
from claims.lifecycle.release import Ending, end_unheld, lock_claim, release_slots
from claims.models import Plan
from claims.statements import repeat
from claims.states import PENDING
from claims.tasks.approvals.lost_apply import resolve_lost_apply
from claims.tasks.approvals.reservations import (
    extend_reservation,
    move_reserved,
    plan_again,
    too_late,
)
from claims.tasks.plans.outlines import make_outline_of
from claims.tasks.plans.plan_outline import NotAPlan
from claims.tasks.valid_approvals import find_faults
from pools.access.permissions import APPROVER, Identity, load_identities, lock_rights, refusal
from pools.config.approval_spec import ApprovalSpec
from project.kernel.actor import current_actor
from project.kernel.errors import BerthError, Conflict, FieldError, Forbidden, Invalid, Refused
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from project.kernel.ui.formatting import rfc3339
from project.kernel.validation import LONGEST_REASON

__all__ = [
    "ApprovalResult",
    "ApprovalVote",
    "apply_votes",
    "approve_plan",
    "extend_reservation",
    "move_reserved",
    "plan_again",
    "reject_plan",
    "resolve_lost_apply",
]

MOST = 500  # in one call


@dataclass(frozen=True, slots=True)
class ApprovalResult:
    """What became of the claim. Less given than needed: it goes on waiting."""

    state: str
    needed: int
    given: int


@dataclass(frozen=True, slots=True)
class ApprovalVote:
    """One of many."""

    claim_id: int
    digest: str
    is_yes: bool
    by: Identity
    comment: str = ""
    via: str = "api"


@dataclass(frozen=True, slots=True)
class _LockedPlan:
    """A claim that waits for a person, under its lock, and the plan that is to be decided on."""

    claim: Any
    plan: Any
    approval: ApprovalSpec


def approve_plan(
    *, claim_id: int, digest: str, by: Identity, comment: str = "", via: str = "browser"
) -> ApprovalResult:
    """Said again by the same person it counts once. With the last yes that is needed the apply
    begins: in the slot that waited, or first in line for one."""
    return _approve_checked(partial(_approve, claim_id, digest, by, _check_comment(comment), via))


def reject_plan(
    *, claim_id: int, digest: str, by: Identity, comment: str, via: str = "browser"
) -> ApprovalResult:
    """One no is enough, whatever was said before. Nothing is applied."""
    note = _check_comment(comment)
    if not note:
        raise Invalid(
            fields=[
                FieldError(
                    "comment",
                    "comment is required to reject.",
                    "Give the reason: the requester reads it.",
                )
            ]
        )
    return repeat(partial(_reject, claim_id, digest, by, note, via))


def apply_votes(verdicts: Sequence[ApprovalVote]) -> list[ApprovalResult | BerthError]:
    """Each stands on its own. Plans that destroy are looked at one by one: of many, nobody
    reads each.
    """
    if len(verdicts) > MOST:
        raise Invalid(
            f"{len(verdicts)} decisions are too many for one call.", way_out=f"Send {MOST} at most."
        )
    return [_apply_vote(verdict) for verdict in verdicts]


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
    """The counts of this plan, of an earlier release, were not compared with its list
    of changes.
    """

    def __init__(self, plan_id: int) -> None:
        super().__init__()
        self.plan_id = plan_id


def _approve_checked(approve: Callable[[], ApprovalResult]) -> ApprovalResult:
    """To read a plan takes a child process, so it happens between two transactions."""
    try:
        return repeat(approve)
    except _Unchecked as unchecked:
        with suppress(NotAPlan):  # which the plan says from then on
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
        # Nobody locks it before this is done.
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
                way_out="Plan again; if that does not help, check its agent.",
            )
        if is_one_of_many and _destroys(plan):
            text = f"The plan of claim {claim_id} destroys or replaces resources."
            raise Refused(text, code="destroys", way_out="Read the plan and approve it by itself.")
        said = decisions_sql.approvals_of(plan=plan.id)
        lock_rights([by.user_id, *(row.user_id for row in said if row.user_id is not None)])
        _require_approver(by, claim)
        if not approval.own and by.requester == claim.requested_by:
            text = (
                f"{by.requester} asked for claim {claim_id}, and in its pool one’s own yes "
                "does not count."
            )
            raise Refused(text, code="own_plan", way_out="Ask another approver of the pool.")
        if decisions_sql.is_deleting(pool=claim.pool_id):
            text = f"The pool of claim {claim_id} is being deleted, so the claim ends."
            raise Conflict(
                text, code="pool_deleting", way_out="Create a new claim in another pool."
            )
        if workspace is not None and workspace.is_locked:
            text = (
                f"Workspace {workspace.name} is locked by {workspace.locked_by}: "
                f"{workspace.lock_reason}. Nothing of it starts."
            )
            raise Conflict(text, code="workspace_locked", way_out="Unlock it, then approve.")
        decisions_sql.add_approval(
            plan=plan.id,
            user=by.user_id,
            by=by.requester,
            is_yes=True,
            comment=comment,
            via=via,
        )
        # By the rule of now.
        yes = [row for row in decisions_sql.approvals_of(plan=plan.id) if row.is_yes]
        given = find_faults(
            yes, pool_id=claim.pool_id, requested_by=claim.requested_by, rule=approval
        ).count("")
        if given < approval.needed:
            _record(claim, "approval", comment, {"given": given, "needed": approval.needed})
            return ApprovalResult(claim.state, approval.needed, given)
        return ApprovalResult(_begin(claim, plan, comment), approval.needed, given)


def _begin(claim: Any, plan: Any, comment: str) -> str:
    """The statement asks for the deadline once more: it decides, not what was read before."""
    values = {
        "claim": claim.id,
        "generation": claim.generation,
        "plan": plan.id,
        "actor": current_actor(),
        "reason": comment,
    }
    state = claim.state
    if state == "reserved" and decisions_sql.is_frozen(pool=claim.pool_id):
        # Nothing begins: it goes first in line, near its plan, once the freeze is over. Its
        # deadline has ended.
        release_slots(
            claim.id,
            claim.generation,
            Ending("parked", "", "park", "its pool is frozen", is_clean=True),
        )
        state = "parked"
    if state == "reserved":
        is_begun = bool(claims_sql.resume(**values))
        publish("slots", "events")
    else:
        is_begun = bool(claims_sql.unpark(**values))
        publish("claims", "events")
    if not is_begun:
        raise too_late(claim)
    return "bound" if state == "reserved" else "waiting"


def _reject(claim_id: int, digest: str, by: Identity, comment: str, via: str) -> ApprovalResult:
    with transaction.atomic():
        found = _lock_plan(claim_id, digest, by, is_yes=False)
        if isinstance(found, ApprovalResult):
            return found
        claim, plan = found.claim, found.plan
        lock_rights([by.user_id])
        _require_approver(by, claim)
        decisions_sql.say_no(
            plan=plan.id, user=by.user_id, by=by.requester, comment=comment, via=via
        )
        given = sum(row.is_yes for row in decisions_sql.approvals_of(plan=plan.id))
        decisions_sql.stale_plans(claim=claim_id)
        if claim.state == "reserved":
            release_slots(
                claim_id,
                claim.generation,
                Ending(outcome="rejected", verb="reject", reason=comment, is_clean=True),
            )
        else:
            end_unheld(claim_id, "rejected", "reject", comment)
        return ApprovalResult("ended", found.approval.needed, given)


def _require_approver(by: Identity, claim: Any) -> None:
    """Under the claim's lock, with the rights held: the caller may have lost them since the call
    was let in.
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
    """What is to be decided on, or what was: the same person saying the same again is
    answered as then.
    """
    claim = lock_claim(claim_id)
    approval = approval_of(claim.pool_id)
    if claim.state not in PENDING:
        return _answer_decided(claim, digest, by, approval, is_yes=is_yes)
    if claim.is_over:
        raise too_late(claim)
    plan = decisions_sql.current_plan(claim=claim_id)
    if plan is None:
        raise Conflict(
            f"Claim {claim_id} has no plan to decide on.",
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
    claim: Any, digest: str, by: Identity, approval: ApprovalSpec, *, is_yes: bool
) -> ApprovalResult:
    """Somebody was faster: who, and when."""
    plan = decisions_sql.last_plan(claim=claim.id)
    said = [] if plan is None else decisions_sql.approvals_of(plan=plan.id)
    no = next((row for row in said if not row.is_yes), None)
    yes = [row for row in said if row.is_yes]
    if claim.state == "ended" and claim.outcome == "rejected" and no is not None:
        if not is_yes and no.user_id == by.user_id:
            return ApprovalResult("ended", approval.needed, len(yes))
        raise _lost_to(
            claim,
            "rejected",
            f"was rejected by {no.by_user} at {no.at:%H:%M:%S} UTC: {no.comment}",
            by=no.by_user,
            at=no.at,
        )
    if claim.step == "apply" and yes and plan is not None:
        is_same = bytes(plan.digest).hex() == digest.strip().lower()
        if is_yes and is_same and any(row.user_id == by.user_id for row in yes):
            return ApprovalResult(claim.state, approval.needed, len(yes))
        last = yes[-1]
        raise _lost_to(
            claim,
            "approved",
            f"was approved by {last.by_user} at {last.at:%H:%M:%S} UTC",
            by=last.by_user,
            at=last.at,
        )
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


def _lost_to(claim: Any, code: str, words: str, **data: Any) -> Conflict:
    told: dict[str, Any] = {
        name: value if isinstance(value, str) else rfc3339(value) for name, value in data.items()
    }
    return Conflict(
        f"Claim {claim.id} {words}.",
        code=code,
        way_out="No decision is needed.",
        state=claim.state,
        **told,
    )


def _destroys(plan: Any) -> bool:
    return bool(decisions_sql.is_destroying(plan=plan.id))


def _record(claim: Any, verb: str, reason: str, data: Any) -> None:
    record(
        verb, pool_id=claim.pool_id, claim_id=claim.id, generation=claim.generation,
        before=claim.state, after=claim.state, reason=reason, data=data,
    )  # fmt: skip
    publish("events")


def _check_comment(comment: str) -> str:
    note = comment.strip()
    if len(note) > LONGEST_REASON:
        raise Invalid(
            fields=[
                FieldError(
                    "comment",
                    f"{len(note)} characters are too many.",
                    f"Use {LONGEST_REASON} at most.",
                )
            ]
        )
    return note
