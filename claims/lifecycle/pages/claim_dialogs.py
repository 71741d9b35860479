"""Dialogs that release, cancel, prioritise or force-release claims, one or many at once. Each
lists the affected claims before the user confirms.
"""

from collections.abc import Callable, Sequence
from functools import partial

from django.http import HttpResponse

from claims.allocation.api.permissions import check_priority, require_change
from claims.allocation.claim_view import ClaimView
from claims.allocation.requests.claim_request import HIGHEST_PRIORITY, LOWEST_PRIORITY
from claims.allocation.selectors import view_claim, view_claims
from claims.kinds import find_kind
from claims.lifecycle.cancel import cancel_claim, force_release
from claims.lifecycle.pages.claim_list import may_touch
from claims.lifecycle.release import release_claim, release_claims
from claims.lifecycle.update import prioritise_claim
from claims.statements import attempt
from pools.pages.base import PageRequest, confirm, signed_in
from project.kernel.errors import BerthError, wrong_field
from project.kernel.ui import formatting
from project.kernel.ui.confirm import Affected, ConfirmInput, Done, Field, Question

MAX_CLAIMS_PER_DIALOG = 200  # of one bulk action from the browser
SHOWN = 50

Answer = ClaimView | BerthError


def claim_for(request: PageRequest, claim_id: int, action: str = "") -> ClaimView:
    claim = view_claim(claim_id)
    require_change(request.identity, claim, action)
    return claim


def affected(claim: ClaimView, then: tuple[str, str], loses: str) -> Affected:
    now = (claim.css, claim.word)
    return Affected(str(claim.id), f"/claims/{claim.id}/", claim.label, now, then, loses)


def cancelled(claim: ClaimView) -> Affected:
    loses = describe_slots(claim) if claim.holds else "its position in the queue"
    return affected(claim, ("cancelled", "cancelled"), loses)


def describe_slots(claim: ClaimView) -> str:
    names = [slot.place for slot in claim.slots]
    return formatting.sentence(names[:3]) + (
        f" and {len(names) - 3} more" if len(names) > 3 else ""
    )


# -- one claim -------------------------------------------------------------------------------------


@signed_in
def release(request: PageRequest, claim_id: int) -> HttpResponse:
    claim = claim_for(request, claim_id)
    question = Question(
        title=f"Release claim {claim.id}",
        verb="Release",
        intro=f"{claim.owner or claim.requested_by} loses "
        f"{formatting.plural(len(claim.slots), 'slot')}. Later calls by the holder are "
        "rejected with 409.",
        affected=[affected(claim, ("done", "released"), describe_slots(claim))],
        reason="optional",
        note="Cannot be undone.",
        nothing=""
        if claim.holds
        else "The claim holds no slots."
        if claim.state == "ended"
        else "The claim holds no slot yet. Cancel it instead.",
    )

    def perform(given: ConfirmInput) -> Done:
        release_claim(claim_id=claim.id, generation=claim.generation, reason=given.reason)
        return Done(
            f"Claim {claim.id} was released; "
            f"{formatting.plural(len(claim.slots), 'slot is', 'slots are')} free again."
        )

    return confirm(request, question, perform, "claims")


@signed_in
def force(request: PageRequest, claim_id: int) -> HttpResponse:
    claim = claim_for(request, claim_id, "force_release")
    question = Question(
        title=f"Force release claim {claim.id}",
        verb="Force release",
        intro=(
            "Takes the slots from the claim at once. Work that runs there is not stopped: make "
            "sure that it has ended, or two claims will use the same slot."
        ),
        affected=[cancelled(claim)],
        facts=[
            ("Holder", claim.owner or claim.requested_by),
            (
                "Guarantee",
                "Berth records one holder per slot; late calls by the holder are rejected",
            ),
        ],
        reason_hint=f"Recorded in the event log, shown to {claim.requested_by or 'its holder'}",
        typed=str(claim.id),
        is_dangerous=True,
        note="Cannot be undone.",
        nothing="" if claim.holds else "The claim holds no slots.",
    )

    def perform(given: ConfirmInput) -> Done:
        force_release(claim_id=claim.id, reason=given.reason)
        return Done(f"Claim {claim.id} was force released.")

    return confirm(request, question, perform, "claims")


