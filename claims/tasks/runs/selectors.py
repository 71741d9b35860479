"""Lists of runs, for the API and for pages."""

import json
from typing import Any

from claims.lifecycle import tasks_sql


def list_runs_in(
    workspace_id: int, *, before: int | None = None, limit: int = 50
) -> tuple[list[dict[str, Any]], int | None]:
    """The runs of a workspace, those of the newest claim first, and the `before` of the next
    page.
    """
    rows = tasks_sql.runs_of_workspace(limit, workspace=workspace_id, before=before)
    claims = tasks_sql.claims_of_workspace(limit, workspace=workspace_id, before=before)
    found = [
        {
            "claim": row.claim_id, "generation": row.generation, "step": row.step,
            "member": row.member, "place": row.place, "started_at": row.started_at,
            "ended_at": row.ended_at, "outcome": row.outcome, "code": row.code,
            "reason": row.reason, "requested_by": row.requested_by,
            "settled": None if row.settled is None else json.loads(row.settled),
            "pool_id": row.pool_id,
        }
        for row in rows
    ]  # fmt: skip
    return found, claims[-1].id if len(claims) == limit else None
