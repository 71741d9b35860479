"""Workspaces: what runs in them, and their locks. A workspace belongs to no pool, so it takes the role in all pools."""

from collections.abc import Sequence
from typing import Any

from django.http import HttpResponse

from claims import services
from claims.api import decision_shapes as decided
from claims.api import shapes
from claims.api.actions import Body
from claims.runs.rescued import RescuedView, list_rescued_in
from claims.selectors import WorkspaceView, get_workspace, list_runs_in, list_workspaces
from pools.access import require
from pools.endpoint import PAGES, describe, in_query, page_of, read_page, read_text
from pools.lean import Call, LeanEndpoint, answer
from project.kernel.requiring import LONGEST_REASON

TAG = "workspaces"
MOST = 500


class WorkspaceList(LeanEndpoint):
    @describe("Workspaces", {200: shapes.WorkspacePage}, query=[in_query("q", "Part of its name.")], name="list_workspaces", tag=TAG)
    def get(self, call: Call) -> HttpResponse:
        """By name, up to 500."""
        require(call.identity, "read", None)
        found = list_workspaces(text=read_text(call, "q"), limit=MOST)
        states = list_rescued_in([view.id for view in found])
        return answer({"results": [show_workspace(view, states[view.id]) for view in found], "next": None})


class WorkspaceDetail(LeanEndpoint):
    @describe("A workspace", {200: shapes.WorkspaceAnswer}, name="get_workspace", tag=TAG)
    def get(self, call: Call, workspace: str) -> HttpResponse:
        require(call.identity, "read", None)
        return answer(show_workspace(get_workspace(workspace)))


class WorkspaceLock(LeanEndpoint):
    @describe(
        "Lock",
        {200: shapes.WorkspaceAnswer},
        body=shapes.as_json(shapes.NEEDED_REASON_BODY),
        problems=(409,),
        name="lock_workspace",
        tag=TAG,
    )
    def post(self, call: Call, workspace: str) -> HttpResponse:
        """Nothing of it starts until it is unlocked; what holds slots goes on."""
        require(call.identity, "lock_workspace", None)
        body = Body(call, "reason", required=("reason",))
        reason = body.text("reason")
        body.check()
        services.lock_workspace(name=workspace, reason=reason)
        return answer(show_workspace(get_workspace(workspace)))


class WorkspaceUnlock(LeanEndpoint):
    @describe(
        "Unlock", {200: shapes.WorkspaceAnswer}, body=shapes.as_json(shapes.REASON_BODY), problems=(409,), name="unlock_workspace", tag=TAG
    )
    def post(self, call: Call, workspace: str) -> HttpResponse:
        """What waited for it stands in line again."""
        require(call.identity, "lock_workspace", None)
        body = Body(call, "reason")
        reason = body.text("reason")
        body.check()
        services.unlock_workspace(name=workspace, reason=reason)
        return answer(show_workspace(get_workspace(workspace)))


class WorkspaceSettle(LeanEndpoint):
    @describe(
        "Settle a lost apply",
        {200: shapes.WorkspaceAnswer},
        body=shapes.as_json(decided.SETTLE_BODY),
        problems=(409,),
        name="settle_workspace",
        tag=TAG,
    )
    def post(self, call: Call, workspace: str) -> HttpResponse:
        """A person says what became of an apply that was lost. That opens the workspace. It takes the role operator or approver."""
        if not call.identity.may("decide", None):
            require(call.identity, "settle", None)
        body = Body(call, "what", "reason", "claim", required=("what", "reason"))
        what, reason = body.text("what", 20), body.text("reason", LONGEST_REASON)
        claim = body.number("claim") if "claim" in body.given else None
        body.check()
        services.settle_lost_apply(workspace=workspace, what=what, reason=reason, claim=claim)
        return answer(show_workspace(get_workspace(workspace)))


class WorkspaceRuns(LeanEndpoint):
    @describe("What ran in it", {200: decided.WorkspaceHistory}, query=PAGES, name="list_workspace_runs", tag=TAG)
    def get(self, call: Call, workspace: str) -> HttpResponse:
        """Runs of its claims, the newest claim first; `limit` counts claims."""
        require(call.identity, "read", None)
        limit, before = read_page(call)
        get_workspace(workspace)
        runs, last = list_runs_in(workspace, before=before, limit=limit)
        return answer(page_of(call, runs, last))


def show_workspace(view: WorkspaceView, states: Sequence[RescuedView] | None = None) -> dict[str, Any]:
    states = list_rescued_in([view.id])[view.id] if states is None else states
    return {
        "name": view.name,
        "is_locked": view.locked_at is not None,
        "locked_at": view.locked_at,
        "locked_by": view.locked_by,
        "lock_reason": view.lock_reason,
        "running": view.running,
        "live": view.live,
        "blocked": view.blocked,
        "lost_claim": view.lost_claim,
        "rescued_states": [state.as_dict() for state in states],
    }
