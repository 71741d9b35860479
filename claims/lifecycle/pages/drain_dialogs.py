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
from pools.config.durations import format_duration, parse_duration
from pools.lifecycle.selectors import spec_of
from pools.models import Pool
from pools.pages.base import PageRequest, confirm, pool_for, signed_in
from project.kernel.errors import BerthError, wrong_field
from project.kernel.ui import formatting
from project.kernel.ui.confirm import Affected, ConfirmInput, Done, Field, Question
from project.kernel.validation import moment
from slots.members.drain import LONGEST, drain_member, undrain_member
from slots.pages.dashboard_queries import MemberCard, list_boards
from slots.pages.views import member_for, unsaved_facts

SHOWN = 50
MOST = 200  # members of one dialog
GOES, STAYS = "goes", "stays"
ENDS = ((GOES, "is removed from the pool"), (STAYS, "stays cordoned until it is uncordoned"))


def affected(keepers: list[DrainBlocker]) -> tuple[list[Affected], int]:
    """The rows of the dialog: each claim now and after the deadline; and how many are not shown."""
    rows = [
        Affected(
            str(k.claim_id), f"/claims/{k.claim_id}/", detail(k), (k.css, k.word), k.then, k.loses
        )
        for k in keepers[:SHOWN]
    ]
    return rows, max(0, len(keepers) - SHOWN)


def detail(keeper: DrainBlocker) -> str:
    return f"{keeper.name}, {keeper.where}" if keeper.name else keeper.where


def decide_note(keepers: list[DrainBlocker]) -> list[tuple[str, str]]:
    waiting = sum(keeper.awaits_approval for keeper in keepers)
    if not waiting:
        return []
    text = (
        f"{formatting.plural(waiting, 'plan waits', 'plans wait')} here: until the deadline they "
        "can be approved and applied here, after it they lose the slot"
    )
    return [("Approvals", text)]


@signed_in
def drain(request: PageRequest, member_id: int) -> HttpResponse:
    pool, board = member_for(request, member_id, "drain")
    keepers = list_blockers([board.id])[board.id]
    rows, more = affected(keepers)
    is_first = not board.is_draining
    question = Question(
        title=f"Drain {board.name}" if is_first else f"Change the deadline of {board.name}",
        verb="Drain" if is_first else "Change deadline",
        href=request.path,
        intro=(
            f"The member takes no new claims. {summarise(keepers)}: each may finish until the "
            "deadline. Then it loses its slots, as below."
        )
        if keepers
        else "The member takes no new claims. No claim is here.",
        fields=[within_field(pool, board), end_field(board)],
        affected=rows,
        affected_more=more,
        facts=[
            *drain_facts(board),
            *cordon_facts(board),
            *decide_note(keepers),
            *unsaved_facts(board),
        ],
        note="Can be undone until the member is removed.",
        nothing="The pool is being deleted: its members are removed."
        if pool.state == "deleting"
        else why_gone(board),
    )

    def perform(given: ConfirmInput) -> Done:
        seconds = read_within(given.values["within"])
        stays = given.values["end"] == STAYS
        until = moment() + timedelta(seconds=seconds)
        removal = drain_member(member_id=board.id, reason=given.reason, until=until, stays=stays)
        return describe_result(
            pool,
            board,
            removal.state,
            f"{board.name} drains for at most {formatting.duration(seconds)}.",
            stays=stays,
        )

    return confirm(request, question, perform, "overview")


