"""Yes and no to plans: from the panel of a claim, from a dialog, many at once; and what else
people do with a plan that waits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render

from claims.allocation.claim_view import ClaimView
from claims.allocation.selectors import view_claims
from claims.lifecycle.drain import drains_of
from claims.lifecycle.pages.claim_dialogs import MOST, SHOWN, affected, claim_for, describe_places
from claims.states import PENDING
from claims.tasks.approvals.lost_apply import resolve_lost_apply
from claims.tasks.approvals.reservations import extend_reservation, move_reserved, plan_again
from claims.tasks.approvals.services import ApprovalVote, apply_votes, approve_plan, reject_plan
from claims.tasks.pages.task_page import describe_effect, must_read, why_not_approve
from claims.tasks.plans.selectors import PlanView, view_plan
from claims.tasks.states.views import rescued_facts
from claims.workspaces.web.permissions import existing_workspace, require_settle
from claims.workspaces.web.views import claims_of
from pools.access.permissions import Identity
from pools.config.durations import parse_duration
from pools.models import Pool
from pools.pages.base import frame, signed_in
from project.kernel.errors import BerthError, Conflict, FieldError, Forbidden, Invalid, NotFound
from project.kernel.ui import formatting
from project.kernel.ui.confirm import (
    ConfirmInput,
    Done,
    Field,
    Question,
    confirm_action,
    errors_of,
    finish,
)

PANEL = "decide-said"  # where the panel shows what is wrong

ANSWERS = (
    ("applied", "Applied: all changes of the plan were made"),
    ("not_applied", "Not applied: no change was made"),
    ("unknown", "Applied in part or unknown: the next run must plan again"),
)


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


# -- one plan --------------------------------------------------------------------------------------


@signed_in
def approve(request: Any, claim_id: int) -> HttpResponse:
    claim = claim_for(request, claim_id, "decide")
    found = plan_for(claim)
    question = Question(
        title=f"Approve the plan of {claim.workspace or claim.id}",
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
                "Guaranteed",
                "the approval is valid for this plan only; if the plan changes, approvals are void",
            ),
        ],
        reason="none",
        typed=(claim.workspace or str(claim.id)) if found.destroys else "",
        is_dangerous=found.destroys,
        nothing=not_pending(claim) or why_not_approve(request.identity, claim, found),
    )

    def perform(given: ConfirmInput) -> Done:
        return confirm_approval(
            claim, given.values["digest"], request.identity, given.values["comment"]
        )

    if is_panel(request):
        return from_panel(request, lambda: yes_from_panel(request, claim, found))
    return confirm_action(request, question, perform, frame(request, "approvals"))


def yes_from_panel(request: Any, claim: ClaimView, found: PlanView) -> Done:
    if found.destroys and not request.POST.get("read"):
        raise Invalid(
            fields=[
                FieldError(
                    "read",
                    f"You have not confirmed that you read the {must_read(found)}.",
                    "Tick the box, then approve.",
                )
            ]
        )
    return confirm_approval(
        claim,
        request.POST.get("digest", ""),
        request.identity,
        request.POST.get("comment", "").strip()[:500],
    )


def confirm_approval(claim: ClaimView, digest: str, by: Identity, comment: str) -> Done:
    decided = approve_plan(claim_id=claim.id, digest=digest, by=by, comment=comment, via="browser")
    name = claim.workspace or str(claim.id)
    left = decided.needed - decided.given
    if left > 0:
        return Done(
            f"Your approval of {name} is recorded: {decided.given} of {decided.needed}. "
            f"{formatting.plural(left, 'more is', 'more are')} required."
        )
    return Done(
        f"{name} is approved: "
        f"{'its apply starts' if decided.state == 'bound' else 'the claim goes first in the queue for a slot'}"  # noqa: E501
        "."
    )


@signed_in
def reject(request: Any, claim_id: int) -> HttpResponse:
    claim = claim_for(request, claim_id, "decide")
    found = plan_for(claim)
    question = Question(
        title=f"Reject the plan of {claim.workspace or claim.id}",
        verb="Reject",
        href=request.path,
        intro="Nothing is applied. The claim ends and its slot is released.",
        affected=[
            affected(
                claim,
                ("rejected", "rejected"),
                describe_places(claim) if claim.holds else "its plan",
            )
        ],
        fields=[Field("digest", "", "hidden", found.digest)],
        reason_hint=f"Shown to {claim.requested_by or 'the owner'} and recorded in the event log",
        given_reason=request.GET.get("comment", "")[:500],
        is_dangerous=True,
        note="Cannot be undone. A new run can plan again.",
        nothing=not_pending(claim),
    )

    def no(digest: str, comment: str) -> Done:
        reject_plan(
            claim_id=claim.id, digest=digest, by=request.identity, comment=comment, via="browser"
        )
        return Done(f"The plan of {claim.workspace or claim.id} was rejected.")

    if is_panel(request):
        return from_panel(
            request,
            lambda: no(
                request.POST.get("digest", ""), request.POST.get("comment", "").strip()[:500]
            ),
        )
    return confirm_action(
        request,
        question,
        lambda given: no(given.values["digest"], given.reason),
        frame(request, "approvals"),
    )


def counts_words(found: PlanView) -> str:
    parts = [
        f"{found.summary[name]} to {word}"
        for name, word in (
            ("destroy", "destroy"),
            ("replace", "replace"),
            ("change", "change"),
            ("add", "add"),
        )
        if found.summary.get(name)
    ]
    return formatting.sentence(parts).capitalize() if parts else "The plan’s log shows its changes"


def is_panel(request: Any) -> bool:
    return request.method == "POST" and request.headers.get("HX-Target") == PANEL


def from_panel(request: Any, act: Callable[[], Done]) -> HttpResponse:
    try:
        done = act()
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


# -- what else -------------------------------------------------------------------------------------


@signed_in
def extend(request: Any, claim_id: int) -> HttpResponse:
    claim = claim_for(request, claim_id, "read")
    if not request.identity.may("decide", claim.pool_id):
        claim_for(request, claim_id, "claim_any")
    question = Question(
        title=f"Extend {claim.workspace or claim.id}",
        verb="Extend",
        href=request.path,
        intro="The plan waits longer for an approval"
        + (" and its slot stays reserved." if claim.state == "reserved" else "."),
        fields=[Field("for", "Extend by", "text", "4h", "Like 90m, 4h or 1d", is_needed=True)],
        nothing=not_pending(claim),
    )

    def perform(given: ConfirmInput) -> Done:
        extend_reservation(
            claim_id=claim.id, seconds=read_length(given.values["for"]), reason=given.reason
        )
        return Done(f"{claim.workspace or claim.id} waits {given.values['for']} longer.")

    return confirm_action(request, question, perform, frame(request, "approvals"))


def read_length(text: str) -> float:
    seconds = parse_duration(text)
    if seconds is None or seconds <= 0:
        raise Invalid(
            fields=[
                FieldError(
                    "for", f"{text[:20]} is not a length of time.", "Write it like 90m, 4h or 1d."
                )
            ]
        )
    return seconds


@signed_in
def again(request: Any, claim_id: int) -> HttpResponse:
    claim = claim_for(request, claim_id, "claim_any")
    found = view_plan(claim.id)
    loses = f"{formatting.plural(found.given, 'approval')}" if found and found.given else "its plan"
    question = Question(
        title=f"Plan {claim.workspace or claim.id} again",
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
        return Done(f"{claim.workspace or claim.id} plans again.")

    return confirm_action(request, question, perform, frame(request, "claims"))


@signed_in
def move(request: Any, claim_id: int) -> HttpResponse:
    claim = claim_for(request, claim_id, "claim_any")
    question = Question(
        title=f"Move {claim.workspace or claim.id}",
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
                describe_places(claim) if claim.holds else "",
            )
        ],
        nothing=not_pending(claim),
    )

    def perform(given: ConfirmInput) -> Done:
        move_reserved(claim_id=claim.id, reason=given.reason)
        return Done(
            f"{claim.workspace or claim.id} leaves {describe_places(claim) or 'its place'} and "
            "gets another slot."
        )

    return confirm_action(request, question, perform, frame(request, "claims"))


# -- many plans ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChosenClaims:
    claim: ClaimView
    plan: PlanView


def chosen(request: Any) -> tuple[list[ChosenClaims], list[tuple[ClaimView, str]]]:
    """What can be decided of what was picked, each with the plan that was seen; and what can't,
    with the reason.
    """
    told = (
        request.POST.getlist("plan") if request.method == "POST" else request.GET.getlist("claim")
    )
    seen = dict(text.partition(":")[::2] for text in told[:MOST])
    ids = [int(number) for number in seen if number.isdecimal() and len(number) < 19]
    fit, unfit = [], []
    for claim in view_claims(ids):
        if not request.identity.may("read", claim.pool_id):
            continue
        found = view_plan(claim.id)
        why = not_pending(claim) or (
            "" if request.identity.may("decide", claim.pool_id) else "This needs the role approver."
        )
        if found is None or why:
            unfit.append((claim, why or "The claim has no plan."))
        else:
            fit.append(ChosenClaims(claim, found))
    return fit, unfit


def many(
    request: Any,
    fit: Sequence[ChosenClaims],
    left: Sequence[tuple[ClaimView, str]],
    act: Callable[[ChosenClaims, str, ConfirmInput], Any],
    **texts: Any,
) -> HttpResponse:
    then, past = texts.pop("then"), texts.pop("past")
    digests = dict(text.partition(":")[::2] for text in request.POST.getlist("plan"))
    rows = [affected(one.claim, then, counts_words(one.plan)) for one in fit]
    question = Question(
        href=request.path,
        affected=rows[:SHOWN],
        affected_more=max(0, len(rows) - SHOWN),
        fields=[
            Field(
                "plan", "", "hiddens", " ".join(f"{one.claim.id}:{one.plan.digest}" for one in fit)
            )
        ],
        facts=[
            (claim.workspace or str(claim.id), f"left out: {why}") for claim, why in left[:SHOWN]
        ],
        nothing="" if fit else "You can decide none of these plans here.",
        note="Each plan is decided separately, as shown here.",
        **texts,
    )

    def perform(given: ConfirmInput) -> Done:
        done, more = act_on_each(
            fit, lambda one: act(one, digests.get(str(one.claim.id), ""), given)
        )
        return Done(f"{formatting.plural(done, 'plan is', 'plans are')} {past}.{more}")

    return confirm_action(request, question, perform, frame(request, "approvals"))


def act_on_each(fit: Sequence[ChosenClaims], act: Callable[[ChosenClaims], Any]) -> tuple[int, str]:
    """How many it was done to, and words for the others. Each stands on its own; where none can
    be done, why.
    """
    failed = []
    for one in fit:
        try:
            act(one)
        except BerthError as error:
            failed.append(error)
    if failed and len(failed) == len(fit):
        raise failed[0]
    return len(fit) - len(failed), f" {len(failed)} failed: {failed[0].detail}" if failed else ""


@signed_in
def approve_many(request: Any) -> HttpResponse:
    fit, left = chosen(request)
    plain = []
    for one in fit:
        why = why_not_approve(request.identity, one.claim, one.plan)
        if one.plan.destroys:
            why = "it destroys resources, so it is approved by itself"
        if why:
            left.append((one.claim, why))
        else:
            plain.append(one)

    def act(one: ChosenClaims, digest: str, given: ConfirmInput) -> None:
        verdict = ApprovalVote(
            one.claim.id, digest, True, request.identity, given.reason, "browser"
        )
        answer = apply_votes([verdict])[0]  # which refuses those that destroy
        if isinstance(answer, BerthError):
            raise answer

    return many(
        request,
        plain,
        left,
        act,
        title=f"Approve {formatting.plural(len(plain), 'plan')}",
        verb=f"Approve {formatting.plural(len(plain), 'plan')}",
        intro=(
            "None of them destroys resources. Plans with enough approvals are applied at "
            f"once.{frozen_words(plain)}{draining_words(plain)}"
        ),
        then=("applying", "approved"),
        past="approved",
        last="Plan",
        reason="optional",
        reason_hint="Comment, shown to the owners and recorded in the event log",
    )


def frozen_words(chosen: list[ChosenClaims]) -> str:
    """R9 of a pool, of many."""
    frozen = Pool.objects.filter(
        pk__in={one.claim.pool_id for one in chosen if one.claim.pool_id},
        frozen_until__isnull=False,
    ).order_by("name")
    ends = [f"{pool.name} is frozen until {pool.frozen_until:%d %b %H:%M} UTC" for pool in frozen]
    return (
        (
            f" {formatting.sentence(ends)}: approved claims there go first in the queue, and their "
            "applies start then."
        )
        if ends
        else ""
    )


def draining_words(chosen: list[ChosenClaims]) -> str:
    """R9, of many."""
    drains = drains_of([one.claim.id for one in chosen if one.claim.state == "reserved"])
    if not drains:
        return ""
    first = min(row.drain_until for row in drains.values())
    which = formatting.plural(len(drains), "is on a draining member", "are on draining members")
    return (
        f" {which}: an apply that still runs at its deadline, the first at "
        f"{first:%d %b %H:%M} UTC, is lost."
    )


@signed_in
def reject_many(request: Any) -> HttpResponse:
    fit, left = chosen(request)

    def act(one: ChosenClaims, digest: str, given: ConfirmInput) -> None:
        reject_plan(
            claim_id=one.claim.id,
            digest=digest,
            by=request.identity,
            comment=given.reason,
            via="browser",
        )

    return many(
        request,
        fit,
        left,
        act,
        title=f"Reject {formatting.plural(len(fit), 'plan')}",
        verb=f"Reject {formatting.plural(len(fit), 'plan')}",
        intro="None of them is applied. The claims end and their slots are released.",
        then=("rejected", "rejected"),
        past="rejected",
        last="Plan",
        reason="needed",
        reason_hint="Shown to the owners and recorded in the event log",
        is_dangerous=True,
    )


@signed_in
def extend_many(request: Any) -> HttpResponse:
    fit, left = chosen(request)
    rows = [
        affected(one.claim, ("apply_pending", "waits longer"), counts_words(one.plan))
        for one in fit
    ]
    question = Question(
        title=f"Extend {formatting.plural(len(fit), 'plan')}",
        verb=f"Extend {formatting.plural(len(fit), 'plan')}",
        href=request.path,
        intro="The plans wait longer for an approval, and reserved slots stay reserved.",
        affected=rows[:SHOWN],
        affected_more=max(0, len(rows) - SHOWN),
        last="Plan",
        fields=[
            Field("for", "Extend by", "text", "4h", "Like 90m, 4h or 1d", is_needed=True),
            Field(
                "plan", "", "hiddens", " ".join(f"{one.claim.id}:{one.plan.digest}" for one in fit)
            ),
        ],
        facts=[
            (claim.workspace or str(claim.id), f"left out: {why}") for claim, why in left[:SHOWN]
        ],
        nothing="" if fit else "You can extend none of these plans here.",
    )

    def perform(given: ConfirmInput) -> Done:
        seconds = read_length(given.values["for"])
        done, more = act_on_each(
            fit,
            lambda one: extend_reservation(
                claim_id=one.claim.id, seconds=seconds, reason=given.reason
            ),
        )
        return Done(
            f"{formatting.plural(done, 'plan waits', 'plans wait')} "
            f"{given.values['for']} longer.{more}"
        )

    return confirm_action(request, question, perform, frame(request, "approvals"))


# -- an apply that was lost ------------------------------------------------------------------------


@signed_in
def settle(request: Any, name: str) -> HttpResponse:
    view = existing_workspace(request.identity, name)
    require_settle(request.identity, view)
    name = view.name
    lost = view_claims([view.lost_claim])[0:1] if view.lost_claim else []
    blocked = claims_of(request.identity, view.id, states=("blocked",))
    question = Question(
        title=f"What happened to {name}?",
        verb="Record it and unlock",
        # An old dialog is no answer for another apply.
        href=f"{request.path}?claim={lost[0].id}" if lost else request.path,
        intro=(
            f"The apply of claim {lost[0].id} was lost while it ran. Check the real resources "
            "before you answer: your answer unlocks the workspace, and the next run starts."
        )
        if lost
        else "",
        affected=[affected(claim, ("waiting", "queued"), "") for claim in blocked],
        fields=[
            Field(
                "what",
                "What happened",
                "select",
                "",
                options=[("", "Choose…"), *ANSWERS],
                is_needed=True,
            )
        ],
        reason_hint="How you know; recorded in the event log",
        nothing="" if lost else "No apply of this workspace was lost.",
        facts=[
            ("Waiting for it", formatting.plural(len(blocked), "claim")),
            *rescued_facts(view.id),
        ],
    )

    def perform(given: ConfirmInput) -> Done:
        asked = request.GET.get("claim", "")
        meant = int(asked) if asked.isdecimal() and len(asked) < 19 else lost[0].id
        resolve_lost_apply(
            workspace_id=view.id, what=given.values["what"], reason=given.reason, claim=meant
        )
        return Done(f"{name} is unlocked; what happened is recorded.")

    return confirm_action(request, question, perform, frame(request, "claims"))
