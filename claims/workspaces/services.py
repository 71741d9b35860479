"""Workspaces: each belongs to a pool; one serial claim at a time, and a lock that stops
everything of it.

A workspace is locked before any claim of it is touched. Whoever adds a claim looks at the lock
under the row's own lock, so that it can't be set in between; the partial unique index claim_serial
is the last word.
"""

from typing import Any, NamedTuple

from django.db import transaction

from claims import claims_sql
from claims.allocation.requests.claim_request import WORKSPACE, WORKSPACE_RULE, ClaimRequest
from claims.allocation.requests.resolve import Route
from claims.statements import repeat
from project.kernel.actor import current_actor
from project.kernel.errors import Conflict, FieldError, Invalid, NotFound
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from project.kernel.validation import require_reason

CHUNK = 500


class WorkspaceEntry(NamedTuple):
    """Where a new claim of a workspace begins."""

    workspace: int | None
    state: str
    reason: str
    owner: str = ""  # name of the pool that the workspace belongs to


def enter_workspace(request: ClaimRequest, route: Route) -> WorkspaceEntry:
    """In the transaction that adds the claim, before it does, with its pools locked. The name
    means a workspace of the claim's first pool; every other pool of the claim must be allowed to
    use that workspace."""
    if not request.workspace:
        return WorkspaceEntry(None, "waiting", "")
    first = route.pools[0]
    if first is None or None in route.pools:
        missing = next(
            name for name, pool in zip(route.names, route.pools, strict=True) if pool is None
        )
        text = f"Pool {missing} does not exist yet, and a workspace belongs to a pool."
        raise Invalid(
            fields=[
                FieldError("workspace", text, "Create the pool first, or leave the workspace out.")
            ]
        )
    found = _find_or_add(first.id, first.name, request.workspace)
    for pool in route.found:
        if (
            pool.id != found.pool_id
            and claims_sql.hold_share(workspace=found.id, pool=pool.id) is None
        ):
            text = (
                f"Pool {pool.name} may not use workspace {request.workspace} of the "
                "claim’s first pool."
            )
            raise Conflict(
                text,
                code="workspace_not_shared",
                way_out="An operator of both pools can allow it on the workspace’s page.",
            )
    owner = claims_sql.pool_name(pool=found.pool_id) or ""
    row = (
        claims_sql.hold_workspace(workspace=found.id)
        if request.is_serial
        else claims_sql.share_workspace(workspace=found.id)
    )
    assert row is not None
    if row.is_locked:
        return WorkspaceEntry(
            row.id, "blocked", f"the workspace is locked by {row.locked_by}", owner
        )
    holder = claims_sql.serial_holder(workspace=row.id) if request.is_serial else None
    if holder is not None:
        return WorkspaceEntry(
            row.id, "blocked", f"claim {holder} is under way in the workspace", owner
        )
    return WorkspaceEntry(row.id, "waiting", "", owner)


def add_workspace(*, pool_id: int, name: str) -> int:
    """The workspace that the name means in this pool; made if there is none. So that it can be
    locked before its first claim.
    """
    if not WORKSPACE.fullmatch(name):
        raise Invalid(
            fields=[
                FieldError(
                    "workspace", f"{name[:40]} is not the name of a workspace.", WORKSPACE_RULE
                )
            ]
        )

    def add() -> int:
        with transaction.atomic():
            pool = next(
                (
                    row
                    for row in claims_sql.lock_pools(pools=[pool_id])
                    if row.state in ("pending", "active")
                ),
                None,
            )
            if pool is None:
                raise NotFound(
                    "The pool does not exist.", way_out="Check the name in the list of pools."
                )
            return int(_find_or_add(pool_id, claims_sql.pool_name(pool=pool_id) or "", name).id)

    return repeat(add)


def _find_or_add(pool_id: int, pool_name: str, name: str) -> Any:
    """With the pool locked: whoever allows it to use a workspace of this name waits."""
    values: dict[str, Any] = {"pool": pool_id, "name": name}
    if (own := claims_sql.find_workspace(**values)) is not None:
        return own
    shared = claims_sql.find_shared_workspace(**values)
    if shared is not None:
        if shared.is_allowed:
            return shared
        raise Conflict(
            f"Another pool owns workspace {name} since workspaces belong to pools, and whether "
            f"pool {pool_name} may use it is undecided.",
            code="workspace_undecided",
            way_out="An operator of both pools decides on the workspace’s page.",
        )
    if not claims_sql.adopt_workspace(**values):
        claims_sql.add_workspace(**values)
    found = claims_sql.find_workspace(**values)
    assert found is not None
    return found


def lock_workspace_row(workspace_id: int) -> Any:
    row = claims_sql.lock_workspace_row(workspace=workspace_id)
    if row is None:
        raise NotFound(
            "The workspace does not exist.", way_out="Check the name in the list of workspaces."
        )
    return row


def lock_workspace(*, workspace_id: int, reason: str) -> None:
    """Nothing of it starts until it is unlocked; what holds slots goes on. What waits for it
    leaves its line and adds no demand.
    """
    note = require_reason(reason)

    def lock() -> None:
        with transaction.atomic():
            row = lock_workspace_row(workspace_id)
            if row.is_locked:
                way_out = "Unlock it first to lock it for another reason."
                raise Conflict(
                    f"Workspace {row.name} is already locked by {row.locked_by}: {row.lock_reason}",
                    way_out=way_out,
                )
            claims_sql.set_workspace_lock(workspace=row.id, by=current_actor(), reason=note)
            why = f"workspace {row.name} is locked: {note}"
            while (
                len(
                    claims_sql.block_waiting(
                        CHUNK, workspace=row.id, actor=current_actor(), reason=why
                    )
                )
                == CHUNK
            ):
                pass
            record("lock", pool_id=row.pool_id, reason=note, data={"workspace": row.name})
            publish("claims")

    repeat(lock)


def unlock_workspace(*, workspace_id: int, reason: str = "") -> None:
    def unlock() -> int:
        with transaction.atomic():
            row = lock_workspace_row(workspace_id)
            if not row.is_locked:
                raise Conflict(
                    f"Workspace {row.name} is not locked.", way_out="No action is needed."
                )
            if row.lost_claim_id is not None:
                raise Conflict(
                    f"The apply of claim {row.lost_claim_id} was lost, and nobody has said "
                    "what became of it.",
                    code="lost_apply",
                    way_out=(
                        "Check what the apply changed, then record the outcome: that unlocks "
                        "the workspace."
                    ),
                    claim=row.lost_claim_id,
                )
            claims_sql.set_workspace_lock(workspace=row.id, by="", reason="")
            record(
                "unlock", pool_id=row.pool_id, reason=reason.strip(), data={"workspace": row.name}
            )
            publish("claims")
            return int(row.id)

    free_workspace(repeat(unlock))


def free_workspace(workspace: int) -> bool:
    """What nothing blocks any more stands in line again: plans all together, of the serial ones the
    next. Transactions of their own, after the one that made room: whoever holds a claim never goes
    back to lock a workspace. The finalizer repeats it."""

    def free() -> bool:
        with transaction.atomic():
            claims_sql.lock_workspace(workspace=workspace)
            next_one = claims_sql.promote(workspace=workspace, actor=current_actor())
            freed = claims_sql.free_blocked(CHUNK, workspace=workspace, actor=current_actor())
            if next_one or freed:
                publish("claims", "events")
            return len(freed) == CHUNK

    return repeat(free)
