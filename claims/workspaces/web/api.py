"""REST for workspaces: list, lock, settle a lost apply, share.

An address names the pool, then the workspace: `workspaces/tf/net/prod/`. An address without the
pool works if only one workspace matches.
"""

from collections.abc import Sequence

from django.http import HttpResponse

from claims.allocation.api import schemas
from claims.lifecycle.api.actions import Body, read_reason
from claims.tasks.api import approval_schemas
from claims.tasks.approvals.lost_apply import resolve_lost_apply
from claims.tasks.runs.selectors import list_runs_in
from claims.tasks.states.api import show_rescued
from claims.tasks.states.selectors import RescuedView, list_rescued_in
from claims.workspaces.selectors import WorkspaceView, get_workspace, list_workspaces
from claims.workspaces.services import add_workspace, lock_workspace, unlock_workspace
from claims.workspaces.sharing import share_workspace, unshare_workspace
from claims.workspaces.web.permissions import (
    existing_workspace,
    pool_in,
    pool_to_share,
    pool_to_unshare,
    require_on_workspace,
    require_settle,
    workspace_at,
    workspace_to_change,
)
from pools.access.permissions import Identity, require
from pools.http.endpoint import (
    NEEDED_REASON,
    PAGES,
    describe,
    describe_changes,
    in_query,
    page_of,
    read_page,
    read_text,
    show,
)
from pools.http.fast_view import FastRequest, LeanEndpoint, answer

TAG = "workspaces"
MAX_WORKSPACES = 500
describe_change = describe_changes(schemas.WorkspaceAnswer, TAG)


class WorkspaceList(LeanEndpoint):
    @describe(
        "Workspaces",
        {200: schemas.WorkspacePage},
        query=[in_query("q", "Part of the name."), in_query("pool", "Name of the pool.")],
        name="list_workspaces",
        tag=TAG,
    )
    def get(self, call: FastRequest) -> HttpResponse:
        """Up to 500 workspaces by name: those of visible pools, and those shared with them."""
        found = list_workspaces(
            text=read_text(call, "q"),
            pool=call.query_params.get("pool"),
            visible=call.identity.visible_pools(),
            limit=MAX_WORKSPACES,
        )
        states = list_rescued_in([view.id for view in found])
        return answer(
            {
                "results": [show_workspace(call.identity, view, states[view.id]) for view in found],
                "next": None,
            }
        )


class WorkspaceDetail(LeanEndpoint):
    @describe("A workspace", {200: schemas.WorkspaceAnswer}, name="get_workspace", tag=TAG)
    def get(self, call: FastRequest, workspace: str) -> HttpResponse:
        """Returns one workspace. If an address without the pool matches several workspaces, 409
        lists them.
        """
        return answer(show_workspace(call.identity, workspace_at(call.identity, workspace)))


class WorkspaceLock(LeanEndpoint):
    @describe_change("Lock", schemas.NEEDED_REASON_BODY, "lock_workspace")
    def post(self, call: FastRequest, workspace: str) -> HttpResponse:
        """No claim of the workspace starts until it is unlocked; running claims continue. A
        workspace can be locked before its first claim.
        """
        view = workspace_to_change(call.identity, workspace)
        pool = pool_in(call.identity, workspace)
        if view is None and pool is not None:
            require(call.identity, "lock_workspace", pool)
        elif view is not None:
            require_on_workspace(call.identity, "lock_workspace", view)
        reason = read_reason(call)
        if view is not None:
            found = view.id
        else:
            assert pool is not None
            found = add_workspace(pool_id=pool.pk, name=workspace.partition("/")[2])
        lock_workspace(workspace_id=found, reason=reason)
        return show_changed(call, found)


