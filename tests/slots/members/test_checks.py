"""The doctor's checks of members and slots find planted faults and repair them where allowed;
long-gone rows are deleted.
"""

from typing import Any

import pytest
from django.db import connection

from pools.lifecycle.services import create_pool
from pools.models import Heartbeat, Member, Pool
from project.kernel.doctor.registry import Finding
from slots.doctor.checks import (
    find_not_observed,
    find_old_timers,
    find_too_many,
    find_wrong_places,
    find_wrongly_open,
    list_operation_limits,
)
from slots.members.chores import delete_gone_members
from slots.members.liveness import record_heartbeat
from slots.members.services import cordon_member, remove_member
from slots.models import Slot
from slots.sync.watcher import observe_pool
from tests.slots.helpers import hold, is_consistent, open_slots, places

pytestmark = pytest.mark.django_db

CHECKS = (find_wrongly_open, find_wrong_places, find_too_many, find_old_timers, find_not_observed)


@pytest.fixture
def pool() -> Pool:
    return create_pool(
        {
            "name": "lab",
            "slots": 2,
            "members": {"list": ["a", "b"]},
            "liveness": {"heartbeat": "2m"},
        }
    )


def plant(statement: str, *values: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, list(values))


def mend(findings: list[Finding]) -> None:
    for finding in findings:
        assert finding.fix is not None
        finding.fix()


def test_healthy_pool_has_no_findings(pool: Pool) -> None:
    hold(pool)
    cordon_member(member_id=Member.objects.get(name="b").pk, reason="disk")
    assert [list(check()) for check in CHECKS] == [[]] * len(CHECKS)


def test_i8_slots_with_a_wrong_open_flag_are_found(pool: Pool) -> None:
    plant(
        "UPDATE slots_slot SET is_open = false WHERE number = 1 AND member_id = %s",
        Member.objects.get(name="a").pk,
    )
    plant("UPDATE pools_member SET is_cordoned = true WHERE name = 'b'")
    found = list(find_wrongly_open())
    assert [(f.subject, f.detail) for f in found] == [
        ("member a of pool lab", "1 closed that should be open"),
        ("member b of pool lab", "2 open that should be closed"),
    ]
    mend(found)
    assert is_consistent()
    assert open_slots(pool) == 2


def test_i9_missing_and_undeclared_slots_are_found(pool: Pool) -> None:
    a = Member.objects.get(name="a")
    Slot.objects.filter(member=a, number=1).delete()
    Slot.objects.create(pool=pool, member=a, lane="slot", number=9)
    found = list(find_wrong_places())
    assert [(f.subject, f.detail) for f in found] == [
        ("member a of pool lab", "1 missing, 1 not declared")
    ]
    mend(found)
    assert places(a.pk) == [("slot", 0), ("slot", 1)]


def test_i9_held_undeclared_slot_is_left_to_a_person(pool: Pool) -> None:
    claim, slot, _ = hold(pool)
    plant("UPDATE slots_slot SET number = 7 WHERE id = %s", slot)
    [found] = find_wrong_places()
    assert found.fix is None
    assert str(claim) in found.repair


def test_i11_pool_over_its_maximum_is_found(pool: Pool) -> None:
    plant("UPDATE pools_pool SET max_members = 1")
    assert [f.detail for f in find_too_many()] == ["2 members, at most 1"]


def test_i16_overdue_timers_are_found(pool: Pool) -> None:
    plant("UPDATE pools_member SET due_at = now() - interval '2 minutes' WHERE name = 'a'")
    assert [f.detail for f in find_old_timers()] == ["due 120 s ago"]


def test_i24_unobserved_pool_is_found(pool: Pool) -> None:
    plant("UPDATE pools_pool SET created_at = now() - interval '1 hour'")
    assert [f.subject for f in find_not_observed()] == ["pool lab"]
    plant("UPDATE pools_pool SET observed_at = now()")
    assert list(find_not_observed()) == []


def test_long_gone_members_are_deleted_with_their_slots(pool: Pool) -> None:
    a = Member.objects.get(name="a")
    record_heartbeat(member_id=a.pk)
    remove_member(member_id=a.pk, reason="sold")
    assert delete_gone_members(7, 100) == 0
    plant("UPDATE pools_member SET changed_at = now() - interval '8 days'")
    deleted = []
    while count := delete_gone_members(7, 1):
        deleted.append(count)
    assert deleted == [1, 1, 1]  # two slots, then the member
    assert list(Member.objects.values_list("name", flat=True)) == ["b"]
    assert not Heartbeat.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_static_pool_is_observed_too() -> None:
    pool = create_pool({"name": "lab", "slots": 2, "members": {"list": ["a"]}})
    observe_pool(pool)
    pool.refresh_from_db()
    assert pool.observed_at is not None
    assert Member.objects.get().state == "ready"


def test_operations_may_stay_open_as_long_as_slots_may_drain() -> None:
    """I18: a pool that gives the outside two hours is not reported after ten minutes; one
    without anything outside has no limit.
    """
    slow, quick, _plain = (
        create_pool({"name": name, "slots": 1, "members": {"max": 1}, "drain": {"limit": limit}})
        for name, limit in (("slow", "2h"), ("quick", "1s"), ("plain", "1h"))
    )
    Pool.objects.filter(pk__in=[slow.pk, quick.pk]).update(queue="default")
    assert list_operation_limits() == {slow.pk: 7200, quick.pk: 60}
