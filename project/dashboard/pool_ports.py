"""The tab Ports of a pool of ports: the port map with the selected port, differences outside, the
forecast, and the calls to the provider.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from django.http import HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone

from claims.ports.evacuation.report import EvacuationReport, list_evacuations
from claims.timeline.queries import owners_of
from pools.access.permissions import Identity
from pools.lifecycle.forecasts import describe_forecast, forecast_pool
from pools.lifecycle.selectors import LIVE, layout_of, spec_of
from pools.models import Pool
from pools.pages.base import (
    PageRequest,
    explain_missing_role,
    find_visible_pool,
    page,
    signed_in,
    visible_pool,
)
from project.dashboard.actions import Action, ReturnRow, list_returns
from project.dashboard.regions import Context, pool_region
from project.kernel.live.regions import OpenedRegion, region
from slots.members.members_sql import is_evacuating
from slots.members.selectors import count_pools
from slots.members.store import no_such_slot
from slots.models import Slot
from slots.pages import dashboard_queries_sql
from slots.pages.dashboard_queries import PORT_CELLS
from slots.pages.port_map import PORT_WORDS, name_place, read_map
from slots.pages.provider_calls import read_calls
from slots.sync.drift import DriftFinding, list_drift, list_slot_drift, sort_by_kind
from slots.sync.quarantine import QuarantinedSlot, list_quarantined
from slots.sync.slot_drift import find_kind, observed_since

ONLY = "findings"  # value of the query field `only`
MOST_FINDINGS = 100  # rows of the table
MOST_LANES = 5
LONGEST_ID = 19  # digits; fewer fit into a bigint
# Attributes of `Slot.observed` that have rows of their own in the panel, or none.
NAMED = {
    "presence", "since", "claim", "id", "protocol", "target", "health", "end", "problem", "changed",
    "failing_since", "is_lasting",
}  # fmt: skip
ALWAYS = ("running", "reserved", "draining", "idle", "orphan", "missing", "foreign")


def is_shown(pool: Pool) -> bool:
    return layout_of(pool).ports is not None


def ports_context(pool: Pool, query: Mapping[str, str]) -> Context:
    """The parts of the tab that are not live: which ports the map shows, and the selected port."""
    only = ONLY if query.get("only") == ONLY else ""
    wanted = query.get("port", "")
    chosen, opened = None, ""
    if wanted.isdecimal() and len(wanted) < LONGEST_ID:
        slots = Slot.objects.filter(pk=int(wanted), pool=pool).exclude(member__state="gone")
        chosen, opened = slots.values_list("pk", "member__name").first() or (None, "")
    if chosen is None:
        chosen = first_port(pool)
    opened = query.get("lb", opened)
    return {"only": only, "view": f"{pool.name},{only},{opened}", "chosen": chosen}


def first_port(pool: Pool) -> int | None:
    """The port that the page selects: the worst difference, else the first that a claim holds."""
    if found := sort_by_kind(list_slot_drift([pool.pk])):
        return found[0].slot_id
    in_order = Slot.objects.filter(pool=pool).exclude(member__state="gone")
    in_order = in_order.order_by("member__position", "member_id", "number", "lane")
    held = in_order.filter(state__in=("held", "reserved")).values_list("pk", flat=True).first()
    return held or in_order.values_list("pk", flat=True).first()


@signed_in
def show_port(request: PageRequest, name: str, slot_id: int) -> HttpResponse:
    """The side panel of a port, for an open page."""
    pool = visible_pool(request.identity, name)
    return page(request, "slots/port_panel.html", pool=pool, chosen=slot_id)


# -- regions ---------------------------------------------------------------------------------------


@region("cells.ports")
def open_port_cells(identity: Identity, argument: str) -> OpenedRegion | None:
    """The classes of the pool's ports without HTML, because a pool may have thousands."""
    pool = find_visible_pool(identity, argument)
    if pool is None:
        return None
    full = f"cells.ports:{argument}"
    key = f"cells.ports:{pool.pk}"
    return OpenedRegion(full, key, frozenset(), None, pool_id=pool.pk, view=PORT_CELLS)


