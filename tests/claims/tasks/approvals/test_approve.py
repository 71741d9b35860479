"""Approvals and rejections: by which user, of which plan, how many are needed."""

import pytest
from django.db import IntegrityError

from claims.tasks.approvals.services import (
    ApprovalResult,
    ApprovalVote,
    apply_votes,
    approve_plan,
    reject_plan,
)
from claims.workspaces.services import lock_workspace, unlock_workspace
from project.kernel.errors import BerthError, Conflict, Invalid, NotFound
from tests.claims.helpers import serve
from tests.claims.tasks.approvals.helpers import (
    ANA,
    BEN,
    EVE,
    again,
    agents,
    applying,
    approvals,
    code_of,
    events,
    hexed,
    is_sound,
    known,
    member_of,
    no,
    plan_of,
    planned,
    result,
    row,
    sql,
    states,
    task,
    tell,
    ws,
    yes,
)

pytestmark = pytest.mark.usefixtures("tables")


def test_a_single_approval_is_enough_by_default() -> None:
    agents()
    claim = planned()
    assert yes(claim, comment="looks right") == ApprovalResult("bound", 1, 1)
    said = events("approve")[0]
    assert (said.reason, said.before, said.after) == ("looks right", "reserved", "held")
    assert row(claim).approved_plan_id == plan_of(claim).pk


def test_two_needed_approvals_come_from_two_others() -> None:
    agents(approval={"needed": 2})
    claim = planned()
    assert code_of(lambda: yes(claim, ANA)) == "own_plan"
    assert yes(claim, BEN) == ApprovalResult("reserved", 2, 1)
    assert yes(claim, BEN) == ApprovalResult("reserved", 2, 1), "said twice it counts once"
    assert yes(claim, EVE) == ApprovalResult("bound", 2, 2)
    assert [dict(e.data or {})["given"] for e in events("approval")] == [1, 1]
    assert approvals(claim) == [(BEN, True), (EVE, True)]


def test_an_approval_of_ones_own_plan_follows_the_setting_of_the_pool() -> None:
    agents("a", approval={"needed": 2, "own": True})
    assert yes(planned("a", "one"), ANA).given == 1
    agents("b", approval={"own": False})
    assert code_of(lambda: yes(planned("b", "two"), ANA)) == "own_plan"
    agents("c")
    assert yes(planned("c", "three"), ANA).state == "bound"


def test_a_repeated_approval_applies_a_lowered_number_needed() -> None:
    agents(approval={"needed": 2})
    claim = planned()
    yes(claim)
    sql("""UPDATE pools_pool SET spec = jsonb_set(spec, '{approval,needed}', '1')""")
    assert yes(claim).state == "bound", "the same person again: it is looked at anew"


def test_an_own_approval_stops_counting_when_the_pool_forbids_it() -> None:
    agents(approval={"needed": 2, "own": True})
    claim = planned()
    yes(claim, ANA)
    sql("""UPDATE pools_pool SET spec = jsonb_set(spec, '{approval,own}', 'false')""")
    assert yes(claim, BEN) == ApprovalResult("reserved", 2, 1)
    assert yes(claim, EVE).state == "bound"


def test_an_approval_in_a_freeze_starts_the_apply_after_the_freeze() -> None:
    """R9: enough of them end the deadline; the apply goes first once the freeze is over, where
    its plan is.
    """
    agents()
    claim = planned()
    where = member_of(claim)
    sql("UPDATE pools_pool SET frozen_until = now() + interval '1 h'")
    sql("UPDATE slots_slot SET is_open = false")
    assert yes(claim).state == "waiting"
    serve()
    found = again(claim)
    assert (found.state, found.step, row(claim).rank, row(claim).expires_at) == (
        "waiting",
        "apply",
        0,
        None,
    )
    sql("UPDATE pools_pool SET frozen_until = NULL")
    sql("UPDATE slots_slot SET is_open = true")
    serve()
    assert (again(claim).state, member_of(claim).pk) == ("bound", where.pk)
    assert is_sound()


def test_a_rejection_requires_a_comment_and_is_final() -> None:
    agents(approval={"needed": 2})
    claim = planned()
    yes(claim, BEN)
    with pytest.raises(Invalid):
        no(claim, comment="  ")
    assert no(claim, EVE, comment="wrong region") == ApprovalResult("ended", 2, 1)
    assert (again(claim).outcome, states(), plan_of(claim).is_stale) == (
        "rejected",
        {"idle": 2},
        True,
    )
    assert events("reject")[0].reason == "wrong region"
    assert no(claim, EVE).state == "ended", "said twice it is so once"
    assert is_sound()


def test_an_approver_may_reject_after_approving_while_the_plan_waits() -> None:
    agents(approval={"needed": 2})
    claim = planned()
    yes(claim, BEN)
    no(claim, BEN)
    assert approvals(claim) == [(BEN, False)]


