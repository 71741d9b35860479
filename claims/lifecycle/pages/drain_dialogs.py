"""Dialogs that drain members, change or undo a drain, and force it. Each lists the claims on the
member and their fate at the deadline.
"""

from datetime import datetime, timedelta
from urllib.parse import urlencode

from django.http import HttpResponse, QueryDict
from django.urls import reverse
from django.utils import timezone

from claims.lifecycle.drain import force_drain
from claims.lifecycle.drain_report import DrainBlocker, list_blockers, summarise
from pools.config.durations import format_duration
from pools.config.spec import PoolSpec
from pools.lifecycle.selectors import spec_of
from pools.models import Pool
from pools.pages.base import PageRequest, confirm, pool_for, signed_in
from pools.pages.length import length_field, read_length
from pools.providers.base import has_agents
from project.kernel.errors import BerthError, wrong_field
from project.kernel.ui import formatting
from project.kernel.ui.confirm import Affected, ConfirmInput, Done, Field, Question
from project.kernel.validation import moment
from slots.members.drain import MAX_DRAIN, drain_member, undrain_member
from slots.pages.dashboard_queries import MemberCard, list_member_cards
from slots.pages.views import member_for, unsaved_facts

SHOWN = 50
MAX_MEMBERS_PER_DIALOG = 200  # members of one dialog
POOL_DELETED = "The pool is being deleted: its members are removed."
GOES, STAYS = "goes", "stays"
ENDS = (
    (GOES, "the member is removed from the pool"),
    (STAYS, "the member stays cordoned until it is uncordoned"),
)


def affected(blockers: list[DrainBlocker]) -> tuple[list[Affected], int]:
    """The rows of the dialog: each claim now and after the deadline; and how many are not shown."""
    rows = [
        Affected(
            str(k.claim_id), f"/claims/{k.claim_id}/", detail(k), (k.css, k.word), k.then, k.loses
        )
        for k in blockers[:SHOWN]
    ]
    return rows, max(0, len(blockers) - SHOWN)


def detail(blocker: DrainBlocker) -> str:
    return f"{blocker.name}, {blocker.where}" if blocker.name else blocker.where


def list_approval_facts(blockers: list[DrainBlocker]) -> list[tuple[str, str]]:
    waiting = sum(blocker.awaits_approval for blocker in blockers)
    if not waiting:
        return []
    text = (
        f"{formatting.plural(waiting, 'plan waits', 'plans wait')} here: until the deadline they "
        "can be approved and applied here, after it they lose the slot"
    )
    return [("Approvals", text)]


@signed_in
def drain(request: PageRequest, member_id: int) -> HttpResponse:
    pool, card = member_for(request, member_id, "drain")
    blockers = list_blockers([card.id])[card.id]
    rows, more = affected(blockers)
    is_first = not card.is_draining
    question = Question(
        title=f"Drain {card.name}" if is_first else f"Change the deadline of {card.name}",
        verb="Drain" if is_first else "Change deadline",
        intro=(
            f"The member takes no new claims. {summarise(blockers)}. Each claim may finish until "
            "the deadline and then loses its slots, as below."
        )
        if blockers
        else "The member takes no new claims. No claim holds a slot of this member.",
        fields=[within_field(pool, card), end_field(stays=will_stay(card))],
        affected=rows,
        affected_more=more,
        facts=[*drain_facts(card), *list_approval_facts(blockers), *unsaved_facts(card)],
        note="Can be undone until the member is removed.",
        nothing=why_gone(pool, card),
    )

    def perform(given: ConfirmInput) -> Done:
        seconds = read_within(given)
        stays = given.values["end"] == STAYS
        until = moment() + timedelta(seconds=seconds)
        removal = drain_member(member_id=card.id, reason=given.reason, until=until, stays=stays)
        return describe_result(
            pool,
            card,
            removal.state,
            f"{card.name} drains for at most {formatting.duration(seconds)}.",
            stays=stays,
        )

    return confirm(request, question, perform, "overview")


def list_outcomes(spec: PoolSpec) -> list[tuple[str, str]]:
    """What a force drain does to tasks and slots, and what holds all the same."""
    late = f"a slot that is not clean {formatting.duration(spec.drain_limit)} later is removed too"
    if not has_agents(spec):
        return [("Slots", late), ("Guarantee", "no slot is held twice")]
    return [
        ("Processes", f"are interrupted, then killed; {late}"),
        ("Guarantee", "no slot is held twice, no apply runs twice, no apply runs without approval"),
    ]


