"""Plans and their approvals, for the pages of claims, the inbox of approvals and the API."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import Q

from claims.models import Approval, Claim, Plan, Task
from claims.states import PENDING
from claims.tasks.plans import pending_sql
from claims.tasks.run_spec import DISCARD
from claims.tasks.valid_approvals import find_faults
from pools.config.approval_spec import DEFAULT
from pools.lifecycle.selectors import spec_of
from pools.models import Member
from project.kernel.db.guards import reporting

UNDECIDED = (*PENDING, "waiting", "blocked")  # approvals are counted again before the apply starts
MOST_LISTED = 1000


@dataclass(frozen=True, slots=True)
class ApprovalView:
    user_id: int | None
    by_user: str
    is_yes: bool
    comment: str
    via: str
    at: datetime
    why_not: str = ""  # why the approval does not count at this moment

    @property
    def counts(self) -> bool:
        return self.is_yes and not self.why_not


@dataclass(frozen=True, slots=True)
class PlanView:
    id: int
    claim_id: int
    digest: str
    generation: int
    made_at: datetime
    is_stale: bool  # the plan can no longer be applied
    member: str  # the member that made the plan
    summary: Mapping[str, Any]
    facts: Mapping[str, Any]
    size: int  # bytes of the saved plan
    needed: int  # required approvals
    given: int  # approvals that count at this moment
    may_own: bool  # the requester may approve
    approvals: list[ApprovalView] = field(default_factory=list)
    discards_state: bool = False  # the next run creates all resources again
    file: str = ""
    json_file: str = ""
    mismatch: str = ""  # how the list of changes contradicts the agent's counts: no approval

    @property
    def destroys(self) -> bool:
        return is_destroying(self.summary)


@dataclass(frozen=True, slots=True)
class PendingPlan:
    """A plan that waits for a decision."""

    claim_id: int
    pool: str
    workspace: str | None
    requested_by: str
    plan: PlanView
    reserved_since: datetime | None
    expires_at: datetime
    member: str  # the member of the reserved slot; empty without a slot
    is_parked: bool
    held_for: float | None  # seconds since the slot was reserved
    owner: str = ""


class InboxPosition(NamedTuple):
    """The last plan of a page of the inbox."""

    expires_at: datetime
    claim_id: int


def is_destroying(summary: Mapping[str, object]) -> bool:
    return any(isinstance(n := summary.get(name), int) and n > 0 for name in ("destroy", "replace"))


def view_plan(claim_id: int) -> PlanView | None:
    """The current or last plan of a claim. None: the claim has no plan."""
    found = Plan.objects.filter(claim_id=claim_id).order_by("is_stale", "-id").first()
    return None if found is None else view_plans([found])[0]


def view_plans(rows: Iterable[Plan]) -> list[PlanView]:
    plans = list(rows)
    approvals: dict[int, list[Approval]] = defaultdict(list)
    for row in Approval.objects.filter(plan_id__in=[plan.pk for plan in plans]).order_by(
        "at", "id"
    ):
        approvals[row.plan_id].append(row)
    members = dict(
        Member.objects.filter(pk__in={p.member_id for p in plans if p.member_id}).values_list(
            "id", "name"
        )
    )
    claims = {
        claim.pk: claim
        for claim in Claim.objects.select_related("pool").filter(
            pk__in={plan.claim_id for plan in plans}
        )
    }
    discarding = set(
        Task.objects.filter(claim_id__in=claims, body__state=DISCARD).values_list(
            "claim_id", flat=True
        )
    )
    return [
        _view(
            plan,
            approvals[plan.pk],
            members.get(plan.member_id or 0, ""),
            claims[plan.claim_id],
            discards_state=plan.claim_id in discarding,
        )
        for plan in plans
    ]


def _view(
    plan: Plan, rows: list[Approval], member: str, claim: Claim, *, discards_state: bool
) -> PlanView:
    rule = DEFAULT if claim.pool is None else spec_of(claim.pool).approval
    faults = [""] * len(rows)  # after the start of the apply, approvals are no longer counted
    if rows and claim.state in UNDECIDED:
        faults = find_faults(
            rows, pool_id=claim.pool_id, requested_by=claim.requested_by, rule=rule
        )
    approvals = [
        ApprovalView(
            row.user_id, row.by_user, row.is_yes, row.comment, row.via, row.at,
            fault if row.is_yes else "",
        )
        for row, fault in zip(rows, faults, strict=True)
    ]  # fmt: skip
    return PlanView(
        id=plan.pk,
        claim_id=plan.claim_id,
        digest=bytes(plan.digest).hex(),
        generation=plan.generation,
        made_at=plan.made_at,
        is_stale=plan.is_stale,
        member=member,
        summary=plan.summary,
        facts=plan.facts,
        size=plan.size,
        needed=rule.needed,
        given=sum(approval.counts for approval in approvals),
        may_own=rule.own,
        approvals=approvals,
        discards_state=discards_state,
        file=plan.file.name or "",
        json_file=plan.json_file.name or "",
        mismatch=plan.mismatch,
    )


def list_pending(
    visible: Collection[int] | None,
    *,
    pool_id: int | None = None,
    workspace: str | None = None,
    after: InboxPosition | None = None,
    limit: int = MOST_LISTED,
) -> list[PendingPlan]:
    """Waiting plans, the earliest deadline first. `visible`: ids of pools; None: all pools."""
    found = Claim.objects.select_related("pool", "workspace", "shape").filter(
        _is_pending(visible, pool_id, workspace)
    )
    if after is not None:
        found = found.filter(
            Q(expires_at__gt=after.expires_at)
            | Q(expires_at=after.expires_at, pk__gt=after.claim_id)
        )
    with reporting():
        claims = list(found.order_by("expires_at", "pk")[: min(limit, MOST_LISTED)])
        current = Plan.objects.filter(claim_id__in=[claim.pk for claim in claims], is_stale=False)
        plans = {plan.claim_id: plan for plan in view_plans(current)}
        members = _members_of([claim.pk for claim in claims])
    return [
        _pending(claim, plans[claim.pk], members.get(claim.pk))
        for claim in claims
        if claim.pk in plans
    ]


def count_pending(visible: Collection[int] | None) -> int:
    return pending_sql.count_pending(pools=None if visible is None else list(visible))


def deadlines_of(pool_id: int) -> dict[int, datetime]:
    """Decision deadlines of the reserved claims of a pool."""
    found = Claim.objects.filter(pool_id=pool_id, state="reserved", expires_at__isnull=False)
    return {claim: at for claim, at in found.values_list("pk", "expires_at") if at is not None}


def _is_pending(visible: Collection[int] | None, pool_id: int | None, workspace: str | None) -> Q:
    q = Q(state__in=PENDING)
    if visible is not None:
        q &= Q(pool_id__in=list(visible))
    if pool_id is not None:
        q &= Q(pool_id=pool_id)
    if workspace is not None:
        q &= Q(workspace__name=workspace)
    return q


# Not read from the slot's row: it also changes when its member goes offline or returns.
HELD_ON = """
SELECT s.claim_id, m.name, extract(epoch FROM clock_timestamp() - greatest(c.reserved_at, (
  SELECT max(e.at) FROM kernel_event e WHERE e.claim_id = c.id
    AND e.verb = 'reserve_again')))::float8
FROM unnest(%s::bigint[]) AS t(id) JOIN slots_slot s ON s.claim_id = t.id AND s.ordinal = 0
JOIN pools_member m ON m.id = s.member_id JOIN claims_claim c ON c.id = t.id"""


def _members_of(claim_ids: Sequence[int]) -> dict[int, tuple[str, float]]:
    with connection.cursor() as cursor:
        cursor.execute(HELD_ON, [list(claim_ids)])
        return {claim: (name, seconds) for claim, name, seconds in cursor.fetchall()}


def _pending(claim: Claim, plan: PlanView, held: tuple[str, float] | None) -> PendingPlan:
    assert claim.expires_at is not None  # a CHECK of the table
    return PendingPlan(
        claim_id=claim.pk,
        pool=claim.pool.name if claim.pool else claim.shape.pools[0],
        workspace=claim.workspace.name if claim.workspace else None,
        requested_by=claim.requested_by,
        plan=plan,
        reserved_since=claim.reserved_at,
        expires_at=claim.expires_at,
        member=held[0] if held else "",
        is_parked=claim.state == "parked",
        held_for=held[1] if held else None,
        owner=claim.owner,
    )