@signed_in
def cancel(request: PageRequest, claim_id: int) -> HttpResponse:
    claim = claim_for(request, claim_id)
    runs = claim.state == "bound" and find_kind(claim.id) is not None
    is_applying = runs and claim.step == "apply"
    question = Question(
        title=f"Cancel {claim.name}" if runs else f"Cancel claim {claim.id}",
        verb="Cancel the claim",
        intro=cancel_words(claim, runs),
        affected=[cancelled(claim)],
        facts=[
            ("Workspace", "locked until an operator or approver records what happened to the apply")
        ]
        if is_applying
        else [],
        reason="needed" if is_applying else "optional",
        typed=claim.name if is_applying else "",
        is_dangerous=is_applying,
        note="Cannot be undone."
        if runs
        else "Cannot be undone. A new claim starts at the end of the queue.",
        nothing="The claim has ended."
        if claim.state == "ended"
        else "The claim holds slots. Release it instead."
        if claim.holds and not (runs or claim.state == "reserved")
        else "",
    )

    def perform(given: ConfirmInput) -> Done:
        cancel_claim(claim_id=claim.id, reason=given.reason)
        return Done(f"Claim {claim.id} was cancelled.")

    return confirm(request, question, perform, "claims")


@signed_in
def prioritise(request: PageRequest, claim_id: int) -> HttpResponse:
    claim = claim_for(request, claim_id)
    question = Question(
        title=f"Prioritise claim {claim.id}",
        verb="Prioritise",
        intro=(
            "Claims with a higher priority go first, equal ones by age. Approved plans go "
            "before all others."
        ),
        affected=[affected(claim, ("waiting", "new position"), f"priority {claim.priority} now")],
        fields=[priority_field(str(claim.priority))],
        reason="optional",
        nothing=""
        if claim.is_waiting
        else "The claim is not waiting; only waiting claims can be prioritised.",
    )

    def perform(given: ConfirmInput) -> Done:
        priority = read_priority(given)
        check_priority(request.identity, priority, claim.pools)
        changed = prioritise_claim(claim_id=claim.id, priority=priority, reason=given.reason)
        place = (
            f"; position {changed.wait.place} in the queue"
            if changed.wait and changed.wait.place
            else ""
        )
        return Done(f"Claim {claim.id} has priority {priority}{place}.")

    return confirm(request, question, perform, "claims")


def cancel_words(claim: ClaimView, runs: bool) -> str:
    if runs:
        what = "apply" if claim.step == "apply" else "plan"
        return (
            f"The agent interrupts the running {what} and kills it if it does not stop. The slot "
            "is free once all its processes have ended."
        )
    if claim.state in ("reserved", "parked"):
        return "Its plan is not applied, and its slot is released."
    return "The claim leaves the queue and ends. Claims behind it move up."


def priority_field(value: str) -> Field:
    return Field(
        "priority",
        "Priority",
        "number",
        value,
        f"{LOWEST_PRIORITY} to {HIGHEST_PRIORITY}; for claimants up to the pool’s highest priority",
        is_needed=True,
    )


def read_priority(given: ConfirmInput) -> int:
    text = given.values["priority"]
    if not text.lstrip("-").isdecimal() or len(text) > 4:
        raise wrong_field(
            "priority",
            f"{text[:20]} is not a whole number.",
            f"Use one from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}.",
        )
    return int(text)


# -- many claims -----------------------------------------------------------------------------------


def chosen(request: PageRequest) -> list[ClaimView]:
    """The existing claims that the form or the address names and that the user may change."""
    named = (request.POST if request.method == "POST" else request.GET).getlist("claim")
    ids = [int(text) for text in dict.fromkeys(named) if text.isdecimal() and len(text) < 19][
        :MAX_CLAIMS_PER_DIALOG
    ]
    return [claim for claim in view_claims(ids) if may_touch(request.identity, claim)]