@signed_in
def force(request: PageRequest, member_id: int) -> HttpResponse:
    pool, card = member_for(request, member_id, "drain")
    blockers = list_blockers([card.id])[card.id]
    rows, more = affected(blockers)
    without = (
        f" Without force the drain ends at the latest {formatting.exact(card.drain_until)}."
        if card.drain_until
        else ""
    )
    stays = will_stay(card)
    question = Question(
        title=f"Force drain {card.name}",
        verb="Force drain",
        intro=(
            "Takes the slots of all claims on this member, as below, then "
            f"{'cordons' if stays else 'removes'} "
            f"it.{'' if stays else without}"
        ),
        affected=rows,
        affected_more=more,
        facts=[
            ("Now", summarise(blockers) or "no claim holds a slot of this member"),
            *list_outcomes(spec_of(pool)),
            *unsaved_facts(card),
        ],
        typed=card.name,
        is_dangerous=True,
        note="Cannot be undone.",
        nothing=why_gone(pool, card),
    )

    def perform(given: ConfirmInput) -> Done:
        removal = force_drain(member_id=card.id, reason=given.reason, stays=stays)
        return describe_result(
            pool, card, removal.state, f"{card.name} is force drained.", stays=stays
        )

    return confirm(request, question, perform, "overview")


@signed_in
def undrain(request: PageRequest, member_id: int) -> HttpResponse:
    _, card = member_for(request, member_id, "drain")
    blockers = list_blockers([card.id])[card.id]
    summary = summarise(blockers)
    then = (
        "The member stays cordoned, as before the drain."
        if card.stays_cordoned
        else "The member takes new claims again."
    )
    question = Question(
        title=f"Undrain {card.name}",
        verb="Undrain",
        intro=f"{then} {summary} and go{'es' if len(blockers) == 1 else ''} on."
        if summary
        else then,
        facts=drain_facts(card),
        reason="optional",
        note="Claims that lost their slots do not get them back.",
        nothing="" if card.is_draining else "The member is not draining.",
    )

    def perform(given: ConfirmInput) -> Done:
        member = undrain_member(member_id=card.id, reason=given.reason)
        return Done(
            f"{card.name} no longer drains and stays cordoned."
            if member.is_cordoned
            else f"{card.name} takes claims again."
        )

    return confirm(request, question, perform, "overview")


@signed_in
def drain_several(request: PageRequest, name: str) -> HttpResponse:
    """Drain the members that the address names: `?members=a&members=b` or `?zone=eu-1`. Without
    either, a first dialog asks for names.
    """
    pool = pool_for(request.identity, name, "drain")
    if "members" not in request.GET and "zone" not in request.GET:
        return choose_members(request, pool)
    cards = list_chosen_members(pool, request.GET)
    blockers = [
        blocker
        for found in list_blockers([card.id for card in cards]).values()
        for blocker in found
    ]
    rows, more = affected(blockers)
    ends = "Each claim may finish until the deadline and then loses its slots."
    who = f"{summarise(blockers)}. {ends}" if blockers else "No claim holds a slot there."
    which = "It takes" if len(cards) == 1 else "They take"
    shown = formatting.sentence([card.name for card in cards[:8]]) + (
        f" and {len(cards) - 8} more" if len(cards) > 8 else ""
    )
    question = Question(
        title=f"Drain {formatting.plural(len(cards), 'member')} of {pool.name}",
        verb="Drain",
        href=request.get_full_path(),
        intro=f"{shown}. {which} no new claims. {who}",
        fields=[within_field(pool), end_field()],
        affected=rows,
        affected_more=more,
        facts=[
            ("Slots", f"{sum(card.open_count for card in cards):,} open ones close"),
            *list_approval_facts(blockers),
        ],
        typed=pool.name,
        is_dangerous=True,
        note="Each can be undone until the member is removed.",
        nothing="" if cards else "No member of that name can be drained.",
    )

    def perform(given: ConfirmInput) -> Done:
        until = moment() + timedelta(seconds=read_within(given))
        stays = given.values["end"] == STAYS
        failed = [
            name for card in cards if (name := try_drain(card, given.reason, until, stays=stays))
        ]
        left = ""
        if failed:
            which = "it" if len(failed) == 1 else "them"
            left = f" {formatting.sentence(failed[:3])} could not be drained: check {which} again."
        return Done(
            f"{formatting.plural(len(cards) - len(failed), 'member drains', 'members drain')}"
            f".{left}"
        )

    return confirm(request, question, perform, "overview")


