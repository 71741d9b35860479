"""Workspaces: I43 each belongs to a pool, and whether other pools that used it before may go on
is decided.
"""

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
    "Each workspace belongs to one pool, and others use it only once an operator of both allows it",
    "New claims of the other pool in it are refused until that is decided.",
)
def find_ambiguous() -> Iterator[Finding]:
    for row in run(WITHOUT_POOL, prepare=False):
        detail = (
            f"belongs to no pool, because none of its {row.claims} claims says "
            f"which{'; it is locked' if row.is_locked else ''}"
        )
        yield Finding(
            f"workspace {row.name}",
            detail,
            "The first pool in which a claim names it takes it over.",
        )
    for row in run(UNDECIDED, prepare=False):
        detail = (
            f"belongs to pool {row.owner}, that of its last apply; claims of pool "
            f"{row.pool} used it, too"
        )
        repair = (
            f"An operator of both pools allows or declines the use by {row.pool} on its page: "
            f"/workspaces/{row.owner}/{row.name}/."
        )
        yield Finding(f"workspace {row.owner}/{row.name}", detail, repair)
