"""Races of member services, in both orders. Each test was red without its lock; a comment names
the lock.
"""

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from project.kernel.errors import Conflict, Invalid
from slots.members.services import (
    add_members,
    cancel_member_removal,
    cordon_member,
    finish_leaving,
    pause_pool,
    remove_member,
    resume_pool,
    uncordon_member,
)
from slots.models import Slot
from tests.slots.concurrent_actors import Actor, Gate
from tests.slots.helpers import give_back, hold, is_consistent, open_slots

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def pool() -> Pool:
    return create_pool({"name": "lab", "slots": 1, "members": {"max": 3, "list": ["a"]}})


@pytest.fixture
def member(pool: Pool) -> Member:
    return Member.objects.get(pool=pool)


def pause(pool: Pool) -> Any:
    return pause_pool(pool_id=pool.pk, until=timezone.now() + timedelta(hours=1), reason="firmware")


def bind_and_wait(pool: Pool, gate: Gate) -> Any:
    """A bind whose transaction stays open until the gate opens."""
    with transaction.atomic():
        held = hold(pool)
        gate.stop_here()
    return held


def test_cordon_waits_for_a_bind_under_way(pool: Pool, member: Member) -> None:
    """close_member waits for the slot's row lock; with SKIP LOCKED in it the slot stayed open
    for its next holder.
    """
    gate = Gate()
    binder = gate.stops(lambda: bind_and_wait(pool, gate))
    cordoner = Actor(lambda: cordon_member(member_id=member.pk, reason="disk")).begin()
    assert cordoner.until_blocked_or_done() == "blocked"
    gate.open()
    claim, _, generation = binder.result()
    cordoner.result()
    assert is_consistent()
    give_back(claim, generation)
    assert open_slots(pool) == 0


