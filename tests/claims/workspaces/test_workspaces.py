"""A workspace runs one plan_and_apply at a time beside plans; a lock blocks all of its claims."""

import pytest

from claims.allocation.claim_view import ClaimView
from claims.lifecycle.cancel import cancel_claim, force_release
from claims.lifecycle.chores import check_due_claims, free_workspaces
from claims.lifecycle.update import prioritise_claim
from claims.workspaces.selectors import get_workspace, list_workspaces
from claims.workspaces.services import lock_workspace, unlock_workspace
from project.kernel.errors import Conflict, Invalid, NotFound
from tests.claims.helpers import again, ask, is_sound, let_go, make_pool, serve, sql, verbs, ws

pytestmark = pytest.mark.usefixtures("tables")


@pytest.fixture(autouse=True)
def _pool(tables: None) -> None:
    make_pool("tf", slots=["any", "plan", "plan"], members=3)


def apply(workspace: str = "net", **more: object) -> ClaimView:
    return ask("tf", task="plan_and_apply", workspace=workspace, **more)


def plan(workspace: str = "net") -> ClaimView:
    return ask("tf", task="plan", workspace=workspace)


def test_a_second_apply_is_blocked_and_names_the_first() -> None:
    first, second = apply(), apply()
    assert (first.state, second.state) == ("bound", "blocked")
    assert second.wait is not None
    assert (second.wait.code, second.wait.blockers, second.wait.place) == (
        "workspace_busy",
        [first.id],
        None,
    )
    assert apply("dns").state == "bound"
    assert [plan().state for _ in range(3)] == ["bound"] * 3, "plans run beside it"
    assert sql("SELECT scale_requested_at FROM pools_pool") == [(None,)], (
        "a blocked claim adds no demand"
    )


def test_the_next_claim_waits_as_soon_as_the_serial_one_ends() -> None:
    first, second, third = apply(), apply(), apply()
    prioritise_claim(claim_id=third.id, priority=5)
    let_go(first)
    assert (again(second).state, again(third).state) == ("blocked", "waiting")
    assert serve() == 1
    assert verbs(third) == ["create", "prioritise", "promote", "bind"]
    force_release(claim_id=third.id, reason="stuck")
    assert again(second).state == "waiting"
    cancel_claim(claim_id=second.id)
    assert apply().state == "bound"


def test_a_waiting_serial_claim_blocks_the_next_one() -> None:
    for i in range(3):
        apply(f"w{i}")
    waiting = apply()
    assert waiting.state == "waiting"
    assert apply().state == "blocked"
    cancel_claim(claim_id=waiting.id)
    assert get_workspace(ws("net")).blocked == 0


def test_a_locked_workspace_blocks_all_of_its_claims() -> None:
    running = apply()
    for i in range(2):
        apply(f"w{i}")
    held_plans = [plan("w9") for _ in range(6)]
    waiting = plan()
    assert waiting.state == "waiting"
    lock_workspace(workspace_id=ws("net"), reason="state is broken")
    assert again(running).state == "bound", "what holds slots goes on"
    assert again(waiting).state == "blocked"
    created = plan()
    assert created.wait is not None
    assert (created.state, created.wait.code) == ("blocked", "workspace_locked")
    assert "state is broken" in created.wait.text
    for claim in held_plans:
        let_go(claim)
    assert serve() == 0
    unlock_workspace(workspace_id=ws("net"), reason="repaired")
    assert serve() == 2
    assert [again(claim).state for claim in (waiting, created)] == ["bound", "bound"]
    assert is_sound()


def test_a_lock_requires_a_reason_and_is_taken_once() -> None:
    net = ws("net", "tf")
    with pytest.raises(Invalid):
        lock_workspace(workspace_id=net, reason="")
    lock_workspace(workspace_id=ws("net"), reason="audit")
    with pytest.raises(Conflict, match="audit"):
        lock_workspace(workspace_id=ws("net"), reason="again")
    assert [(w.name, w.lock_reason) for w in list_workspaces()] == [("net", "audit")]
    unlock_workspace(workspace_id=ws("net"))
    with pytest.raises(Conflict):
        unlock_workspace(workspace_id=ws("net"))
    with pytest.raises(NotFound):
        unlock_workspace(workspace_id=net + 1)


def test_serial_claims_stay_blocked_by_a_lock_when_the_first_ends() -> None:
    first, second = apply(), apply()
    lock_workspace(workspace_id=ws("net"), reason="audit")
    let_go(first)
    assert again(second).state == "blocked"
    unlock_workspace(workspace_id=ws("net"))
    assert again(second).state == "waiting"


def test_the_finalizer_unblocks_claims_that_a_crash_left_blocked() -> None:
    first, second = apply(), apply()
    sql("UPDATE claims_claim SET state = 'blocked' WHERE id = %s", second.id)
    sql(
        """WITH c AS (UPDATE claims_claim SET state = 'ended', outcome = 'released',
           named_generation = generation WHERE id = %s)
           UPDATE slots_slot SET state = 'idle', claim_id = NULL, ordinal = NULL
             WHERE claim_id = %s""",
        first.id,
        first.id,
    )
    assert again(second).state == "blocked"
    free_workspaces()
    assert again(second).state == "waiting"


def test_a_back_off_ends_at_its_time() -> None:
    for i in range(3):
        apply(f"w{i}")
    alone, of_workspace = ask("tf", kind="plan_and_apply"), apply("w9")
    for claim in (alone, of_workspace):
        sql(
            "UPDATE claims_claim SET state = 'blocked', due_at = now() + interval '1 "
            "h' WHERE id = %s",
            claim.id,
        )
    check_due_claims()
    free_workspaces()
    assert [again(claim).state for claim in (alone, of_workspace)] == ["blocked", "blocked"]
    assert again(alone, explain=True).wait.code == "back_off"  # type: ignore[union-attr]
    sql("UPDATE claims_claim SET due_at = now() WHERE state = 'blocked'")
    check_due_claims()
    assert [again(claim).state for claim in (alone, of_workspace)] == ["waiting", "waiting"]
