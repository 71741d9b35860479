"""Workspaces: what runs in one, who waits for it, what it went through, its lock, and what became of an apply that was lost."""

from typing import Any
from urllib.parse import quote

from django.http import HttpResponse
from django.template.loader import render_to_string
from django.utils import timezone

from claims.answers import ClaimView
from claims.display import claim_class, claim_word
from claims.models import Plan, Workspace
from claims.pages.claims import scope_of
from claims.pages.questions import affected
from claims.pages.rescued import rescued_of_workspace
from claims.selectors import ClaimFilter, WorkspaceView, get_workspace, list_claims, list_workspaces, view_claims
from claims.services.workspaces import lock_workspace, unlock_workspace
from pools.access import Identity, require
from pools.pages import frame, page, signed_in, why_not
from project.kernel.dialogs import Done, Given, Question, ask
from project.kernel.errors import NotFound
from project.kernel.regions import ANY, Opened, region

PAGE = 50
LISTED = 200


def may_read(identity: Identity) -> bool:
    """A workspace belongs to no pool. Who reads some pool sees of it what they may see there."""
    return identity.may_anywhere("read")


def claims_of(
    identity: Identity, name: str, *, states: tuple[str, ...] | None = None, before: int | None = None, limit: int = PAGE
) -> list[ClaimView]:
    visible = identity.visible_pools()
    wanted = ClaimFilter(visible=None if visible is None else frozenset(visible), workspace=name, states=states)
    return list_claims(wanted, before=before, limit=limit, explain=states is not None)


def visible_workspace(identity: Identity, name: str) -> WorkspaceView:
    """One of which somebody sees no claim is not there for them, unless they see every pool."""
    found = get_workspace(name)
    if identity.visible_pools() is None or claims_of(identity, name, limit=1):
        return found
    raise NotFound(f"There is no workspace {name}.", way_out="Look at the list of workspaces.")


@signed_in
def show_workspaces(request: Any) -> HttpResponse:
    text = request.GET.get("q", "").strip()[:120]
    return page(request, "pages/workspaces.html", "claims", query=text)


@signed_in
def show_workspace(request: Any, name: str) -> HttpResponse:
    visible_workspace(request.identity, name)
    before = request.GET.get("before", "")
    return page(request, "pages/workspace.html", "claims", name=name, argument=f"{before if before.isdecimal() else ''}:{name}")


@region("workspaces")
def open_list(identity: Identity, argument: str) -> Opened | None:
    if not may_read(identity):
        return None
    _, scope = scope_of(identity)

    def render() -> str:
        found = list_workspaces(text=argument, limit=LISTED)
        if identity.visible_pools() is not None:
            found = [view for view in found if claims_of(identity, view.name, limit=1)]
        running = {claim.id: claim for claim in view_claims([view.running for view in found if view.running])}
        rows = [(view, shown(identity, running.get(view.running or 0))) for view in found]
        rows.sort(key=lambda row: (row[0].locked_at is None, row[0].live == 0, row[0].name))
        return render_to_string("regions/workspaces.html", {"rows": rows, "query": argument, "now": timezone.now(), "most": LISTED})

    return Opened(f"workspaces:{argument}" if argument else "workspaces", f"workspaces:{argument}|{scope}", frozenset({ANY}), render, 2.0)


def shown(identity: Identity, claim: ClaimView | None) -> tuple[ClaimView, str, str] | None:
    if claim is None or not identity.may("read", claim.pool_id):
        return None
    css = claim_class(claim.state, outcome=claim.outcome, step=claim.step)
    return claim, css, claim_word(claim.state, outcome=claim.outcome, step=claim.step)


@region("workspace")
def open_workspace(identity: Identity, argument: str) -> Opened | None:
    before, _, name = argument.partition(":")
    try:
        visible_workspace(identity, name)
    except NotFound:
        return None
    _, scope = scope_of(identity)

    def render() -> str:
        return render_to_string("regions/workspace.html", context(identity, name, int(before) if before.isdecimal() else None))

    return Opened(f"workspace:{argument}", f"workspace:{argument}|{scope}", frozenset({ANY}), render, 1.0)