def test_bind_does_not_take_slots_that_a_cordon_is_closing(
    pool: Pool, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate().after(monkeypatch, "slots.members.services.align_slots")
    cordoner = gate.stops(lambda: cordon_member(member_id=member.pk, reason="disk"))
    with pytest.raises(AssertionError, match="no slot is free"):
        hold(pool)
    gate.open()
    cordoner.result()
    with pytest.raises(AssertionError, match="no slot is free"):
        hold(pool)
    assert is_consistent()


def test_member_is_not_removed_under_a_bind(pool: Pool, member: Member) -> None:
    """delete_if_empty closes, which waits for the bind, and asks afterwards. Asked before, it
    found the member empty, and a trigger refused.
    """
    gate = Gate()
    binder = gate.stops(lambda: bind_and_wait(pool, gate))
    remover = Actor(lambda: remove_member(member_id=member.pk, reason="sold")).begin()
    remover.until_blocked_or_done()
    gate.open()
    claim, _, generation = binder.result()
    removal = remover.result()
    assert (removal.state, [h.claim_id for h in removal.holders]) == ("ready", [claim])
    assert is_consistent()
    give_back(claim, generation)
    assert finish_leaving(member.pk)


def test_bind_does_not_take_slots_of_a_leaving_member(
    pool: Pool, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate().after(monkeypatch, "slots.members.services.mark_leaving")
    remover = gate.stops(lambda: remove_member(member_id=member.pk, reason="sold"))
    with pytest.raises(AssertionError, match="no slot is free"):
        hold(pool)
    gate.open()
    assert remover.result().state == "gone"
    assert is_consistent()


def test_uncordon_opens_no_slot_in_a_pool_that_is_being_paused(
    pool: Pool, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The locks of pool and of its members; without both the pause closed the slots before they
    were opened, and they stayed open.
    """
    cordon_member(member_id=member.pk, reason="disk")
    gate = Gate().before(monkeypatch, "slots.members.services.align_slots")
    uncordoner = gate.stops(lambda: uncordon_member(member_id=member.pk))
    pauser = Actor(lambda: pause(pool)).begin()
    pauser.until_blocked_or_done()
    gate.open()
    uncordoner.result()
    pauser.result()
    assert (is_consistent(), open_slots(pool)) == (True, 0)


def test_pause_closes_slots_that_are_being_uncordoned(
    pool: Pool, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """lock_member locks the pool first; without it the uncordon read the pool as it was before
    the pause.
    """
    cordon_member(member_id=member.pk, reason="disk")
    gate = Gate().after(monkeypatch, "slots.members.services.align_pool")
    pauser = gate.stops(lambda: pause(pool))
    uncordoner = Actor(lambda: uncordon_member(member_id=member.pk)).begin()
    uncordoner.until_blocked_or_done()
    gate.open()
    pauser.result()
    uncordoner.result()
    assert (is_consistent(), open_slots(pool)) == (True, 0)


def test_resume_does_not_open_slots_that_are_being_cordoned(
    pool: Pool, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The locks of pool and member; without both the resume opened what the cordon had found
    closed already.
    """
    pause(pool)
    gate = Gate().after(monkeypatch, "slots.members.services.align_slots")
    cordoner = gate.stops(lambda: cordon_member(member_id=member.pk, reason="disk"))
    resumer = Actor(lambda: resume_pool(pool_id=pool.pk)).begin()
    resumer.until_blocked_or_done()
    gate.open()
    cordoner.result()
    resumer.result()
    assert (is_consistent(), open_slots(pool)) == (True, 0)


def test_concurrent_adds_never_exceed_the_maximum(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock of the pool; without it there were five of three."""
    gate = Gate().before(monkeypatch, "slots.members.services.add_member_rows")
    first = gate.stops(lambda: add_members(pool_id=pool.pk, declared=["b", "c"]))
    second = Actor(lambda: add_members(pool_id=pool.pk, declared=["d", "e"])).begin()
    second.until_blocked_or_done()
    gate.open()
    first.result()
    with pytest.raises(Invalid, match="of at most 3"):
        second.result()
    assert Member.objects.count() == 3


def test_keep_after_a_committed_removal_is_refused(
    pool: Pool, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock of the member, or that of its pool: without both the keeper brought back
    what had gone.
    """
    claim, _, generation = hold(pool)
    remove_member(member_id=member.pk, reason="sold")
    give_back(claim, generation)
    gate = Gate().before(monkeypatch, "slots.members.services.delete_if_empty")
    settler = gate.stops(lambda: finish_leaving(member.pk))
    keeper = Actor(lambda: cancel_member_removal(member_id=member.pk)).begin()
    keeper.until_blocked_or_done()
    gate.open()
    assert settler.result() is True
    with pytest.raises(Conflict, match="is gone"):
        keeper.result()
    assert is_consistent()


def test_concurrent_pools_with_the_same_name_create_only_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate().after(monkeypatch, "pools.lifecycle.services.record")
    first = gate.stops(lambda: create_pool({"name": "net", "slots": 1}))
    second = Actor(lambda: create_pool({"name": "net", "slots": 1})).begin()
    assert second.until_blocked_or_done() == "blocked"
    gate.open()
    first.result()
    with pytest.raises(Conflict, match="Pool net already exists"):
        second.result()


def test_concurrent_members_on_the_same_ports_add_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pool sees only committed members of the other: the exclusion constraint decides, and
    is told in words.
    """
    layout = {"ports": "30000-30009", "shared": True}
    east, west = (create_pool({"name": name, "slots": layout}) for name in ("east", "west"))
    gate = Gate().after(monkeypatch, "slots.members.services.add_member_rows")
    first = gate.stops(
        lambda: add_members(pool_id=east.pk, declared=[{"name": "x", "external_id": "lb-1"}])
    )
    second = Actor(
        lambda: add_members(
            pool_id=west.pk, declared=[{"name": "y", "external_id": "lb-1", "ports": "30005-30009"}]
        )
    ).begin()
    assert second.until_blocked_or_done() == "blocked"
    gate.open()
    first.result()
    with pytest.raises(Invalid, match="overlaps 30000-30009 of x in pool east"):
        second.result()
    assert Slot.objects.filter(pool=west).count() == 0
