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
        row._asdict() | {"settled": None if row.settled is None else json.loads(row.settled)}
        for row in rows
    ]
    return found, claims[-1].id if len(claims) == limit else None
