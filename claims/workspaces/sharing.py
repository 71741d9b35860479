"""Share a workspace with another pool. An operator of both pools shares it; an operator of either
pool ends the share.
"""

from django.db import transaction

from claims import claims_sql
from claims.statements import repeat
from claims.workspaces.services import lock_workspace_row
from project.kernel.actor import current_actor
from project.kernel.errors import Conflict, NotFound
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from project.kernel.validation import require_reason


def share_workspace(*, workspace_id: int, pool_id: int, reason: str) -> None:
    """Let another pool use the workspace under the same name: one apply at a time in both pools
    together. `Conflict` if the name already means another workspace there.
    """
    note = require_reason(reason)

    def share() -> None:
        with transaction.atomic():
            # New claims of the pool wait for this lock, then find the shared workspace.
            pool = _hold_pool(pool_id)
            row = lock_workspace_row(workspace_id)
            if row.pool_id == pool_id:
                raise Conflict(
                    f"Workspace {row.name} belongs to pool {pool}.",
                    code="own_workspace",
                    way_out="No action is needed.",
                )
            _refuse_if_named(row, pool_id, pool)
            if not claims_sql.add_share(
                workspace=row.id, pool=pool_id, by=current_actor(), reason=note
            ):
                text = f"Pool {pool} may already use workspace {row.name}."
                raise Conflict(text, code="shared_already", way_out="No action is needed.")
            _record_event("share", row, pool_id, pool, note)

    repeat(share)


def unshare_workspace(*, workspace_id: int, pool_id: int, reason: str) -> None:
    """End a share. Live claims of the pool continue to use the workspace; for new claims the name
    means a workspace of their own pool.
    """
    note = require_reason(reason)

    def unshare() -> None:
        with transaction.atomic():
            pool = _hold_pool(pool_id)
            row = lock_workspace_row(workspace_id)
            if not claims_sql.drop_share(workspace=row.id, pool=pool_id):
                raise NotFound(
                    f"Pool {pool} does not use workspace {row.name}.",
                    way_out="Check the shares on the workspace’s page.",
                )
            _record_event("unshare", row, pool_id, pool, note)

    repeat(unshare)


def _hold_pool(pool_id: int) -> str:
    if not claims_sql.hold_pool(pool=pool_id):
        raise NotFound("The pool does not exist.", way_out="Check the name in the list of pools.")
    return str(claims_sql.pool_name(pool=pool_id))


def _refuse_if_named(row: claims_sql.LockWorkspaceRowRow, pool_id: int, pool: str) -> None:
    """`Conflict` if the name already means another workspace in the pool. An unused and unlocked
    workspace of the pool is deleted instead.
    """
    claims_sql.drop_unused_workspace(pool=pool_id, name=row.name)
    shared = claims_sql.find_shared_workspace(pool=pool_id, name=row.name)
    is_taken = claims_sql.find_workspace(pool=pool_id, name=row.name) is not None
    if is_taken or (shared is not None and shared.id != row.id):
        text = f"In pool {pool} the name {row.name} already belongs to another workspace."
        raise Conflict(text, code="name_taken", way_out="Use the workspaces under different names.")


def _record_event(
    verb: str, row: claims_sql.LockWorkspaceRowRow, pool_id: int, pool: str, note: str
) -> None:
    """Record the event for both pools."""
    data = {"workspace": row.name, "pool": pool, "pool_id": pool_id}
    for each in {row.pool_id, pool_id}:
        record(verb, pool_id=each, reason=note, data=data)
    publish("claims", "events")
