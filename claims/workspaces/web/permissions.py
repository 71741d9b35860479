"""Permissions on workspaces: roles in the pool of the workspace. Viewers of a pool that shares the
workspace also see it.
"""

from claims.workspaces.selectors import WorkspaceView, find_workspaces
from pools.access.permissions import ACTIONS, OPERATOR, Identity, refusal, require
from pools.lifecycle.selectors import LIVE
from pools.models import Pool
from project.kernel.errors import Conflict, NotFound


def may_see_workspace(identity: Identity, view: WorkspaceView) -> bool:
    return identity.may("read", view.pool_id) or any(
        identity.may("read", share.pool_id) for share in view.shares
    )


def find_visible(identity: Identity, path: str) -> list[WorkspaceView]:
    """The visible workspace that `pool/name` names, else all visible workspaces whose name is the
    whole path.
    """
    found = [view for view in find_workspaces(path) if may_see_workspace(identity, view)]
    exact = [view for view in found if view.path == path]
    return exact[:1] or found


def workspace_at(identity: Identity, path: str) -> WorkspaceView:
    """The visible workspace at an address. `NotFound` if there is none; `Conflict` if an address
    without a pool matches several.
    """
    found = find_visible(identity, path)
    if not found:
        raise no_such_workspace(path)
    if len(found) > 1:
        choices = [view.path for view in found]
        text = f"{len(found)} workspaces are named {path}: {', '.join(choices[:10])}."
        raise Conflict(
            text,
            code="ambiguous_workspace",
            way_out="Name the pool: workspaces/<pool>/<name>/.",
            choices=choices,
        )
    return found[0]


def workspace_to_change(identity: Identity, path: str) -> WorkspaceView | None:
    """As `workspace_at`, but an address that begins with a visible pool means only a workspace of
    that pool. None: this workspace does not exist yet.
    """
    pool = pool_in(identity, path)
    if pool is None:
        return workspace_at(identity, path)
    found = find_visible(identity, path)
    return found[0] if found and found[0].path == path else None


def existing_workspace(identity: Identity, path: str, action: str = "") -> WorkspaceView:
    """As `workspace_to_change`, but `NotFound` for a workspace that does not exist yet. `action`:
    refused without its role in the workspace's pool.
    """
    view = workspace_to_change(identity, path)
    if view is None:
        raise no_such_workspace(path)
    if action:
        require_on_workspace(identity, action, view)
    return view


def pool_in(identity: Identity, path: str) -> Pool | None:
    """The visible pool that an address begins with, if any."""
    name, slash, rest = path.partition("/")
    pool = Pool.objects.filter(LIVE, name=name).first() if slash and rest else None
    return pool if pool is not None and identity.may("read", pool.pk) else None


def require_on_workspace(identity: Identity, action: str, view: WorkspaceView) -> None:
    """Refuse an action on a visible workspace without a role in the workspace's own pool."""
    if not identity.may(action, view.pool_id):
        raise refusal(identity, ACTIONS[action], view.pool_id, view.pool or "")


def may_settle(identity: Identity, view: WorkspaceView) -> bool:
    return identity.may("settle", view.pool_id) or identity.may("decide", view.pool_id)


def require_settle(identity: Identity, view: WorkspaceView) -> None:
    if not may_settle(identity, view):
        raise refusal(identity, OPERATOR, view.pool_id, view.pool or "")


def pool_to_share(identity: Identity, view: WorkspaceView, name: str) -> Pool:
    """The pool to share a workspace with. `Refused` without the role operator in both pools."""
    require_on_workspace(identity, "share_workspace", view)
    pool = Pool.objects.filter(LIVE, name=name).first()
    if pool is None or not identity.may("read", pool.pk):
        raise NotFound(
            f"There is no pool {name[:63]}.", way_out="Check the name in the list of pools."
        )
    require(identity, "share_workspace", pool)
    return pool


def pool_to_unshare(identity: Identity, view: WorkspaceView, name: str) -> int:
    """The id of the pool whose share ends. Refused without the role operator in either pool."""
    share = next((share for share in view.shares if share.pool == name), None)
    if share is None or not (
        identity.may("read", share.pool_id) or identity.may("read", view.pool_id)
    ):
        raise NotFound(
            f"Pool {name[:63]} does not use this workspace.",
            way_out="Check the shares on the workspace’s page.",
        )
    if not identity.may("share_workspace", share.pool_id):
        require_on_workspace(identity, "share_workspace", view)
    return share.pool_id


def no_such_workspace(path: str) -> NotFound:
    way_out = "Check the list of workspaces: an address names the pool, then the workspace."
    return NotFound(f"There is no workspace {path[:200]}.", way_out=way_out)
