"""Restarted members get a new incarnation under the locks and keep their claims. Times are the
database's.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.db.models.functions import Now

from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from project.kernel.errors import BerthError
from project.kernel.models import Event, Operation
from slots.members.chores import restart_unwell
from slots.members.liveness import lose_member, mark_down, record_heartbeat, take_offline
from slots.members.restart import restart_member
from slots.members.services import remove_member
from slots.members.tokens import BadMemberToken, identify_member, issue_token
from slots.models import Slot
from tests.slots.helpers import hold, is_consistent, open_slots

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _stays_consistent() -> Iterator[None]:
    yield
    assert is_consistent()


@pytest.fixture
def pool() -> Pool:
    made = create_pool({"name": "lab", "provider": "local", "members": {"list": ["a"]}})
    Pool.objects.filter(pk=made.pk).update(state="active")
    made.refresh_from_db()
    return made


@pytest.fixture
def member(pool: Pool) -> Member:
    """Started, and its first word was heard."""
    found = Member.objects.get(pool=pool)
    record_heartbeat(member_id=found.pk, incarnation=1)
    found.refresh_from_db()
    return found


def later(member: Member, seconds: float) -> None:
    """As if so much time had passed."""
    ago = timedelta(seconds=seconds)
    Member.objects.filter(pk=member.pk).update(
        state_at=F("state_at") - ago, down_at=F("down_at") - ago
    )


def step(member: Member) -> Member:
    restart_unwell()
    member.refresh_from_db()
    return member


def verbs(member: Member) -> list[str]:
    return list(
        Event.objects.filter(member_id=member.pk, slot_id=None)
        .order_by("id")
        .values_list("verb", flat=True)
    )


def test_member_is_ready_from_its_first_heartbeat(pool: Pool) -> None:
    member = Member.objects.get(pool=pool)
    assert (member.state, open_slots(pool)) == ("creating", 0)
    assert record_heartbeat(member_id=member.pk, incarnation=1).state == "ready"
    assert open_slots(pool) == 3


def test_heartbeat_of_another_incarnation_opens_no_slot(pool: Pool) -> None:
    member = Member.objects.get(pool=pool)
    with pytest.raises(BerthError):
        record_heartbeat(member_id=member.pk, incarnation=2)
    assert Member.objects.get().state == "creating"


def test_ended_member_is_restarted_at_once_and_keeps_its_claims(pool: Pool, member: Member) -> None:
    claim, slot, _ = hold(pool, lane="plan")
    mark_down(member_id=member.pk, incarnation=1, reason="its process has ended")
    member.refresh_from_db()
    assert (member.state, open_slots(pool)) == ("offline", 0)
    step(member)
    assert (member.state, member.incarnation, member.restarts, member.down_at) == (
        "creating",
        2,
        1,
        None,
    )
    assert Slot.objects.get(pk=slot).claim_id == claim
    assert Operation.objects.filter(member_id=member.pk, queue="local", done_at=None).exists()
    record_heartbeat(member_id=member.pk, incarnation=2)
    member.refresh_from_db()
    assert (member.state, open_slots(pool)) == ("ready", 2)
    assert verbs(member) == ["add", "ready", "offline", "restart", "ready"]


def test_silent_member_is_restarted_after_two_minutes(member: Member) -> None:
    take_offline(member_id=member.pk, reason="no heartbeat for 2 min", next_look=600)
    later(member, 119)
    assert step(member).state == "offline"
    later(member, 2)
    assert (step(member).state, member.restarts) == ("creating", 1)


def test_silent_member_with_a_task_is_not_restarted_before_it_is_lost(
    pool: Pool, member: Member
) -> None:
    hold(pool, lane="plan")
    take_offline(member_id=member.pk, reason="no heartbeat for 2 min", next_look=600)
    later(member, 500)
    assert step(member).state == "offline"
    lose_member(member_id=member.pk, reason="offline for 10 min")
    assert step(member).state == "creating"


def test_after_five_restarts_a_member_is_left_to_a_person(member: Member) -> None:
    for restarts, wait in enumerate([0, 60, 120, 240, 480]):
        mark_down(
            member_id=member.pk, incarnation=member.incarnation, reason="its process has ended"
        )
        if wait:
            later(member, wait - 1)
            assert step(member).restarts == restarts
            later(member, 1)
        assert step(member).restarts == restarts + 1
    mark_down(member_id=member.pk, incarnation=member.incarnation, reason="its process has ended")
    step(member)
    later(member, 3600)
    lost = step(member)
    assert (lost.incarnation, lost.state) == (6, "creating")
    assert lost.gave_up_at is not None and lost.lost_at is not None
    assert verbs(member).count("give_up") == verbs(member).count("lose") == 1
    restart_member(member_id=member.pk, reason="the disk is mended")
    member.refresh_from_db()
    assert (member.incarnation, member.restarts, member.gave_up_at) == (7, 0, None)
    record_heartbeat(member_id=member.pk, incarnation=7)
    member.refresh_from_db()
    assert (member.state, member.lost_at) == ("ready", None)


def test_restart_count_is_reset_after_ten_minutes(member: Member) -> None:
    mark_down(member_id=member.pk, incarnation=1, reason="its process has ended")
    record_heartbeat(member_id=step(member).pk, incarnation=2)
    later(member, 599)
    assert step(member).restarts == 1
    later(member, 1)
    assert step(member).restarts == 0


def test_planned_end_does_not_count_as_a_restart(member: Member) -> None:
    mark_down(member_id=member.pk, incarnation=1, reason="it was asked to end", is_planned=True)
    assert (step(member).incarnation, member.restarts) == (2, 0)


def test_down_report_of_an_older_incarnation_is_ignored(member: Member) -> None:
    mark_down(member_id=member.pk, incarnation=1, reason="its process has ended")
    step(member)
    mark_down(member_id=member.pk, incarnation=1, reason="its process has ended")
    member.refresh_from_db()
    assert (member.state, member.down_at) == ("creating", None)


def test_token_of_an_older_incarnation_is_refused(member: Member) -> None:
    secret = issue_token(member_id=member.pk)
    assert identify_member(secret).incarnation == 1
    mark_down(member_id=member.pk, incarnation=1, reason="its process has ended")
    step(member)
    with pytest.raises(BadMemberToken):
        identify_member(secret)


def test_leaving_member_is_not_restarted(pool: Pool, member: Member) -> None:
    hold(pool, lane="plan")
    remove_member(member_id=member.pk, reason="too many")
    mark_down(member_id=member.pk, incarnation=1, reason="its process has ended")
    assert step(member).incarnation == 1


def test_person_cannot_restart_a_member_with_a_task(pool: Pool, member: Member) -> None:
    hold(pool, lane="plan")
    with pytest.raises(BerthError, match="may be running"):
        restart_member(member_id=member.pk, reason="try")
    assert Member.objects.get(pk=member.pk).incarnation == 1


def test_remote_agents_cannot_be_restarted() -> None:
    create_pool({"name": "far", "provider": "agents", "members": {"list": ["x"]}})
    member = Member.objects.get(name="x")
    with pytest.raises(BerthError, match="Berth does not start the agent"):
        restart_member(member_id=member.pk, reason="try")
    Member.objects.filter(pk=member.pk).update(state_at=Now() - timedelta(days=1))
    assert step(member).incarnation == 1


def test_only_members_with_agents_are_considered_for_restart(settings: Any) -> None:
    create_pool({"name": "plain", "slots": 1, "members": {"list": ["x"]}})
    member = Member.objects.get(name="x")
    take_offline(member_id=member.pk, reason="test")
    later(member, 9999)
    assert step(member).state == "offline"
