"""Pages of workspaces: the list, and one workspace with its claims, history, lock and shares."""

from urllib.parse import quote, urlencode

from django.http import HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone

from claims.allocation.claim_view import ClaimView
from claims.allocation.selectors import ClaimFilter, list_claims, view_claims
from claims.lifecycle.pages.claim_page import opened_region
from claims.models import Plan
from claims.tasks.states.views import rescued_of_workspace
from claims.workspaces.selectors import WorkspaceView, get_workspace, list_workspaces
from claims.workspaces.web.permissions import (
    find_visible,
    may_see_workspace,
    may_settle,
    no_such_workspace,
)
from pools.access.permissions import Identity
from pools.pages.base import PageRequest, action, explain_missing_role, page, signed_in
from project.kernel.errors import NotFound
from project.kernel.live.regions import ANY, OpenedRegion, region

IN_BOTH = "This needs the role operator in both pools."
PAGE = 50
LISTED = 200


def claims_of(
    identity: Identity,
    workspace_id: int,
    *,
    states: tuple[str, ...] | None = None,
    before: int | None = None,
    limit: int = PAGE,
) -> list[ClaimView]:
    """Claims of a workspace in visible pools."""
    visible = identity.visible_pools()
    wanted = ClaimFilter(
        visible=visible,
        workspace_id=workspace_id,
        states=states,
    )
    return list_claims(wanted, before=before, limit=limit, explain=states is not None)


def visible_by_id(identity: Identity, workspace_id: int) -> WorkspaceView:
    view = get_workspace(workspace_id)
    if not may_see_workspace(identity, view):
        raise no_such_workspace(view.name)
    return view


@signed_in
def show_workspaces(request: PageRequest) -> HttpResponse:
    text = request.GET.get("q", "").strip()[:120]
    return page(
        request,
        "claims/workspaces/workspace_list_page.html",
        "claims",
        title="Workspaces",
        region="workspaces",
        query=text,
    )


@signed_in
def show_workspace(request: PageRequest, name: str) -> HttpResponse:
    """The page of a workspace. An address without the pool redirects to the workspace, or shows a
    choice if several match.
    """
    found = find_visible(request.identity, name)
    if not found:
        raise no_such_workspace(name)
    if len(found) > 1:
        return page(
            request,
            "claims/workspaces/workspace_choice_page.html",
            "claims",
            name=name,
            choices=found,
        )
    view = found[0]
    query = request.META.get("QUERY_STRING", "")
    if view.path != name:
        return HttpResponseRedirect(
            reverse("workspace", args=[view.path]) + (f"?{query}" if query else "")
        )
    before = request.GET.get("before", "")
    return page(
        request,
        "claims/workspaces/workspace_page.html",
        "claims",
        name=view.name,
        argument=f"{before if before.isdecimal() else ''}:{view.id}",
    )


@region("workspaces")
def open_list(identity: Identity, argument: str) -> OpenedRegion | None:
    if not identity.may_anywhere("read"):
        return None

    def render() -> str:
        found = list_workspaces(text=argument, visible=identity.visible_pools(), limit=LISTED)
        found.sort(
            key=lambda view: (view.locked_at is None, view.live == 0, view.name, view.pool or "")
        )
        running = {
            claim.id: claim
            for claim in view_claims([view.running for view in found if view.running])
            if identity.may("read", claim.pool_id)
        }
        rows = [(view, running.get(view.running or 0)) for view in found]
        return render_to_string(
            "claims/workspaces/workspace_list.html",
            {"rows": rows, "query": argument, "now": timezone.now(), "most": LISTED},
        )

    return opened_region(identity, "workspaces", argument, render, 2.0, [ANY])


