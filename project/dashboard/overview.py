"""The overview: what needs attention, all pools with their queues, and the latest events."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.http import HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.text import capfirst

from claims.lifecycle.dashboard_queries import (
    Queue,
    bound_lately,
    count_claims,
    count_waiting,
    in_pools,
)
from claims.scaling.decision_cards import Card
from claims.scaling.overview import list_latest
from claims.tasks.plans.selectors import PendingPlan, count_pending, list_pending
from claims.timeline.queries import Filter, list_lines
from pools.access.permissions import ADMIN, Identity
from pools.lifecycle.selectors import layout_of, list_pools
from pools.models import Pool
from pools.pages.base import PageRequest, page, signed_in
from project.dashboard.charts import Sparkline, list_sparklines
from project.dashboard.installation import installation, list_problems
from project.dashboard.pool_scaling import is_shown as is_scaled
from project.dashboard.pool_scaling import summarise_decision
from project.dashboard.regions import Context, pools_region, visible_pools
from project.kernel.errors import NotFound
from project.kernel.live.regions import ANY, OpenedRegion, region
from project.kernel.ui import formatting
from project.sample.services import is_sample_loaded
from slots.pages.dashboard_queries import (
    ShownMemberCounts,
    ShownSlotCounts,
    count_members,
    count_slots,
)
from slots.pages.display import bar_parts, pool_class
from slots.sync.drift import list_drift

LINES = 14
MOST_PENDING = 200  # plans in which deletions are counted
FIRST_POOL = (  # %s: the address of this installation
    """curl -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" %s/api/v1/pools/"""  # noqa: E501
    """ -d '{"name": "env-test", "slots": 4, "members": {"max": 10, "list": [{"name": "env-1"}]}}'"""  # noqa: E501
)


@signed_in
def show_overview(request: PageRequest) -> HttpResponse:
    identity = request.identity
    if not list_pools().exists():
        return page(
            request,
            "dashboard/no_pools_page.html",
            "overview",
            may_create=identity.may("configure", None),
            is_admin=ADMIN in identity.everywhere,
            example=FIRST_POOL % request.build_absolute_uri("/").rstrip("/"),
        )
    is_admin = identity.may("configure", None)
    return page(
        request,
        "dashboard/overview_page.html",
        "overview",
        may_create=is_admin,
        has_sample=is_admin and is_sample_loaded(),
    )


@region("first")
def open_getting_started(identity: Identity, argument: str) -> OpenedRegion | None:
    """The state of an installation without pools. The first pool ends the region, and the page
    reloads.
    """

    def render() -> str:
        if list_pools().exists():
            raise NotFound("The installation has pools now.")
        return render_to_string(
            "dashboard/installation.html", {"installation": installation(), "now": timezone.now()}
        )

    return OpenedRegion("first", "first", frozenset({ANY}), render, 1.0)


@dataclass(frozen=True, slots=True)
class PoolRow:
    """A pool on the overview."""

    pool: Pool
    css: str
    slots: ShownSlotCounts
    members: ShownMemberCounts
    queue: Queue
    spark: Sparkline | None
    longest: int  # length of the longest queue of all pools
    decided: Card | None = None  # the scaler's last decision

    @property
    def width(self) -> int:
        """Width of the queue in per cent of the longest. The square root keeps a short queue
        visible beside a long one.
        """
        return max(6, round(100 * (self.queue.count / self.longest) ** 0.5)) if self.longest else 0

    @property
    def members_words(self) -> str:
        return f"{self.members.there} of {self.pool.min_members}–{self.pool.max_members} members"

    @property
    def next(self) -> tuple[str, str]:
        """The most important fact about the pool, and its page."""
        href = f"/pools/{self.pool.name}/"
        if self.css in ("paused", "frozen"):
            return f"{self.css} until", href
        if self.css in ("deleting", "pending"):
            return {
                "deleting": "removed once it is empty",
                "pending": "its provider is being checked",
            }[self.css], href
        if not self.members.there:
            return "has no members", href
        troubles = [
            (self.members.offline, "offline"),
            (self.members.leaving, "leaving"),
            (self.members.cordoned, "cordoned"),
        ]
        texts = [f"{count} {word}" for count, word in troubles if count]
        if texts:
            return ", ".join(texts[:2]), href
        if self.decided is not None:
            return summarise_decision(self.decided), f"{href}?tab=scaling"
        if self.queue.count and not self.slots.open:
            return "full", f"{href}?tab=queue"
        return ("takes claims", href) if self.slots.open else ("full", href)


