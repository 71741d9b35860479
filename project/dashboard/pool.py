"""The page of a pool: header, members with their slots, queue, configuration and events."""

import os.path
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpResponse
from django.template.loader import render_to_string
from django.utils import timezone

from claims.allocation.requests.claim_request import SERIAL
from claims.allocation.selectors import count_live_claims
from claims.lifecycle.dashboard_queries import Queue, count_waiting
from claims.lifecycle.drain_report import DrainBlocker, list_blockers
from claims.ports.evacuation.report import EvacuatedClaim, find_evacuation, list_arrived
from claims.scaling.overview import list_latest
from claims.tasks.plans.selectors import deadlines_of
from claims.timeline.queries import Filter, list_lines, owners_of
from pools.access.claimants import list_claimants
from pools.access.permissions import ADMIN, Identity
from pools.config.layout import as_config, kinds
from pools.config.placement import PLACEMENTS
from pools.config.spec import LeaseSpec
from pools.config.task_spec import TASK
from pools.lifecycle.provider_errors import find_error
from pools.lifecycle.selectors import layout_of, spec_of
from pools.models import Member, Pool
from pools.pages.base import (
    PageRequest,
    explain_missing_role,
    find_visible_pool,
    page,
    signed_in,
    visible_pool,
)
from pools.pages.views import as_file
from pools.providers.base import has_agents, known_providers
from pools.providers.local.protection import describe, find_protection
from project.dashboard.actions import list_returns, member_actions, pool_actions
from project.dashboard.charts import draw_charts
from project.dashboard.member_words import describe_member
from project.dashboard.pool_ports import is_shown as has_ports
from project.dashboard.pool_ports import ports_context
from project.dashboard.pool_scaling import is_shown as is_scaled
from project.dashboard.pool_scaling import scaling_context, summarise_decision
from project.dashboard.regions import Context, pool_region
from project.dashboard.upcoming import upcoming
from project.kernel.live.regions import OpenedRegion, region
from project.kernel.ui import formatting
from slots.members.selectors import count_pools
from slots.pages.dashboard_queries import (
    MEMBER_CELLS,
    MemberCard,
    count_members,
    count_slots,
    get_member_card,
    is_dense,
    is_wide,
    list_member_cards,
)
from slots.pages.display import BarPart, bar_parts, pool_class

TABS = (
    ("members", "Members"),
    ("ports", "Ports"),
    ("queue", "Queue"),
    ("scaling", "Scaling"),
    ("policy", "Policy"),
    ("events", "Events"),
)
LINES = 40
MOST_DRAINS, MOST_BLOCKERS = 50, 12  # on the tab of members
LONGEST_SHORT = 10  # characters of a name beside a row of the dense form


@signed_in
def show_pool(request: PageRequest, name: str) -> HttpResponse:
    identity = request.identity
    pool = visible_pool(identity, name)
    tab = request.GET.get("tab", "members")
    hidden = {"scaling": not is_scaled(pool), "ports": not has_ports(pool)}
    tabs = [(key, word) for key, word in TABS if not hidden.get(key)]
    tab = tab if tab in dict(tabs) else "members"
    context: dict[str, Any] = {
        "pool": pool,
        "tab": tab,
        "tabs": tabs,
        "show": request.GET.get("show", ""),
    }
    if tab == "members":
        cards = list_member_cards(pool.pk)
        wanted = request.GET.get("member", "")
        chosen = next((card for card in cards if card.name == wanted), cards[0] if cards else None)
        context |= {"is_dense": is_dense(cards), "chosen": chosen}
    if tab == "ports":
        context |= ports_context(pool, request.GET)
    if tab == "scaling":
        context |= scaling_context(identity, pool, request.GET)
    return page(request, "dashboard/pool_page.html", "overview", **context)


@signed_in
def show_panel(request: PageRequest, name: str, member_id: int) -> HttpResponse:
    """The side panel of a member, for an open page."""
    pool = visible_pool(request.identity, name)
    return page(request, "slots/member_panel.html", chosen={"id": member_id}, pool=pool)


