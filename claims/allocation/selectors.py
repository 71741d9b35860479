"""Reads claims, queues and workspaces for the API, pages and services."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Case, Q, When

from claims import claims_sql
from claims.allocation.claim_view import ClaimView, claim_of_row
from claims.allocation.wait_reason import explain_claims
from claims.kinds import complete_views
from claims.models import Claim, Workspace, WorkspaceShare
from pools.models import Pool
from project.kernel.db.guards import reporting
from project.kernel.errors import NotFound

MOST_LISTED = 1000


@dataclass(frozen=True, slots=True)
class ClaimFilter:
    """Conditions on claims; None: no condition. `visible`: the pools that the reader may read;
    None: all claims, also those of pools that do not exist yet.
    """

    visible: frozenset[int] | None = None
    pool_id: int | None = None
    states: Sequence[str] | None = None
    steps: Sequence[str] | None = None
    outcomes: Sequence[str] | None = None
    owner: str | None = None
    requested_by: str | None = None
    workspace: str | None = None  # the name, in any pool
    workspace_id: int | None = None
    kind: str | None = None
    key: str | None = None
    member_id: int | None = None  # the claim holds a slot of this member now
    text: str | None = None  # an id, or part of an owner or workspace


@dataclass(frozen=True, slots=True)
class QueueCount:
    waiting: int = 0
    blocked: int = 0
    oldest: datetime | None = None


@dataclass(frozen=True, slots=True)
class ShareView:
    """Another pool that uses a workspace, or that waits for an operator to allow it."""

    pool_id: int
    pool: str
    allowed_at: datetime | None
    allowed_by: str
    reason: str

    @property
    def is_allowed(self) -> bool:
        return self.allowed_at is not None


@dataclass(frozen=True, slots=True)
class WorkspaceView:
    id: int
    pool_id: int | None
    pool: str | None
    name: str
    locked_at: datetime | None
    locked_by: str
    lock_reason: str
    running: int | None  # the serial claim under way
    live: int
    blocked: int
    lost_claim: int | None = None  # the claim of a lost apply without a recorded outcome
    shares: tuple[ShareView, ...] = ()

    @property
    def path(self) -> str:
        """The workspace as addresses name it."""
        return f"{self.pool}/{self.name}" if self.pool else self.name


def view_claim(claim_id: int, *, explain: bool = False) -> ClaimView:
    found = view_claims([claim_id], explain=explain)
    if not found:
        raise no_such_claim(claim_id)
    return found[0]


def no_such_claim(claim_id: int) -> NotFound:
    return NotFound(
        f"There is no claim {claim_id}.",
        way_out="Look at the list of claims; ended ones are kept for 90 days.",
    )


def view_claims(claim_ids: Iterable[int], *, explain: bool = False) -> list[ClaimView]:
    """Claims in the order of the ids. Ids without a claim are left out."""
    ids = list(claim_ids)
    claims = [claim_of_row(row) for row in claims_sql.view_claims(claims=ids)] if ids else []
    complete_views(claims)
    if explain:
        explain_claims(claims)
    return claims


def list_claims(
    wanted: ClaimFilter, *, before: int | None = None, limit: int = 100, explain: bool = False
) -> list[ClaimView]:
    """Claims, newest first. `before`: the last id of the previous page."""
    found = Claim.objects.filter(_condition(wanted))
    if before is not None:
        found = found.filter(pk__lt=before)
    with reporting():
        ids = list(found.order_by("-pk").values_list("pk", flat=True)[: min(limit, MOST_LISTED)])
        return view_claims(ids, explain=explain)


def count_claims(wanted: ClaimFilter) -> int:
    with reporting():
        return Claim.objects.filter(_condition(wanted)).count()


def queue_of_pool(
    pool_name: str, *, limit: int = 100, with_blocked: bool = True
) -> list[ClaimView]:
    """The queued claims of a pool in the order of their turns, then its blocked claims, all with
    their wait reasons. A position counts only claims that compete for the same lanes.
    """
    waiting = view_claims(row.id for row in claims_sql.queue(limit, pool_name=pool_name))
    waiting = [claim for claim in waiting if claim.state == "waiting"]
    lanes = {
        row.id: frozenset(row.lanes)
        for row in claims_sql.lanes_of(shapes=list({claim.shape_id for claim in waiting}))
    }
    places: dict[int, int] = {}
    ahead: dict[frozenset[str], int] = {}
    for claim in waiting:
        mine = lanes.get(claim.shape_id, frozenset())
        places[claim.id] = 1 + sum(n for other, n in ahead.items() if other & mine or other == mine)
        ahead[mine] = ahead.get(mine, 0) + 1
    left = limit - len(waiting)
    blocked = (
        view_claims(row.id for row in claims_sql.queue_blocked(left, pool_name=pool_name))
        if with_blocked and left > 0
        else []
    )
    explain_claims([*waiting, *blocked], places)
    return [*waiting, *blocked]


def count_queues() -> Mapping[int | None, QueueCount]:
    """Counts by pool; None: claims of pools that do not exist."""
    with reporting():
        rows = claims_sql.count_queues()
    return {row.pool_id: QueueCount(row.waiting, row.blocked, row.oldest) for row in rows}


def count_live_claims(pool_id: int) -> int:
    """The number of claims that use a pool, also those that name it after another pool."""
    return int(claims_sql.count_live(pool=pool_id))


def list_live_claims(pool_id: int, *, limit: int = 100) -> list[ClaimView]:
    return view_claims(row.id for row in claims_sql.live_of_pool(limit, pool=pool_id))


def list_workspaces(
    *,
    text: str = "",
    pool: str | None = None,
    visible: Collection[int] | None = None,
    limit: int = 200,
) -> list[WorkspaceView]:
    """Workspaces by name. `visible`: those of these pools or shared with them; None: all."""
    found = Workspace.objects.filter(name__icontains=text) if text else Workspace.objects.all()
    if pool is not None:
        found = found.filter(pool__name=pool)
    if visible is not None:
        used = WorkspaceShare.objects.filter(pool_id__in=list(visible)).values("workspace_id")
        found = found.filter(Q(pool_id__in=list(visible)) | Q(pk__in=used))
    with reporting():
        return _workspace_views(found.order_by("name", "pool__name", "pk")[:limit])


def get_workspace(workspace_id: int) -> WorkspaceView:
    found = _workspace_views(Workspace.objects.filter(pk=workspace_id))
    if not found:
        raise NotFound("There is no such workspace.", way_out="Look at the list of workspaces.")
    return found[0]


def find_workspaces(path: str) -> list[WorkspaceView]:
    """The workspaces that an address may mean: `pool/name` first, then every workspace with this
    name, for older addresses without a pool.
    """
    pool, slash, name = path.partition("/")
    # A new pool may have the name of a deleted one.
    order = Case(When(pool__state="gone", then=1), default=0)
    exact = (
        Workspace.objects.filter(pool__name=pool, name=name).order_by(order, "-pool_id")[:1]
        if slash and name
        else ()
    )
    return _workspace_views(
        [*exact, *Workspace.objects.filter(name=path).order_by("pool__name", "pk")[:50]]
    )


def _workspace_views(found: Iterable[Workspace]) -> list[WorkspaceView]:
    rows = list(found)
    ids = [row.pk for row in rows]
    pools = dict(
        Pool.objects.filter(pk__in={row.pool_id for row in rows}).values_list("pk", "name")
    )
    shares: dict[int, list[ShareView]] = {}
    for share in (
        WorkspaceShare.objects.filter(workspace_id__in=ids)
        .select_related("pool")
        .order_by("pool__name")
    ):
        view = ShareView(
            share.pool_id, share.pool.name, share.allowed_at, share.allowed_by, share.reason
        )
        shares.setdefault(share.workspace_id, []).append(view)
    counts = {row.id: row for row in claims_sql.count_workspaces(workspaces=ids)} if ids else {}
    return [
        WorkspaceView(
            id=row.pk,
            pool_id=row.pool_id,
            pool=pools.get(row.pool_id or 0),
            name=row.name,
            locked_at=row.locked_at,
            locked_by=row.locked_by,
            lock_reason=row.lock_reason,
            running=getattr(counts.get(row.pk), "running", None),
            live=getattr(counts.get(row.pk), "live", 0),
            blocked=getattr(counts.get(row.pk), "blocked", 0),
            lost_claim=row.lost_claim_id,
            shares=tuple(shares.get(row.pk, ())),
        )
        for row in rows
    ]


def _condition(wanted: ClaimFilter) -> Q:
    q = Q()
    if wanted.visible is not None:
        q &= Q(pool_id__in=wanted.visible)
    if wanted.pool_id is not None:
        q &= Q(pool_id=wanted.pool_id)
    if wanted.states is not None:
        q &= Q(state__in=list(wanted.states))
    if wanted.steps is not None:
        q &= Q(step__in=list(wanted.steps))
    if wanted.outcomes is not None:
        q &= Q(outcome__in=list(wanted.outcomes))
    if wanted.owner is not None:
        q &= Q(owner=wanted.owner)
    if wanted.requested_by is not None:
        q &= Q(requested_by=wanted.requested_by)
    if wanted.workspace is not None:
        q &= Q(workspace__name=wanted.workspace)
    if wanted.workspace_id is not None:
        q &= Q(workspace_id=wanted.workspace_id)
    if wanted.kind is not None:
        q &= Q(shape__kind=wanted.kind)
    if wanted.key is not None:
        q &= Q(key=wanted.key)
    if wanted.member_id is not None:
        q &= Q(pk__in=[row.id for row in claims_sql.claims_on_member(member=wanted.member_id)])
    if wanted.text:
        q &= _text_condition(wanted.text.strip())
    return q


def _text_condition(text: str) -> Q:
    if text.isascii() and text.isdigit() and len(text) < 19:
        return Q(pk=int(text))
    return Q(owner__icontains=text) | Q(workspace__name__icontains=text)
