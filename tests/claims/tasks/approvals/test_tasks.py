"""Reports of an agent about its tasks change the claim."""

from typing import Any

import pytest

from claims.lifecycle.cancel import cancel_claim
from claims.lifecycle.chores import check_due_claims, lose_claims
from claims.lifecycle.release import release_claim, release_claims
from claims.tasks.runs.services import ReportedRun, confirm_stopped, lose_runs, start_run
from project.kernel.errors import Conflict, StaleGeneration
from slots.members.liveness import lose_member
from slots.models import Slot
from tests.claims.tasks.approvals.helpers import (
    BOOT,
    again,
    agents,
    applying,
    begin,
    code_of,
    events,
    is_sound,
    member,
    member_of,
    plan_of,
    planned,
    result,
    row,
    run_of,
    serve,
    sql,
    states,
    task,
    tell,
    verbs,
    workspace,
    yes,
)

pytestmark = pytest.mark.usefixtures("tables")


def test_a_task_goes_from_plan_through_approval_to_apply() -> None:
    agents()
    claim = task()
    assert (claim.state, claim.step) == ("bound", "plan")
    begin(claim)
    settled = tell(claim, result(facts={"binary": "tofu", "version": "1.12.6"}))
    assert (settled.state, settled.keep) == ("reserved", True)
    assert states() == {"reserved": 1, "idle": 1}
    plan = plan_of(claim)
    assert (plan.summary["add"], plan.facts["binary"], plan.member_id) == (1, "tofu", member().pk)
    assert yes(claim).state == "bound"
    assert (again(claim).step, again(claim).slots[0].member) == ("apply", "tf-0")
    begin(claim)
    assert tell(claim, result("applied")).outcome == "applied"
    assert again(claim).outcome == "applied"
    assert states() == {"idle": 2}, (
        "its agent has said that nothing runs there: nothing is to be cleaned"
    )
    assert verbs(claim) == ["create", "start", "plan", "reserve", "approve", "start", "applied"]
    assert is_sound()


@pytest.mark.parametrize(
    ("what", "outcome", "ends"),
    [
        ("plan_and_apply", "no_changes", "planned"),
        ("plan", "planned", "planned"),
        ("drift_check", "planned", "planned"),
        ("drift_check", "no_changes", "planned"),
        ("plan_and_apply", "failed", "failed"),
        ("plan_and_apply", "cancelled", "cancelled"),
    ],
)
def test_a_task_that_needs_no_decision_ends_and_frees_its_slot(
    what: str, outcome: str, ends: str
) -> None:
    agents(slots=["any", "plan"], members=1)
    claim = task(what=what)
    begin(claim)
    tell(
        claim,
        result(
            outcome,
            code="exit_code" if outcome == "failed" else "",
            reason="init failed" if outcome == "failed" else "",
        ),
    )
    assert (again(claim).state, again(claim).outcome, states()) == ("ended", ends, {"idle": 2})
    assert run_of(claim).outcome == outcome
    if outcome == "failed":
        assert events("failed")[0].reason == "exit_code: init failed"


def test_drift_checks_of_a_workspace_run_beside_each_other() -> None:
    agents(slots=["any", "plan"], members=1)
    first, second = task(what="drift_check"), task(what="drift_check")
    assert [c.state for c in (first, second)] == ["bound", "bound"]
    assert first.slots[0].lane == "plan"


def test_a_task_is_started_once_by_its_member_and_generation() -> None:
    agents()
    claim = begin(task())
    begin(claim)
    with pytest.raises(Conflict) as refused:
        begin(claim, "another boot")
    assert refused.value.code == "already_started"
    assert verbs(claim) == ["create", "start"]
    with pytest.raises(StaleGeneration):
        start_run(
            claim_id=claim.id, generation=claim.generation - 1, member=member(), boot=BOOT, place=""
        )
    with pytest.raises(Conflict) as refused:
        start_run(
            claim_id=claim.id,
            generation=claim.generation,
            member=member("tf-1"),
            boot=BOOT,
            place="",
        )
    assert refused.value.code == "not_yours"
    assert len(events("refused_agent")) == 1


def test_a_repeated_result_gets_the_same_answer() -> None:
    agents()
    claim = begin(task())
    first = tell(claim, result())
    assert tell(claim, result(), claim.generation) == first
    assert verbs(claim).count("plan") == 1
    with pytest.raises(StaleGeneration):
        tell(claim, result("failed"), claim.generation)
    assert again(claim).state == "reserved", "another word about the same run changes nothing"