# -- regions ---------------------------------------------------------------------------------------


@region("cells")
def open_cells(identity: Identity, argument: str) -> OpenedRegion | None:
    """The classes of the pool's slots without HTML, because a pool may have thousands."""
    pool = find_visible_pool(identity, argument)
    if pool is None:
        return None
    return OpenedRegion(
        f"cells:{argument}",
        f"cells:{pool.pk}",
        frozenset(),
        None,
        pool_id=pool.pk,
        view=MEMBER_CELLS,
    )


def header_context(identity: Identity, pool: Pool) -> Context:
    spec = spec_of(pool)
    return {
        "css": pool_class(
            pool.state,
            paused_until=pool.paused_until,
            now=timezone.now(),
            frozen_until=pool.frozen_until,
        ),
        "group": spec.group,
        "spec": spec,
        "layout": describe_layout(pool),
        "takes_applies": has_agents(spec) and SERIAL in kinds(spec.layout),
        "members": count_members([pool.pk])[pool.pk],
        "actions": pool_actions(identity, pool),
        "trouble": find_error(pool),
        "protection": protection_of(pool),
        "lease": lease_terms(spec.lease),
        "decision_hold": spec.approval.expires
        if spec.approval.hold is None
        else spec.approval.hold,
        "is_paused": pool.paused_until is not None and pool.paused_until > timezone.now(),
        "claims_left": count_live_claims(pool.pk) if pool.state == "deleting" else 0,
    }


def lease_terms(lease: LeaseSpec) -> list[tuple[str, float]]:
    """What the pool demands of holders: text and seconds."""
    terms = (
        ("acknowledge within", lease.acknowledge),
        ("heartbeat every", lease.heartbeat),
        ("hold at most", lease.hold),
    )
    return [(text, seconds) for text, seconds in terms if seconds]


def protection_of(pool: Pool) -> Context | None:
    """How tasks are kept from Berth's passwords and keys; None: they run on other machines."""
    provider = known_providers().get(pool.provider)
    if provider is None or not provider.runs_here:
        return None
    protection = find_protection()
    return {
        "is_there": protection.kind != "none",
        "words": describe(protection, list_claimants(pool.pk)),
    }


def current_context(identity: Identity, pool: Pool) -> Context:
    queue = queue_of(pool)
    card = list_latest([pool.pk]).get(pool.pk) if is_scaled(pool) else None
    return {
        "slots": count_slots([pool.pk])[pool.pk],
        "queue": queue,
        "width": 100 if queue.count else 0,
        "by_lane": open_lanes(pool),
        "decided": summarise_decision(card) if card else "",
        "because": card.reason if card else "",
    }


def queue_of(pool: Pool) -> Queue:
    return count_waiting().get(pool.name, Queue())


def open_lanes(pool: Pool) -> str:
    """Open slots by lane, if the pool has more than one lane."""
    counts = count_pools([pool.pk])[pool.pk].slots
    if len(pool.lanes) < 2 or not counts.open:
        return ""
    return ", ".join(
        f"{counts.by_lane[lane]['open']} {lane}"
        for lane in pool.lanes
        if counts.by_lane[lane]["open"]
    )


def shorten(name: str) -> str:
    """The end of a long name, which tells it apart, after an ellipsis."""
    return name if len(name) <= LONGEST_SHORT else f"…{name[1 - LONGEST_SHORT :]}"


@dataclass(frozen=True, slots=True)
class ZoneSection:
    """A group of members in the dense form."""

    name: str
    cards: list[MemberCard]

    @property
    def rows(self) -> list[tuple[str, MemberCard]]:
        """The members with short names: a common prefix of the names is left out."""
        names = [card.name for card in self.cards]
        common = len(os.path.commonprefix(names)) if len(names) > 1 else 0  # noqa: RUF071
        while common and names[0][common - 1].isalnum() and not names[0][common - 1].isalpha():
            common -= 1  # keep numbers whole
        return [(shorten(card.name[common:] or card.name), card) for card in self.cards]

    @property
    def width(self) -> int:
        """Characters of the longest short name."""
        return max((len(short) for short, _ in self.rows), default=0)

    @property
    def parts(self) -> list[BarPart]:
        return bar_parts(Counter(cell.name for card in self.cards for cell in card.cells))

    @property
    def open(self) -> int:
        return sum(card.open_count for card in self.cards)

    @property
    def troubled(self) -> list[MemberCard]:
        return [card for card in self.cards if card.css != "ready"]


