"""Dialogs that approve, reject or extend several waiting plans at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpResponse

from claims.allocation.claim_view import ClaimView
from claims.allocation.selectors import view_claims
from claims.lifecycle.drain import drains_of
from claims.lifecycle.pages.claim_dialogs import MAX_CLAIMS_PER_DIALOG, SHOWN, affected
from claims.tasks.approvals.reservations import MAX_EXTENSION_SECONDS, extend_reservation
from claims.tasks.approvals.services import ApprovalVote, apply_votes, reject_plan
from claims.tasks.pages.approval_dialogs import EXTEND_BY, counts_words, not_pending
from claims.tasks.pages.approval_panel import why_not_approve
from claims.tasks.plans.selectors import PlanView, view_plan
from pools.models import Pool
from pools.pages.base import PageRequest, confirm, explain_missing_role, signed_in
from pools.pages.length import read_length
from project.kernel.errors import BerthError
from project.kernel.ui import formatting
from project.kernel.ui.confirm import ConfirmInput, Done, Field, Question

NOTE = "Each plan is decided separately, as shown here."


@dataclass(frozen=True, slots=True)
class ChosenClaim:
    claim: ClaimView
    plan: PlanView


def chosen(request: PageRequest) -> tuple[list[ChosenClaim], list[tuple[ClaimView, str]]]:
    """The selected claims that wait for a decision of this user, with their plans; and the other
    selected claims, with the reason.
    """
    selected = (
        request.POST.getlist("plan") if request.method == "POST" else request.GET.getlist("claim")
    )
    numbers = dict.fromkeys(text.partition(":")[0] for text in selected[:MAX_CLAIMS_PER_DIALOG])
    ids = [int(number) for number in numbers if number.isdecimal() and len(number) < 19]
    fit, unfit = [], []
    for claim in view_claims(ids):
        if not request.identity.may("read", claim.pool_id):
            continue
        found = view_plan(claim.id)
        why = not_pending(claim) or explain_missing_role(request.identity, "decide", claim.pool_id)
        if found is None or why:
            unfit.append((claim, why or "The claim has no plan."))
        else:
            fit.append(ChosenClaim(claim, found))
    return fit, unfit


def confirm_many(
    request: PageRequest,
    verb: str,
    fit: Sequence[ChosenClaim],
    left: Sequence[tuple[ClaimView, str]],
    act: Callable[[ChosenClaim, str, ConfirmInput], object],
    done: Callable[[int, ConfirmInput], str],
    *,
    then: tuple[str, str],
    fields: Sequence[Field] = (),
    **texts: Any,
) -> HttpResponse:
    """Asks before acting on each plan. `act` gets the digest of the plan that the dialog showed.
    `then`: class and word of the claims afterwards; `done`: the message for a number of plans.
    """
    digests = dict(text.partition(":")[::2] for text in request.POST.getlist("plan"))
    rows = [affected(one.claim, then, counts_words(one.plan)) for one in fit]
    shown = " ".join(f"{one.claim.id}:{one.plan.digest}" for one in fit)
    title = f"{verb} {formatting.plural(len(fit), 'plan')}"
    question = Question(
        title=title,
        verb=title,
        href=request.path,
        affected=rows[:SHOWN],
        affected_more=max(0, len(rows) - SHOWN),
        fields=[*fields, Field("plan", "", "hiddens", shown)],
        facts=[(claim.name, f"left out: {why}") for claim, why in left[:SHOWN]],
        nothing="" if fit else f"You can {verb.lower()} none of these plans here.",
        last="Plan",
        **texts,
    )

    def perform(given: ConfirmInput) -> Done:
        number, failed = act_on_each(
            fit, lambda one: act(one, digests.get(str(one.claim.id), ""), given)
        )
        return Done(f"{done(number, given)}.{failed}")

    return confirm(request, question, perform, "approvals")


def act_on_each(
    fit: Sequence[ChosenClaim], act: Callable[[ChosenClaim], object]
) -> tuple[int, str]:
    """Returns the number of successes and a sentence about failures. Raises the first error if all
    fail.
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
def approve_many(request: PageRequest) -> HttpResponse:
    fit, left = chosen(request)
    plain = []
    for one in fit:
        why = why_not_approve(request.identity, one.claim, one.plan)
        if one.plan.destroys:
            why = "it destroys resources, so approve it in its own dialog"
        if why:
            left.append((one.claim, why))
        else:
            plain.append(one)

    def act(one: ChosenClaim, digest: str, given: ConfirmInput) -> None:
        vote = ApprovalVote(one.claim.id, digest, True, request.identity, given.reason, "browser")
        answer = apply_votes([vote])[0]  # rejects a plan that destroys
        if isinstance(answer, BerthError):
            raise answer

    return confirm_many(
        request,
        "Approve",
        plain,
        left,
        act,
        lambda number, _: f"{formatting.plural(number, 'plan is', 'plans are')} approved",
        then=("applying", "approved"),
        intro=(
            "No plan here destroys resources. A plan with enough approvals is applied at "
            f"once.{describe_freezes(plain)}{describe_drains(plain)}"
        ),
        note=NOTE,
        reason="optional",
        reason_hint="Comment, shown to the owners and recorded in the event log",
    )


def describe_freezes(chosen: list[ChosenClaim]) -> str:
    """What freezes of the pools mean for the decision; empty without a freeze."""
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


def describe_drains(chosen: list[ChosenClaim]) -> str:
    """What drains of the members mean for the decision; empty without a drain."""
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
def reject_many(request: PageRequest) -> HttpResponse:
    fit, left = chosen(request)

    def act(one: ChosenClaim, digest: str, given: ConfirmInput) -> None:
        by = request.identity
        reject_plan(claim_id=one.claim.id, digest=digest, by=by, comment=given.reason)

    return confirm_many(
        request,
        "Reject",
        fit,
        left,
        act,
        lambda number, _: f"{formatting.plural(number, 'plan is', 'plans are')} rejected",
        then=("rejected", "rejected"),
        intro="None of them is applied. The claims end and their slots are released.",
        note=NOTE,
        reason="needed",
        reason_hint="Shown to the owners and recorded in the event log",
        is_dangerous=True,
    )


@signed_in
def extend_many(request: PageRequest) -> HttpResponse:
    fit, left = chosen(request)

    def act(one: ChosenClaim, digest: str, given: ConfirmInput) -> None:
        seconds = read_length(given, MAX_EXTENSION_SECONDS)
        extend_reservation(claim_id=one.claim.id, seconds=seconds, reason=given.reason)

    return confirm_many(
        request,
        "Extend",
        fit,
        left,
        act,
        lambda number, given: (
            f"{formatting.plural(number, 'plan waits', 'plans wait')} {given.values['for']} longer"
        ),
        then=("apply_pending", "waits longer"),
        fields=[EXTEND_BY],
        intro="The plans wait longer for an approval, and reserved slots stay reserved.",
    )