@region("workspace")
def open_workspace(identity: Identity, argument: str) -> OpenedRegion | None:
    before, _, number = argument.partition(":")
    if not (number.isdecimal() and len(number) < 19):
        return None
    workspace_id = int(number)
    try:
        visible_by_id(identity, workspace_id)
    except NotFound:
        return None

    def render() -> str:
        return render_to_string(
            "claims/workspaces/workspace.html",
            context(identity, workspace_id, int(before) if before.isdecimal() else None),
        )

    return opened_region(identity, "workspace", argument, render, 1.0, [ANY])


def context(identity: Identity, workspace_id: int, before: int | None) -> dict[str, object]:
    view = get_workspace(workspace_id)
    lost = view_claims([view.lost_claim])[0:1] if view.lost_claim else []
    live = claims_of(
        identity, view.id, states=("waiting", "blocked", "bound", "reserved", "parked"), limit=PAGE
    )
    live.sort(
        key=lambda claim: (
            claim.state in ("waiting", "blocked"),
            claim.state == "blocked",
            claim.rank,
            claim.id,
        )
    )
    past = claims_of(identity, view.id, states=("ended",), before=before, limit=PAGE + 1)
    plans = {
        plan.claim_id: plan
        for plan in Plan.objects.filter(claim_id__in=[c.id for c in (*live, *past)]).order_by("pk")
    }
    return {
        "name": view.name,
        "view": view,
        "shares": share_rows(identity, view),
        "sees_pool": identity.may("read", view.pool_id),
        "lost": lost[0] if lost else None,
        "rescued": rescued_of_workspace(identity, view.id),
        "live": [line(claim, plans) for claim in live],
        "past": [line(claim, plans) for claim in past[:PAGE]],
        "more": past[PAGE - 1].id if len(past) > PAGE else None,
        "actions": workspace_actions(identity, view, bool(lost)),
        "now": timezone.now(),
    }


def share_rows(identity: Identity, view: WorkspaceView) -> list[dict[str, object]]:
    """The visible pools that use the workspace, each with its actions."""
    here = explain_missing_role(identity, "share_workspace", view.pool_id)
    address = quote(view.path)
    rows: list[dict[str, object]] = []
    for share in view.shares:
        if not identity.may("read", share.pool_id):
            continue
        there = explain_missing_role(identity, "share_workspace", share.pool_id)
        href = f"/workspace/{{}}/{address}/?pool={share.pool}"
        word = "End…" if share.is_allowed else "Decline…"
        actions = [action(word, href.format("unshare"), here if there else "")]
        if not share.is_allowed:
            allow = action("Allow…", href.format("share"), IN_BOTH if here or there else "")
            actions.insert(0, allow)
        rows.append({"share": share, "actions": actions})
    return rows


def line(claim: ClaimView, plans: dict[int, Plan]) -> dict[str, object]:
    plan = plans.get(claim.id)
    took = (claim.changed_at - claim.created_at).total_seconds() if claim.changed_at else 0.0
    return {
        "claim": claim,
        "counts": plan.summary if plan else None,
        "took": took,
    }


def workspace_actions(
    identity: Identity, view: WorkspaceView, is_lost: bool
) -> list[dict[str, object]]:
    role = explain_missing_role(identity, "lock_workspace", view.pool_id)
    settle = "" if may_settle(identity, view) else "This needs the role operator or approver."
    href = f"/workspace/{{}}/{quote(view.path)}/"
    made = [action("Record outcome…", href.format("settle"), settle)] if is_lost else []
    if view.locked_at is not None:
        lost = "Record the outcome of the lost apply first." if is_lost else ""
        made.append(action("Unlock…", href.format("unlock"), role or lost))
    else:
        made.append(action("Lock…", href.format("lock"), role))
    share = explain_missing_role(identity, "share_workspace", view.pool_id)
    made.append(action("Share…", href.format("share"), share))
    run = "" if identity.may_anywhere("claim") else "This needs the role claimant in some pool."
    query = urlencode({"pool": view.pool or "", "workspace": view.name})
    return [*made, action("Run a plan", f"/claims/run/?{query}", run, is_page=True)]
