"""Settle a lost apply. Its workspace stays locked until an approver or operator records how far the
apply came.
"""

import json
from functools import partial

from django.db import transaction

from claims import claims_sql
from claims.lifecycle import tasks_sql
from claims.statements import repeat
from claims.tasks.files.sealed_files import delete_file
from claims.tasks.states.services import resolve_states
from claims.workspaces.services import free_workspace, lock_workspace_row
from project.kernel.actor import current_actor
from project.kernel.errors import Conflict, wrong_field
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from project.kernel.validation import require_reason

SETTLED = {
    "applied": "it was applied",
    "not_applied": "it was not applied",
    "unknown": "the outcome is unknown; the next plan shows the current state",
}


def resolve_lost_apply(
    *, workspace_id: int, what: str, reason: str, claim: int | None = None
) -> int:
    """Records the outcome of the lost apply, unlocks its workspace and returns its claim. `claim`:
    the claim that the caller means; the call fails if another apply was lost since.
    """
    if what not in SETTLED:
        raise wrong_field(
            "what",
            f"{what[:40]} is not a known outcome.",
            f"Use one of {', '.join(SETTLED)}.",
        )
    note = require_reason(reason)
    settled, files = repeat(partial(_resolve, workspace_id, what, note, claim))
    for file in files:
        delete_file(file)
    free_workspace(workspace_id)
    return settled


def _resolve(workspace_id: int, what: str, note: str, meant: int | None) -> tuple[int, list[str]]:
    with transaction.atomic():
        row = lock_workspace_row(workspace_id)
        name, claim = row.name, row.lost_claim_id
        if claim is None:
            way_out = "Unlock it instead." if row.is_locked else "No action is needed."
            raise Conflict(
                f"No apply of workspace {name} is lost.", code="nothing_lost", way_out=way_out
            )
        if meant is not None and meant != claim:
            text = (
                f"The lost apply of workspace {name} is now that of claim {claim}, not of claim "
                f"{meant}."
            )
            raise Conflict(
                text,
                code="other_apply",
                way_out="Check that claim, then record its outcome.",
                claim=claim,
            )
        facts = {"settled": {"what": what, "by": current_actor(), "reason": note}}
        tasks_sql.record_outcome(claim=claim, facts=json.dumps(facts))
        files = resolve_states(row.id, f"the workspace is settled: {SETTLED[what]}")
        claims_sql.set_workspace_lock(workspace=row.id, by="", reason="")
        data = {"workspace": name, "what": what}
        record(
            "settle",
            pool_id=row.pool_id,
            claim_id=claim,
            before="locked",
            after="open",
            reason=note,
            data=data,
        )
        record(
            "unlock",
            pool_id=row.pool_id,
            reason=f"claim {claim}: {SETTLED[what]}",
            data={"workspace": name},
        )
        publish("claims", "events")
        return int(claim), files