@dataclass(frozen=True, slots=True)
class AttentionCard:
    """One of the five cards under "Needs attention"."""

    count: int
    css: str
    word: str
    text: str
    lead: str = ""
    href: str = ""
    until: datetime | None = None
    form: str = "day"  # format of `until`


def facts(identity: Identity, argument: str) -> Context:
    pools = visible_pools(identity)
    ids = [pool.pk for pool in pools]
    counts = count_slots(ids)
    waiting = count_claims(*in_pools(identity.visible_pools())).get("waiting", 0)
    return {
        "pools": len(pools),
        "total": sum(c.total for c in counts.values()),
        "held": sum(c.held + c.reserved for c in counts.values()),
        "waiting": waiting,
        "lately": bound_lately(identity.visible_pools()),
    }


def attention(identity: Identity, argument: str) -> Context:
    now = timezone.now()
    pools = visible_pools(identity)
    slots = count_slots(pool.pk for pool in pools)
    queues = count_waiting()
    return {
        "cards": [
            _approvals(
                list_pending(identity.visible_pools(), limit=MOST_PENDING),
                count_pending(identity.visible_pools()),
                queues,
            ),
            _lost(pools, slots),
            _errors(identity.visible_pools()),
            _drift(pools),
            _paused(pools, queues, now),
        ]
    }


def _approvals(pending: list[PendingPlan], count: int, queues: dict[str, Queue]) -> AttentionCard:
    if not pending:
        return AttentionCard(
            0, "apply_pending", "approvals waiting", "No plan waits for an approval"
        )
    first = pending[0]
    holding = sorted({p.pool for p in pending if p.member})
    waiting = sum(queues.get(name, Queue()).count for name in holding)
    destroying = sum(p.plan.destroys for p in pending)
    texts = [f"{first.workspace or first.claim_id} in {first.pool}"]
    if destroying and count <= MOST_PENDING:
        texts.append(f"{formatting.plural(destroying, 'plan destroys', 'plans destroy')} resources")
    if waiting:
        texts.append(
            f"{formatting.plural(waiting, 'claim waits', 'claims wait')} in "
            f"{'its pool' if len(holding) == 1 else 'their pools'}"
        )
    word = "approval waiting" if len(pending) == 1 else "approvals waiting"
    lead = "It expires in" if len(pending) == 1 else "The first expires in"
    return AttentionCard(
        max(count, len(pending)),
        "apply_pending",
        word,
        "; ".join(texts),
        lead,
        reverse("approvals"),
        first.expires_at,
        "left",
    )


def _lost(pools: Iterable[Pool], slots: dict[int, ShownSlotCounts]) -> AttentionCard:
    where = [(pool, slots[pool.pk].shown.get("lost", 0)) for pool in pools]
    lost = [(pool, n) for pool, n in where if n]
    if not lost:
        return AttentionCard(0, "lost", "slots lost", "No member with claims was lost")
    where_lost = formatting.sentence([f"{n} in {pool.name}" for pool, n in lost[:3]])
    more = f", and {len(lost) - 3} more pools" if len(lost) > 3 else ""
    number = sum(n for _, n in lost)
    whose = "Its claim has" if number == 1 else "Each of their claims has"
    return AttentionCard(
        number,
        "lost",
        "slots lost",
        f"{where_lost}{more}. {whose} ended or is queued again",
        href="/claims/?q=state:lost",
    )


def _errors(visible: set[int] | None) -> AttentionCard:
    troubles = list_problems(visible)
    if not troubles:
        return AttentionCard(0, "error", "errors", "Controllers run, and no provider call fails")
    return AttentionCard(
        len(troubles),
        "error",
        "errors" if len(troubles) > 1 else "error",
        troubles[0].text,
        lead=troubles[0].lead,
        href="/events/?by=errors",
    )


def _drift(pools: list[Pool]) -> AttentionCard:
    """What the last looks found outside that differs from the rows."""
    found = list_drift(pools)
    if not found:
        return AttentionCard(
            0, "drift", "external drift", "The last look at each pool found no difference"
        )
    first = found[0]
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    has_tab = any(pool.name == first.pool and layout_of(pool).ports is not None for pool in pools)
    return AttentionCard(
        len(found),
        "drift",
        "differences outside" if len(found) > 1 else "difference outside",
        f"{first.sentence}{more}. The doctor lists them all (I19, I42)",
        href=f"/pools/{first.pool}/{'?tab=ports' if has_tab else ''}",
    )


