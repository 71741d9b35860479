"""Workspaces. A workspace belongs to a pool, runs one serial claim at a time, and has a lock that
stops all its claims.

The row of a workspace is locked before its claims. A new claim reads the workspace's lock under
this row lock, so the lock cannot be set in between. The partial unique index claim_serial enforces
one serial claim.
"""

from collections.abc import Sequence
from typing import NamedTuple

from django.db import transaction

from claims import claims_sql
from claims.statements import repeat
from claims.workspaces.names import WORKSPACE, WORKSPACE_RULE
from project.kernel.actor import current_actor
from project.kernel.errors import Conflict, NotFound, wrong_field
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from project.kernel.validation import require_reason

CHUNK = 500


class WorkspaceEntry(NamedTuple):
    """The first state of a new claim of a workspace."""

    workspace: int | None
    state: str
    reason: str
    owner: str = ""  # name of the pool that the workspace belongs to


def enter_workspace(
    name: str, pools: Sequence[tuple[str, int | None]], *, is_serial: bool
) -> WorkspaceEntry:
    """Find or add the workspace of a new claim, and decide whether the claim is blocked. `pools`:
    names and ids of the claim's pools. No id: the pool does not exist yet.

    Called in the transaction that adds the claim, with its pools locked. The workspace belongs to
    the claim's first pool; `Conflict` if another pool of the claim may not use it.
    """
    if not name:
        return WorkspaceEntry(None, "waiting", "")
    found: list[tuple[str, int]] = []
    for pool, pool_id in pools:
        if pool_id is None:
            text = f"Pool {pool} does not exist yet, and a workspace belongs to a pool."
            way_out = "Create the pool first, or leave the workspace out."
            raise wrong_field("workspace", text, way_out)
        found.append((pool, pool_id))
    first, first_id = found[0]
    workspace, owner_id = _find_or_add(first_id, first, name)
    for pool, pool_id in found:
        if pool_id != owner_id and claims_sql.hold_share(workspace=workspace, pool=pool_id) is None:
            text = f"Pool {pool} may not use workspace {name} of the claim’s first pool."
            raise Conflict(
                text,
                code="workspace_not_shared",
                way_out="An operator of both pools can allow it on the workspace’s page.",
            )
    owner = claims_sql.pool_name(pool=owner_id or 0) or ""
    row = (
        claims_sql.hold_workspace(workspace=workspace)
        if is_serial
        else claims_sql.share_workspace(workspace=workspace)
    )
    assert row is not None
    reason = f"the workspace is locked by {row.locked_by}" if row.is_locked else ""
    if not reason and is_serial:
        holder = claims_sql.serial_holder(workspace=row.id)
        reason = "" if holder is None else f"claim {holder} of the workspace comes first"
    return WorkspaceEntry(row.id, "blocked" if reason else "waiting", reason, owner)


def add_workspace(*, pool_id: int, name: str) -> int:
    """The id of the pool's workspace with this name. A missing workspace is created, so that it
    can be locked before its first claim.
    """
    if not WORKSPACE.fullmatch(name):
        raise wrong_field(
            "workspace", f"{name[:40]} is not the name of a workspace.", WORKSPACE_RULE
        )

    def add() -> int:
        with transaction.atomic():
            locked = claims_sql.lock_pools(pools=[pool_id])
            if not any(row.state in ("pending", "active") for row in locked):
                raise NotFound(
                    "The pool does not exist.", way_out="Check the name in the list of pools."
                )
            return _find_or_add(pool_id, claims_sql.pool_name(pool=pool_id) or "", name)[0]

    return repeat(add)


def _find_or_add(pool_id: int, pool_name: str, name: str) -> tuple[int, int | None]:
    """The workspace and the pool that owns it. Called with the pool locked, so that no share of a
    workspace with this name is added meanwhile.
    """
    if (own := claims_sql.find_workspace(pool=pool_id, name=name)) is not None:
        return own.id, own.pool_id
    shared = claims_sql.find_shared_workspace(pool=pool_id, name=name)
    if shared is not None:
        if shared.is_allowed:
            return shared.id, shared.pool_id
        raise Conflict(
            f"Workspace {name} belongs to another pool, and no operator has decided whether "
            f"pool {pool_name} may use it.",
            code="workspace_undecided",
            way_out="An operator of both pools decides on the workspace’s page.",
        )
    if not claims_sql.adopt_workspace(pool=pool_id, name=name):
        claims_sql.add_workspace(pool=pool_id, name=name)
    found = claims_sql.find_workspace(pool=pool_id, name=name)
    assert found is not None
    return found.id, found.pool_id


def lock_workspace_row(workspace_id: int) -> claims_sql.LockWorkspaceRowRow:
    row = claims_sql.lock_workspace_row(workspace=workspace_id)
    if row is None:
        raise NotFound(
            "The workspace does not exist.", way_out="Check the name in the list of workspaces."
        )
    return row


def lock_workspace(*, workspace_id: int, reason: str) -> None:
    """Lock a workspace: no claim of it starts until it is unlocked. Running claims continue;
    waiting claims are blocked and add no demand.
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
            block_waiting(row.id, why)
            record("lock", pool_id=row.pool_id, reason=note, data={"workspace": row.name})
            publish("claims")

    repeat(lock)


def block_waiting(workspace_id: int, reason: str) -> None:
    """Block all waiting claims of a workspace that the transaction has locked."""
    full = True
    while full:
        found = claims_sql.block_waiting(
            CHUNK, workspace=workspace_id, actor=current_actor(), reason=reason
        )
        full = len(found) == CHUNK


def unlock_workspace(*, workspace_id: int, reason: str = "") -> None:
    """Unlock a workspace and requeue its blocked claims. `Conflict` while the outcome of a lost
    apply is not recorded.
    """

    def unlock() -> int:
        with transaction.atomic():
            row = lock_workspace_row(workspace_id)
            if not row.is_locked:
                raise Conflict(
                    f"Workspace {row.name} is not locked.", way_out="No action is needed."
                )
            if row.lost_claim_id is not None:
                raise Conflict(
                    f"The apply of claim {row.lost_claim_id} was lost, and its outcome is not "
                    "recorded.",
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
            return row.id

    free_workspace(repeat(unlock))


def free_workspace(workspace: int) -> bool:
    """Requeue the blocked claims that may run now: all plans, and the next serial claim. True:
    there may be more.

    Runs in a transaction of its own after the change that made room, because a workspace is locked
    before its claims. The finalizer repeats it if the process dies in between.
    """

    def free() -> bool:
        with transaction.atomic():
            claims_sql.lock_workspace(workspace=workspace)
            next_one = claims_sql.promote(workspace=workspace, actor=current_actor())
            freed = claims_sql.free_blocked(CHUNK, workspace=workspace, actor=current_actor())
            if next_one or freed:
                publish("claims", "events")
            return len(freed) == CHUNK

    return repeat(free)
