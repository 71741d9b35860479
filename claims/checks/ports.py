"""Ports: I44 the parts of a claim cover its slots, I45 a target belongs to one live claim."""

from collections.abc import Iterator

from project.kernel.db.sql import run
from project.kernel.doctor.registry import Finding, check

NOT_COVERED = """
SELECT c.id, c.size, p.count, p.n FROM claims_claim c JOIN (
  SELECT claim_id, sum(count)::int AS count, count(*)::int AS n,
    bool_and(first = before) AS is_in_order
  FROM (SELECT claim_id, count, first,
      coalesce(sum(count) OVER (PARTITION BY claim_id ORDER BY index
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
    FROM claims_claimpart) x GROUP BY claim_id) p ON p.claim_id = c.id
WHERE c.state IN ('bound', 'reserved') AND (p.count <> c.size OR NOT p.is_in_order)
ORDER BY c.id LIMIT 1000"""

NOT_TAKEN = """
SELECT c.id, s.member_id, s.number FROM claims_claim c JOIN slots_slot s ON s.claim_id = c.id
CROSS JOIN LATERAL jsonb_array_elements_text(c.backend->'keys'->s.ordinal::int) AS k(target)
WHERE c.state IN ('bound', 'reserved') AND c.backend IS NOT NULL
  AND NOT EXISTS (SELECT FROM claims_backendtarget b
    WHERE b.pool_id = s.pool_id AND b.target = k.target AND b.claim_id = c.id)
  AND NOT EXISTS (SELECT FROM claims_backendconflict w WHERE w.claim_id = c.id)
ORDER BY c.id LIMIT 1000"""


@check(
    "I44",
    "The parts of a claim cover its slots",
    "A port would be shown, and routed, as another port of its claim.",
)
def find_uncovered_claims() -> Iterator[Finding]:
    for row in run(NOT_COVERED, prepare=False):
        detail = f"{row.n} parts have {row.count} slots, and the claim has {row.size}"
        yield Finding(f"claim {row.id}", detail, "Release the claim, and create it again.")


@check(
    "I45",
    "The target of a port belongs to its claim",
    "Another claim could take the target, and both would be routed there.",
)
def find_targets_without_owner() -> Iterator[Finding]:
    for row in run(NOT_TAKEN, prepare=False):
        detail = f"the backend of port {row.number} is not recorded as a target of the claim"
        yield Finding(f"claim {row.id}", detail, "Set the backend of the claim again.")
