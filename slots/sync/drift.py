"""The differences between the outside and the rows, as the last looks and syncs recorded them.

The overview, the doctor and the page of a pool show the findings of `list_drift`. Each has its
words: what was found, and what Berth or an operator does about it.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from pools.lifecycle.selectors import list_pools
from pools.models import Pool
from project.kernel.db.sql import run
from slots.sync.slot_drift import KINDS, NAMED, find_kind
from slots.sync.strays import Stray, read_strays

# The conditions on `observed` come first, because most slots have none.
DRIFTED = """
SELECT s.id, p.id AS pool_id, p.name AS pool, m.id AS member_id, m.name AS member, s.lane, s.number,
  s.state, s.claim_id, s.observed->>'presence' AS presence, s.observed->>'problem' AS problem,
  s.observed->'since'->>(CASE WHEN s.observed->>'presence' = 'present' THEN 'problem'
    ELSE 'presence' END) AS since
FROM slots_slot s JOIN pools_member m ON m.id = s.member_id JOIN pools_pool p ON p.id = m.pool_id
WHERE (s.observed->>'presence' IN ('missing', 'foreign', 'orphan') OR s.observed ? 'problem')
  AND m.state IN ('ready', 'offline')
  AND (%(pools)s::bigint[] IS NULL OR p.id = ANY(%(pools)s::bigint[]))
ORDER BY p.name, m.position, m.id, s.number, s.lane LIMIT 1000"""

FOUND = {
    "missing": "claim {claim} holds it, and it is missing outside",
    "problem": "claim {claim} holds it, and it cannot serve: {problem}",
    "orphan": "no claim holds it, and an object of Berth is in its place outside",
    "foreign": "a foreign object is in its place outside",
}
FOREIGN_AND_HELD = "claim {claim} holds it, and a foreign object is in its place outside"
THEN = {
    "missing": "Repair creates it again, in the same place.",
    "problem": "Correct the cause, then repair.",
    "orphan": "Repair removes it, and so does the next change of the member.",
    "foreign": "Never touched. Remove the foreign object there, or cordon the member.",
}
REPAIRED = ("missing", "problem", "orphan")
GONE_FOUND = "exists outside, and its member is gone"
GONE_THEN = "Berth removes it after each look that finds it, unless an agent still runs there."
UNKNOWN_FOUND = "exists outside without a member"
UNKNOWN_THEN = "Never touched. Remove it there, if no newer copy of this database uses it."


@dataclass(frozen=True, slots=True)
class DriftFinding:
    kind: str  # missing, problem, orphan or foreign
    pool: str
    where: str  # lane and number, or the name of an object without a member
    found: str
    then: str  # what Berth or an operator does about it
    since: datetime | None = None  # None: observed by a version that kept no time
    member: str = ""
    member_id: int | None = None
    slot_id: int | None = None  # None: an object without a member
    claim_id: int | None = None

    @property
    def may_repair(self) -> bool:
        return self.slot_id is not None and self.kind in REPAIRED

    @property
    def after_claim(self) -> str:
        """What was found, without the claim that it begins with; empty: no claim holds the slot."""
        start = f"claim {self.claim_id} "
        return self.found.removeprefix(start) if self.found.startswith(start) else ""

    @property
    def sentence(self) -> str:
        if self.slot_id is None:
            return f"{self.where} of {self.pool} has no member"
        return f"{self.where} of {self.member} {NAMED[self.kind]}"


def list_drift(pools: Iterable[Pool] | None = None) -> list[DriftFinding]:
    """Findings in slots, at most 1,000, then objects without a member. `pools` None: all pools."""
    chosen = list(list_pools() if pools is None else pools)
    slots = list_slot_drift(None if pools is None else [pool.pk for pool in chosen])
    return [*slots, *(describe_stray(pool, each) for pool in chosen for each in read_strays(pool))]


def list_slot_drift(pool_ids: Collection[int] | None = None) -> list[DriftFinding]:
    rows = run(
        DRIFTED,
        {"pools": None if pool_ids is None else list(pool_ids)},
        prepare=False,
    )
    found = []
    for row in rows:
        observed = {"presence": row.presence, "problem": row.problem}
        if not (kind := find_kind(row.state, observed)):
            continue  # the slot has changed since it was observed
        found.append(
            DriftFinding(
                kind=kind,
                pool=row.pool,
                where=f"{row.lane} {row.number}",
                found=describe_found(kind, row.claim_id, row.problem),
                then=THEN[kind],
                since=row.since and datetime.fromisoformat(row.since),
                member=row.member,
                member_id=row.member_id,
                slot_id=row.id,
                claim_id=row.claim_id,
            )
        )
    return found


def describe_found(kind: str, claim_id: int | None, problem: object) -> str:
    text = FOREIGN_AND_HELD if kind == "foreign" and claim_id is not None else FOUND[kind]
    return text.format(claim=claim_id, problem=problem)


def describe_stray(pool: Pool, stray: Stray) -> DriftFinding:
    return DriftFinding(
        kind="orphan",
        pool=pool.name,
        where=stray.name,
        found=GONE_FOUND if stray.is_gone else UNKNOWN_FOUND,
        then=GONE_THEN if stray.is_gone else UNKNOWN_THEN,
        since=datetime.fromisoformat(stray.since),
    )


def sort_by_kind(findings: Iterable[DriftFinding]) -> list[DriftFinding]:
    """The worst kind first, else in the order of the list."""
    return sorted(findings, key=lambda each: KINDS.index(each.kind))
