"""An apply that may have begun and did not end is not repeated; its workspace is locked."""

from collections.abc import Callable
from typing import Any

import pytest

from claims.allocation.claim_view import ClaimView
from claims.lifecycle.cancel import cancel_claim, force_release
from claims.lifecycle.chores import check_due_claims, lose_claims
from claims.lifecycle.pool_deletion import delete_pool
from claims.tasks.approvals.lost_apply import resolve_lost_apply
from claims.tasks.runs.services import lose_runs
from claims.workspaces.services import lock_workspace, unlock_workspace
from claims.workspaces.sharing import share_workspace
from project.kernel.errors import Conflict
from slots.members.liveness import lose_member
from tests.claims.tasks.approvals.helpers import (
    again,
    agents,
    applying,
    begin,
    code_of,
    events,
    is_sound,
    member_of,
    pass_time,
    planned,
    result,
    run_of,
    serve,
    sql,
    states,
    task,
    tell,
    workspace,
    ws,
    yes,
)

pytestmark = pytest.mark.usefixtures("tables")


def lose_its_member(claim: ClaimView) -> None:
    lose_member(member_id=member_of(claim).pk, reason="gone")
    lose_claims()


def expire(claim: ClaimView) -> None:
    sql("""UPDATE claims_claim SET spec = spec || '{"hold": 60}' WHERE id = %s""", claim.id)
    pass_time(claim, 61)
    check_due_claims()


WAYS: dict[str, tuple[Callable[[ClaimView], Any], str, str, str]] = {
    "its member is lost": (lose_its_member, "lost", "lost", "was lost while it applied"),
    "its agent forgot it": (
        lambda c: lose_runs(member_of(c), "another", []),
        "lost",
        "lost",
        "was lost while it applied",
    ),
    "cancelled": (
        lambda c: cancel_claim(claim_id=c.id),
        "cancelled",
        "cancelled",
        "was cancelled while it applied",
    ),
    "forced": (
        lambda c: force_release(claim_id=c.id, reason="x"),
        "cancelled",
        "cancelled",
        "was released by force while it applied",
    ),
    "held too long": (expire, "expired", "expired", "was held for too long while it applied"),
    "its pool is deleted": (
        lambda c: delete_pool("tf", cascade=True, reason="x"),
        "cancelled",
        "cancelled",
        "was released by force while it applied: pool tf is deleted",
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_lost_apply_locks_its_workspace_in_every_pool(way: str) -> None:
    agents()
    other = agents("other")
    claim = applying()
    share_workspace(workspace_id=ws("net"), pool_id=other.pk, reason="one network")
    after = task("other")
    act, outcome, run_outcome, words = WAYS[way]
    act(claim)
    assert (again(claim).state, again(claim).outcome, run_of(claim).outcome) == (
        "ended",
        outcome,
        run_outcome,
    )
    found = workspace()
    assert (found.lost_claim_id, found.lock_reason) == (claim.id, f"claim {claim.id} {words}")
    assert again(after).state == "blocked"
    assert run_of(claim).ended_at is not None
    assert [e.data for e in events("apply_lost")] == [{"workspace": "net"}]
    assert is_sound()


@pytest.mark.parametrize("way", WAYS)
def test_an_apply_that_never_began_locks_no_workspace(way: str) -> None:
    agents()
    claim = planned()
    yes(claim)
    WAYS[way][0](claim)
    assert workspace().locked_at is None
    assert events("apply_lost") == []
    if "lost" in way:
        assert again(claim).state == "waiting"


@pytest.mark.parametrize("way", [way for way in WAYS if "pool" not in way])
def test_a_lost_plan_locks_no_workspace(way: str) -> None:
    agents()
    claim = begin(task())
    WAYS[way][0](claim)
    assert workspace().locked_at is None


def test_an_apply_that_ended_by_itself_locks_no_workspace() -> None:
    agents(members=2)
    for outcome in ("applied", "failed"):
        tell(
            applying(workspace=outcome),
            result(outcome, code="" if outcome == "applied" else "exit_code"),
        )
        assert workspace(outcome).locked_at is None


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        ("cancelled", "killed"),
        ("cancelled", ""),
        ("failed", "killed"),
        ("failed", "timeout"),
        ("failed", "out_of_memory"),
        ("failed", "disk_full"),
        ("failed", "provider_crash"),
        ("failed", "state_not_saved"),
    ],
)
def test_an_apply_reported_as_cut_off_locks_its_workspace(outcome: str, code: str) -> None:
    agents()
    claim, after = applying(), task()
    tell(claim, result(outcome, code=code, reason="by SIGKILL"))
    found = workspace()
    assert (again(claim).outcome, found.lost_claim_id) == (outcome, claim.id)
    assert found.lock_reason.startswith(f"claim {claim.id} was cut off while it applied: ")
    assert (again(after).state, states()) == ("blocked", {"idle": 2})