def context(identity: Identity, name: str, before: int | None) -> dict[str, Any]:
    view = get_workspace(name)
    row = Workspace.objects.get(name=name)
    lost = view_claims([row.lost_claim_id])[0:1] if row.lost_claim_id else []
    live = claims_of(identity, name, states=("waiting", "blocked", "bound", "reserved", "parked"), limit=PAGE)
    live.sort(key=lambda claim: (claim.state in ("waiting", "blocked"), claim.state == "blocked", claim.rank, claim.id))
    past = claims_of(identity, name, states=("ended",), before=before, limit=PAGE + 1)
    plans = {plan.claim_id: plan for plan in Plan.objects.filter(claim_id__in=[c.id for c in (*live, *past)]).order_by("pk")}
    return {
        "name": name,
        "view": view,
        "lost": lost[0] if lost else None,
        "rescued": rescued_of_workspace(identity, row.pk),
        "live": [line(claim, plans) for claim in live],
        "past": [line(claim, plans) for claim in past[:PAGE]],
        "more": past[PAGE - 1].id if len(past) > PAGE else None,
        "actions": workspace_actions(identity, view, bool(lost)),
        "now": timezone.now(),
    }


def line(claim: ClaimView, plans: dict[int, Plan]) -> dict[str, Any]:
    plan = plans.get(claim.id)
    css = claim_class(claim.state, outcome=claim.outcome, step=claim.step)
    took = (claim.changed_at - claim.created_at).total_seconds() if claim.changed_at else 0.0
    return {
        "claim": claim,
        "css": css,
        "word": claim_word(claim.state, outcome=claim.outcome, step=claim.step),
        "counts": plan.summary if plan else None,
        "took": took,
    }


def workspace_actions(identity: Identity, view: WorkspaceView, is_lost: bool) -> list[dict[str, Any]]:
    role = why_not(identity, "lock_workspace", None)
    settle = "" if may_settle(identity) else "This needs the role operator or approver."
    locked = view.locked_at is not None
    address = quote(view.name)
    found = []
    if is_lost:
        found.append(("Say what happened…", "settle", settle, False))
    if locked:
        found.append(("Unlock…", "unlock", role or ("Say first what happened to the lost apply." if is_lost else ""), False))
    else:
        found.append(("Lock…", "lock", role, False))
    made = [
        {"word": word, "href": f"/workspace/{action}/{address}/", "why": why, "is_dangerous": danger, "is_page": False}
        for word, action, why, danger in found
    ]
    run = "" if identity.may_anywhere("claim") else "This needs the role claimant in some pool."
    return [
        *made,
        {"word": "Run a plan", "href": f"/claims/run/?workspace={address}", "why": run, "is_dangerous": False, "is_page": True},
    ]


def may_settle(identity: Identity) -> bool:
    return identity.may_anywhere("claim_any") or identity.may_anywhere("decide")


# -- questions ----------------------------------------------------------------------------------------------------------------------------


@signed_in
def lock(request: Any, name: str) -> HttpResponse:
    require(request.identity, "lock_workspace", None)
    waiting = claims_of(request.identity, name, states=("waiting",))
    locked = Workspace.objects.filter(name=name, locked_at__isnull=False).first()
    question = Question(
        title=f"Lock {name}",
        verb="Lock",
        href=request.path,
        intro="Nothing of it starts until it is unlocked. What runs goes on; what waits leaves its line and comes back.",
        affected=[affected(claim, ("waiting", "blocked"), "its place in line") for claim in waiting],
        nothing=f"It is locked already, by {locked.locked_by}." if locked else "",
    )

    def perform(given: Given) -> Done:
        lock_workspace(name=name, reason=given.reason)
        return Done(f"{name} is locked.")

    return ask(request, question, perform, frame(request, "claims"))


@signed_in
def unlock(request: Any, name: str) -> HttpResponse:
    require(request.identity, "lock_workspace", None)
    view = get_workspace(name)
    row = Workspace.objects.get(name=name)
    blocked = claims_of(request.identity, name, states=("blocked",))
    question = Question(
        title=f"Unlock {name}",
        verb="Unlock",
        href=request.path,
        intro=f"Locked by {view.locked_by}: “{view.lock_reason}”. What was blocked stands in line again, serial ones one after the other.",
        affected=[affected(claim, ("waiting", "in line"), "") for claim in blocked],
        reason="optional",
        nothing="It is not locked."
        if view.locked_at is None
        else "An apply of it was lost: say first what happened."
        if row.lost_claim_id
        else "",
    )

    def perform(given: Given) -> Done:
        unlock_workspace(name=name, reason=given.reason)
        return Done(f"{name} is unlocked.")

    return ask(request, question, perform, frame(request, "claims"))
