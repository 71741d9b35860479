"""The list of claims and the page of one claim: state, wait reason or slots, times, actions."""

from collections.abc import Callable, Iterable
from datetime import datetime
from urllib.parse import parse_qs, urlencode

from django.http import HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone

from claims.allocation.api.permissions import may_see
from claims.allocation.claim_view import ClaimView
from claims.allocation.selectors import no_such_claim, queue_of_pool, view_claim
from claims.kinds import find_kind
from claims.lifecycle.claim_steps import steps_of
from claims.lifecycle.dashboard_queries import bound_lately, count_waiting
from claims.lifecycle.pages.claim_list import (
    KEYS,
    chips,
    describe_demand,
    describe_estimate,
    find_rows,
    is_plain_waiting,
    make_row,
    may_touch,
    read_query,
    waiting_groups,
)
from claims.lifecycle.pages.port_section import port_context
from claims.models import Claim
from claims.timeline.queries import Filter, list_lines
from pools.access.permissions import ADMIN, Identity
from pools.lifecycle.selectors import LIVE
from pools.models import Pool
from pools.pages.base import PageRequest, action, page, signed_in
from project.kernel.errors import NotFound
from project.kernel.live.regions import ANY, OpenedRegion, Subject, region

LINES = 12
QUEUE = 100
ENDED = {
    "released": "The holder released it.",
    "cancelled": "It was cancelled.",
    "expired": "It reached its time limit.",
    "unacknowledged": "It was not acknowledged in time, so its slot was released.",
    "silent": "The heartbeat of its holder stopped, so its slot was released.",
    "lost": "Its member was lost.",
}


@signed_in
def show_claims(request: PageRequest) -> HttpResponse:
    typed = request.GET.get("q")
    query = read_query("state:waiting" if typed is None else typed)
    before = request.GET.get("before", "")
    argument = urlencode({"q": str(query)} | ({"before": before} if before.isdecimal() else {}))
    return page(
        request,
        "claims/lifecycle/claim_list_page.html",
        "claims",
        query=str(query),
        argument=argument,
        may_claim=request.identity.may_anywhere("claim"),
    )


@signed_in
def show_claim(request: PageRequest, claim_id: int) -> HttpResponse:
    claim = view_claim(claim_id)
    if not may_see(request.identity, claim):
        raise no_such_claim(claim_id)
    kind = find_kind(claim_id)
    return page(
        request,
        "claims/lifecycle/claim_page.html" if kind is None else kind.template,
        "claims",
        claim=claim,
    )


def scope_of(identity: Identity) -> tuple[frozenset[Subject], str]:
    """The subjects of a list over all visible pools, and a key for the users that share it. The
    key contains every role, because the buttons depend on them.
    """
    visible = identity.visible_pools()
    subjects: frozenset[Subject] = (
        frozenset({ANY}) if visible is None else frozenset(("pool", pool) for pool in visible)
    )
    roles = sorted((pool, sorted(names)) for pool, names in identity.by_pool.items())
    return subjects, f"{identity.user_id}|{sorted(identity.everywhere)}|{roles}"


def opened_region(
    identity: Identity,
    name: str,
    argument: str,
    render: Callable[[], str],
    every: float = 0.5,
    subjects: Iterable[Subject] | None = None,
) -> OpenedRegion:
    """A region that depends on all roles of its reader. `subjects`: default: all visible pools."""
    visible, scope = scope_of(identity)
    full = f"{name}:{argument}" if argument else name
    return OpenedRegion(
        full,
        f"{full}|{scope}",
        visible if subjects is None else frozenset(subjects),
        render,
        every,
    )


@region("claims")
def open_claims(identity: Identity, argument: str) -> OpenedRegion | None:
    asked = {key: values[0] for key, values in parse_qs(argument).items()}
    query = read_query(asked.get("q", ""))
    before = int(asked["before"]) if asked.get("before", "").isdecimal() else None
    subjects, scope = scope_of(identity)

    def render() -> str:
        context = {"query": query, "keys": KEYS, "now": timezone.now()}
        if is_plain_waiting(query) and before is None:
            groups = waiting_groups(identity, query)
            return render_to_string(
                "claims/lifecycle/claim_list_waiting.html",
                context | {"groups": groups, "only": query.keys.get("pool", "")},
            )
        rows, more = find_rows(identity, query, before)
        return render_to_string(
            "claims/lifecycle/claim_list.html", context | {"rows": rows, "more": more}
        )

    name = f"claims:{argument}"
    return OpenedRegion(name, f"{name}|{scope}", subjects, render, 1.0)


@region("claims.chips")
def open_chips(identity: Identity, argument: str) -> OpenedRegion | None:
    query = read_query(argument)
    subjects, scope = scope_of(identity)

    def render() -> str:
        return render_to_string(
            "claims/lifecycle/claim_list_chips.html",
            {"query": query, "chips": chips(identity, query)},
        )

    return OpenedRegion(
        f"claims.chips:{argument}", f"claims.chips:{argument}|{scope}", subjects, render, 1.0
    )


@region("claims.facts")
def open_facts(identity: Identity, argument: str) -> OpenedRegion | None:
    subjects, scope = scope_of(identity)

    def render() -> str:
        visible = identity.visible_pools()
        names = (
            None
            if visible is None
            else set(Pool.objects.filter(pk__in=visible).values_list("name", flat=True))
        )
        queues = [
            queue for name, queue in count_waiting().items() if names is None or name in names
        ]
        return render_to_string(
            "claims/lifecycle/claim_list_facts.html",
            {
                "waiting": sum(q.count for q in queues),
                "blocked": sum(q.blocked for q in queues),
                "lately": bound_lately(visible),
            },
        )

    return OpenedRegion("claims.facts", f"claims.facts|{scope}", subjects, render, 2.0)