def confirm_for_claims(
    request: PageRequest,
    claims: Sequence[ClaimView],
    *,
    title: str,
    verb: str,
    then: tuple[str, str],
    loses: Callable[[ClaimView], str],
    act: Callable[[Sequence[ClaimView], ConfirmInput], list[Answer]],
    past: str,
    nothing: str,
    intro: str,
    fields: Sequence[Field] = (),
    is_dangerous: bool = False,
) -> HttpResponse:
    rows = [affected(claim, then, loses(claim)) for claim in claims]
    question = Question(
        title=title.format(formatting.plural(len(claims), "claim")),
        verb=verb.format(formatting.plural(len(claims), "claim")),
        intro=intro,
        affected=rows[:SHOWN],
        affected_more=max(0, len(rows) - SHOWN),
        fields=[
            *fields,
            Field("claim", "", "hiddens", " ".join(str(claim.id) for claim in claims)),
        ],
        reason="needed" if len(claims) > 1 else "optional",
        is_dangerous=is_dangerous,
        note="Each claim is changed separately.",
        nothing="" if claims else nothing,
    )

    def perform(given: ConfirmInput) -> Done:
        answers = act(claims, given)
        failed = [answer for answer in answers if isinstance(answer, BerthError)]
        done = len(answers) - len(failed)
        if not done and failed:
            raise failed[0]
        more = f" {len(failed)} failed: {failed[0].detail}" if failed else ""
        return Done(f"{formatting.plural(done, 'claim is', 'claims are')} {past}.{more}")

    return confirm(request, question, perform, "claims")


def for_each_claim(
    claims: Sequence[ClaimView], work: Callable[[ClaimView], ClaimView]
) -> list[Answer]:
    return [attempt(partial(work, claim)) for claim in claims]


@signed_in
def release_many(request: PageRequest) -> HttpResponse:
    claims = [claim for claim in chosen(request) if claim.holds]
    return confirm_for_claims(
        request, claims, title="Release {}", verb="Release {}", then=("done", "released"),
        loses=describe_slots, past="released",
        intro="Releases the slots of these claims. Each slot is free once it is clean.",
        nothing="None of these claims holds a slot.", is_dangerous=True,
        act=lambda found, _: release_claims([(claim.id, claim.generation) for claim in found]),
    )  # fmt: skip


@signed_in
def cancel_many(request: PageRequest) -> HttpResponse:
    claims = [claim for claim in chosen(request) if claim.is_waiting]
    return confirm_for_claims(
        request, claims, title="Cancel {}", verb="Cancel {}", then=("cancelled", "cancelled"),
        loses=lambda claim: "its position in the queue", past="cancelled",
        intro="These claims leave the queue and end.", nothing="None of these claims is waiting.",
        act=lambda found, given: for_each_claim(
            found, lambda claim: cancel_claim(claim_id=claim.id, reason=given.reason)
        ),
        is_dangerous=True,
    )  # fmt: skip


@signed_in
def prioritise_many(request: PageRequest) -> HttpResponse:
    claims = [claim for claim in chosen(request) if claim.is_waiting]

    def act(found: Sequence[ClaimView], given: ConfirmInput) -> list[Answer]:
        priority = read_priority(given)

        def one(claim: ClaimView) -> ClaimView:
            check_priority(request.identity, priority, claim.pools)
            return prioritise_claim(claim_id=claim.id, priority=priority, reason=given.reason)

        return for_each_claim(found, one)

    return confirm_for_claims(
        request, claims, title="Prioritise {}", verb="Prioritise {}",
        then=("waiting", "new position"), loses=lambda claim: f"priority {claim.priority} now",
        past="prioritised", fields=[priority_field("10")],
        intro="Claims with a higher priority go first, equal ones by age.",
        nothing="None of these claims is waiting.", act=act,
    )  # fmt: skip