@signed_in
def force(request: PageRequest, member_id: int) -> HttpResponse:
    pool, board = member_for(request, member_id, "drain")
    keepers = list_blockers([board.id])[board.id]
    rows, more = affected(keepers)
    without = (
        f" Without force the drain ends at the latest {formatting.exact(board.drain_until)}."
        if board.drain_until
        else ""
    )
    stays = board.drain_until is not None and not board.is_leaving
    question = Question(
        title=f"Force drain {board.name}",
        verb="Force drain",
        href=request.path,
        intro=(
            "Takes the slots of all claims on this member, as below, then "
            f"{'cordons' if stays else 'removes'} "
            f"it.{'' if stays else without}"
        ),
        affected=rows,
        affected_more=more,
        facts=[
            ("Now", summarise(keepers) or "no claim is here"),
            (
                "Processes",
                (
                    "are interrupted, then killed; a slot that is not clean "
                    f"{formatting.duration(spec_of(pool).drain_limit)} later is removed too"
                ),
            ),
            *unsaved_facts(board),
            (
                "Guaranteed",
                "no slot is held twice, no apply runs twice, no apply runs without approval",
            ),
        ],
        typed=board.name,
        is_dangerous=True,
        note="Cannot be undone.",
        nothing="The pool is being deleted: its members are removed."
        if pool.state == "deleting"
        else why_gone(board),
    )

    def perform(given: ConfirmInput) -> Done:
        removal = force_drain(member_id=board.id, reason=given.reason, stays=stays)
        return describe_result(
            pool, board, removal.state, f"{board.name} is force drained.", stays=stays
        )

    return confirm(request, question, perform, "overview")