def find_closure(pool: Pool, now: datetime) -> tuple[datetime, str, str] | None:
    """The end of a pause or a freeze, its word and its reason."""
    if pool.paused_until and pool.paused_until > now:
        return pool.paused_until, "paused", f"“{pool.pause_reason}”"
    if pool.frozen_until:
        return pool.frozen_until, "frozen", capfirst(pool.freeze_reason)
    return None


def _paused(pools: list[Pool], queues: dict[str, Queue], now: datetime) -> AttentionCard:
    closed = [(pool, *found) for pool in pools if (found := find_closure(pool, now))]
    if not closed:
        return AttentionCard(
            0, "frozen", "pools paused or frozen", "Every pool allocates its free slots"
        )
    first, until, _, reason = min(closed, key=lambda each: each[1])
    kinds = " or ".join(sorted({kind for _, _, kind, _ in closed}, reverse=True))
    waiting = sum(queues.get(pool.name, Queue()).count for pool, *_ in closed)
    more = f", and {len(closed) - 1} more" if len(closed) > 1 else ""
    wait = "No claim waits for it"
    if waiting:
        which = "it" if len(closed) == 1 else "them"
        wait = f"{formatting.plural(waiting, 'claim waits', 'claims wait')} for {which}"
    return AttentionCard(
        len(closed),
        "frozen",
        f"{'pool' if len(closed) == 1 else 'pools'} {kinds}",
        f"{reason}{more}. {wait}",
        lead=f"{first.name} until",
        href=f"/pools/{first.name}/",
        until=until,
    )


def pool_rows(identity: Identity, argument: str) -> Context:
    now = timezone.now()
    pools = visible_pools(identity)
    ids = [pool.pk for pool in pools]
    slots, members, queues = count_slots(ids), count_members(ids), count_waiting()
    sparks = list_sparklines(ids, now - timedelta(hours=6))
    decided = list_latest(pool.pk for pool in pools if is_scaled(pool))
    longest = max([queue.count for queue in queues.values()], default=0)
    groups: dict[str, list[PoolRow]] = {}
    for pool in pools:
        css = pool_class(
            pool.state, paused_until=pool.paused_until, now=now, frozen_until=pool.frozen_until
        )
        queue = queues.get(pool.name, Queue())
        row = PoolRow(
            pool,
            css,
            slots[pool.pk],
            members[pool.pk],
            queue,
            sparks.get(pool.pk),
            longest,
            decided.get(pool.pk),
        )
        groups.setdefault(str(pool.spec.get("group") or ""), []).append(row)
    missing = []
    if identity.visible_pools() is None:
        there = {pool.name for pool in pools}
        missing = [(name, queue) for name, queue in sorted(queues.items()) if name not in there]
    return {
        "groups": [
            (name or ("Other pools" if len(groups) > 1 else ""), rows)
            for name, rows in sorted(groups.items(), key=lambda g: (g[0] == "", g[0]))
        ],
        "missing": missing,
        "parts": build_legend(
            {part.name for rows in groups.values() for row in rows for part in row.slots.parts}
        ),
        "may_create": identity.may("configure", None),
        "now": now,
        "has_sparks": bool(sparks),
    }


def build_legend(names: set[str]) -> list[tuple[str, str]]:
    """Classes and words. Running and bound slots have the same colour."""
    both = {"running", "bound"} <= names
    parts = bar_parts(dict.fromkeys(names - ({"bound"} if both else set()), 1))
    return [
        (part.name, "running, bound" if both and part.name == "running" else part.word)
        for part in parts
    ]


def latest(identity: Identity, argument: str) -> Context:
    pools = identity.visible_pools()
    wanted = Filter(
        pools=pools,
        reader=identity.requester,
        is_admin=ADMIN in identity.everywhere,
        without_routine=True,
    )
    lines, _ = list_lines(wanted, limit=LINES * 3)
    return {"lines": lines[:LINES], "now": timezone.now()}


def may_create(identity: Identity) -> bool:
    return identity.may("configure", None)


pools_region("overview.facts", "dashboard/overview_facts.html", facts, 2.0, scope=may_create)
pools_region(
    "overview.attention", "dashboard/overview_attention.html", attention, 2.0, scope=may_create
)
pools_region("overview.pools", "dashboard/overview_pools.html", pool_rows, 0.5, scope=may_create)
# Not shared between viewers: each sees their own access events, and their own events in pools that
# they may not see.
pools_region(
    "overview.events",
    "dashboard/overview_events.html",
    latest,
    0.5,
    scope=lambda identity: (identity.user_id, may_create(identity)),
)
