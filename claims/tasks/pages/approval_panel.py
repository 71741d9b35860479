"""The approval panel of a claim: decision, approvals, and the reasons why Approve and Reject are
off.
"""

from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import Q
from django.utils import timezone

from claims.allocation.claim_view import ClaimView
from claims.lifecycle.drain import drains_of
from claims.states import PENDING
from claims.tasks.plans.selectors import PlanView, view_plan
from pools.access.permissions import APPROVER, Identity
from pools.models import Grant, Pool
from pools.pages.base import explain_missing_role
from project.kernel.ui import formatting

NAMED = 4  # approvers that the panel names
ORDINALS = (
    "", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth",
    "tenth",
)  # fmt: skip


def approval_context(identity: Identity, claim: ClaimView) -> dict[str, object]:
    found = view_plan(claim.id)
    is_pending = claim.state in PENDING
    if found is None or not (is_pending or found.approvals):
        return {"plan": None}
    left = None
    if is_pending and claim.expires_at:
        left = percent_left(found.made_at, claim.expires_at, timezone.now())
    approve_why = why_not_approve(identity, claim, found)
    reject_why = explain_missing_role(identity, "decide", claim.pool_id)
    return {
        "plan": found,
        "is_pending": is_pending,
        "given": [a for a in found.approvals if a.is_yes],
        "rejected": next((a for a in found.approvals if not a.is_yes), None),
        "left": left,
        "is_soon": left is not None and left < 15,
        "destroys": found.destroys,
        "must_read": must_read(found),
        "missing": max(0, found.needed - found.given),
        "whom": name_approvers(claim, found, identity),
        "approve_why": approve_why,
        "reject_why": reject_why,
        "approve_off": approve_why or ("Confirm the destructions first." if found.destroys else ""),
        "reject_off": reject_why or "Give a reason in the comment.",
        "whys": describe_disabled(
            approve_why, reject_why, must_read(found) if found.destroys else ""
        ),
        "what": describe_effect(claim, found),
    }


def percent_left(start: datetime, end: datetime, now: datetime) -> int:
    """The share of the time from start to end that is left."""
    whole = (end - start).total_seconds()
    return max(0, min(100, round(100 * (end - now).total_seconds() / whole))) if whole > 0 else 0


def must_read(found: PlanView) -> str:
    """The changes that an approver must confirm, because they cannot be undone."""
    counts = [
        (found.summary.get(name), word)
        for name, word in (("replace", "replacement"), ("destroy", "destruction"))
    ]
    return " and ".join(
        word if n == 1 else f"{n:,} {word}s" for n, word in counts if isinstance(n, int) and n
    )


def describe_disabled(approve_why: str, reject_why: str, to_read: str) -> str:
    """The line below the buttons: why Approve and Reject are off at first."""
    if approve_why and approve_why == reject_why:
        return f"Approve and Reject: {approve_why}"
    approve = (
        f"Approve: {approve_why}"
        if approve_why
        else f"Approve: confirm the {to_read} first."
        if to_read
        else ""
    )
    return f"{approve} Reject: {reject_why or 'give a reason in the comment.'}".strip()


def why_not_approve(identity: Identity, claim: ClaimView, found: PlanView) -> str:
    if role := explain_missing_role(identity, "decide", claim.pool_id):
        return role
    if found.given < found.needed and any(
        a.counts and a.user_id == identity.user_id for a in found.approvals
    ):
        return "You have already approved this plan."
    if found.mismatch:
        return "The counts of the plan contradict its list of changes: plan again."
    if claim.requested_by == identity.requester and not found.may_own:
        return "You requested the claim: another approver has to decide."
    if claim.expires_at is not None and claim.expires_at <= timezone.now():
        return "The plan has expired."
    return ""


def describe_effect(claim: ClaimView, found: PlanView) -> str:
    """The effect of an approval, shown before the click."""
    nth = found.given + 1
    if nth < found.needed:
        left = found.needed - nth
        return (
            f"Yours would be approval {nth} of {found.needed}: "
            f"{formatting.plural(left, 'more is', 'more are')} needed after it."
        )
    which = f"Yours would be the {ORDINALS[nth]} approval: " if 1 < nth < len(ORDINALS) else ""
    pool = Pool.objects.filter(pk=claim.pool_id or 0, frozen_until__isnull=False).first()
    if pool is not None:
        text = (
            "the pool is frozen; the claim goes first in the queue, and the apply starts when the "
            f"freeze ends, {pool.frozen_until:%d %b %H:%M} UTC"
        )
    elif claim.state == "parked":
        text = "the claim goes first in the queue, and the apply starts in the next free slot"
    else:
        place = claim.slots[0].place if claim.slots else "its slot"
        text = f"the apply starts at once on {place}"
    drains = describe_drain(claim)
    return (
        f"{which}{text if which else text[:1].upper() + text[1:]}.{' ' if drains else ''}{drains}"
    )


def describe_drain(claim: ClaimView) -> str:
    """What a drain of the member means for the decision; empty without a drain."""
    found = drains_of([claim.id]).get(claim.id) if claim.state == "reserved" else None
    if found is None:
        return ""
    if found.is_over:
        return f"{found.name} is being emptied: the slot is being released, the plan is kept."
    until = f"{found.drain_until:%d %b %H:%M} UTC"
    then = (
        "Without a decision by then the claim keeps its plan and loses its slot; an apply that "
        "still runs then is lost."
    )
    return f"{found.name} drains: the plan can be applied there until {until}. {then}"


def name_approvers(claim: ClaimView, found: PlanView, identity: Identity) -> str:
    """The names of further approvers, the reader first."""
    here = Grant.objects.filter(Q(pool=None) | Q(pool=claim.pool_id), role=APPROVER)
    # Subqueries: a join with all grants of users and groups multiplies the rows.
    is_approver = Q(pk__in=here.values("user")) | Q(groups__in=here.values("group"))
    people = User.objects.filter(is_approver, is_active=True).distinct()
    names = set(people.values_list("username", flat=True)[:100])
    names -= {a.by_user for a in found.approvals if a.counts}
    if not found.may_own:
        names.discard(claim.requested_by)
    listed = (["you"] if identity.username in names else []) + sorted(names - {identity.username})
    if not listed:
        return ""
    more = len(listed) - NAMED
    return (
        formatting.sentence(listed[:NAMED], "or")
        if more <= 0
        else f"{', '.join(listed[:NAMED])} or {more} more"
    )