@region("pool.ports.map")
def open_map(identity: Identity, argument: str) -> OpenedRegion | None:
    """Argument: name of the pool, and after commas the filter and the name of the load balancer
    that a folded map opens.
    """
    name, _, rest = argument.partition(",")
    only, _, opened = rest.partition(",")
    pool = find_visible_pool(identity, name)
    if pool is None or not is_shown(pool):
        return None
    pool_id, full = pool.pk, f"pool.ports.map:{argument}"

    def render() -> str:
        fresh = Pool.objects.get(LIVE, pk=pool_id)
        found = read_map(fresh, owners_of, opened=opened, only_findings=only == ONLY)
        names = {part.name for part in found.parts} | set(ALWAYS)
        context = {
            "pool": fresh,
            "map": found,
            "only": only,
            "legend": [(each, word) for each, word in PORT_WORDS.items() if each in names],
        }
        return render_to_string("dashboard/pool_ports_map.html", context)

    return OpenedRegion(full, f"{full}|{pool_id}", frozenset({("pool", pool_id)}), render, 2.0)


def facts_context(identity: Identity, pool: Pool) -> Context:
    counts = count_pools([pool.pk])[pool.pk].slots
    used = counts.held + counts.reserved
    scaling = spec_of(pool).scaling
    grows_above = None if scaling is None else scaling.options.get("grow_above")
    return {
        "counts": counts,
        "forecast": describe_forecast(
            forecast_pool(pool.pk, used=used, slots=counts.total), "port"
        ),
        "grows_above": None if grows_above is None else f"{grows_above:g}",
        "sweep": Action(
            "Sweep now…",
            reverse("pool-sweep", args=[pool.name]),
            why=explain_missing_role(identity, "repair", pool.pk),
        ),
    }


@dataclass(frozen=True, slots=True)
class DriftRow:
    finding: DriftFinding
    actions: list[Action]


@dataclass(frozen=True, slots=True)
class QuarantineRow:
    slot: QuarantinedSlot
    action: Action


# The texts of the buttons, and the dialogs of slots and of objects without a member.
REPAIR_TEXTS = {
    "repair": "Repair…",
    "quarantine": "Quarantine…",
    "end-quarantine": "End quarantine…",
    "adopt": "Adopt…",
    "delete": "Delete…",
    "keep": "Keep…",
}


OUTCOMES = {
    "repair": "The provider makes the member equal to its rows.",
    "quarantine": "No claim gets the slot until a person ends that.",
    "end-quarantine": "Claims may get the slot again.",
}


def slot_action(identity: Identity, pool: Pool, slot_id: int, name: str) -> Action:
    return Action(
        REPAIR_TEXTS[name],
        reverse(f"slot-{name}", args=[slot_id]),
        why=explain_missing_role(identity, "repair", pool.pk),
    )


def stray_action(identity: Identity, pool: Pool, stray_id: int, name: str) -> Action:
    return Action(
        REPAIR_TEXTS[name],
        reverse(f"stray-{name}", args=[pool.name, stray_id]),
        why=explain_missing_role(identity, "repair", pool.pk),
    )


def list_actions(identity: Identity, pool: Pool, finding: DriftFinding) -> list[Action]:
    if finding.slot_id is not None:
        return [slot_action(identity, pool, finding.slot_id, each) for each in finding.repairs]
    return [stray_action(identity, pool, finding.stray_id, each) for each in finding.repairs]


def drift_context(identity: Identity, pool: Pool) -> Context:
    found = sort_by_kind(list_drift([pool]))
    rows = [DriftRow(each, list_actions(identity, pool, each)) for each in found[:MOST_FINDINGS]]
    slots = list_quarantined([pool.pk])
    return {
        "rows": rows,
        "count": len(found),
        "more": len(found) - len(rows),
        "quarantined": [
            QuarantineRow(each, slot_action(identity, pool, each.slot_id, "end-quarantine"))
            for each in slots[:MOST_FINDINGS]
        ],
        "quarantined_more": len(slots) - MOST_FINDINGS,
    }


@dataclass(frozen=True, slots=True)
class EvacuationRow:
    report: EvacuationReport
    undo: Action
    returns: list[ReturnRow]