def members(identity: Identity, pool: Pool) -> Context:
    cards = list_member_cards(pool.pk)
    is_short = is_dense(cards)
    claims = (cell.claim_id for card in cards for cell in card.cells if cell.claim_id)
    other_agents = [
        card for card in cards if card.version_state and card.state in ("ready", "offline")
    ]
    return {
        "cards": cards,
        "is_dense": is_short,
        "is_wide": is_wide(cards),
        "zones": group_by_zone(cards) if is_short else [],
        "owners": {} if is_short else owners_of(claims),
        "deadlines": find_deadlines(pool, cards),
        "parts": count_slots([pool.pk])[pool.pk].parts,
        "layout": describe_layout(pool),
        "drains": list_drains(cards),
        "other_agents": other_agents,
        "other_versions": "\n".join(
            f"{card.name}: {card.version}, {card.version_mark}" for card in other_agents[:20]
        ),
    }


def find_deadlines(pool: Pool, cards: list[MemberCard]) -> dict[int, datetime]:
    """Decision deadlines by claim, read only if a slot is reserved."""
    is_any = any(cell.state == "reserved" for card in cards for cell in card.cells)
    return deadlines_of(pool.pk) if is_any else {}


@dataclass(frozen=True, slots=True)
class DrainRow:
    """A draining member, and the claims that keep it."""

    card: MemberCard
    blockers: list[DrainBlocker]

    @property
    def shown(self) -> list[DrainBlocker]:
        return self.blockers[:MOST_BLOCKERS]

    @property
    def more(self) -> int:
        return max(0, len(self.blockers) - MOST_BLOCKERS)

    @property
    def also(self) -> str:
        """What keeps the member besides the shown claims."""
        text = f" and {formatting.number(self.more)} more" if self.more else ""
        if self.card.unclean:
            text += (
                f"{', ' if self.blockers else ''}{formatting.plural(len(self.card.unclean), 'slot')} "  # noqa: E501
                "still being cleaned"
            )
        return text


def list_drains(cards: list[MemberCard]) -> list[DrainRow]:
    """Draining members by deadline; members without a deadline come last."""
    draining = [
        card for card in cards if card.is_draining and card.state not in ("deleting", "gone")
    ]
    blockers = list_blockers([card.id for card in draining]) if draining else {}
    draining.sort(
        key=lambda card: (
            card.drain_until is None,
            card.drain_until or card.created_at,
            card.name,
        )
    )
    return [DrainRow(card, blockers[card.id]) for card in draining[:MOST_DRAINS]]


def group_by_zone(cards: list[MemberCard]) -> list[ZoneSection]:
    """Members by their label `zone`."""
    found: dict[str, list[MemberCard]] = {}
    for card in cards:
        found.setdefault(card.zone, []).append(card)
    return [
        ZoneSection(name or ("without a zone" if len(found) > 1 else "All members"), rows)
        for name, rows in sorted(found.items())
    ]


def describe_layout(pool: Pool) -> str:
    spec = spec_of(pool)
    ports = spec.layout.ports
    if ports is not None:
        protocols = (
            "shared by all protocols"
            if spec.layout.classes[0].lane == "port"
            else " and ".join(pool.lanes)
        )
        return f"ports {ports.first}–{ports.last}, {protocols}"
    config = as_config(spec.layout)
    if isinstance(config, int):
        return f"{config} slot{'s' if config > 1 else ''} each"
    if isinstance(config, str):
        return "the whole member"
    if config and isinstance(config[0], dict):
        return ", ".join(f"{c['count']} {c['class']}" for c in config)
    return ", ".join(config)


