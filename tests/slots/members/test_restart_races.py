"""Races of a restart and a heartbeat, in both orders. All but one were red without a lock; a
comment names it.
"""

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.db.models import F

from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from slots.members.liveness import mark_back_online, mark_down, record_heartbeat, take_offline
from slots.members.restart import apply_condition, restart_member
from slots.models import Slot
from tests.slots.concurrent_actors import Actor, Gate
from tests.slots.helpers import hold, is_consistent, open_slots

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def pool() -> Pool:
    made = create_pool({"name": "lab", "provider": "local", "members": {"list": ["a"]}})
    Pool.objects.filter(pk=made.pk).update(state="active")
    made.refresh_from_db()
    return made


@pytest.fixture
def member(pool: Pool) -> Member:
    return Member.objects.get(pool=pool)


def fresh(member: Member) -> Any:
    member.refresh_from_db()
    return member.state, member.incarnation


def age(member: Member, seconds: float) -> None:
    Member.objects.filter(pk=member.pk).update(state_at=F("state_at") - timedelta(seconds=seconds))


def test_first_heartbeat_of_a_replaced_incarnation_opens_no_slot(
    pool: Pool, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mark_ready waits for the member's lock and looks at its incarnation again; looked at
    before, the slots opened for a dead one.
    """
    age(member, 300)
    gate = Gate().after(monkeypatch, "slots.members.restart._start_again")
    restarter = gate.stops(lambda: apply_condition(member.pk))
    agent = Actor(lambda: record_heartbeat(member_id=member.pk, incarnation=1)).begin()
    assert agent.until_blocked_or_done() == "blocked"
    gate.open()
    assert restarter.result().action == "restart"
    assert agent.result().state == "creating"
    assert fresh(member) == ("creating", 2)
    assert open_slots(pool) == 0 and is_consistent()


def test_member_whose_first_heartbeat_is_being_handled_is_not_restarted(
    pool: Pool, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """apply_condition decides again under the lock; without that, a member that had just become
    ready was restarted.
    """
    age(member, 300)
    gate = Gate().before(monkeypatch, "slots.members.liveness.make_slots")
    agent = gate.stops(lambda: record_heartbeat(member_id=member.pk, incarnation=1))
    restarter = Actor(lambda: apply_condition(member.pk)).begin()
    assert restarter.until_blocked_or_done() == "blocked"
    gate.open()
    assert agent.result().state == "ready"
    assert restarter.result().action == "stay"
    assert fresh(member) == ("ready", 1)
    assert open_slots(pool) == 3 and is_consistent()


def test_two_finalizers_restart_a_member_once(
    pool: Pool, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second decides again under the lock; without that the incarnation that the first had
    made was skipped, and counted.
    """
    record_heartbeat(member_id=member.pk, incarnation=1)
    mark_down(member_id=member.pk, incarnation=1, reason="its process has ended")
    gate = Gate().after(monkeypatch, "slots.members.restart._start_again")
    first = gate.stops(lambda: apply_condition(member.pk))
    second = Actor(lambda: apply_condition(member.pk)).begin()
    assert second.until_blocked_or_done() == "blocked"
    gate.open()
    assert (first.result().action, second.result().action) == ("restart", "stay")
    member.refresh_from_db()
    assert (member.incarnation, member.restarts) == (2, 1)


def test_concurrent_heartbeat_and_restart_stay_consistent(
    pool: Pool, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the guard of the move would do without the lock: it stayed green."""
    record_heartbeat(member_id=member.pk, incarnation=1)
    take_offline(member_id=member.pk, reason="no heartbeat", next_look=600)
    age(member, 300)
    gate = Gate().after(monkeypatch, "slots.members.restart._start_again")
    restarter = gate.stops(lambda: apply_condition(member.pk))
    agent = Actor(lambda: mark_back_online(member_id=member.pk, reason="heartbeat")).begin()
    assert agent.until_blocked_or_done() == "blocked"
    gate.open()
    restarter.result()
    assert agent.result() == "creating"
    assert fresh(member) == ("creating", 2)
    assert open_slots(pool) == 0 and is_consistent()


def test_person_cannot_restart_a_member_while_a_claim_is_being_bound(
    pool: Pool, member: Member
) -> None:
    """restart_member locks the slots, which waits for the bind, and looks afterwards; looked at
    before, it ended an agent with a task.
    """
    record_heartbeat(member_id=member.pk, incarnation=1)
    gate = Gate()

    def bind_and_wait() -> Any:
        with transaction.atomic():
            held = hold(pool, lane="plan")
            gate.stop_here()
        return held

    binder = gate.stops(bind_and_wait)
    person = Actor(lambda: restart_member(member_id=member.pk, reason="it hangs")).begin()
    assert person.until_blocked_or_done() == "blocked"
    gate.open()
    binder.result()
    with pytest.raises(Exception, match="may be running"):
        person.result()
    assert fresh(member) == ("ready", 1)
    assert Slot.objects.filter(state="held").count() == 1
