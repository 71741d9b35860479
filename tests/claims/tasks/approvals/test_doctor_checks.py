"""The doctor finds and fixes planted faults of tasks and decisions."""

import pytest
from django.core.management import call_command

from claims.lifecycle.cancel import cancel_claim
from project.kernel.discovery import discover
from project.kernel.doctor.registry import Finding, list_checks
from tests.claims.tasks.approvals.helpers import (
    ANA,
    agents,
    applying,
    begin,
    planned,
    result,
    row,
    run_of,
    sql,
    states,
    task,
    tell,
    workspace,
    yes,
)

discover("checks")
pytestmark = pytest.mark.usefixtures("tables")


def find(name: str) -> list[Finding]:
    return [finding for check in list_checks() if check.id == name for finding in check.find()]


def mend(name: str) -> None:
    call_command("doctor", "--repair", name)
    assert find(name) == []


def test_a_healthy_database_has_no_findings() -> None:
    agents(members=8, approval={"hold": "30m"})
    planned(workspace="a")
    begin(task(workspace="b"))
    applying(workspace="c")
    cancel_claim(claim_id=applying(workspace="d").id)
    tell(applying(workspace="e"), result("failed", code="timeout"))
    never = planned(workspace="g")
    yes(never)
    tell(never, result("failed", code="killed"))
    yes(planned(workspace="f"), ANA)
    for name in ("I13", "I14", "I27", "I28"):
        assert find(name) == []


@pytest.mark.parametrize("due", ["NULL", "expires_at + interval '1 h'"])
def test_i14_finds_and_fixes_a_plan_whose_deadline_is_not_checked(due: str) -> None:
    agents()
    claim = planned()
    sql(f"UPDATE claims_claim SET due_at = {due}")
    assert [f.subject for f in find("I14")] == [f"claim {claim.id}"]
    mend("I14")


def test_i27_finds_and_fixes_a_lost_apply_without_a_lock() -> None:
    agents()
    claim = applying()
    cancel_claim(claim_id=claim.id)
    sql("UPDATE claims_workspace SET locked_at = NULL, locked_by = '', lost_claim_id = NULL")
    assert [(f.subject, "cancelled" in f.detail) for f in find("I27")] == [("workspace net", True)]
    mend("I27")
    assert workspace().lost_claim_id == claim.id


def test_i28_finds_and_fixes_a_run_that_never_ended() -> None:
    agents()
    claim = begin(task())
    cancel_claim(claim_id=claim.id)
    sql("UPDATE claims_run SET ended_at = NULL, outcome = ''")
    assert [f.subject for f in find("I28")] == [f"run of claim {claim.id}"]
    mend("I28")
    assert (run_of(claim).outcome, row(claim).outcome) == ("lost", "cancelled")


def test_i13_finds_an_apply_of_an_outdated_plan() -> None:
    agents()
    claim = applying()
    assert find("I13") == []
    sql("UPDATE claims_plan SET is_stale = true")
    assert [f.subject for f in find("I13")] == [f"claim {claim.id}"]
    assert states() == {"held": 1, "idle": 1}