def test_a_task_that_was_not_started_can_fail_but_not_succeed() -> None:
    agents()
    claim = task()
    assert code_of(lambda: tell(claim, result())) == "not_started"
    assert again(claim).state == "bound"
    assert (
        tell(claim, result("failed", code="source_failed", reason="no such host")).outcome
        == "failed"
    )
    assert (run_of(claim).code, run_of(claim).reason) == ("source_failed", "no such host")


def test_an_outcome_of_another_step_is_refused() -> None:
    agents()
    claim = begin(task())
    assert code_of(lambda: tell(claim, result("applied"))) == "wrong_outcome"
    assert code_of(lambda: tell(claim, result("plan_again"))) == "wrong_outcome"
    other = applying(workspace="dns")
    assert code_of(lambda: tell(other, result("planned"))) == "wrong_outcome"
    assert len(events("refused_agent")) == 3


def test_a_result_of_another_member_is_refused() -> None:
    agents()
    claim = begin(task())
    assert code_of(lambda: tell(claim, result(), by=member("tf-1"))) == "not_yours"
    assert again(claim).state == "bound"


def test_a_plan_whose_digest_differs_from_its_file_fails() -> None:
    agents()
    claim = begin(task())
    sql("""UPDATE claims_run SET facts = '{"files": {"plan": "x", "plan_digest": "00"}}'""")
    tell(claim, result())
    assert (again(claim).outcome, run_of(claim).code) == ("failed", "plan_differs")
    assert states() == {"idle": 2}, "no slot is kept for nothing"


# -- lost ------------------------------------------------------------------------------------------


def test_a_lost_plan_is_retried_with_growing_waits_five_times() -> None:
    """R7: 5, 10, 20, 40 seconds; five times at most."""
    agents(members=1)
    claim = task()
    waits = []
    for attempt in range(5):
        begin(claim)
        lose_runs(member(), f"another {attempt}", [])
        now = row(claim)
        if now.state == "ended":
            break
        assert (now.state, now.attempts, now.step) == ("blocked", attempt + 1, "plan")
        waits.append(
            round(sql("SELECT extract(epoch FROM due_at - now()) FROM claims_claim")[0][0])
        )
        stop_all()
        sql("UPDATE claims_claim SET due_at = now()")
        check_due_claims()
        serve()
        assert again(claim).state == "bound"
    assert waits == [5, 10, 20, 40]
    assert again(claim).outcome == "lost"


def test_a_reported_plan_resets_the_attempts() -> None:
    agents()
    claim = begin(task())
    lose_runs(member(), "another", [])
    sql("UPDATE claims_claim SET due_at = now()")
    check_due_claims()
    serve()
    assert row(claim).attempts == 1
    begin(claim)
    tell(claim, result())
    assert row(claim).attempts == 0


def test_a_claim_that_backs_off_keeps_its_workspace() -> None:
    agents()
    first, second = begin(task()), task()
    lose_runs(member(), "another", [])
    check_due_claims()
    assert (again(first).state, again(second).state) == ("blocked", "blocked")
    sql("UPDATE claims_claim SET due_at = now() WHERE id = %s", first.id)
    check_due_claims()
    assert (again(first).state, again(second).state) == ("waiting", "blocked")


def test_a_run_unknown_to_a_restarted_agent_is_lost() -> None:
    agents()
    claim = begin(task())
    assert lose_runs(member(), BOOT, []) == 0, "the same start of the agent: it is at work"
    for status in ("running", "finished"):
        told = [ReportedRun(claim.id, claim.generation, status)]
        assert lose_runs(member(), "another", told) == 0
    assert lose_runs(member(), "another", []) == 1
    assert (again(claim).state, run_of(claim).outcome) == ("blocked", "lost")
    assert lose_runs(member(), "another", []) == 0
    assert states() == {"draining": 1, "idle": 1}, (
        "whether a child of it still runs there its agent has to say"
    )


def test_an_agent_cannot_lose_runs_of_another_member() -> None:
    agents()
    claim = begin(task())
    told = [ReportedRun(claim.id, claim.generation, "lost")]
    assert lose_runs(member("tf-1"), "another", told) == 0
    assert again(claim).state == "bound"


def test_an_apply_that_never_ran_goes_first_with_its_approval() -> None:
    """The agent reports that the apply never began, or it never got the order: the apply goes
    first on another member and needs no second approval.
    """
    agents()
    claim = applying()
    told = [ReportedRun(claim.id, claim.generation, "not_started")]
    assert lose_runs(member_of(claim), "another", told) == 1
    now = row(claim)
    assert (now.state, now.step, now.rank, now.approved_plan_id) == (
        "waiting",
        "apply",
        0,
        plan_of(claim).pk,
    )
    assert workspace().locked_at is None
    assert states() == {"idle": 2}
    serve()
    assert again(claim).state == "bound"


