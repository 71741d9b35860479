"""Confirmation pages for changes of members and pools. Each shows the effect and the affected
claims.
"""

from datetime import timedelta

from django.http import HttpResponse
from django.urls import reverse
from django.utils import timezone

from pools.access.permissions import require
from pools.models import Member, Pool
from pools.pages.base import PageRequest, confirm, pool_for, signed_in
from pools.pages.length import length_field, read_length
from pools.providers.base import texts_of
from project.kernel.errors import FieldError, Invalid, NotFound, wrong_field
from project.kernel.ui import formatting
from project.kernel.ui.confirm import Affected, ConfirmInput, Done, Field, Question
from slots.members.selectors import no_such_member
from slots.members.services import (
    add_members,
    cancel_member_removal,
    cordon_member,
    pause_pool,
    remove_member,
    resume_pool,
    uncordon_member,
)
from slots.pages.dashboard_queries import MemberCard, SlotCell, get_member_card

MOST_SHOWN = 50
LONGEST_PAUSE = 366 * 86400.0


def member_for(request: PageRequest, member_id: int, action: str) -> tuple[Pool, MemberCard]:
    member = Member.objects.select_related("pool").filter(pk=member_id).first()
    if member is None or not request.identity.may("read", member.pool_id):
        raise no_such_member(member_id)
    require(request.identity, action, member.pool)
    card = get_member_card(member.pool_id, member_id)
    if card is None:
        raise NotFound(f"Member {member.name} was removed.", way_out="Its events are kept.")
    return member.pool, card


def holders(card: MemberCard, then: str) -> tuple[list[Affected], int]:
    """Claims that hold slots of the member, each with its future state, and the number of claims
    that are not shown.
    """
    found: dict[int, list[SlotCell]] = {}
    for cell in card.held:
        found.setdefault(cell.claim_id or 0, []).append(cell)
    rows = []
    for claim, cells in found.items():
        places = formatting.sentence([cell.place for cell in cells[:4]]) + (
            f" and {len(cells) - 4} more" if len(cells) > 4 else ""
        )
        rows.append(
            Affected(
                str(claim),
                f"/claims/{claim}/",
                places,
                (cells[0].name, cells[0].name),
                (cells[0].name, then),
                "nothing",
            )
        )
    return rows[:MOST_SHOWN], max(0, len(rows) - MOST_SHOWN)


def unsaved_facts(card: MemberCard) -> list[tuple[str, str]]:
    """Terraform states that would be lost with the member."""
    if not card.unsaved:
        return []
    claims = f"{'claims' if len(card.unsaved) > 1 else 'claim'} {', '.join(map(str, card.unsaved))}"
    text = (
        f"only this agent has the state of {claims}: the member stays until the agent has uploaded "
        "the state, or an operator discards it"
    )
    return [("Terraform state", text)]


@signed_in
def cordon(request: PageRequest, member_id: int) -> HttpResponse:
    _, card = member_for(request, member_id, "cordon")
    affected, more = holders(card, "stays")
    question = Question(
        title=f"Cordon {card.name}",
        verb="Cordon",
        intro=(
            "The member takes no new claims until it is uncordoned. Claims here keep their slots."
        ),
        affected=affected,
        affected_more=more,
        facts=[("Open slots", f"{card.open_count} of {len(card.cells)} close")],
        note="Can be undone with Uncordon.",
        nothing="The member is already cordoned." if card.is_cordoned and card.cordon_by else "",
    )

    def perform(given: ConfirmInput) -> Done:
        cordon_member(member_id=card.id, reason=given.reason)
        return Done(
            f"{card.name} is cordoned. "
            f"{formatting.plural(len(affected) + more, 'claim stays', 'claims stay')} there."
        )

    return confirm(request, question, perform, "overview")


@signed_in
def uncordon(request: PageRequest, member_id: int) -> HttpResponse:
    _, card = member_for(request, member_id, "cordon")
    free = sum(cell.name == "closed" for cell in card.cells)
    question = Question(
        title=f"Uncordon {card.name}",
        verb="Uncordon",
        intro=(
            "The member takes new claims again, unless the pool is paused or the member is offline."
        ),
        facts=[
            (
                "Cordoned because",
                f"“{card.cordon_note}”" if card.cordon_note else "no reason was recorded",
            ),
            ("Slots", f"{formatting.plural(free, 'slot opens', 'slots open')}"),
        ],
        reason="optional",
        nothing="" if card.is_cordoned else "The member is not cordoned.",
    )

    def perform(given: ConfirmInput) -> Done:
        uncordon_member(member_id=card.id, reason=given.reason)
        return Done(f"{card.name} takes claims again.")

    return confirm(request, question, perform, "overview")