def choose_members(request: PageRequest, pool: Pool) -> HttpResponse:
    """Ask which members to drain. The next dialog lists the affected claims."""
    question = Question(
        title=f"Drain members of {pool.name}",
        verb="Continue",
        intro=(
            "They take no new claims and are emptied by a deadline. The next step shows the "
            "affected claims before you confirm."
        ),
        fields=[
            Field(
                "names",
                "Members",
                "textarea",
                help="Names, one per line, or zone=… for all members with that label",
                is_needed=True,
            )
        ],
        reason="none",
        note="Nothing is changed yet.",
        is_recorded=False,
        nothing=POOL_DELETED if pool.state == "deleting" else "",
    )

    def perform(given: ConfirmInput) -> Done:
        lines = [line.strip() for line in given.values["names"].splitlines() if line.strip()][
            :MAX_MEMBERS_PER_DIALOG
        ]
        pairs = [
            ("zone", line.partition("=")[2].strip())
            if line.startswith("zone=")
            else ("members", line)
            for line in lines
        ]
        known = {card.name for card in list_member_cards(pool.pk)}
        if missing := [value for key, value in pairs if key == "members" and value not in known]:
            raise wrong_field(
                "names",
                f"Pool {pool.name} has no member {missing[0][:63]}.",
                "Use names from the pool’s members.",
            )
        return Done(
            "Check the affected claims, then confirm.", f"{request.path}?{urlencode(pairs)}"
        )

    return confirm(request, question, perform, "overview")


def try_drain(card: MemberCard, reason: str, until: datetime, *, stays: bool) -> str:
    """The member's name if it could not be drained."""
    try:
        drain_member(member_id=card.id, reason=reason, until=until, stays=stays)
    except BerthError:
        return card.name
    return ""


def list_chosen_members(pool: Pool, query: QueryDict) -> list[MemberCard]:
    names, zones = set(query.getlist("members")), set(query.getlist("zone"))
    there = [
        card
        for card in list_member_cards(pool.pk)
        if card.state not in ("deleting", "gone") and not card.is_draining
    ]
    return [card for card in there if card.name in names or card.zone in zones][
        :MAX_MEMBERS_PER_DIALOG
    ]


def within_field(pool: Pool, card: MemberCard | None = None) -> Field:
    left = spec_of(pool).drain_limit
    if card is not None and card.drain_until is not None:
        left = max(60.0, (card.drain_until - timezone.now()).total_seconds() // 60 * 60)
    return length_field(format_duration(left), "within", "Deadline")


def end_field(*, stays: bool = False) -> Field:
    value = STAYS if stays else GOES
    return Field("end", "After the drain", "select", value=value, options=ENDS)


def will_stay(card: MemberCard) -> bool:
    """Whether the member stays in its pool at the end of the present drain."""
    return card.drain_until is not None and not card.is_leaving


def drain_facts(card: MemberCard) -> list[tuple[str, str]]:
    """The drain, and the cordon that stays when the drain is undone."""
    found = [("Open slots", f"{card.open_count} of {len(card.cells)} close")]
    if card.is_draining:
        by = f"by {card.drain_by}, " if card.drain_by else ""
        until = (
            f" until {formatting.exact(card.drain_until)}"
            if card.drain_until
            else ", without a deadline"
        )
        found = [("Drains", f"{by}“{card.note}”{until}")]
    if card.cordon_by:
        note = f"by {card.cordon_by} “{card.cordon_note}”; the cordon stays after an undrain"
        found.append(("Cordoned", note))
    return found


def read_within(given: ConfirmInput) -> float:
    return read_length(given, MAX_DRAIN.total_seconds(), "within")


def why_gone(pool: Pool, card: MemberCard) -> str:
    if pool.state == "deleting":
        return POOL_DELETED
    return f"The member is {card.word}." if card.state in ("deleting", "gone") else ""


def describe_result(
    pool: Pool, card: MemberCard, state: str, otherwise: str, *, stays: bool
) -> Done:
    if state in ("gone", "deleting"):
        return Done(
            f"{card.name} is empty and is removed from {pool.name}.",
            reverse("pool", args=[pool.name]),
        )
    return Done(f"{otherwise}{' Afterwards it stays cordoned.' if stays else ''}")
