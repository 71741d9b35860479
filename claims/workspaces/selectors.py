"""Reads workspaces for the API and pages."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Case, Q, When

from claims import claims_sql
from claims.models import Workspace, WorkspaceShare
from pools.models import Pool
from project.kernel.db.guards import reporting
from project.kernel.errors import NotFound


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
    none = claims_sql.CountWorkspacesRow(id=0, live=0, blocked=0, running=None)
    return [
        WorkspaceView(
            id=row.pk,
            pool_id=row.pool_id,
            pool=pools.get(row.pool_id or 0),
            name=row.name,
            locked_at=row.locked_at,
            locked_by=row.locked_by,
            lock_reason=row.lock_reason,
            running=counts.get(row.pk, none).running,
            live=counts.get(row.pk, none).live,
            blocked=counts.get(row.pk, none).blocked,
            lost_claim=row.lost_claim_id,
            shares=tuple(shares.get(row.pk, ())),
        )
        for row in rows
    ]