@pytest.mark.parametrize("exit_code", [137, 143, 139])
def test_an_exit_code_of_a_signal_locks_the_workspace(exit_code: int) -> None:
    agents()
    claim = applying()
    tell(claim, result("failed", code="exit_code", exit_code=exit_code))
    assert (again(claim).outcome, workspace().lost_claim_id) == ("failed", claim.id)


def test_an_old_settle_dialog_does_not_settle_a_later_apply() -> None:
    agents()
    first, second = applying(), task()
    lose_its_member(first)
    resolve_lost_apply(workspace_id=ws("net"), what="applied", reason="x", claim=first.id)
    serve()
    tell(begin(second), result())
    yes(second)
    lose_its_member(begin(second))
    assert (
        code_of(
            lambda: resolve_lost_apply(
                workspace_id=ws("net"), what="applied", reason="x", claim=first.id
            )
        )
        == "other_apply"
    )
    assert workspace().lost_claim_id == second.id
    assert (
        resolve_lost_apply(workspace_id=ws("net"), what="applied", reason="x", claim=second.id)
        == second.id
    )


def test_a_cut_off_plan_or_an_apply_not_begun_locks_no_workspace() -> None:
    agents()
    tell(begin(task()), result("failed", code="timeout"))
    claim = planned(workspace="b")
    yes(claim)
    tell(claim, result("failed", code="killed"))
    assert (workspace().locked_at, workspace("b").locked_at) == (None, None)


def test_a_lost_apply_is_settled_with_a_reason_before_the_unlock() -> None:
    agents()
    claim, after = applying(), task()
    lose_its_member(claim)
    with pytest.raises(Conflict) as refused:
        unlock_workspace(workspace_id=ws("net"), reason="x")
    assert (refused.value.code, refused.value.data["claim"]) == ("lost_apply", claim.id)
    assert (
        code_of(lambda: resolve_lost_apply(workspace_id=ws("net"), what="perhaps", reason="x"))
        == "invalid"
    )
    assert (
        code_of(lambda: resolve_lost_apply(workspace_id=ws("net"), what="applied", reason=""))
        == "invalid"
    )
    assert (
        code_of(lambda: resolve_lost_apply(workspace_id=ws("net") + 1, what="applied", reason="x"))
        == "not_found"
    )
    assert resolve_lost_apply(workspace_id=ws("net"), what="applied", reason="I looked") == claim.id
    assert (workspace().locked_at, workspace().lost_claim_id) == (None, None)
    assert run_of(claim).facts["settled"]["what"] == "applied"
    assert (events("settle")[0].claim_id, events("settle")[0].reason) == (claim.id, "I looked")
    assert (
        code_of(lambda: resolve_lost_apply(workspace_id=ws("net"), what="applied", reason="x"))
        == "nothing_lost"
    )
    serve()
    assert again(after).state == "bound", "the next of the workspace goes on"


def test_a_lost_apply_is_recorded_in_a_workspace_that_is_already_locked() -> None:
    agents()
    claim = applying()
    lock_workspace(workspace_id=ws("net"), reason="maintenance")
    lose_its_member(claim)
    found = workspace()
    assert (found.lost_claim_id, found.lock_reason) == (claim.id, "maintenance")
    assert code_of(lambda: unlock_workspace(workspace_id=ws("net"))) == "lost_apply"


def test_a_late_report_of_a_lost_apply_is_stored_and_unlocks_nothing() -> None:
    agents()
    claim = applying()
    holder, generation = member_of(claim), again(claim).generation
    cancel_claim(claim_id=claim.id)
    assert code_of(lambda: tell(claim, result("applied"), generation, holder)) == "stale_generation"
    assert run_of(claim).facts["report"]["outcome"] == "applied"
    assert workspace().lost_claim_id == claim.id
    assert "draining" in states()