@region("pool.queue")
def open_queue(identity: Identity, argument: str) -> OpenedRegion | None:
    pool = Pool.objects.filter(LIVE, name=argument).first()
    if pool is None or not identity.may("read", pool.pk):
        return None
    _, scope = scope_of(identity)

    def render() -> str:
        # A claim of several pools names them all. Without access to each, a user only sees it
        # counted.
        rows = [
            make_row(identity, claim)
            for claim in queue_of_pool(argument, limit=QUEUE)
            if may_see(identity, claim)
        ]
        context = {
            "rows": rows,
            "pool": pool,
            "now": timezone.now(),
            "more": max(0, _count(argument) - len(rows)),
        }
        return render_to_string("claims/lifecycle/pool_queue.html", context)

    return OpenedRegion(
        f"pool.queue:{argument}",
        f"pool.queue:{pool.pk}|{scope}",
        frozenset({("pool", pool.pk)}),
        render,
        1.0,
    )


def _count(name: str) -> int:
    queue = count_waiting().get(name)
    return queue.count if queue else 0


def find_claim(identity: Identity, argument: str) -> ClaimView | None:
    if not (argument.isdecimal() and len(argument) < 19):
        return None
    try:
        claim = view_claim(int(argument))
    except NotFound:
        return None
    return claim if may_see(identity, claim) else None


@region("claim")
def open_claim(identity: Identity, argument: str) -> OpenedRegion | None:
    claim = find_claim(identity, argument)
    if claim is None:
        return None
    _, scope = scope_of(identity)
    subjects: set[Subject] = {("claim", claim.id)}
    if claim.is_waiting and claim.pool_id is not None:
        subjects.add(("pool", claim.pool_id))  # why it waits changes with its pool

    def render() -> str:
        return render_to_string(
            "claims/lifecycle/claim.html",
            claim_context(identity, view_claim(claim.id, explain=True)),
        )

    return OpenedRegion(
        f"claim:{claim.id}", f"claim:{claim.id}|{scope}", frozenset(subjects), render
    )


def claim_context(identity: Identity, claim: ClaimView) -> dict[str, object]:
    now, visible = timezone.now(), identity.visible_pools()
    lines, more = list_lines(
        Filter(claim_id=claim.id, is_admin=ADMIN in identity.everywhere, reader=identity.requester),
        limit=4 * LINES,
    )
    behind = (
        Claim.objects.filter(
            workspace=claim.workspace_id,
            state="blocked",
            **({} if visible is None else {"pool_id__in": visible}),
        )
        .exclude(pk=claim.id)
        .order_by("rank", "id")[:5]
        if claim.workspace
        else []
    )
    return {
        "claim": claim,
        "title": claim.owner or claim.requested_by or "claim",
        "what": describe_demand(claim) or claim.kind,
        "probably": describe_estimate(claim),
        "ending": ending_words(claim.outcome or ""),
        "steps": steps_of(claim, now),
        "actions": claim_actions(identity, claim),
        "lines": lines[:LINES],
        "more": more is not None or len(lines) > LINES,
        "behind": list(behind),
        "left": left_percent(claim, now),
        "is_own": claim.requested_by == identity.requester,
        "now": now,
        **(port_context(claim) if claim.ports else {}),
    }


def ending_words(outcome: str) -> str:
    """Why a claim ended, as a sentence."""
    return ENDED.get(outcome) or f"{outcome[:1].upper()}{outcome[1:]}."


def left_percent(claim: ClaimView, now: datetime) -> int | None:
    """The share of the hold time that is left. None: the claim has no limit, or holds no slot."""
    if claim.bound_at is None or claim.expires_at is None or not claim.holds:
        return None
    whole = (claim.expires_at - claim.bound_at).total_seconds()
    return (
        max(0, min(100, round(100 * (claim.expires_at - now).total_seconds() / whole)))
        if whole > 0
        else None
    )


def claim_actions(identity: Identity, claim: ClaimView) -> list[dict[str, object]]:
    """All actions on a claim. `why` says why an action is off; empty: it is on."""
    whose = (
        ""
        if may_touch(identity, claim)
        else "This needs the role operator: another user requested the claim."
        if claim.requested_by != identity.requester
        else "This needs the role claimant."
    )
    ended = f"The claim has ended: {claim.outcome}." if claim.state == "ended" else ""
    holds = "The claim holds slots. Release it instead." if claim.holds else ""
    waits = "The claim holds no slot yet. Cancel it instead." if claim.is_waiting else ""
    force = "" if identity.may("force_release", claim.pool_id) else "This needs the role operator."
    made = [
        (
            "Prioritise…",
            "claim-prioritise",
            ended or ("The claim is not waiting." if claim.holds else "") or whose,
            False,
        ),
        *([("Backend…", "claim-backend", ended or waits or whose, False)] if claim.ports else []),
        ("Cancel…", "claim-cancel", ended or holds or whose, False),
        ("Release…", "claim-release", ended or waits or whose, False),
        ("Force release…", "claim-force", ended or waits or force, True),
    ]
    return [
        action(word, reverse(name, args=[claim.id]), why, is_dangerous=is_dangerous)
        for word, name, why, is_dangerous in made
    ]
