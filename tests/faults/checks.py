"""Rules that hold after any fault: on rows, promises, the outside, and the output of applies.
Each check raises an AssertionError that names what is wrong.
"""

from collections import Counter
from pathlib import Path

from tests.database.helpers import AUDIT
from tests.end_to_end.stack import Stack
from tests.faults.authors import Diary
from tests.faults.load import Ledger, Promise
from tests.faults.shed import read_world


def audit(stack: Stack) -> dict[str, int]:
    """Violations of the rules about holders, read from the rows alone."""
    return {name: n for name, query in AUDIT.items() if (n := stack.execute(query)[0][0])}


def check_promises(stack: Stack, ledger: Ledger) -> None:
    """Against the rows: every claim that was acknowledged is there, under its key, and as it was
    said to be.
    """
    columns = "id, key, state, outcome, generation, acknowledged_at is not null"
    rows = {row[0]: row[1:] for row in stack.execute(f"select {columns} from claims_claim")}

    def is_true(key: str, promise: Promise) -> bool:
        if promise.claim not in rows:
            return False
        its_key, state, outcome, generation, is_acknowledged = rows[promise.claim]
        return (
            its_key == key
            and (not promise.generation or generation == promise.generation)
            and (not promise.is_acknowledged or is_acknowledged)
            and (not promise.is_released or (state, outcome) == ("ended", "released"))
            and (not promise.is_kept or state == "bound")
        )

    broken = {
        key: (promise, rows.get(promise.claim))
        for key, promise in ledger.promises.items()
        if not is_true(key, promise)
    }
    assert not broken, f"broken promises, and the rows of their claims: {broken}"


def check_world(stack: Stack) -> None:
    """Idle slots are clean outside, and each object outside belongs to the present or the last
    holder of its slot.
    """
    query = """select s.id, s.state, coalesce(s.claim_id, s.last_claim_id),
               s.generation from slots_slot s
               join pools_pool p on p.id = s.pool_id where p.queue <> ''"""
    rows = {row[0]: row[1:] for row in stack.execute(query)}
    for slot, content in read_world().items():
        state, claim, generation = rows[slot]
        assert state != "idle", f"slot {slot} is idle, and outside it is in use by {content}"
        assert content == f"{claim} {generation}" or state == "held", (
            f"slot {slot}, {state} for {claim} {generation}, is {content} outside"
        )


def check_doctor(stack: Stack) -> None:
    report = stack.manage("doctor", "--json")
    assert report.returncode == 0, report.stdout + report.stderr


# -- plans and applies of examples/hello -----------------------------------------------------------


def lines_of(target: Path) -> Counter[int]:
    """How often each claim's apply has begun, by what the applies themselves wrote first of all."""
    return Counter(
        int(line.split()[0])
        for log in target.glob("*/applied.log")
        for line in log.read_text().splitlines()
    )


def applied_twice(target: Path) -> dict[int, int]:
    return {claim: count for claim, count in lines_of(target).items() if count > 1}


def check_ends(stack: Stack, diary: Diary) -> None:
    """Every claim has ended as it was told, or waits for a person."""
    rows = {row[0]: row[1:] for row in stack.execute("select id, state, outcome from claims_claim")}
    open_rows = {
        claim: row for claim, row in rows.items() if row[0] not in ("ended", "reserved", "parked")
    }
    assert not open_rows, f"claims have not ended: {open_rows}"
    others = {
        claim: (outcome, rows[claim])
        for claim, outcome in diary.outcomes.items()
        if rows[claim] != ("ended", outcome)
    }
    assert not others, f"claims did not end as their authors were told: {others}"
    wrong = set(rows) ^ set(diary.asked_at)
    assert not wrong, f"claims without a row, or rows without an author: {sorted(wrong)}"


def check_pages(stack: Stack, diary: Diary, target: Path) -> None:
    """What was applied was written once; what began was approved; what failed says why."""
    begun = lines_of(target)
    applied = {claim for claim, outcome in diary.outcomes.items() if outcome == "applied"}
    wrong = {claim: begun[claim] for claim in applied if begun[claim] != 1}
    assert not wrong, f"applied claims were not written once: {wrong}"
    twice = applied_twice(target)
    assert not twice, f"claims were applied twice: {twice}"
    approved = (
        "select claim_id from claims_plan p where exists (select from claims_approval a where "
        "a.plan_id = p.id and a.is_yes)"
    )
    unapproved = set(begun) - {row[0] for row in stack.execute(approved)}
    assert not unapproved, f"claims were applied without an approval: {sorted(unapproved)}"
    query = "select claim_id, code, reason from claims_run where outcome = 'failed'"
    failed = [row for row in stack.execute(query) if "changed since the plan" not in row[2]]
    assert not failed, f"runs failed for other reasons than a change: {failed}"
