"""Dialogs that evacuate a load balancer, undo it, and move a claim back. The first one is the
preview.
"""

from django.http import HttpResponse

from claims.ports.evacuation.mover import undo_evacuation
from claims.ports.evacuation.orders import evacuate_member
from claims.ports.evacuation.report import (
    EvacuatedClaim,
    EvacuationReport,
    list_arrived,
    preview_evacuation,
    report_evacuation,
)
from claims.ports.evacuation.returns import return_claim
from pools.lifecycle.selectors import layout_of
from pools.models import Pool
from pools.pages.base import PageRequest, confirm, signed_in
from project.kernel.ui import formatting
from project.kernel.ui.confirm import Affected, ConfirmInput, Done, Field, Question
from slots.pages.dashboard_queries import MemberCard
from slots.pages.views import member_for

SHOWN = 50
KEEP, RETURN = "keep", "return"
GOES, STAYS = "goes", "stays"
ENDS = (
    (GOES, "the member is removed from the pool"),
    (STAYS, "the member stays cordoned until it is uncordoned"),
)


@signed_in
def evacuate(request: PageRequest, member_id: int) -> HttpResponse:
    pool, card = member_for(request, member_id, "drain")
    found = report_evacuation(card.id, pool.pk)
    report = preview_evacuation(card.id, pool.pk)
    order = found.order
    question = Question(
        title=f"Evacuate {card.name}" if order is None else f"Evacuate {card.name} again",
        verb="Evacuate",
        intro=_describe(report),
        fields=[
            Field(
                "end",
                "Once it is empty",
                "select",
                value=STAYS if order is not None and order.stays else GOES,
                options=ENDS,
            )
        ],
        affected=[_row(each) for each in report.present[:SHOWN]],
        affected_more=max(0, len(report.present) - SHOWN),
        last="Goes to",
        facts=[*_facts(report), *_pause_facts(pool)],
        note="Can be undone while the member is there.",
        nothing=_why_not(pool, card),
    )

    def perform(given: ConfirmInput) -> Done:
        evacuate_member(member_id=card.id, reason=given.reason, stays=given.values["end"] == STAYS)
        return Done(
            f"{card.name} is being evacuated: its claims move one at a time."
            if report.present
            else f"{card.name} is cordoned, and no claim holds a port of it."
        )

    return confirm(request, question, perform, "overview")


@signed_in
def undo(request: PageRequest, member_id: int) -> HttpResponse:
    pool, card = member_for(request, member_id, "drain")
    report = report_evacuation(card.id, pool.pk)
    order, moving = report.order, report.moving
    facts = [
        ("Moved", f"{formatting.plural(report.moved, 'claim')}, with new addresses"),
        ("Not moved", formatting.plural(len(report.left) + len(report.stuck), "claim")),
    ]
    if moving is not None:
        text = f"claim {moving.id} goes back to {moving.held} if its new ports are not ready yet"
        facts.insert(1, ("Moving", text))
    if order is not None:
        facts.insert(0, ("Evacuated", f"by {order.by}, “{order.reason}”"))
    back = formatting.plural(len(report.arrived), "claim goes", "claims go")
    moved = (
        (KEEP, "keep their new addresses"),
        (RETURN, f"{back} back to the former ports, which still drain"),
    )
    question = Question(
        title=f"Undo the evacuation of {card.name}",
        verb="Undo",
        fields=[Field("claims", "Claims that have moved", "select", value=KEEP, options=moved)]
        if report.arrived
        else (),
        intro="No further claim moves. "
        + (
            "The member stays cordoned, as before the evacuation."
            if order is not None and order.was_cordoned
            else "The member takes new claims again."
        ),
        facts=facts if order is not None else (),
        reason="optional",
        note="" if report.arrived else "Claims that have moved keep their new addresses.",
        nothing="" if order is not None else "The member is not being evacuated.",
    )

    def perform(given: ConfirmInput) -> Done:
        returns_claims = given.values.get("claims") == RETURN
        count = undo_evacuation(
            member_id=card.id, reason=given.reason, returns_claims=returns_claims
        )
        gone = formatting.plural(count, "claim has gone back", "claims have gone back")
        more = f" {gone[0].upper()}{gone[1:]}." if returns_claims else ""
        return Done(f"{card.name} is no longer being evacuated.{more}")

    return confirm(request, question, perform, "overview")


