"""Dialogs of one waiting plan: approve and reject (also from the panel of the claim), extend, plan
again and move.
"""

from collections.abc import Callable

from django.http import HttpResponse
from django.shortcuts import render

from claims.allocation.claim_view import ClaimView
from claims.lifecycle.pages.claim_dialogs import affected, claim_for, describe_slots
from claims.states import PENDING
from claims.tasks.approvals.reservations import (
    MAX_EXTENSION_SECONDS,
    extend_reservation,
    move_reserved,
    plan_again,
)
from claims.tasks.approvals.services import ApprovalResult, approve_plan, reject_plan
from claims.tasks.pages.approval_panel import describe_effect, must_read, why_not_approve
from claims.tasks.plans.selectors import PlanView, view_plan
from pools.pages.base import PageRequest, confirm, signed_in
from pools.pages.length import length_field, read_length
from project.kernel.errors import BerthError, Conflict, Forbidden, NotFound, wrong_field
from project.kernel.ui import formatting
from project.kernel.ui.confirm import (
    ConfirmInput,
    Done,
    Field,
    Question,
    errors_of,
    finish,
)

PANEL = "decide-said"  # the element that shows the errors of the panel
EXTEND_BY = length_field("4h", label="Extend by")


def plan_for(claim: ClaimView) -> PlanView:
    found = view_plan(claim.id)
    if found is None:
        raise NotFound(
            f"Claim {claim.id} has no plan.", way_out="Open the claim: it may still be planning."
        )
    return found


def not_pending(claim: ClaimView) -> str:
    if claim.state in PENDING:
        return ""
    return (
        f"The claim has ended: {claim.outcome}."
        if claim.state == "ended"
        else "The plan no longer waits for an approval."
    )


@signed_in
def approve(request: PageRequest, claim_id: int) -> HttpResponse:
    claim = claim_for(request, claim_id, "decide")
    found = plan_for(claim)
    question = Question(
        title=f"Approve the plan of {claim.name}",
        verb="Approve and apply" if found.given + 1 >= found.needed else "Approve",
        href=request.path,
        intro=f"{counts_words(found)}. {describe_effect(claim, found)}",
        fields=[
            Field("digest", "", "hidden", found.digest),
            Field("comment", "Comment", "textarea", request.GET.get("comment", "")[:500]),
        ],
        facts=[
            ("Plan", found.digest[:12]),
            (
                "Guarantee",
                "the approval is valid for this plan only; if the plan changes, approvals are void",
            ),
        ],
        reason="none",
        typed=claim.name if found.destroys else "",
        is_dangerous=found.destroys,
        nothing=not_pending(claim) or why_not_approve(request.identity, claim, found),
    )

    def perform(digest: str, comment: str) -> Done:
        if is_panel(request) and found.destroys and not request.POST.get("read"):
            raise wrong_field(
                "read",
                f"You have not confirmed that you read the {must_read(found)}.",
                "Tick the box, then approve.",
            )
        decided = approve_plan(
            claim_id=claim.id, digest=digest, by=request.identity, comment=comment
        )
        return confirm_approval(claim, decided)

    return decide(request, question, perform)


def confirm_approval(claim: ClaimView, decided: ApprovalResult) -> Done:
    left = decided.needed - decided.given
    if left > 0:
        return Done(
            f"Your approval of {claim.name} is recorded: {decided.given} of {decided.needed}. "
            f"{formatting.plural(left, 'more is', 'more are')} required."
        )
    if decided.state == "bound":
        return Done(f"{claim.name} is approved: its apply starts.")
    return Done(f"{claim.name} is approved: the claim goes first in the queue for a slot.")


@signed_in
def reject(request: PageRequest, claim_id: int) -> HttpResponse:
    claim = claim_for(request, claim_id, "decide")
    found = plan_for(claim)
    question = Question(
        title=f"Reject the plan of {claim.name}",
        verb="Reject",
        href=request.path,
        intro="Nothing is applied. The claim ends and its slot is released.",
        affected=[
            affected(
                claim,
                ("rejected", "rejected"),
                describe_slots(claim) if claim.holds else "its plan",
            )
        ],
        fields=[Field("digest", "", "hidden", found.digest)],
        reason_hint=f"Shown to {claim.requested_by or 'the owner'} and recorded in the event log",
        given_reason=request.GET.get("comment", "")[:500],
        is_dangerous=True,
        note="Cannot be undone. A new run can plan again.",
        nothing=not_pending(claim),
    )

    def perform(digest: str, comment: str) -> Done:
        reject_plan(claim_id=claim.id, digest=digest, by=request.identity, comment=comment)
        return Done(f"The plan of {claim.name} was rejected.")

    return decide(request, question, perform)


