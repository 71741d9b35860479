"""The page of a pool: header, members with their slots, queue, configuration and events."""

import os.path
from collections import Counter
from dataclasses import dataclass
from typing import Any

import yaml
from django.http import HttpResponse
from django.template.loader import render_to_string
from django.utils import timezone

from claims.allocation.selectors import count_live_claims
from claims.lifecycle.dashboard_queries import Queue, count_waiting
from claims.lifecycle.drain_report import DrainBlocker, list_blockers
from claims.scaling.overview import list_latest
from claims.tasks.plans.selectors import deadlines_of
from claims.timeline.queries import Filter, list_lines, owners_of
from pools.access.claimants import list_claimants
from pools.access.permissions import ADMIN, Identity
from pools.config.layout import as_config
from pools.config.placement import PLACEMENTS
from pools.config.spec import LeaseSpec
from pools.config.task_spec import TASK
from pools.lifecycle.provider_errors import find_trouble
from pools.lifecycle.selectors import config_of, spec_of
from pools.models import Member, Pool
from pools.pages.base import PageRequest, page, signed_in, visible_pool, why_not
from pools.providers.base import has_agents, known_providers
from pools.providers.local.protection import describe, find_protection
from project.dashboard.actions import member_actions, pool_actions
from project.dashboard.charts import draw_charts
from project.dashboard.member_words import describe_member
from project.dashboard.pool_scaling import is_shown as is_scaled
from project.dashboard.pool_scaling import scaling_context, summarise_decision
from project.dashboard.regions import Context, find_visible_pool, pool_region
from project.dashboard.upcoming import upcoming
from project.kernel.live.regions import OpenedRegion, region
from project.kernel.ui import formatting
from slots.members.selectors import count_pools
from slots.pages.dashboard_queries import (
    MemberCard,
    count_members,
    count_slots,
    get_board,
    is_dense,
    is_wide,
    list_boards,
)
from slots.pages.display import BarPart, bar_parts, pool_class

TABS = (
    ("members", "Members"),
    ("queue", "Queue"),
    ("scaling", "Scaling"),
    ("policy", "Policy"),
    ("events", "Events"),
)
LINES = 40
MOST_DRAINS, MOST_KEEPERS = 50, 12  # on the tab of members
LONGEST_SHORT = 10  # characters of a name beside a row of the dense form


@signed_in
def show_pool(request: PageRequest, name: str) -> HttpResponse:
    identity = request.identity
    pool = visible_pool(identity, name)
    tab = request.GET.get("tab", "members")
    tabs = [(key, word) for key, word in TABS if key != "scaling" or is_scaled(pool)]
    tab = tab if tab in dict(tabs) else "members"
    context: dict[str, Any] = {
        "pool": pool,
        "tab": tab,
        "tabs": tabs,
        "show": request.GET.get("show", ""),
    }
    if tab == "members":
        boards = list_boards(pool.pk)
        wanted = request.GET.get("member", "")
        chosen = next(
            (board for board in boards if board.name == wanted), boards[0] if boards else None
        )
        context |= {"is_dense": is_dense(boards), "chosen": chosen}
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
    return OpenedRegion(f"cells:{argument}", f"cells:{pool.pk}", frozenset(), None, pool_id=pool.pk)