class WorkspaceUnlock(LeanEndpoint):
    @describe_change("Unlock", schemas.REASON_BODY, "unlock_workspace")
    def post(self, call: FastRequest, workspace: str) -> HttpResponse:
        """Blocked claims of the workspace are queued again."""
        view = existing_workspace(call.identity, workspace, "lock_workspace")
        reason = read_reason(call, is_needed=False)
        unlock_workspace(workspace_id=view.id, reason=reason)
        return show_changed(call, view.id)


class WorkspaceSettle(LeanEndpoint):
    @describe_change("Settle a lost apply", approval_schemas.SETTLE_BODY, "settle_workspace")
    def post(self, call: FastRequest, workspace: str) -> HttpResponse:
        """Records the outcome of a lost apply, which unlocks the workspace. Needs the role operator
        or approver in the workspace's pool.
        """
        view = existing_workspace(call.identity, workspace)
        require_settle(call.identity, view)
        body = Body(call, "what", "reason", "claim", required=("what", "reason"))
        what, reason = body.text("what", 20), body.text("reason")
        claim = body.number("claim") if "claim" in body.given else None
        body.check()
        resolve_lost_apply(workspace_id=view.id, what=what, reason=reason, claim=claim)
        return show_changed(call, view.id)


class WorkspaceRuns(LeanEndpoint):
    @describe(
        "Runs of a workspace",
        {200: approval_schemas.WorkspaceHistory},
        query=PAGES,
        name="list_workspace_runs",
        tag=TAG,
    )
    def get(self, call: FastRequest, workspace: str) -> HttpResponse:
        """The runs of the workspace's claims in visible pools, newest claim first; `limit` counts
        claims.
        """
        view = workspace_at(call.identity, workspace)
        limit, before = read_page(call)
        runs, last = list_runs_in(view.id, before=before, limit=limit)
        return answer(
            page_of(
                call, [run for run in runs if call.identity.may("read", run.pop("pool_id"))], last
            )
        )


class WorkspaceShares(LeanEndpoint):
    @describe_change("Share a workspace", schemas.SHARE_BODY, "share_workspace")
    def post(self, call: FastRequest, workspace: str) -> HttpResponse:
        """Claims of the other pool that name this workspace then use it. Needs the role operator in
        both pools.
        """
        view = existing_workspace(call.identity, workspace, "share_workspace")
        body = Body(call, "pool", "reason", required=("pool", "reason"))
        name, reason = body.text("pool", 63), body.text("reason")
        body.check()
        pool = pool_to_share(call.identity, view, name)
        share_workspace(workspace_id=view.id, pool_id=pool.pk, reason=reason)
        return show_changed(call, view.id)


class WorkspaceShareEndpoint(LeanEndpoint):
    @describe(
        "End a share",
        {200: schemas.WorkspaceAnswer},
        query=[NEEDED_REASON],
        name="unshare_workspace",
        tag=TAG,
    )
    def delete(self, call: FastRequest, workspace: str, pool_name: str) -> HttpResponse:
        """Live claims of the other pool continue; new claims use a workspace of their own pool.
        Needs the role operator in either pool.
        """
        view = existing_workspace(call.identity, workspace)
        pool_id = pool_to_unshare(call.identity, view, pool_name)
        unshare_workspace(workspace_id=view.id, pool_id=pool_id, reason=read_text(call, "reason"))
        return show_changed(call, view.id)


def show_changed(call: FastRequest, workspace_id: int) -> HttpResponse:
    return answer(show_workspace(call.identity, get_workspace(workspace_id)))


def show_workspace(
    identity: Identity, view: WorkspaceView, states: Sequence[RescuedView] | None = None
) -> dict[str, object]:
    states = list_rescued_in([view.id])[view.id] if states is None else states
    return show(
        schemas.WorkspaceAnswer,
        view,
        shared_with=[
            show(schemas.WorkspaceShareAnswer, share)
            for share in view.shares
            if identity.may("read", share.pool_id)
        ],
        is_locked=view.locked_at is not None,
        rescued_states=[
            show_rescued(state) for state in states if identity.may("read", state.pool_id)
        ],
    )