def charts(identity: Identity, pool: Pool) -> Context:
    slots = count_slots([pool.pk])[pool.pk]
    present = slots.total, slots.held, slots.reserved, queue_of(pool).count
    return {"charts": draw_charts(pool.pk, timezone.now(), present)}


def policy(identity: Identity, pool: Pool) -> Context:
    spec = spec_of(pool)
    return {
        "spec": spec,
        "placement": PLACEMENTS[spec.placement],
        "layout": describe_layout(pool),
        "has_agents": has_agents(spec),
        "task": TASK.write(spec.task),
        "file": as_file(pool),
        "why_not": explain_missing_role(identity, "configure", pool.pk),
        "members": count_members([pool.pk])[pool.pk].there,
    }


def recent_events_context(identity: Identity, pool: Pool) -> Context:
    wanted = Filter(
        pool_id=pool.pk,
        is_admin=ADMIN in identity.roles_in(pool.pk),
        reader=identity.requester,
        without_routine=True,
    )
    lines, _ = list_lines(wanted, limit=2 * LINES)
    return {"lines": lines[:LINES]}


pool_region("pool.head", "dashboard/pool_head.html", header_context, by_role=True)
pool_region("pool.now", "dashboard/pool_now.html", current_context)
pool_region(
    "pool.members.count",
    "ui/number.html",
    lambda identity, pool: {"count": count_members([pool.pk])[pool.pk].there},
    1.0,
)
pool_region(
    "pool.queue.count",
    "ui/number.html",
    lambda identity, pool: {"count": queue_of(pool).count},
    1.0,
)
pool_region("pool.members", "dashboard/pool_members.html", members, 0.5)
pool_region("pool.charts", "dashboard/pool_charts.html", charts, 5.0)
pool_region("pool.upcoming", "dashboard/pool_upcoming.html", upcoming, 5.0)
pool_region("pool.policy", "dashboard/pool_policy.html", policy, 2.0, by_role=True)
pool_region("pool.events", "dashboard/pool_events.html", recent_events_context, 0.5, by_reader=True)


@region("member")
def open_member(identity: Identity, argument: str) -> OpenedRegion | None:
    if not argument.isdecimal():
        return None
    member = Member.objects.filter(pk=int(argument)).select_related("pool").first()
    if member is None or not identity.may("read", member.pool_id):
        return None
    roles = ",".join(sorted(identity.roles_in(member.pool_id)))
    member_id, pool = member.pk, member.pool

    def render() -> str:
        return render_to_string("slots/member.html", panel(identity, pool, member_id))

    full = f"member:{member_id}"
    subjects = frozenset({("member", member_id)})
    return OpenedRegion(full, f"{full}|{roles}", subjects, render)


def panel(identity: Identity, pool: Pool, member_id: int) -> Context:
    card = get_member_card(pool.pk, member_id)
    if card is None:
        return {"card": None, "pool": pool}
    owners = owners_of(cell.claim_id for cell in card.cells if cell.claim_id)
    report = find_evacuation(card.id) if card.is_evacuating else None
    arrived: Sequence[EvacuatedClaim] = ()
    if layout_of(pool).ports is not None:
        arrived = list_arrived(card.id) if report is None else report.arrived
    return {
        "pool": pool,
        "card": card,
        "state_words": describe_member(card, pool.provider, spec_of(pool).liveness),
        "rows": [(cell, owners.get(cell.claim_id or 0, "")) for cell in card.cells],
        "deadlines": find_deadlines(pool, [card]),
        "actions": member_actions(identity, pool, card),
        "now": timezone.now(),
        "why_not_claim": explain_missing_role(identity, "claim_slot", pool.pk),
        "liveness": spec_of(pool).liveness,
        "report": report,
        "returns": list_returns(identity, pool, card.id, arrived),
        "blockers": list_blockers([card.id])[card.id] if card.is_draining else [],
    }
