"""Workspaces: I43 each workspace belongs to a pool, and the uses by other pools are decided."""

from collections.abc import Iterator

from project.kernel.db.sql import run
from project.kernel.doctor.registry import Finding, check

WITHOUT_POOL = """
SELECT w.name, w.locked_at IS NOT NULL AS is_locked, count(c.id)::int AS claims
  FROM claims_workspace w
LEFT JOIN claims_claim c ON c.workspace_id = w.id WHERE w.pool_id IS NULL GROUP BY w.id
  ORDER BY w.name LIMIT 1000"""

UNDECIDED = """
SELECT w.name, o.name AS owner, p.name AS pool FROM claims_workspaceshare s
  JOIN claims_workspace w ON w.id = s.workspace_id
JOIN pools_pool p ON p.id = s.pool_id LEFT JOIN pools_pool o ON o.id = w.pool_id
WHERE s.allowed_at IS NULL AND p.state <> 'gone' ORDER BY w.name, p.name LIMIT 1000"""


@check(
    "I43",
    "Each workspace belongs to one pool, and other pools need permission by an operator of both",
    "New claims of the other pool in it are refused until an operator decides.",
)
def find_ambiguous() -> Iterator[Finding]:
    for row in run(WITHOUT_POOL, prepare=False):
        detail = (
            f"belongs to no pool, because none of its {row.claims} claims names "
            f"one{'; it is locked' if row.is_locked else ''}"
        )
        yield Finding(
            f"workspace {row.name}",
            detail,
            "The pool of its next claim takes it over.",
        )
    for row in run(UNDECIDED, prepare=False):
        detail = (
            f"belongs to pool {row.owner}, the pool of its last apply; claims of pool "
            f"{row.pool} have used it, too"
        )
        repair = (
            f"An operator of both pools allows or declines the use by {row.pool} on its page: "
            f"/workspaces/{row.owner}/{row.name}/."
        )
        yield Finding(f"workspace {row.owner}/{row.name}", detail, repair)