def header_context(identity: Identity, pool: Pool) -> Context:
    spec = spec_of(pool)
    return {
        "css": pool_class(
            pool.state,
            paused_until=pool.paused_until,
            now=timezone.now(),
            frozen_until=pool.frozen_until,
        ),
        "group": spec.group or "Pools",
        "spec": spec,
        "layout": describe_layout(pool),
        "has_agents": has_agents(spec),
        "members": count_members([pool.pk])[pool.pk],
        "actions": pool_actions(identity, pool),
        "trouble": find_trouble(pool),
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
    queue = count_waiting().get(pool.name, Queue())
    card = list_latest([pool.pk]).get(pool.pk) if is_scaled(pool) else None
    return {
        "slots": count_slots([pool.pk])[pool.pk],
        "queue": queue,
        "width": 100 if queue.count else 0,
        "by_lane": open_lanes(pool),
        "decided": summarise_decision(card) if card else "",
        "because": card.reason if card else "",
    }


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
class Zone:
    """A group of members in the dense form."""

    name: str
    boards: list[MemberCard]

    @property
    def rows(self) -> list[tuple[str, MemberCard]]:
        """The members with short names: a common prefix of the names is left out."""
        names = [board.name for board in self.boards]
        common = len(os.path.commonprefix(names)) if len(names) > 1 else 0  # noqa: RUF071
        while common and names[0][common - 1].isalnum() and not names[0][common - 1].isalpha():
            common -= 1  # keep numbers whole
        return [(shorten(board.name[common:] or board.name), board) for board in self.boards]

    @property
    def width(self) -> int:
        """Characters of the longest short name."""
        return max((len(short) for short, _ in self.rows), default=0)

    @property
    def parts(self) -> list[BarPart]:
        return bar_parts(Counter(cell.name for board in self.boards for cell in board.cells))

    @property
    def open(self) -> int:
        return sum(board.open_count for board in self.boards)

    @property
    def troubled(self) -> list[MemberCard]:
        return [board for board in self.boards if board.css != "ready"]


def members(identity: Identity, pool: Pool) -> Context:
    boards = list_boards(pool.pk)
    owners = (
        owners_of(cell.claim_id for board in boards for cell in board.cells if cell.claim_id)
        if not is_dense(boards)
        else {}
    )
    other_agents = [
        board for board in boards if board.version_state and board.state in ("ready", "offline")
    ]
    return {
        "boards": boards,
        "is_dense": is_dense(boards),
        "is_wide": is_wide(boards),
        "zones": group_by_zone(boards) if is_dense(boards) else [],
        "owners": owners,
        "deadlines": deadlines_of(pool.pk)
        if any(cell.state == "reserved" for board in boards for cell in board.cells)
        else {},
        "parts": count_slots([pool.pk])[pool.pk].parts,
        "layout": describe_layout(pool),
        "drains": list_drains(boards),
        "other_agents": other_agents,
        "other_versions": "\n".join(
            f"{board.name}: {board.version}, {board.version_mark}" for board in other_agents[:20]
        ),
    }


@dataclass(frozen=True, slots=True)
class DrainRow:
    """A draining member, and the claims that keep it."""

    board: MemberCard
    keepers: list[DrainBlocker]

    @property
    def shown(self) -> list[DrainBlocker]:
        return self.keepers[:MOST_KEEPERS]

    @property
    def more(self) -> int:
        return max(0, len(self.keepers) - MOST_KEEPERS)

    @property
    def also(self) -> str:
        """What keeps the member besides the shown claims."""
        text = f" and {formatting.number(self.more)} more" if self.more else ""
        if self.board.unclean:
            text += (
                f"{', ' if self.keepers else ''}{formatting.plural(len(self.board.unclean), 'slot')} "  # noqa: E501
                "still being cleaned"
            )
        return text


def list_drains(boards: list[MemberCard]) -> list[DrainRow]:
    """Draining members by deadline; members without a deadline come last."""
    draining = [
        board for board in boards if board.is_draining and board.state not in ("deleting", "gone")
    ]
    keepers = list_blockers([board.id for board in draining]) if draining else {}
    draining.sort(
        key=lambda board: (
            board.drain_until is None,
            board.drain_until or board.created_at,
            board.name,
        )
    )
    return [DrainRow(board, keepers[board.id]) for board in draining[:MOST_DRAINS]]


def group_by_zone(boards: list[MemberCard]) -> list[Zone]:
    """Members by their label `zone`."""
    found: dict[str, list[MemberCard]] = {}
    for board in boards:
        found.setdefault(board.zone, []).append(board)
    return [
        Zone(name or ("without a zone" if len(found) > 1 else "All members"), rows)
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
    slots, queue = count_slots([pool.pk])[pool.pk], count_waiting().get(pool.name, Queue())
    return {
        "charts": draw_charts(
            pool.pk, timezone.now(), (slots.total, slots.held, slots.reserved, queue.count)
        )
    }


def policy(identity: Identity, pool: Pool) -> Context:
    config, spec = config_of(pool), spec_of(pool)
    return {
        "spec": spec,
        "placement": PLACEMENTS[spec.placement],
        "layout": describe_layout(pool),
        "has_agents": has_agents(spec),
        "task": TASK.write(spec.task),
        "file": yaml.safe_dump(
            config, sort_keys=False, allow_unicode=True, width=90, default_flow_style=None
        ),
        "why_not": why_not(identity, "configure", pool.pk),
        "members": count_members([pool.pk])[pool.pk].there,
    }


def recent_events_context(identity: Identity, pool: Pool) -> Context:
    wanted = Filter(
        pool_id=pool.pk, is_admin=ADMIN in identity.roles_in(pool.pk), reader=identity.requester
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
    lambda identity, pool: {"count": count_waiting().get(pool.name, Queue()).count},
    1.0,
)
pool_region("pool.members", "dashboard/pool_members.html", members, 0.5)
pool_region("pool.charts", "dashboard/pool_charts.html", charts, 5.0)
pool_region("pool.upcoming", "dashboard/pool_upcoming.html", upcoming, 5.0)
pool_region("pool.policy", "dashboard/pool_policy.html", policy, 2.0, by_role=True)
pool_region("pool.events", "dashboard/pool_events.html", recent_events_context, 0.5, by_reader=True)


@region("member")
def open_member(identity: Identity, argument: str) -> OpenedRegion | None:
    member = (
        Member.objects.filter(pk=int(argument)).select_related("pool").first()
        if argument.isdecimal()
        else None
    )
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
    board = get_board(pool.pk, member_id)
    if board is None:
        return {"board": None, "pool": pool}
    owners = owners_of(cell.claim_id for cell in board.cells if cell.claim_id)
    return {
        "pool": pool,
        "board": board,
        "state_words": describe_member(board, pool.provider, spec_of(pool).liveness),
        "rows": [(cell, owners.get(cell.claim_id or 0, "")) for cell in board.cells],
        "deadlines": deadlines_of(pool.pk)
        if any(cell.state == "reserved" for cell in board.cells)
        else {},
        "actions": member_actions(identity, pool, board),
        "now": timezone.now(),
        "why_not_claim": why_not(identity, "claim_slot", pool.pk),
        "liveness": spec_of(pool).liveness,
        "keepers": list_blockers([board.id])[board.id] if board.is_draining else [],
    }
