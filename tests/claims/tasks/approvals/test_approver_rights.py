"""An approval counts only while its approver has the role in the pool."""

import pytest
from django.contrib.auth.models import Group, User

from claims.tasks.approvals.reservations import reserve_parked
from claims.tasks.approvals.services import ApprovalResult
from claims.tasks.plans.selectors import view_plan
from claims.tasks.runs.services import start_run
from pools.access.permissions import APPROVER
from pools.models import Grant, Pool
from pools.roles.services import create_grant, revoke_grant
from project.kernel.errors import Forbidden, StaleGeneration
from tests.claims.tasks.approvals.helpers import (
    ANA,
    BEN,
    BOOT,
    EVE,
    again,
    agents,
    begin,
    code_of,
    events,
    is_sound,
    member_of,
    no,
    planned,
    row,
    run_of,
    serve,
    sql,
    yes,
)

pytestmark = pytest.mark.usefixtures("tables")


def withdraw(name: str) -> None:
    revoke_grant(Grant.objects.get(user__username=name).pk, reason="left the team")


def deactivate(name: str) -> None:
    User.objects.filter(username=name).update(is_active=False)


def forget(name: str) -> None:
    """As an upgrade does with the approval of a deleted user."""
    sql("UPDATE claims_approval SET user_id = NULL WHERE by_user = %s", name)


FAULTS = {
    withdraw: "ben no longer has the role approver in this pool.",
    deactivate: "ben is deactivated.",
    forget: "ben no longer exists.",
}


@pytest.mark.parametrize("lose", FAULTS, ids=lambda lose: lose.__name__)
def test_an_approval_without_the_role_does_not_count_for_the_next(
    lose: object,
) -> None:
    agents(approval={"needed": 2})
    claim = planned()
    assert yes(claim, BEN) == ApprovalResult("reserved", 2, 1)
    lose(BEN)  # type: ignore[operator]
    assert again(claim).approval["given"] == 0  # type: ignore[index]
    assert yes(claim, EVE) == ApprovalResult("reserved", 2, 1), (
        "ben's approval does not count any more"
    )
    found = view_plan(claim.id)
    assert found is not None
    assert [(a.by_user, a.counts, a.why_not) for a in found.approvals] == [
        (BEN, False, FAULTS[lose]),  # type: ignore[index]
        (EVE, True, ""),
    ]
    assert (found.given, again(claim).approval["given"]) == (1, 1)  # type: ignore[index]


def test_an_approval_counts_again_once_the_role_is_back() -> None:
    agents(approval={"needed": 2})
    claim = planned()
    yes(claim, BEN)
    withdraw(BEN)
    create_grant(role=APPROVER, user=User.objects.get(username=BEN), pool=Pool.objects.get())
    assert yes(claim, EVE) == ApprovalResult("bound", 2, 2)


def test_a_role_by_a_group_counts_until_the_user_leaves_it() -> None:
    agents(approval={"needed": 2})
    claim = planned()
    withdraw(BEN)
    team = Group.objects.create(name="team")
    create_grant(role=APPROVER, group=team)
    User.objects.get(username=BEN).groups.add(team)
    assert yes(claim, BEN).given == 1
    User.objects.get(username=BEN).groups.clear()
    assert yes(claim, EVE) == ApprovalResult("reserved", 2, 1)


def test_a_role_in_another_pool_does_not_count() -> None:
    agents(approval={"needed": 2})
    other = agents("other")
    claim = planned()
    yes(claim, BEN)
    withdraw(BEN)
    create_grant(role=APPROVER, user=User.objects.get(username=BEN), pool=other)
    assert yes(claim, EVE) == ApprovalResult("reserved", 2, 1)


def test_a_decision_of_a_user_who_lost_the_role_is_refused() -> None:
    agents()
    claim = planned()
    withdraw(BEN)
    with pytest.raises(Forbidden, match="approver in the pool tf"):
        yes(claim, BEN)
    assert code_of(lambda: no(claim, BEN)) == "forbidden"
    deactivate(EVE)
    assert code_of(lambda: yes(claim, EVE)) == "forbidden"
    assert (again(claim).state, yes(claim, ANA).state) == ("reserved", "bound")


@pytest.mark.parametrize("lose", [withdraw, deactivate], ids=lambda lose: lose.__name__)
def test_an_apply_does_not_start_when_its_approver_lost_the_role(lose: object) -> None:
    agents()
    claim = planned()
    yes(claim)
    lose(BEN)  # type: ignore[operator]
    held = again(claim)
    member = member_of(claim)
    with pytest.raises(StaleGeneration):
        start_run(claim_id=claim.id, generation=held.generation, member=member, boot=BOOT)
    now = again(claim)
    assert (now.state, now.step, now.approval["given"], now.approval["needed"]) == (
        "parked",
        "plan",
        0,
        1,
    )  # type: ignore[index]
    assert (row(claim).approved_plan_id, row(claim).is_seeking, run_of(claim).step) == (
        None,
        True,
        "plan",
    )
    assert row(claim).expires_at is not None
    assert f"0 of 1 approvals count: {FAULTS[lose]}" in events("unapprove")[0].reason  # type: ignore[index]
    assert is_sound()
    assert (reserve_parked(), again(claim).state, member_of(claim).pk) == (
        1,
        "reserved",
        member.pk,
    ), "it has a slot again"
    assert yes(claim, EVE).state == "bound"
    begin(claim)
    assert run_of(claim).step == "apply"


def test_a_queued_apply_does_not_start_when_its_approver_lost_the_role() -> None:
    agents(approval={"hold": "0s"})
    claim = planned()
    assert yes(claim).state == "waiting"
    withdraw(BEN)
    serve()
    with pytest.raises(StaleGeneration):
        begin(claim)
    assert (again(claim).state, row(claim).is_seeking, row(claim).rank) == ("parked", False, 100)


def test_an_approval_counts_for_good_once_the_apply_has_started() -> None:
    agents()
    claim = planned()
    yes(claim)
    begin(claim)
    withdraw(BEN)
    found = view_plan(claim.id)
    assert found is not None
    assert (found.given, [a.why_not for a in found.approvals]) == (1, [""])
    assert begin(claim).state == "bound", "the same start said again"