def test_a_second_decider_is_told_who_decided_first_and_when() -> None:
    agents(members=4)
    approved, rejected = planned(workspace="a"), planned(workspace="b")
    yes(approved, BEN)
    no(rejected, BEN, comment="not on a Friday")
    for work, code, words in (
        (lambda: yes(approved, EVE), "approved", "was approved by ben at"),
        (lambda: no(approved, EVE), "approved", "was approved by ben at"),
        (lambda: yes(rejected, EVE), "rejected", "was rejected by ben at"),
        (lambda: no(rejected, EVE), "rejected", "not on a Friday"),
    ):
        with pytest.raises(Conflict) as refused:
            work()
        assert (refused.value.code, words in refused.value.detail, refused.value.data["by"]) == (
            code,
            True,
            BEN,
        )
        assert refused.value.way_out
    assert yes(approved, BEN) == ApprovalResult("bound", 1, 1), (
        "to the one who said it, it is answered as then"
    )
    assert approvals(approved) == [(BEN, True)]


def test_a_claim_without_a_waiting_plan_cannot_be_decided() -> None:
    agents(members=3)
    running, ended = task(workspace="a"), planned(workspace="b")
    sql("UPDATE claims_claim SET expires_at = now() WHERE id = %s", ended.id)
    with pytest.raises(Conflict) as refused:
        yes(running)
    assert (refused.value.code, refused.value.data["state"]) == ("not_pending", "bound")
    with pytest.raises(NotFound):
        approve_plan(claim_id=12345, digest=hexed(), by=known(BEN))
    done = applying(workspace="c")
    tell(done, result("applied"))
    assert code_of(lambda: no(done)) == "approved"


def test_a_decision_after_the_deadline_is_refused_before_the_finalizer_ran() -> None:
    """R3, by the database's clock."""
    agents()
    claim = planned()
    sql("UPDATE claims_claim SET expires_at = now() - interval '1 ms'")
    for work in (lambda: yes(claim), lambda: no(claim)):
        with pytest.raises(Conflict) as refused:
            work()
        assert refused.value.code == "expired"
    assert (again(claim).state, approvals(claim)) == ("reserved", [])


def test_an_approval_counts_only_for_the_digest_that_was_seen() -> None:
    agents()
    claim = planned()
    with pytest.raises(Conflict) as refused:
        yes(claim, text="another plan")
    assert (refused.value.code, refused.value.data["digest"]) == ("plan_changed", hexed())
    assert approve_plan(claim_id=claim.id, digest=hexed().upper(), by=known(BEN)).state == "bound"


def test_a_plan_of_a_locked_workspace_cannot_be_approved() -> None:
    agents(members=1)
    claim = planned()
    lock_workspace(workspace_id=ws("net"), reason="a look at the state")
    with pytest.raises(Conflict) as refused:
        yes(claim)
    assert refused.value.code == "workspace_locked"
    assert "a look at the state" in refused.value.detail
    assert approvals(claim) == []
    unlock_workspace(workspace_id=ws("net"))
    assert yes(claim).state == "bound"


def test_bulk_decisions_succeed_or_fail_each_on_its_own() -> None:
    agents(members=6)
    fine, destroys, gone = (
        planned(workspace="a"),
        planned(workspace="b", summary={"destroy": 1}),
        planned(workspace="c"),
    )
    replaces, refused = planned(workspace="d", summary={"replace": 2}), planned(workspace="e")
    no(gone, EVE)
    found = apply_votes(
        [
            ApprovalVote(fine.id, hexed(), True, known(BEN), "fine"),
            ApprovalVote(destroys.id, hexed(), True, known(BEN)),
            ApprovalVote(gone.id, hexed(), True, known(BEN)),
            ApprovalVote(replaces.id, hexed(), True, known(BEN)),
            ApprovalVote(refused.id, hexed(), False, known(BEN), "no"),
            ApprovalVote(destroys.id, hexed(), False, known(BEN), "no"),
            ApprovalVote(999, hexed(), True, known(BEN)),
            ApprovalVote(replaces.id, hexed(), False, known(BEN), ""),
        ]
    )
    told = [answer.code if isinstance(answer, BerthError) else answer.state for answer in found]
    assert told == [
        "bound",
        "destroys",
        "rejected",
        "destroys",
        "ended",
        "ended",
        "not_found",
        "invalid",
    ]
    assert approvals(replaces) == []


def test_comments_and_bulk_sizes_are_limited() -> None:
    agents()
    claim = planned()
    with pytest.raises(Invalid):
        yes(claim, comment="x" * 501)
    with pytest.raises(Invalid):
        reject_plan(claim_id=claim.id, digest=hexed(), by=known(BEN), comment="x" * 501)
    with pytest.raises(Invalid):
        apply_votes([ApprovalVote(1, "", True, known(BEN))] * 501)


@pytest.mark.usefixtures("committed_tables")
def test_the_database_refuses_an_apply_without_an_approval() -> None:
    """R2: the database refuses a write that bypasses the services."""
    agents()
    task()
    with pytest.raises(IntegrityError, match="claim_apply_approved"):
        sql("UPDATE claims_claim SET step = 'apply'")