@signed_in
def remove(request: PageRequest, member_id: int) -> HttpResponse:
    pool, card = member_for(request, member_id, "remove_member")
    affected, more = holders(card, "stays until it ends")
    count = len(affected) + more
    question = Question(
        title=f"Remove {card.name}",
        verb="Remove",
        intro=(
            "The member takes no new claims and is removed once it is empty. No claim is "
            "moved or ended."
        )
        if count
        else (
            "No claim holds a slot of this member, but its agent has a Terraform state: the member "
            "is removed once the server has the state."
        )
        if card.unsaved
        else (
            "No claim holds a slot of this member: the member and its slots are removed at once."
        ),
        affected=affected,
        affected_more=more,
        facts=[("Slots", f"{pool.name} loses {len(card.cells)}"), *unsaved_facts(card)],
        typed=card.name,
        is_dangerous=True,
        note="Can be undone until the member is removed." if count else "Cannot be undone.",
        nothing="The member is already being removed." if card.is_leaving else "",
    )

    def perform(given: ConfirmInput) -> Done:
        removal = remove_member(member_id=card.id, reason=given.reason)
        if removal.state in ("gone", "deleting"):
            return Done(
                f"{card.name} was removed from {pool.name}.", reverse("pool", args=[pool.name])
            )
        if not removal.holders:
            return Done(
                f"{card.name} is removed once the server has the Terraform state that only "
                "its agent has."
            )
        there = formatting.plural(len({h.claim_id for h in removal.holders}), "claim", "claims")
        return Done(
            f"{card.name} is removed when {there} on it "
            f"{'has' if there.startswith('1 ') else 'have'} ended."
        )

    return confirm(request, question, perform, "overview")


@signed_in
def keep(request: PageRequest, member_id: int) -> HttpResponse:
    _, card = member_for(request, member_id, "remove_member")
    question = Question(
        title=f"Keep {card.name}",
        verb="Keep",
        intro="Cancels the removal: the member stays"
        + (", cordoned as before." if card.stays_cordoned else " and takes new claims again."),
        facts=[
            (
                "Removed because",
                f"“{card.note}”" if card.note else "no reason was recorded",
            )
        ],
        reason="optional",
        nothing="" if card.is_leaving else "The member is not being removed.",
    )

    def perform(given: ConfirmInput) -> Done:
        cancel_member_removal(member_id=card.id, reason=given.reason)
        return Done(f"{card.name} is no longer being removed.")

    return confirm(request, question, perform, "overview")


@signed_in
def add(request: PageRequest, name: str) -> HttpResponse:
    pool = pool_for(request.identity, name, "add_member")
    texts = texts_of(pool.provider)
    question = Question(
        title=f"Add members to {pool.name}",
        verb="Add",
        intro=f"Each member gets the slots of the pool’s layout. {texts.adding}",
        fields=[
            Field(
                "names",
                "Names, one per line",
                "textarea",
                help="Letters, digits, dots, dashes, underscores",
                is_needed=True,
            ),
            Field("labels", "Labels of all new members", help="For example: zone=eu-1, size=large"),
        ],
        reason="optional",
        note=texts.takes_claims,
    )

    def perform(given: ConfirmInput) -> Done:
        found = list(
            dict.fromkeys(
                line.strip() for line in given.values["names"].splitlines() if line.strip()
            )
        )
        labels = read_labels(given.values["labels"])
        try:
            added = add_members(
                pool_id=pool.pk,
                declared=[{"name": n, **({"labels": labels} if labels else {})} for n in found],
                where="names",
                reason=given.reason,
            )
        except Invalid as error:
            raise Invalid(fields=[named(e, found) for e in error.fields]) if error.fields else error
        names = formatting.sentence([member.name for member in added[:3]]) + (
            f" and {len(added) - 3} more" if len(added) > 3 else ""
        )
        return Done(f"{names} {'was' if len(added) == 1 else 'were'} added to {pool.name}.")

    return confirm(request, question, perform, "overview")


def named(error: FieldError, names: list[str]) -> FieldError:
    """The fault of names[2] with the name in that line."""
    inside = error.field.partition("[")[2].partition("]")[0]
    if not inside.isdigit() or int(inside) >= len(names):
        return error
    field = "labels" if ".labels" in error.field else "names"
    return FieldError(field, f"{names[int(inside)]}: {error.message}", error.way_out)


def read_labels(text: str) -> dict[str, str]:
    labels = {}
    for pair in text.replace("\n", ",").split(","):
        if not pair.strip():
            continue
        key, sign, value = pair.partition("=")
        if not sign:
            raise wrong_field(
                "labels",
                f"{pair.strip()} has no value.",
                "Write labels like zone=eu-1, size=large.",
            )
        labels[key.strip()] = value.strip()
    return labels


@signed_in
def pause(request: PageRequest, name: str) -> HttpResponse:
    pool = pool_for(request.identity, name, "pause")
    question = Question(
        title=f"Pause {pool.name}",
        verb="Pause",
        intro=(
            "No new claims are bound until then: they wait. Bound claims keep their slots. The "
            "pause ends by itself."
        ),
        fields=[length_field("1h")],
        note="Can be ended at any time with Resume.",
    )

    def perform(given: ConfirmInput) -> Done:
        seconds = read_length(given, LONGEST_PAUSE)
        pause_pool(
            pool_id=pool.pk, until=timezone.now() + timedelta(seconds=seconds), reason=given.reason
        )
        return Done(f"{pool.name} is paused for {formatting.duration(seconds)}.")

    return confirm(request, question, perform, "overview")


@signed_in
def resume(request: PageRequest, name: str) -> HttpResponse:
    pool = pool_for(request.identity, name, "pause")
    question = Question(
        title=f"Resume {pool.name}",
        verb="Resume",
        intro="Free slots go to the waiting claims again, in the order of the queue.",
        facts=[("Paused because", f"“{pool.pause_reason}”")],
        reason="optional",
        nothing="" if pool.paused_until else "The pool is not paused.",
    )

    def perform(given: ConfirmInput) -> Done:
        resume_pool(pool_id=pool.pk, reason=given.reason)
        return Done(f"{pool.name} binds claims again.")

    return confirm(request, question, perform, "overview")