def test_an_apply_not_begun_on_a_lost_member_runs_on_another() -> None:
    agents()
    claim = planned(priority=0)
    yes(claim)
    lose_member(member_id=member_of(claim).pk, reason="gone", is_gone=True)
    lose_claims()
    assert (row(claim).state, row(claim).rank) == ("waiting", 0)
    serve()
    assert again(claim).slots[0].member == "tf-1"
    begin(claim)
    tell(claim, result("applied"))
    assert again(claim).outcome == "applied"


def test_an_apply_that_differs_elsewhere_plans_again_with_its_own_rank() -> None:
    agents()
    sql("UPDATE claims_claim SET rank = rank")
    claim = planned()
    sql("UPDATE claims_claim SET rank = 70 WHERE id = %s", claim.id)
    yes(claim)
    lose_member(member_id=member_of(claim).pk, reason="gone", is_gone=True)
    lose_claims()
    serve()
    begin(claim)
    assert row(claim).rank == 0
    settled = tell(
        claim, result("plan_again", code="binary_differs", reason="tofu 1.11 here, 1.12 there")
    )
    assert (settled.state, settled.keep) == ("waiting", False)
    now = row(claim)
    assert (now.step, now.rank, now.approved_plan_id) == ("plan", 70, None)
    assert plan_of(claim).is_stale
    serve()
    begin(claim)
    tell(claim, result(text="another"))
    assert code_of(lambda: yes(claim)) == "plan_changed", "what was said was said of another plan"
    assert yes(claim, text="another").state == "bound"


# -- cancelled -------------------------------------------------------------------------------------


def stop_all() -> None:
    for slot in Slot.objects.filter(state="draining"):
        confirm_stopped(slot.member, [(slot.pk, slot.generation)])


def test_a_cancelled_run_drains_its_slot_until_its_agent_confirms() -> None:
    agents(members=1)
    claim = begin(task())
    assert cancel_claim(claim_id=claim.id, reason="typo").outcome == "cancelled"
    slot = Slot.objects.get()
    assert (slot.state, run_of(claim).outcome) == ("draining", "cancelled")
    assert confirm_stopped(member(), [(slot.pk, slot.generation - 1)]) == 0
    assert confirm_stopped(member(), [(slot.pk, slot.generation)]) == 1
    assert states() == {"idle": 1}
    assert confirm_stopped(member(), [(slot.pk, slot.generation)]) == 0, "said twice it is so once"


def test_another_member_cannot_confirm_that_a_run_stopped() -> None:
    agents()
    claim = begin(task())
    cancel_claim(claim_id=claim.id)
    slot = Slot.objects.get(state="draining")
    assert confirm_stopped(member("tf-1"), [(slot.pk, slot.generation)]) == 0


def test_cancelling_a_task_not_begun_frees_its_slot_at_once() -> None:
    agents(members=1)
    claim = task()
    cancel_claim(claim_id=claim.id)
    assert states() == {"idle": 1}
    with pytest.raises(StaleGeneration):
        start_run(claim_id=claim.id, generation=claim.generation, member=member(), boot=BOOT)


def test_cancelling_a_reserved_plan_frees_its_slot() -> None:
    agents(members=1)
    claim = planned()
    cancel_claim(claim_id=claim.id)
    assert (again(claim).outcome, states(), plan_of(claim).is_stale) == (
        "cancelled",
        {"idle": 1},
        True,
    )


def test_a_result_after_the_cancellation_is_stored_and_changes_nothing() -> None:
    agents()
    claim = begin(task())
    cancel_claim(claim_id=claim.id)
    for _ in range(2):
        with pytest.raises(StaleGeneration):
            tell(claim, result(), claim.generation, member())
    assert [dict(e.data or {})["outcome"] for e in events("stale_report")] == ["planned"], "once"
    assert run_of(claim).facts["report"]["outcome"] == "planned"
    assert again(claim).outcome == "cancelled"


def test_a_task_run_by_an_agent_is_cancelled_and_cannot_be_released() -> None:
    agents()
    claim = begin(task())
    assert (
        code_of(lambda: release_claim(claim_id=claim.id, generation=claim.generation))
        == "run_by_agent"
    )
    answer: Any = release_claims([(claim.id, claim.generation)])[0]
    assert answer.code == "run_by_agent"
    assert again(claim).state == "bound"
