"""Results of the command palette: pages, actions, and questions that a page answers."""

from dataclasses import dataclass, field
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.http import HttpResponse
from django.urls import reverse

from claims.allocation.api.permissions import may_see
from claims.allocation.selectors import ClaimFilter, list_claims
from claims.display import claim_class, claim_word
from claims.lifecycle.dashboard_queries import count_waiting
from pools.access.permissions import Identity
from pools.lifecycle.selectors import LIVE, list_pools
from pools.models import Member, Pool
from pools.pages.base import PageRequest, page, signed_in
from project.dashboard.actions import member_actions, pool_actions
from slots.pages.dashboard_queries import count_slots, get_board
from slots.pages.display import MEMBER_WORDS, member_class

EACH = 5


@dataclass(frozen=True, slots=True)
class SearchHit:
    text: str
    href: str
    small: str = ""
    state: tuple[str, str] | None = None
    is_question: bool = False
    keys: str = ""


@dataclass(slots=True)
class Found:
    title: str
    hits: list[SearchHit] = field(default_factory=list)


@signed_in
def search(request: PageRequest) -> HttpResponse:
    identity = request.identity
    text = request.GET.get("q", "").strip()[:80]
    pools = find_pools(identity, text)
    groups = [
        Found("Go to", go_to(identity, text, pools)),
        *find_actions(identity, text, pools),
        Found("Ask", questions(text, pools)),
    ]
    return page(
        request,
        "dashboard/search_results.html",
        groups=[group for group in groups if group.hits],
        text=text,
    )


def find_pools(identity: Identity, text: str) -> list[Pool]:
    found = list_pools(identity.visible_pools())
    if text:
        found = found.filter(name__icontains=text)
    return sorted(found[:50], key=lambda pool: (not pool.name.startswith(text), pool.name))[:EACH]


def go_to(identity: Identity, text: str, pools: list[Pool]) -> list[SearchHit]:
    pages = [
        ("Overview", "/", "g o"),
        ("Claims", reverse("claims"), "g c"),
        ("Approvals", reverse("approvals"), "g a"),
        ("Scaling", reverse("scaling"), "g s"),
        ("Freezes", f"{reverse('scaling')}?view=freezes", ""),
        ("Events", reverse("events"), "g e"),
        ("Workspaces", reverse("workspaces"), ""),
        ("Tokens", reverse("tokens"), ""),
    ]
    hits = [
        SearchHit(word, href, keys=keys)
        for word, href, keys in pages
        if (text and text.lower() in word.lower()) or not text
    ]
    queues = count_waiting()
    slots = count_slots(pool.pk for pool in pools)
    for pool in pools:
        waiting = queues[pool.name].count if pool.name in queues else 0
        hits.append(
            SearchHit(
                f"Pool {pool.name}",
                f"/pools/{pool.name}/",
                f"{slots[pool.pk].total:,} slots, {waiting:,} waiting",
            )
        )
    return hits + (members(identity, text) + claims(identity, text) if text else [])


def members(identity: Identity, text: str) -> list[SearchHit]:
    visible = identity.visible_pools()
    found = (
        Member.objects.filter(LIVE, name__icontains=text).select_related("pool").order_by("name")
    )
    if visible is not None:
        found = found.filter(pool_id__in=visible)
    hits = []
    for member in found[:EACH]:
        css = member_class(
            member.state,
            is_cordoned=member.is_cordoned,
            is_leaving=member.is_leaving or member.drain_until is not None,
            is_lost=member.lost_at is not None,
        )
        href = f"/pools/{member.pool.name}/?{urlencode({'member': member.name})}"
        hits.append(
            SearchHit(
                f"Member {member.name}",
                href,
                member.pool.name,
                None if css == "ready" else (css, MEMBER_WORDS.get(css, css)),
            )
        )
    return hits


def claims(identity: Identity, text: str) -> list[SearchHit]:
    visible = identity.visible_pools()
    scope = None if visible is None else frozenset(visible)
    hits = []
    for claim in list_claims(ClaimFilter(visible=scope, text=text), limit=EACH):
        if len(claim.pools) > 1 and not may_see(identity, claim):
            continue
        state = (
            claim_class(claim.state, outcome=claim.outcome, step=claim.step),
            claim_word(claim.state, outcome=claim.outcome, step=claim.step),
        )
        hits.append(
            SearchHit(f"Claim {claim.id} {claim.owner}", f"/claims/{claim.id}/", state=state)
        )
    return hits


def find_actions(identity: Identity, text: str, pools: list[Pool]) -> list[Found]:
    """Actions on the pool or member that the text names without doubt, and general actions. Actions
    that are off for the caller are left out.
    """
    found = []
    if (text and len(pools) == 1) or (pools and pools[0].name == text):
        pool = pools[0]
        hits = [
            SearchHit(a.word, a.href, a.text, is_question=not a.is_page)
            for a in pool_actions(identity, pool)
            if not a.why
        ]
        found.append(Found(f"Actions for {pool.name}", hits))
    visible = identity.visible_pools()
    exact = list(Member.objects.filter(LIVE, name=text).select_related("pool")[:2]) if text else []
    if len(exact) == 1 and (visible is None or exact[0].pool_id in visible):
        board = get_board(exact[0].pool_id, exact[0].pk)
        if board is not None:
            hits = [
                SearchHit(a.word, a.href, a.text, is_question=True)
                for a in member_actions(identity, exact[0].pool, board)
                if not a.why
            ]
            found.append(Found(f"Actions for {board.name}", hits))
    general = []
    if identity.may_anywhere("claim") and (not text or text.lower() in "new claim"):
        general.append(SearchHit("New claim…", reverse("claim-new"), is_question=True))
    if identity.may_anywhere("claim") and (not text or text.lower() in "run a plan"):
        general.append(SearchHit("Run a plan", reverse("claim-run")))
    if identity.may("configure", None) and (not text or text.lower() in "new pool"):
        general.append(SearchHit("New pool", reverse("pool-new")))
    return [*found, Found("Act", general)]


def questions(text: str, pools: list[Pool]) -> list[SearchHit]:
    if not text:
        return []
    hits = [
        SearchHit(f"Who waits for {pool.name}, and why?", f"/pools/{pool.name}/?tab=queue")
        for pool in pools[:1]
    ]
    hits += [
        SearchHit(f"What happened in {pool.name}?", f"{reverse('events')}?q=pool:{pool.name}")
        for pool in pools[:1]
    ]
    if any(character.isdigit() for character in text):
        hits.append(
            SearchHit(
                f"Who held “{text}” at…",
                f"{reverse('events')}?{urlencode({'at': 'now', 'held': text})}",
                "opens Events as of a time",
            )
        )
    for name in (
        User.objects.filter(username__istartswith=text)
        .order_by("username")
        .values_list("username", flat=True)[:2]
    ):
        hits.append(
            SearchHit(
                f"What did {name} do?", f"{reverse('events')}?{urlencode({'q': f'actor:{name}'})}"
            )
        )
    return hits