@signed_in
def return_to(request: PageRequest, member_id: int, claim_id: int) -> HttpResponse:
    _, card = member_for(request, member_id, "drain")
    claim = next((each for each in list_arrived(card.id) if each.id == claim_id), None)
    facts = []
    if claim is not None:
        facts = [
            ("Now", claim.goes_to),
            ("Then", f"{card.name} {claim.held}"),
            *([("At the latest", f"{claim.until:%d %b %H:%M} UTC")] if claim.until else []),
        ]
    question = Question(
        title=f"Move claim {claim_id} back to {card.name}",
        verb="Move back",
        intro=(
            "The claim gets its former ports and addresses back, and its new listeners drain. "
            "New connections may fail until the former listeners serve again."
        ),
        facts=facts,
        note="The evacuation goes on without this claim." if card.is_evacuating else "",
        nothing="" if claim else "The claim has no former ports here that still drain.",
    )

    def perform(given: ConfirmInput) -> Done:
        return_claim(member_id=card.id, claim_id=claim_id, reason=given.reason)
        return Done(f"Claim {claim_id} has its former ports on {card.name} back.")

    return confirm(request, question, perform, "overview")


def _describe(report: EvacuationReport) -> str:
    start = "The member takes no new claims. "
    if not report.present:
        return f"{start}No claim holds a port of it."
    moves, stuck = len(report.left), len(report.stuck)
    text = (
        f"{start}Its claims move to other load balancers one at a time and get new addresses and a "
        "new generation. The old listeners serve until the new ports are ready, then they drain."
    )
    if not stuck:
        return text
    stays = formatting.plural(stuck, "claim stays", "claims stay")
    return f"{text} {formatting.plural(moves, 'claim moves', 'claims move')}, {stays} for now."


def _row(claim: EvacuatedClaim) -> Affected:
    name = f"{claim.owner}, " if claim.owner else ""
    if claim.place == "stuck":
        detail = f"{name}{claim.held}. {claim.reason}. {claim.way_out}"
        return Affected(
            str(claim.id), f"/claims/{claim.id}/", detail, ("bound", "bound"),
            ("waiting", "stays"),
        )  # fmt: skip
    return Affected(
        str(claim.id), f"/claims/{claim.id}/", f"{name}{claim.held}", ("bound", "bound"),
        ("running", "moves"), claim.goes_to,
    )  # fmt: skip


def _facts(report: EvacuationReport) -> list[tuple[str, str]]:
    room = report.room
    found = []
    if any(claim.code not in ("named_slot", "not_bound", "no_labels") for claim in report.stuck):
        text = (
            f"another load balancer is requested: {room.members} of at most {room.most}"
            if room.may_grow
            else f"the pool gets no other load balancer: {room.members} of at most {room.most}"
            if room.is_scaled
            else "the pool has no scaling: add a load balancer"
        )
        found.append(("Room", text))
    order = report.order
    if order is not None:
        found.append(("Evacuated", f"by {order.by}, “{order.reason}”"))
    return found


def _pause_facts(pool: Pool) -> list[tuple[str, str]]:
    if pool.paused_until is None and pool.frozen_until is None:
        return []
    return [("Paused", "the pool hands out no ports now: claims move once it does again")]


def _why_not(pool: Pool, card: MemberCard) -> str:
    if layout_of(pool).ports is None:
        return "Only load balancers of a pool of ports can be evacuated."
    if pool.state == "deleting":
        return "The pool is being deleted: its members are removed."
    if card.lost_at is not None:
        return "The member is lost: its claims have lost their slots there."
    return f"The member is {card.word}." if card.state in ("deleting", "gone") else ""