def evacuations_context(identity: Identity, pool: Pool) -> Context:
    why = explain_missing_role(identity, "drain", pool.pk)
    return {
        "evacuations": [
            EvacuationRow(
                report,
                Action(
                    "Undo…",
                    reverse("member-undo-evacuation", args=[report.order.member_id]),
                    why=why,
                ),
                list_returns(identity, pool, report.order.member_id, report.arrived),
            )
            for report in list_evacuations(pool.pk)
            if report.order is not None
        ]
    }


NO_BUDGET = "This provider has no call budget."
NOT_LOOKED = "The call budget is known after the first look at the pool."


def calls_context(identity: Identity, pool: Pool) -> Context:
    calls = read_calls(pool)
    return {
        "calls": calls,
        "least": calls.tightest,
        "budgets": calls.used if len(calls.budgets) > 1 else [],
        "no_budget": NO_BUDGET if pool.observed_at else NOT_LOOKED,
        "lanes": calls.lanes[:MOST_LANES],
        "more": len(calls.lanes) - MOST_LANES,
    }


pool_region("pool.ports.facts", "dashboard/pool_ports_facts.html", facts_context, 5.0, by_role=True)
pool_region(
    "pool.ports.evacuations",
    "claims/ports/evacuations.html",
    evacuations_context,
    by_role=True,
)
pool_region("pool.ports.drift", "dashboard/pool_ports_drift.html", drift_context, 1.0, by_role=True)
pool_region("pool.ports.calls", "dashboard/pool_ports_calls.html", calls_context, 2.0)


@region("port")
def open_port(identity: Identity, argument: str) -> OpenedRegion | None:
    """Argument: the id of a slot."""
    if not argument.isdecimal() or len(argument) >= LONGEST_ID:
        return None
    slot = Slot.objects.select_related("pool").filter(pk=int(argument)).first()
    if slot is None or not identity.may("read", slot.pool_id) or not is_shown(slot.pool):
        return None
    roles = ",".join(sorted(identity.roles_in(slot.pool_id)))
    slot_id, pool = slot.pk, slot.pool

    def render() -> str:
        return render_to_string("slots/port.html", panel_context(identity, pool, slot_id))

    full = f"port:{slot_id}"
    subjects = frozenset({("slot", slot_id), ("member", slot.member_id)})
    return OpenedRegion(full, f"{full}|{roles}", subjects, render)


def list_port_repairs(finding: DriftFinding | None, *, is_quarantined: bool) -> list[str]:
    """A person may put a port without a difference into quarantine, too."""
    repairs = ["repair"] if finding is not None and finding.may_repair else []
    return [*repairs, "end-quarantine" if is_quarantined else "quarantine"]


def panel_context(identity: Identity, pool: Pool, slot_id: int) -> Context:
    port = dashboard_queries_sql.get_port(slot=slot_id, pool=pool.pk)
    if port is None:
        raise no_such_slot(slot_id)
    observed: dict[str, object] = json.loads(port.observed_json)
    layout = layout_of(pool)
    assert layout.ports is not None
    kind = find_kind(port.state, observed)
    drift = {each.slot_id: each for each in list_slot_drift([pool.pk])} if kind else {}
    finding = drift.get(port.id)
    claim = port.claim_id or (port.last_claim_id if port.state == "draining" else None)
    place = name_place(
        port.lane, port.number, layout.ports.segment, str(observed.get("protocol") or "")
    )
    return {
        "pool": pool,
        "port": port,
        "place": place,
        "word": PORT_WORDS.get(port.name, port.name),
        "claim": claim,
        "owner": owners_of([claim]).get(claim, "") if claim else "",
        "observed": observed,
        "since": observed_since(observed),
        "others": sorted(
            (name, value) for name, value in observed.items() if name not in NAMED and value
        ),
        "finding": finding,
        "actions": [
            (slot_action(identity, pool, port.id, each), OUTCOMES[each])
            for each in list_port_repairs(finding, is_quarantined=port.quarantine is not None)
        ],
        "evacuate": Action(
            "Evacuate again…" if is_evacuating(member=port.member_id) else "Evacuate…",
            reverse("member-evacuate", args=[port.member_id]),
            why=explain_missing_role(identity, "drain", pool.pk),
        ),
        "now": timezone.now(),
    }