@signed_in
def undrain(request: PageRequest, member_id: int) -> HttpResponse:
    _, board = member_for(request, member_id, "drain")
    keepers = list_blockers([board.id])[board.id]
    said = summarise(keepers)
    then = (
        "The member stays cordoned, as before the drain."
        if board.stays_cordoned
        else "The member takes new claims again."
    )
    question = Question(
        title=f"Undrain {board.name}",
        verb="Undrain",
        href=request.path,
        intro=f"{then} {said} and go{'es' if len(keepers) == 1 else ''} on." if said else then,
        facts=[*drain_facts(board), *cordon_facts(board)],
        reason="optional",
        note="Claims that lost their slots do not get them back.",
        nothing="" if board.is_draining else "The member is not draining.",
    )

    def perform(given: ConfirmInput) -> Done:
        member = undrain_member(member_id=board.id, reason=given.reason)
        return Done(
            f"{board.name} no longer drains and stays cordoned."
            if member.is_cordoned
            else f"{board.name} takes claims again."
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
    boards = chosen_boards(pool, request.GET)
    keepers = [
        keeper
        for found in list_blockers([board.id for board in boards]).values()
        for keeper in found
    ]
    rows, more = affected(keepers)
    who = summarise(keepers) or "No claim is there"
    shown = formatting.sentence([board.name for board in boards[:8]]) + (
        f" and {len(boards) - 8} more" if len(boards) > 8 else ""
    )
    question = Question(
        title=f"Drain {formatting.plural(len(boards), 'member')} of {pool.name}",
        verb="Drain",
        href=request.get_full_path(),
        intro=(
            f"{shown}. They take no new claims. {who}: each may finish until the deadline, then "
            "it loses its slots."
        ),
        fields=[within_field(pool), end_field()],
        affected=rows,
        affected_more=more,
        facts=[
            ("Slots", f"{sum(board.open_count for board in boards):,} open ones close"),
            *decide_note(keepers),
        ],
        typed=pool.name,
        is_dangerous=True,
        note="Each can be undone until the member is removed.",
        nothing="" if boards else "No member of that name can be drained.",
    )

    def perform(given: ConfirmInput) -> Done:
        until = moment() + timedelta(seconds=read_within(given.values["within"]))
        stays = given.values["end"] == STAYS
        failed = [
            name for board in boards if (name := try_drain(board, given.reason, until, stays=stays))
        ]
        left = ""
        if failed:
            which = "it" if len(failed) == 1 else "them"
            left = f" {formatting.sentence(failed[:3])} could not be drained: check {which} again."
        return Done(
            f"{formatting.plural(len(boards) - len(failed), 'member drains', 'members drain')}"
            f".{left}"
        )

    return confirm(request, question, perform, "overview")


def choose_members(request: PageRequest, pool: Pool) -> HttpResponse:
    """Ask which members to drain. The next dialog lists the affected claims."""
    question = Question(
        title=f"Drain members of {pool.name}",
        verb="Continue",
        href=request.path,
        intro=(
            "They take no new claims and are emptied by a deadline. The next step shows the "
            "affected claims before you confirm."
        ),
        fields=[
            Field(
                "names",
                "Names, one per line, or zone=… for all members with that label",
                "textarea",
                is_needed=True,
            )
        ],
        reason="none",
        note="Nothing is changed yet.",
        nothing="The pool is being deleted: its members are removed."
        if pool.state == "deleting"
        else "",
    )

    def perform(given: ConfirmInput) -> Done:
        lines = [line.strip() for line in given.values["names"].splitlines() if line.strip()][:MOST]
        pairs = [
            ("zone", line.partition("=")[2].strip())
            if line.startswith("zone=")
            else ("members", line)
            for line in lines
        ]
        known = {board.name for board in list_boards(pool.pk)}
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


def try_drain(board: MemberCard, reason: str, until: datetime, *, stays: bool) -> str:
    """The member's name if it could not be drained."""
    try:
        drain_member(member_id=board.id, reason=reason, until=until, stays=stays)
    except BerthError:
        return board.name
    return ""


def chosen_boards(pool: Pool, query: QueryDict) -> list[MemberCard]:
    names, zones = set(query.getlist("members")), set(query.getlist("zone"))
    there = [
        board
        for board in list_boards(pool.pk)
        if board.state not in ("deleting", "gone") and not board.is_draining
    ]
    return [board for board in there if board.name in names or board.zone in zones][:MOST]


def within_field(pool: Pool, board: MemberCard | None = None) -> Field:
    left = spec_of(pool).drain_limit
    if board is not None and board.drain_until is not None:
        left = max(60.0, (board.drain_until - timezone.now()).total_seconds() // 60 * 60)
    return Field(
        "within",
        "Deadline in",
        value=format_duration(left),
        help="A length of time: 30m, 2h, 1d",
        is_needed=True,
    )


def end_field(board: MemberCard | None = None) -> Field:
    stays = board is not None and board.drain_until is not None and not board.is_leaving
    return Field(
        "end", "After the drain the member", "select", value=STAYS if stays else GOES, options=ENDS
    )


def drain_facts(board: MemberCard) -> list[tuple[str, str]]:
    if not board.is_draining:
        return [("Open slots", f"{board.open_count} of {len(board.cells)} close")]
    by = f" {board.drain_by}," if board.drain_by else ""
    until = (
        f" until {formatting.exact(board.drain_until)}"
        if board.drain_until
        else ", without a deadline"
    )
    return [("Drains", f"by{by} “{board.note}”{until}" if by else f"“{board.note}”{until}")]


def cordon_facts(board: MemberCard) -> list[tuple[str, str]]:
    """The cordon that stays when the drain is undone."""
    if not board.cordon_by:
        return []
    note = f"by {board.cordon_by} “{board.cordon_note}”; it stays so after an undrain"
    return [("Cordoned", note)]


def read_within(text: str) -> float:
    seconds = parse_duration(text)
    if seconds is None or not 1 <= seconds <= LONGEST.total_seconds():
        way_out = (
            f"Write one from 1s to {format_duration(LONGEST.total_seconds())}, like 30m, 2h or 1d."
        )
        raise wrong_field("within", f"{text[:40]} is not a length of time.", way_out)
    return seconds


def why_gone(board: MemberCard) -> str:
    return f"The member is {board.word}." if board.state in ("deleting", "gone") else ""


def describe_result(
    pool: Pool, board: MemberCard, state: str, otherwise: str, *, stays: bool
) -> Done:
    if state in ("gone", "deleting"):
        return Done(
            f"{board.name} is empty and is removed from {pool.name}.",
            reverse("pool", args=[pool.name]),
        )
    return Done(f"{otherwise}{' Afterwards it stays cordoned.' if stays else ''}")
