"""Workspaces: one serial claim at a time, and a lock that stops everything of it.

A workspace is locked before any claim of it is touched. Whoever adds a claim looks at the lock under the row's own lock, so that it can't
be set in between; the partial unique index claim_serial is the last word.
"""

from typing import NamedTuple

from django.db import transaction

from claims.requests import ClaimRequest
from claims.statements import CLAIMS, repeat
from project.kernel.actor import current_actor
from project.kernel.errors import Conflict, NotFound
from project.kernel.events import record
from project.kernel.hints import hint
from project.kernel.requiring import require_reason

CHUNK = 500


class Place(NamedTuple):
    """Where a new claim of a workspace begins."""

    workspace: int | None
    state: str
    reason: str


def enter_workspace(request: ClaimRequest) -> Place:
    """In the transaction that adds the claim, before it does."""
    if not request.workspace:
        return Place(None, "waiting", "")
    CLAIMS.rows("add_workspace", name=request.workspace)
    row = CLAIMS.one("hold_workspace" if request.is_serial else "share_workspace", name=request.workspace)
    assert row is not None
    if row.is_locked:
        return Place(row.id, "blocked", f"the workspace is locked by {row.locked_by}")
    holder = CLAIMS.value("serial_holder", workspace=row.id) if request.is_serial else None
    if holder is not None:
        return Place(row.id, "blocked", f"claim {holder} is under way in the workspace")
    return Place(row.id, "waiting", "")


def lock_workspace(*, name: str, reason: str) -> None:
    """Nothing of it starts until it is unlocked; what holds slots goes on. What waits for it leaves its line and adds no demand."""
    note = require_reason(reason)

    def lock() -> None:
        with transaction.atomic():
            CLAIMS.rows("add_workspace", name=name)
            row = CLAIMS.one("lock_workspace_row", name=name)
            assert row is not None
            if row.is_locked:
                way_out = "It stays as it is; unlock it first to lock it for another reason."
                raise Conflict(f"Workspace {name} is locked already, by {row.locked_by}: {row.lock_reason}", way_out=way_out)
            CLAIMS.rows("set_workspace_lock", workspace=row.id, by=current_actor(), reason=note)
            why = f"workspace {name} is locked: {note}"
            while len(CLAIMS.rows("block_waiting", CHUNK, workspace=row.id, actor=current_actor(), reason=why)) == CHUNK:
                pass
            record("lock", reason=note, data={"workspace": name})
            hint("claims")

    repeat(lock)


def unlock_workspace(*, name: str, reason: str = "") -> None:
    def unlock() -> int:
        with transaction.atomic():
            row = CLAIMS.one("lock_workspace_row", name=name)
            if row is None:
                raise NotFound(f"There is no workspace {name}.", way_out="Look at the list of workspaces.")
            if not row.is_locked:
                raise Conflict(f"Workspace {name} is not locked.", way_out="Nothing is to be done.")
            if row.lost_claim_id is not None:
                raise Conflict(
                    f"The apply of claim {row.lost_claim_id} was lost, and nobody has said what became of it.",
                    code="lost_apply",
                    way_out="Look at what it did, then settle it: that opens the workspace.",
                    claim=row.lost_claim_id,
                )
            CLAIMS.rows("set_workspace_lock", workspace=row.id, by="", reason="")
            record("unlock", reason=reason.strip(), data={"workspace": name})
            hint("claims")
            return int(row.id)

    free_workspace(repeat(unlock))


def free_workspace(workspace: int) -> bool:
    """What nothing blocks any more stands in line again: plans all together, of the serial ones the next. Transactions of their own, after
    the one that made room: whoever holds a claim never goes back to lock a workspace. The finalizer repeats it."""

    def free() -> bool:
        with transaction.atomic():
            CLAIMS.rows("lock_workspace", workspace=workspace)
            next_one = CLAIMS.rows("promote", workspace=workspace, actor=current_actor())
            freed = CLAIMS.rows("free_blocked", CHUNK, workspace=workspace, actor=current_actor())
            if next_one or freed:
                hint("claims", "events")
            return len(freed) == CHUNK

    return repeat(free)
