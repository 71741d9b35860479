"""Dialogs that lock, unlock, share and unshare a workspace."""

from urllib.parse import urlencode

from django.http import HttpResponse

from claims.display import claim_class
from claims.lifecycle.pages.claim_dialogs import affected
from claims.states import LIVE
from claims.workspaces.services import lock_workspace, unlock_workspace
from claims.workspaces.sharing import share_workspace, unshare_workspace
from claims.workspaces.web.permissions import (
    existing_workspace,
    pool_to_share,
    pool_to_unshare,
)
from claims.workspaces.web.views import claims_of
from pools.lifecycle.selectors import list_pools
from pools.pages.base import PageRequest, confirm, signed_in
from project.kernel.ui.confirm import ConfirmInput, Done, Field, Question


@signed_in
def lock(request: PageRequest, name: str) -> HttpResponse:
    view = existing_workspace(request.identity, name, "lock_workspace")
    waiting = claims_of(request.identity, view.id, states=("waiting",))
    question = Question(
        title=f"Lock {view.name}",
        verb="Lock",
        intro=(
            "No claim of this workspace starts until it is unlocked. Running claims continue; "
            "waiting claims are blocked."
        ),
        affected=[
            affected(claim, ("waiting", "blocked"), "its position in the queue")
            for claim in waiting
        ],
        nothing=f"The workspace is already locked by {view.locked_by}."
        if view.locked_at is not None
        else "",
    )

    def perform(given: ConfirmInput) -> Done:
        lock_workspace(workspace_id=view.id, reason=given.reason)
        return Done(f"{view.name} is locked.")

    return confirm(request, question, perform, "claims")


@signed_in
def unlock(request: PageRequest, name: str) -> HttpResponse:
    view = existing_workspace(request.identity, name, "lock_workspace")
    blocked = claims_of(request.identity, view.id, states=("blocked",))
    question = Question(
        title=f"Unlock {view.name}",
        verb="Unlock",
        intro=(
            f"Locked by {view.locked_by}: “{view.lock_reason}”. Blocked claims are queued again; "
            "serial claims run one after the other."
        ),
        affected=[affected(claim, ("waiting", "queued"), "") for claim in blocked],
        reason="optional",
        nothing="The workspace is not locked."
        if view.locked_at is None
        else "An apply of this workspace was lost: record its outcome first."
        if view.lost_claim
        else "",
    )

    def perform(given: ConfirmInput) -> Done:
        unlock_workspace(workspace_id=view.id, reason=given.reason)
        return Done(f"{view.name} is unlocked.")

    return confirm(request, question, perform, "claims")


@signed_in
def share(request: PageRequest, name: str) -> HttpResponse:
    """Share a workspace with another pool, as an operator of both."""
    view = existing_workspace(request.identity, name, "share_workspace")
    pools = [
        pool.name
        for pool in list_pools(request.identity.visible_pools())
        if pool.pk != view.pool_id
        and request.identity.may("share_workspace", pool.pk)
        and not any(share.pool_id == pool.pk and share.is_allowed for share in view.shares)
    ]
    chosen = request.GET.get("pool", "")
    question = Question(
        title=f"Share {view.name} with another pool",
        verb="Share",
        intro=f"Claims of that pool that name {view.name} use this workspace: one apply at a time "
        f"in both pools together. Operators of {view.pool} keep control of its lock and of "
        "the outcome of a lost apply.",
        fields=[
            Field(
                "pool",
                "Pool",
                "select",
                chosen if chosen in pools else "",
                options=[(n, n) for n in pools],
                is_needed=True,
            )
        ],
        reason_hint="Recorded in the events of both pools",
        nothing="" if pools else f"You are an operator in no pool other than {view.pool}.",
    )

    def perform(given: ConfirmInput) -> Done:
        pool = pool_to_share(request.identity, view, given.values["pool"])
        share_workspace(workspace_id=view.id, pool_id=pool.pk, reason=given.reason)
        return Done(f"{pool.name} may use {view.name}.")

    return confirm(request, question, perform, "claims")


@signed_in
def unshare(request: PageRequest, name: str) -> HttpResponse:
    """End a share, as an operator of either pool."""
    view = existing_workspace(request.identity, name)
    pool = request.GET.get("pool", "")
    pool_id = pool_to_unshare(request.identity, view, pool)
    live = [
        claim
        for claim in claims_of(request.identity, view.id, states=LIVE)
        if claim.pool_id == pool_id
    ]
    question = Question(
        title=f"End the use of {view.name} by {pool}",
        verb="End use",
        href=f"{request.path}?{urlencode({'pool': pool})}",
        intro=(
            f"New claims of {pool} that name {view.name} use a separate workspace with a separate "
            "lock: make sure that the two do not change the same resources."
        ),
        affected=[
            affected(claim, (claim_class(claim.state), "continues to its end"), "")
            for claim in live
        ],
        is_dangerous=True,
        reason_hint="Recorded in the events of both pools",
    )

    def perform(given: ConfirmInput) -> Done:
        unshare_workspace(workspace_id=view.id, pool_id=pool_id, reason=given.reason)
        return Done(f"{pool} no longer uses {view.name} of {view.pool}.")

    return confirm(request, question, perform, "claims")