def counts_words(found: PlanView) -> str:
    parts = [
        f"{found.summary[name]} to {name}"
        for name in ("destroy", "replace", "change", "add")
        if found.summary.get(name)
    ]
    return formatting.sentence(parts).capitalize() if parts else "The plan’s log shows its changes"


def is_panel(request: PageRequest) -> bool:
    return request.method == "POST" and request.headers.get("HX-Target") == PANEL


def decide(
    request: PageRequest, question: Question, perform: Callable[[str, str], Done]
) -> HttpResponse:
    """Shows the dialog and decides on the plan of its digest, with a comment. The panel of the
    claim needs no dialog and shows errors in its place.
    """

    def answer_dialog(given: ConfirmInput) -> Done:
        return perform(given.values["digest"], given.values.get("comment", given.reason))

    if not is_panel(request):
        return confirm(request, question, answer_dialog, "approvals")
    comment = request.POST.get("comment", "").strip()[:500]
    try:
        done = perform(request.POST.get("digest", ""), comment)
    except (Forbidden, NotFound):
        raise
    except BerthError as error:
        status = 409 if isinstance(error, Conflict) else 422
        return render(
            request,
            "claims/tasks/approval_problems.html",
            {"problems": errors_of(error)},
            status=status,
        )
    return finish(request, done)


@signed_in
def extend(request: PageRequest, claim_id: int) -> HttpResponse:
    claim = claim_for(request, claim_id, "read")
    if not request.identity.may("decide", claim.pool_id):
        claim_for(request, claim_id, "claim_any")
    question = Question(
        title=f"Extend {claim.name}",
        verb="Extend",
        href=request.path,
        intro="The plan waits longer for an approval"
        + (" and its slot stays reserved." if claim.state == "reserved" else "."),
        fields=[EXTEND_BY],
        nothing=not_pending(claim),
    )

    def perform(given: ConfirmInput) -> Done:
        extend_reservation(
            claim_id=claim.id,
            seconds=read_length(given, MAX_EXTENSION_SECONDS),
            reason=given.reason,
        )
        return Done(f"{claim.name} waits {given.values['for']} longer.")

    return confirm(request, question, perform, "approvals")


@signed_in
def again(request: PageRequest, claim_id: int) -> HttpResponse:
    claim = claim_for(request, claim_id, "claim_any")
    found = view_plan(claim.id)
    loses = f"{formatting.plural(found.given, 'approval')}" if found and found.given else "its plan"
    question = Question(
        title=f"Plan {claim.name} again",
        verb="Plan again",
        href=request.path,
        intro=(
            "The current plan becomes stale and its approvals are void. The claim is queued "
            "and plans again."
        ),
        affected=[affected(claim, ("waiting", "plans again"), loses)],
        nothing=not_pending(claim),
    )

    def perform(given: ConfirmInput) -> Done:
        plan_again(claim_id=claim.id, reason=given.reason)
        return Done(f"{claim.name} plans again.")

    return confirm(request, question, perform, "claims")


@signed_in
def move(request: PageRequest, claim_id: int) -> HttpResponse:
    claim = claim_for(request, claim_id, "claim_any")
    question = Question(
        title=f"Move {claim.name}",
        verb="Move",
        href=request.path,
        intro=(
            "The slot is released and a slot on another member is reserved. The saved plan and "
            "its approvals are kept; if the other member differs in binary or platform, the "
            "claim plans again."
        ),
        affected=[
            affected(
                claim,
                ("apply_pending", "in another slot"),
                describe_slots(claim) if claim.holds else "",
            )
        ],
        nothing=not_pending(claim),
    )

    def perform(given: ConfirmInput) -> Done:
        move_reserved(claim_id=claim.id, reason=given.reason)
        return Done(
            f"{claim.name} leaves {describe_slots(claim) or 'its place'} and gets another slot."
        )

    return confirm(request, question, perform, "claims")
