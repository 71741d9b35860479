"""The page Approvals: all waiting plans, the earliest deadline first, with a preview beside the
list.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import parse_qs, urlencode

from django.http import HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.utils import timezone

from claims.allocation.claim_view import ClaimView
from claims.allocation.selectors import view_claims
from claims.lifecycle.dashboard_queries import count_waiting, in_pools
from claims.lifecycle.pages.claim_page import find_claim, opened_region
from claims.models import Plan
from claims.tasks.pages.approval_panel import must_read, percent_left, why_not_approve
from claims.tasks.pages.plan_page import Entry, entries_of, tree_of
from claims.tasks.pages.task_page import describe_source
from claims.tasks.plans.plan_changes import NotAPlan
from claims.tasks.plans.selectors import PendingPlan, count_pending, list_pending
from claims.tasks.run_spec import DISCARD
from pools.access.permissions import Identity
from pools.pages.base import PageRequest, page, signed_in
from project.kernel.db.guards import reporting
from project.kernel.db.sql import run
from project.kernel.errors import NotFound, Unavailable
from project.kernel.live.regions import OpenedRegion, region

PREVIEWED = 8  # resources in the preview
MAX_PLANS = 300  # plans on the page: those with the earliest deadlines
SECTIONS = (
    ("Expires within 3 h", timedelta(hours=3)),
    ("Expires within 12 h", timedelta(hours=12)),
    ("Later", timedelta.max),
)

LATELY = """
SELECT count(*)::int AS n, extract(epoch FROM percentile_cont(0.5) WITHIN GROUP (ORDER BY at -
  made_at))::float8 AS median FROM (
  SELECT max(a.at) AS at, p.made_at FROM claims_approval a JOIN claims_plan p ON p.id = a.plan_id
    JOIN claims_claim c ON c.id = p.claim_id
  WHERE a.at > now() - interval '7 days' AND c.state NOT IN ('reserved', 'parked') AND {tests}
    GROUP BY p.id) decided"""


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """A waiting plan."""

    pending: PendingPlan
    claim: ClaimView
    why: str  # why this reader cannot approve
    left: int  # percent of the time to decide
    waiting: int  # claims in the pool
    held_since: datetime | None = None  # when the slot was reserved

    @property
    def name(self) -> str:
        return self.claim.workspace or self.claim.owner or str(self.claim.id)

    @property
    def counts(self) -> Mapping[str, int]:
        return self.pending.plan.summary

    @property
    def brief(self) -> str:
        """The counts of the plan with their signs."""
        signs = (("add", "+"), ("change", "~"), ("destroy", "-"), ("replace", "-/+"))
        return (
            " ".join(
                f"{sign}{self.counts[name]:,}" for name, sign in signs if self.counts.get(name)
            )
            or "nothing"
        )

    @property
    def place(self) -> str:
        return self.claim.slots[0].place if self.claim.slots else ""

    @property
    def must_read(self) -> str:
        return must_read(self.pending.plan)

    @property
    def can(self) -> str:
        found = [] if self.why or self.pending.plan.destroys else ["approve"]
        return " ".join(
            [*found, *(["reject", "extend"] if self.why != "This needs the role approver." else [])]
        )


@dataclass(frozen=True, slots=True)
class InboxFilter:
    show: str = "all"  # all | mine | destroys
    pool: str = ""

    def fits(self, row: ApprovalRow) -> bool:
        if self.pool and row.claim.pool != self.pool:
            return False
        return self.show == "all" or (
            not row.why if self.show == "mine" else row.pending.plan.destroys
        )

    def with_(self, **changed: str) -> str:
        values = {"show": self.show, "pool": self.pool} | changed
        return urlencode({key: value for key, value in values.items() if value and value != "all"})


def read_filter(query: str) -> InboxFilter:
    values = {key: texts[0] for key, texts in parse_qs(query).items()}
    show = values.get("show", "all")
    return InboxFilter(show if show in ("mine", "destroys") else "all", values.get("pool", "")[:63])


def list_rows(identity: Identity) -> list[ApprovalRow]:
    """All waiting plans that the identity may see, the earliest deadline first."""
    found = list_pending(identity.visible_pools(), limit=MAX_PLANS)
    claims = {claim.id: claim for claim in view_claims([pending.claim_id for pending in found])}
    queues, now = count_waiting(), timezone.now()
    rows = []
    for pending in found:
        claim = claims.get(pending.claim_id)
        if claim is None or claim.state not in ("reserved", "parked"):
            continue
        waiting = queues[claim.pool].count if claim.pool in queues else 0
        since = None if pending.held_for is None else now - timedelta(seconds=pending.held_for)
        rows.append(
            ApprovalRow(
                pending,
                claim,
                why_not_approve(identity, claim, pending.plan),
                percent_left(
                    pending.reserved_since or pending.plan.made_at, pending.expires_at, now
                ),
                waiting,
                since,
            )
        )
    return rows


def sections_of(rows: Sequence[ApprovalRow], now: datetime) -> list[tuple[str, list[ApprovalRow]]]:
    found: list[tuple[str, list[ApprovalRow]]] = [(word, []) for word, _ in SECTIONS]
    for row in rows:
        place = next(
            n for n, (_, within) in enumerate(SECTIONS) if row.pending.expires_at - now < within
        )
        found[place][1].append(row)
    return [(word, listed) for word, listed in found if listed]


@signed_in
def show_approvals(request: PageRequest) -> HttpResponse:
    wanted = read_filter(request.META.get("QUERY_STRING", ""))
    rows = [row for row in list_rows(request.identity) if wanted.fits(row)]
    number = request.GET.get("claim", "")
    chosen = next(
        (row.claim for row in rows if str(row.claim.id) == number), rows[0].claim if rows else None
    )
    return page(
        request,
        "claims/tasks/approval_inbox_page.html",
        "approvals",
        argument=wanted.with_(),
        chosen=chosen,
    )


@signed_in
def show_preview(request: PageRequest, claim_id: int) -> HttpResponse:
    """The preview of one plan, loaded by the open page."""
    claim = find_claim(request.identity, str(claim_id))
    if claim is None:
        raise NotFound(f"Claim {claim_id} does not exist.", way_out="Reload the page.")
    if request.headers.get("Sec-Fetch-Dest") == "document":  # opened outside of the page
        return HttpResponseRedirect(f"/claims/{claim_id}/#decide")
    return page(request, "claims/tasks/approval_preview.html", chosen=claim)


@region("approvals")
def open_list(identity: Identity, argument: str) -> OpenedRegion | None:
    wanted = read_filter(argument)

    def render() -> str:
        now = timezone.now()
        rows = [row for row in list_rows(identity) if wanted.fits(row)]
        total = count_pending(identity.visible_pools())
        context = {
            "sections": sections_of(rows, now),
            "now": now,
            "is_all": not wanted.with_(),
            "more": max(0, total - MAX_PLANS),
        }
        return render_to_string("claims/tasks/approval_inbox.html", context)

    return opened_region(identity, "approvals", argument, render)


@region("approvals.head")
def open_head(identity: Identity, argument: str) -> OpenedRegion | None:
    wanted = read_filter(argument)

    def render() -> str:
        rows = list_rows(identity)
        tests, values = in_pools(identity.visible_pools())
        with reporting():
            lately = run(LATELY.format(tests=tests), values, prepare=False)[0]
        pools = sorted({row.claim.pool for row in rows if row.claim.pool})
        mine, destroying = (
            sum(not row.why for row in rows),
            sum(row.pending.plan.destroys for row in rows),
        )
        return render_to_string(
            "claims/tasks/approval_inbox_head.html",
            {
                "count": max(len(rows), count_pending(identity.visible_pools()))
                if len(rows) >= MAX_PLANS
                else len(rows),
                "mine": mine,
                "holding": sum(len(row.claim.slots) for row in rows),
                "waiting": sum(
                    {row.claim.pool: row.waiting for row in rows if row.claim.slots}.values()
                ),
                "lately": lately,
                "chips": [
                    ("All", len(rows), wanted.with_(show=""), wanted.show == "all"),
                    ("I can decide", mine, wanted.with_(show="mine"), wanted.show == "mine"),
                    (
                        "Destroys",
                        destroying,
                        wanted.with_(show="destroys"),
                        wanted.show == "destroys",
                    ),
                ],
                "pools": [
                    (
                        name,
                        sum(row.claim.pool == name for row in rows),
                        wanted.with_(pool="" if wanted.pool == name else name),
                        wanted.pool == name,
                    )
                    for name in pools
                ]
                if len(pools) > 1 or wanted.pool
                else [],
            },
        )

    return opened_region(identity, "approvals.head", argument, render, 1.0)


@region("approvals.count")
def open_count(identity: Identity, argument: str) -> OpenedRegion | None:
    """The number in the navigation of each page."""

    def render() -> str:
        count = count_pending(identity.visible_pools())
        return f"<b>{count:,}</b>" if count else ""

    return opened_region(identity, "approvals.count", "", render, 1.0)


@region("approval")
def open_preview(identity: Identity, argument: str) -> OpenedRegion | None:
    claim = find_claim(identity, argument)
    if claim is None:
        return None
    claim_id = claim.id

    def render() -> str:
        fresh = view_claims([claim_id])[0]
        plan = Plan.objects.filter(claim_id=claim_id).order_by("is_stale", "-pk").first()
        context: dict[str, object] = {
            "claim": fresh,
            "plan": plan,
            "now": timezone.now(),
            "is_pending": fresh.state in ("reserved", "parked"),
        }
        if plan is not None:
            context |= preview_context(plan)
        return render_to_string("claims/tasks/approval.html", context)

    return opened_region(
        identity, "approval", str(claim_id), render, subjects=[("claim", claim_id)]
    )


def preview_context(plan: Plan) -> dict[str, object]:
    """The riskiest changes of a plan."""
    found: dict[str, object] = {
        "counts": plan.summary,
        "commit": str(plan.facts.get("commit") or ""),
    }
    work = getattr(plan.claim, "work", None)
    found["source"] = describe_source(work) if work else ""
    found["discards_state"] = work is not None and work.body.get("state") == DISCARD
    if not plan.json_file:
        return found
    try:
        changes = tree_of(plan).changes
    except (NotAPlan, NotFound, Unavailable):
        return found
    entries: list[Entry] = entries_of(
        plan,
        changes[:PREVIEWED],
        embedded=PREVIEWED,
        opened=1 if changes and changes[0].is_risky else 0,
    )
    return found | {"entries": entries, "rest": len(changes) - len(entries)}
