"""The differences between the outside and the rows, as the last looks and syncs recorded them.

The overview, the doctor and the page of a pool show the findings of `list_drift`. Each has its
words: what was found, and what Berth or an operator does about it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from pools.lifecycle.selectors import LIVE, list_pools
from pools.models import Member, Pool
from project.kernel.db.sql import run
from slots.sync.slot_drift import KINDS, NAMED, find_kind
from slots.sync.stray_orders import name_adopted, read_orders
from slots.sync.strays import Stray, read_strays

# The conditions on `observed` come first, because most slots have none.
DRIFTED = """
SELECT s.id, p.id AS pool_id, p.name AS pool, m.id AS member_id, m.name AS member, s.lane, s.number,
  s.state, s.claim_id, s.observed->>'claim' AS seen_claim,
  s.observed->>'presence' AS presence, s.observed->>'problem' AS problem,
  s.observed->>'changed' AS changed,
  EXISTS (SELECT FROM slots_quarantine q WHERE q.slot_id = s.id) AS is_quarantined,
  s.observed->'since'->>(CASE WHEN s.observed->>'presence' <> 'present' THEN 'presence'
    WHEN s.observed ? 'problem' THEN 'problem' ELSE 'changed' END) AS since
FROM slots_slot s JOIN pools_member m ON m.id = s.member_id JOIN pools_pool p ON p.id = m.pool_id
WHERE (s.observed->>'presence' IN ('missing', 'foreign', 'orphan')
    OR s.observed ?| '{problem,changed}')
  AND m.state IN ('ready', 'offline')
  AND (%(pools)s::bigint[] IS NULL OR p.id = ANY(%(pools)s::bigint[]))
ORDER BY p.name, m.position, m.id, s.number, s.lane LIMIT 1000"""

FOUND = {
    "missing": "claim {claim} holds the slot, and nothing is in its place outside",
    "changed": "claim {claim} holds the slot, and its listener was changed outside: {changed}",
    "problem": "claim {claim} holds the slot, and the object cannot serve it: {problem}",
    "orphan": "no claim holds the slot, and an object of Berth is in its place outside",
    "foreign": "a foreign object is in the place of the slot",
}
EXPECTED = "the slot has a pre-created listener, and nothing is in its place outside"
FOREIGN_AND_HELD = "claim {claim} holds the slot, and a foreign object is in its place"
THEN = {
    "missing": "Repair creates the object again, in the same place.",
    "changed": "Repair makes the listener what the claim wants.",
    "problem": "Correct the cause, then repair.",
    "orphan": "Repair removes the object, and so does the next change of the member.",
    "foreign": "Berth changes no foreign object. Remove it there, or quarantine the slot.",
}
REPAIRED = ("missing", "changed", "problem", "orphan")
GONE_FOUND = "exists outside, and its member is gone"
GONE_THEN = "Berth removes it after each look that finds it, unless an agent still runs there."
UNKNOWN_FOUND = "exists outside without a member"
UNKNOWN_THEN = (
    "Adopt the object as a member, or delete it, unless a newer copy of this database uses it. "
    "Berth leaves it as it is until then."
)
LISTENER_THEN = (
    "Delete the object, unless a newer copy of this database uses it. Berth leaves it as it is "
    "until then."
)
ORDERED_THEN = "{by} has ordered its deletion. Berth tries after each look that finds it."


@dataclass(frozen=True, slots=True)
class DriftFinding:
    kind: str  # missing, changed, problem, orphan or foreign
    pool: str
    where: str  # lane and number, or the name of an object without a member
    found: str
    then: str  # what Berth or an operator does about it
    since: datetime | None = None  # None: observed by a version that kept no time
    member: str = ""
    member_id: int | None = None
    slot_id: int | None = None  # None: an object without a member
    claim_id: int | None = None
    stray_id: int = 0  # of the member that an object without a member names
    is_quarantined: bool = False
    # What a person may order: repair, quarantine, adopt, delete, keep.
    repairs: tuple[str, ...] = ()

    @property
    def may_repair(self) -> bool:
        return "repair" in self.repairs

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
    strays = [(pool, each) for pool in chosen for each in read_strays(pool)]
    adopted = list_adopted(each for _, each in strays)
    return [
        *slots,
        *(describe_stray(pool, each) for pool, each in strays if each.member_id not in adopted),
    ]


def list_adopted(strays: Iterable[Stray]) -> set[int]:
    """Ids of members that objects have become since the last look."""
    ids = [each.member_id for each in strays if each.member_id]
    if not ids:
        return set()
    return set(Member.objects.filter(LIVE, pk__in=ids).values_list("pk", flat=True))


def list_slot_drift(pool_ids: Collection[int] | None = None) -> list[DriftFinding]:
    rows = run(
        DRIFTED,
        {"pools": None if pool_ids is None else list(pool_ids)},
        prepare=False,
    )
    found = []
    for row in rows:
        observed = {
            "presence": row.presence,
            "problem": row.problem,
            "changed": row.changed,
            "claim": row.seen_claim,
        }
        if not (kind := find_kind(row.state, observed)):
            continue  # the slot has changed since it was observed
        if kind == "foreign" and row.is_quarantined and row.claim_id is None:
            continue  # a person, or the pool, has dealt with it
        found.append(
            DriftFinding(
                kind=kind,
                pool=row.pool,
                where=f"{row.lane} {row.number}",
                found=describe_found(kind, row.claim_id, observed),
                then=THEN[kind],
                since=row.since and datetime.fromisoformat(row.since),
                member=row.member,
                member_id=row.member_id,
                slot_id=row.id,
                claim_id=row.claim_id,
                is_quarantined=row.is_quarantined,
                repairs=list_slot_repairs(kind, is_quarantined=row.is_quarantined),
            )
        )
    return found


def list_slot_repairs(kind: str, *, is_quarantined: bool) -> tuple[str, ...]:
    """Quarantine helps against objects that come back; it does not bring a missing one back."""
    repairs = ("repair",) if kind in REPAIRED else ()
    return repairs if is_quarantined else (*repairs, "quarantine")


def describe_found(kind: str, claim_id: int | None, observed: Mapping[str, object]) -> str:
    text = FOUND[kind]
    if kind == "foreign" and claim_id is not None:
        text = FOREIGN_AND_HELD
    elif kind == "missing" and claim_id is None:
        text = EXPECTED
    problem = str(observed.get("problem", "")).rstrip(".")
    return text.format(claim=claim_id, problem=problem, changed=observed.get("changed"))


def describe_stray(pool: Pool, stray: Stray) -> DriftFinding:
    order = read_orders(pool).get(stray.member_id)
    repairs: tuple[str, ...] = ()
    then = GONE_THEN
    if order is not None:
        repairs, then = ("keep",), ORDERED_THEN.format(by=order.by)
        if order.error:
            then = f"{then} The last try failed: {order.error}"
    elif not stray.is_gone and stray.member_id:
        is_whole = name_adopted(pool, stray) is not None
        repairs = ("adopt", "delete") if is_whole else ("delete",)
        then = UNKNOWN_THEN if is_whole else LISTENER_THEN
    return DriftFinding(
        kind="orphan",
        pool=pool.name,
        where=stray.name,
        found=GONE_FOUND if stray.is_gone else UNKNOWN_FOUND,
        then=then,
        since=datetime.fromisoformat(stray.since),
        stray_id=stray.member_id,
        repairs=repairs,
    )


def sort_by_kind(findings: Iterable[DriftFinding]) -> list[DriftFinding]:
    """The worst kind first, else in the order of the list."""
    return sorted(findings, key=lambda each: KINDS.index(each.kind))
