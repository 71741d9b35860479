"""A reserved plan waits until its deadline, with or without a slot, and people are reminded."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail

from claims.lifecycle.chores import check_due_claims
from claims.lifecycle.policy import PendingApproval, PendingCheck, check_pending_approval
from claims.tasks.approvals.reservations import extend_reservation
from project.kernel.models import Operation
from project.kernel.outbox.operations import perform_due
from tests.claims.tasks.approvals.helpers import (
    again,
    agents,
    begin,
    code_of,
    events,
    is_sound,
    no,
    pass_time,
    plan_of,
    planned,
    result,
    row,
    serve,
    sql,
    states,
    task,
    tell,
    verbs,
    yes,
)

HOUR, DAY = 3600.0, 86400.0
M = 60.0


def waits(left: float, waited: float = 0.0, **more: Any) -> PendingApproval:
    usual: dict[str, Any] = {
        "notice": 2 * HOUR,
        "is_notified": False,
        "is_reserved": True,
        "is_seeking": False,
        "hold": None,
    }
    return PendingApproval(left=left, waited=waited, **usual | more)


@pytest.mark.parametrize(
    ("pending", "look"),
    [
        (waits(1 * M, is_notified=True), PendingCheck("", 1 * M)),  # 23:59
        (waits(-1 * M), PendingCheck("expire")),  # 24:01
        (waits(0), PendingCheck("expire")),
        (waits(DAY), PendingCheck("", DAY - 2 * HOUR)),
        (waits(2 * HOUR), PendingCheck("notify")),
        (waits(HOUR), PendingCheck("notify")),
        (waits(HOUR, is_notified=True), PendingCheck("", HOUR)),
        (waits(HOUR, notice=0.0), PendingCheck("", HOUR)),
        (waits(DAY, hold=1800.0), PendingCheck("", 1800.0)),
        (waits(DAY, 1800.0, hold=1800.0), PendingCheck("park")),
        (waits(DAY, 1799.0, hold=1800.0), PendingCheck("", 1.0)),
        (waits(DAY, 1800.0, hold=1800.0, is_reserved=False), PendingCheck("", DAY - 2 * HOUR)),
        (
            waits(DAY, 1800.0, hold=1800.0, is_reserved=False, is_seeking=True),
            PendingCheck("stop_seeking"),
        ),
        (
            waits(DAY, 10.0, hold=1800.0, is_reserved=False, is_seeking=True),
            PendingCheck("", 1790.0),
        ),
        (waits(DAY, DAY, hold=0.0), PendingCheck("park")),  # the pool has changed its mind
        (waits(-1, DAY, hold=0.0), PendingCheck("expire")),
        (waits(HOUR, DAY, hold=1800.0, is_reserved=False), PendingCheck("notify")),
    ],
)
def test_a_pending_plan_expires_notifies_or_gives_up_its_slot(
    pending: PendingApproval, look: PendingCheck
) -> None:
    assert check_pending_approval(pending) == look


def look() -> None:
    for _ in range(4):
        check_due_claims()


@pytest.mark.usefixtures("tables")
class TestTime:
    def test_a_plan_expires_after_a_day_by_default(self) -> None:
        agents()
        claim = planned()
        assert sql("SELECT expires_at - reserved_at FROM claims_claim") == [(timedelta(days=1),)]
        look()
        pass_time(claim, DAY - 60)
        look()
        assert again(claim).state == "reserved"
        pass_time(claim, 120)
        look()
        assert (again(claim).outcome, states(), plan_of(claim).is_stale) == (
            "expired",
            {"idle": 2},
            True,
        )
        assert events("expire")[0].reason == "not approved or rejected in time"
        assert code_of(lambda: yes(claim)) == "expired"
        assert code_of(lambda: no(claim)) == "expired"
        assert is_sound()

    def test_an_expired_plan_lets_the_next_claim_of_its_workspace_start(self) -> None:
        agents()
        first, second = planned(), task()
        assert again(second).state == "blocked"
        pass_time(first, DAY)
        look()
        serve()
        assert again(second).state == "bound"

    def test_people_are_mailed_once_before_a_plan_expires(self, settings: Any) -> None:
        settings.BERTH_MAIL = "smtp://mail"
        settings.BERTH_URL = "https://berth.example"
        User.objects.create_user("ana", "ana@example.org")
        agents(approval={"expires": "10h", "notice": "1h"})
        claim = planned()
        pass_time(claim, 8.9 * HOUR)
        look()
        assert events("expire_soon") == []
        pass_time(claim, 0.2 * HOUR)
        look()
        look()
        assert len(events("expire_soon")) == 1
        perform_due("default")
        perform_due("default")
        assert [(m.to, m.subject) for m in mail.outbox] == [
            (["ana@example.org"], "net waits for an approval")
        ]
        assert f"https://berth.example/claims/{claim.id}/" in mail.outbox[0].body

    def test_no_mail_is_sent_without_a_server_or_after_the_decision(self, settings: Any) -> None:
        agents(approval={"expires": "10h", "notice": "1h"}, members=3)
        pass_time(planned(workspace="a"), 9.5 * HOUR)
        look()
        assert not Operation.objects.filter(kind="mail_notice").exists()
        settings.BERTH_MAIL = "smtp://mail"
        claim = planned(workspace="b")
        pass_time(claim, 9.5 * HOUR)
        look()
        no(claim)
        perform_due("default")
        assert mail.outbox == []
        assert Operation.objects.filter(kind="mail_notice", done_at=None).count() == 0

    def test_an_extension_requires_a_reason_and_renews_the_notice(self) -> None:
        agents(approval={"expires": "10h", "notice": "1h"})
        claim = planned()
        pass_time(claim, 9.5 * HOUR)
        look()
        later = extend_reservation(claim_id=claim.id, seconds=2 * HOUR, reason="away")
        look()
        assert (later.state, len(events("expire_soon")), events("extend")[0].reason) == (
            "reserved",
            1,
            "away",
        )
        assert sql(
            "SELECT round(extract(epoch FROM expires_at - reserved_at) / 360) FROM claims_claim"
        ) == [(120,)]
        pass_time(claim, 2 * HOUR)
        look()
        assert (again(claim).state, len(events("expire_soon"))) == ("reserved", 2)
        pass_time(claim, HOUR)
        look()
        assert again(claim).outcome == "expired"
        assert (
            code_of(lambda: extend_reservation(claim_id=claim.id, seconds=60, reason="late"))
            == "not_pending"
        )

    def test_an_extension_is_limited_and_refused_after_the_end(self) -> None:
        agents()
        claim = planned()
        assert (
            code_of(lambda: extend_reservation(claim_id=claim.id, seconds=29.5 * DAY, reason="x"))
            == "too_far"
        )
        assert (
            code_of(lambda: extend_reservation(claim_id=claim.id, seconds=60, reason=""))
            == "invalid"
        )
        assert (
            code_of(lambda: extend_reservation(claim_id=claim.id, seconds=-60, reason="x"))
            == "invalid"
        )
        sql("UPDATE claims_claim SET expires_at = now()")
        assert (
            code_of(lambda: extend_reservation(claim_id=claim.id, seconds=60, reason="x"))
            == "expired"
        )
        assert events("extend") == []


@pytest.mark.usefixtures("tables")
class TestHold:
    def test_a_pool_without_a_hold_parks_plans_and_queues_approved_applies(self) -> None:
        agents(approval={"hold": "0s"})
        claim = task()
        begin(claim)
        settled = tell(claim, result())
        assert (settled.state, settled.keep, states()) == ("parked", True, {"idle": 2})
        assert sql(
            "SELECT expires_at - reserved_at = interval '1 day', is_seeking FROM claims_claim"
        ) == [(True, False)]
        look()
        serve()
        assert again(claim).state == "parked", "it gets a slot once it is approved"
        assert yes(claim).state == "waiting"
        serve()
        now = row(claim)
        assert (now.state, now.step, now.rank, now.spec["rank"]) == ("bound", "apply", 0, 100)
        assert is_sound()

    def test_a_held_slot_is_given_up_after_the_hold_and_the_apply_goes_first(self) -> None:
        agents(members=1, approval={"hold": "30m"})
        claim = planned()
        pass_time(claim, 29 * M)
        look()
        assert again(claim).state == "reserved"
        pass_time(claim, 2 * M)
        look()
        assert (again(claim).state, states(), events("park")[0].reason) == (
            "parked",
            {"idle": 1},
            "its pool keeps a slot for 30 min at most",
        )
        others = [task(workspace=f"w{i}", priority=0) for i in range(3)]
        assert again(others[0]).state == "bound"
        yes(claim)
        begin(others[0])
        tell(others[0], result("failed"))
        serve()
        assert (again(claim).state, again(others[1]).state) == ("bound", "waiting"), (
            "approved work goes first"
        )

    def test_the_deadline_of_a_parked_plan_continues(self) -> None:
        agents(approval={"hold": "30m"})
        claim = planned()
        pass_time(claim, HOUR)
        look()
        pass_time(claim, 22.9 * HOUR)
        look()
        assert (again(claim).state, len(events("expire_soon"))) == ("parked", 1)
        pass_time(claim, HOUR)
        look()
        assert (again(claim).outcome, plan_of(claim).is_stale) == ("expired", True)

    def test_approvals_of_a_parked_plan_are_kept_until_enough_are_given(self) -> None:
        agents(approval={"hold": "0s", "needed": 2})
        claim = planned()
        assert (yes(claim, "ben").state, yes(claim, "eve").state) == ("parked", "waiting")

    def test_a_parked_plan_can_be_rejected(self) -> None:
        agents(approval={"hold": "0s"})
        claim = planned()
        no(claim)
        assert (again(claim).outcome, verbs(claim)[-1]) == ("rejected", "reject")
