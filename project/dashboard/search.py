"""Results of the command palette: pages, actions, and questions that a page answers."""

from dataclasses import dataclass, field
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import Q
from django.http import HttpResponse
from django.urls import reverse

from claims.allocation.api.permissions import may_see
from claims.allocation.selectors import ClaimFilter, list_claims
from claims.lifecycle.dashboard_queries import Queue, count_waiting
from pools.access.permissions import Identity
from pools.lifecycle.selectors import LIVE, list_pools
from pools.models import Member, Pool
from pools.pages.base import PageRequest, page, signed_in
from project.dashboard.actions import Action, member_actions, pool_actions
from slots.pages.dashboard_queries import count_slots, get_member_card
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
        if text.lower() in word.lower()
    ]
    queues = count_waiting()
    slots = count_slots(pool.pk for pool in pools)
    for pool in pools:
        waiting = queues.get(pool.name, Queue()).count
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
    of_pool = Q() if visible is None else Q(pool_id__in=visible)
    found = Member.objects.filter(LIVE, of_pool, name__icontains=text).select_related("pool")
    hits = []
    for member in found.order_by("name")[:EACH]:
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
    hits = []
    for claim in list_claims(ClaimFilter(visible=identity.visible_pools(), text=text), limit=EACH):
        if len(claim.pools) > 1 and not may_see(identity, claim):
            continue
        title, state = f"Claim {claim.id} {claim.owner}", (claim.css, claim.word)
        hits.append(SearchHit(title, f"/claims/{claim.id}/", state=state))
    return hits


def find_actions(identity: Identity, text: str, pools: list[Pool]) -> list[Found]:
    """Actions on the pool or member that the text names without doubt, and general actions. Actions
    that are off for the caller are left out.
    """
    named: list[tuple[str, list[Action]]] = []
    if (text and len(pools) == 1) or (pools and pools[0].name == text):
        named.append((pools[0].name, pool_actions(identity, pools[0])))
    exact = list(Member.objects.filter(LIVE, name=text).select_related("pool")[:2]) if text else []
    if len(exact) == 1 and identity.may("read", exact[0].pool_id):
        card = get_member_card(exact[0].pool_id, exact[0].pk)
        if card is not None:
            named.append((card.name, member_actions(identity, exact[0].pool, card)))
    found = [
        Found(
            f"Actions for {name}",
            [
                SearchHit(a.word, a.href, a.text, is_question=not a.is_page)
                for a in actions
                if not a.why
            ],
        )
        for name, actions in named
    ]
    may_claim, may_configure = identity.may_anywhere("claim"), identity.may("configure", None)
    general = [
        hit
        for is_allowed, hit in (
            (may_claim, SearchHit("New claim…", reverse("claim-new"), is_question=True)),
            (may_claim, SearchHit("Run a plan", reverse("claim-run"))),
            (may_configure, SearchHit("New pool", reverse("pool-new"))),
        )
        if is_allowed and text.lower() in hit.text.lower()
    ]
    return [*found, Found("Act", general)]


def questions(text: str, pools: list[Pool]) -> list[SearchHit]:
    if not text:
        return []
    hits, events = list[SearchHit](), f"{reverse('events')}?"
    if pools:
        name = pools[0].name
        hits.append(SearchHit(f"Who waits for {name}, and why?", f"/pools/{name}/?tab=queue"))
        hits.append(SearchHit(f"What happened in {name}?", f"{events}q=pool:{name}"))
    if any(character.isdigit() for character in text):
        href = events + urlencode({"at": "now", "held": text})
        hits.append(SearchHit(f"Who held “{text}” at…", href, "opens Events as of a time"))
    users = User.objects.filter(username__istartswith=text).order_by("username")
    for name in users.values_list("username", flat=True)[:2]:
        hits.append(SearchHit(f"What did {name} do?", events + urlencode({"q": f"actor:{name}"})))
    return hits
