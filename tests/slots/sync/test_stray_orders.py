"""Objects outside with the marks of a pool and without a member: a person adopts or deletes them,
or the pool says what happens.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from pools.lifecycle.selectors import config_of
from pools.lifecycle.services import create_pool, update_pool
from pools.models import Member, Pool
from project.kernel.doctor.restore_detection import was_restored_within
from project.kernel.errors import Conflict, Invalid, NotFound
from project.kernel.models import Event
from project.kernel.outbox.operations import PermanentError, perform_due
from project.kernel.validation import moment
from slots.members.services import add_members, remove_member
from slots.members.store import SKIPPED
from slots.models import Slot
from slots.sync.drift import DriftFinding, list_drift
from slots.sync.stray_orders import adopt_stray, delete_stray, keep_stray, read_orders
from slots.sync.watcher import observe_pool
from tests.pools.providers.fake_providers import ALL, CraneProvider, World, fresh
from tests.slots.helpers import is_consistent

pytestmark = pytest.mark.django_db
STRAY = 0  # an id that no member has had


@pytest.fixture(autouse=True)
def _worlds(settings: Any, tables: None) -> Iterator[None]:
    global STRAY
    settings.BERTH_PROVIDERS = ALL
    fresh()
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval(pg_get_serial_sequence('pools_member', 'id')) + 1000")
        STRAY = cursor.fetchone()[0]
    yield
    assert is_consistent()


def make_yard(**more: Any) -> Pool:
    pool = create_pool(
        {
            "name": "yard",
            "provider": "crane",
            "slots": 2,
            "members": {"max": 2, "list": ["a"]},
            **more,
        }
    )
    perform_due("crane")
    observe_pool(pool)
    return pool


@pytest.fixture
def yard() -> Pool:
    """With an object of a member that this database does not know."""
    pool = make_yard()
    strand()
    look(pool)
    return pool


def world() -> World:
    return CraneProvider.world


def strand(name: str = "thing-77") -> None:
    world().things[f"yard/{STRAY}"] = name


def is_there() -> bool:
    return f"yard/{STRAY}" in world().things


def look(pool: Pool) -> None:
    observe_pool(Pool.objects.get(pk=pool.pk))


def find() -> DriftFinding:
    (found,) = list_drift()
    return found


def order(pool: Pool) -> None:
    delete_stray(pool_id=pool.pk, member_id=STRAY, reason="left by a test")


def adopt(pool: Pool) -> Member:
    return adopt_stray(pool_id=pool.pk, member_id=STRAY, reason="the copy is gone")


def test_object_of_an_unknown_member_stays_until_a_person_decides(yard: Pool) -> None:
    look(yard)
    assert is_there()
    finding = find()
    assert (finding.kind, finding.where, finding.stray_id) == ("orphan", "thing-77", STRAY)
    assert finding.repairs == ("adopt", "delete")


def test_adopted_object_becomes_the_member_that_its_marks_name(yard: Pool) -> None:
    made = world().made
    member = adopt(yard)
    assert (member.pk, member.name, member.state) == (STRAY, f"adopted-{STRAY}", "creating")
    perform_due("crane")
    look(yard)
    member.refresh_from_db()
    assert (member.state, member.external_id, member.is_owned) == ("ready", "thing-77", True)
    assert world().made == made, "no object was created for it"
    assert Slot.objects.filter(member=member, is_open=True).count() == 2
    assert list_drift() == []
    event = Event.objects.get(verb="adopt")
    assert (event.member_id, event.reason) == (STRAY, "the copy is gone")


def test_later_members_get_higher_ids_than_an_adopted_one(yard: Pool) -> None:
    adopt(yard)
    (later,) = add_members(pool_id=create_pool({"name": "other", "slots": 1}).pk, declared=["b"])
    assert later.pk > STRAY


def test_later_members_get_higher_ids_than_an_object_without_a_member(yard: Pool) -> None:
    """With the id of its marks, a new member would take the object over."""
    (later,) = add_members(pool_id=yard.pk, declared=["b"])
    assert later.pk > STRAY
    perform_due("crane")
    look(yard)
    assert find().stray_id == STRAY and is_there()


def test_look_at_objects_without_a_member_keeps_the_sequence_of_ids(yard: Pool) -> None:
    (before,) = add_members(pool_id=yard.pk, declared=["b"])
    look(yard)
    (after,) = add_members(pool_id=create_pool({"name": "other", "slots": 1}).pk, declared=["c"])
    assert after.pk == before.pk + 1


def move_database() -> None:
    """As after a restore: the row in the dump names the former server."""
    assert was_restored_within(60.0)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE kernel_database_place SET server = server + 1")


def test_ids_since_a_backup_are_not_used_again_before_the_first_look() -> None:
    yard = make_yard()
    last = Member.objects.get().pk
    move_database()
    (later,) = add_members(pool_id=yard.pk, declared=["b"])
    assert later.pk > last + SKIPPED
    assert was_restored_within(60.0), "the place is recorded as new"
    Pool.objects.update(observed_at=moment())
    Member.objects.filter(pk=later.pk).update(state="gone")
    (next_one,) = add_members(pool_id=yard.pk, declared=["c"])
    assert next_one.pk == later.pk + 1, "a look has found the objects"


def test_ids_of_a_new_pool_follow_each_other() -> None:
    make_yard()
    move_database()
    assert was_restored_within(60.0)
    last = Member.objects.get().pk
    config = {"provider": "crane", "slots": 2, "members": {"max": 2, "list": ["a"]}}
    pool = create_pool({"name": "dock", **config})
    assert Member.objects.get(pool=pool).pk == last + 1


def test_adoption_counts_against_the_maximum(yard: Pool) -> None:
    add_members(pool_id=yard.pk, declared=["b"])
    with pytest.raises(Invalid, match="2 of at most 2 members"):
        adopt(yard)
    assert not Member.objects.filter(pk=STRAY).exists()


def test_part_of_an_object_is_not_adopted(yard: Pool) -> None:
    strand("listener 30001")
    look(yard)
    assert find().repairs == ("delete",)
    with pytest.raises(Conflict, match="no object that can become a member"):
        adopt(yard)


def test_object_that_names_a_huge_number_is_not_adopted(yard: Pool) -> None:
    """Later members get higher ids, and the ids would run out."""
    huge = (1 << 48) + 1
    world().things[f"yard/{huge}"] = "thing-78"
    look(yard)
    found = next(each for each in list_drift() if each.stray_id == huge)
    assert found.repairs == ("delete",)
    with pytest.raises(Conflict, match="no object that can become a member"):
        adopt_stray(pool_id=yard.pk, member_id=huge, reason="test")


def test_object_is_adopted_once(yard: Pool) -> None:
    adopt(yard)
    for again in (adopt, order):
        with pytest.raises(NotFound):
            again(yard)


def test_ordered_deletion_is_carried_out_after_the_next_look(yard: Pool) -> None:
    order(yard)
    assert is_there(), "a service calls no provider"
    assert find().repairs == ("keep",)
    look(yard)
    assert not is_there()
    look(yard)
    assert list_drift() == []
    yard.refresh_from_db()
    assert read_orders(yard) == {}
    verbs = Event.objects.filter(verb__in=("delete_stray", "stray_gone")).order_by("id")
    assert [(each.verb, each.reason) for each in verbs] == [
        ("delete_stray", "left by a test"),
        ("stray_gone", ""),
    ]


def test_failed_deletion_says_why_and_is_tried_again(
    yard: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    order(yard)

    def refuse(*_: object) -> None:
        raise PermanentError("it has 2 foreign listeners")

    monkeypatch.setattr(CraneProvider, "remove_strays", refuse)
    look(yard)
    monkeypatch.undo()
    assert is_there()
    assert "The last try failed: it has 2 foreign listeners" in find().then
    look(yard)
    assert not is_there()


def test_kept_object_is_not_deleted(yard: Pool) -> None:
    order(yard)
    keep_stray(pool_id=yard.pk, member_id=STRAY, reason="it is in use")
    look(yard)
    assert is_there()
    with pytest.raises(Conflict, match="not to be deleted"):
        keep_stray(pool_id=yard.pk, member_id=STRAY, reason="again")


def test_object_that_is_to_be_deleted_is_not_adopted(yard: Pool) -> None:
    order(yard)
    with pytest.raises(Conflict, match="is being deleted"):
        adopt(yard)


def test_object_of_a_gone_member_needs_no_order_and_takes_none(yard: Pool) -> None:
    member = Member.objects.get(name="a")
    remove_member(member_id=member.pk, reason="a test")
    perform_due("crane")
    world().things = {f"yard/{member.pk}": "thing-1"}
    pool = Pool.objects.get(pk=yard.pk)
    observe_pool(pool, lambda pool, ids: None)
    finding = find()
    assert finding.repairs == ()
    with pytest.raises(NotFound):
        delete_stray(pool_id=pool.pk, member_id=member.pk, reason="now")


@pytest.mark.parametrize("rule", ["adopt", "delete"])
def test_pool_may_let_berth_decide_about_strays(rule: str) -> None:
    pool = make_yard(drift={"strays": rule})
    strand()
    look(pool)
    perform_due("crane")
    look(pool)
    if rule == "adopt":
        assert Member.objects.get(pk=STRAY).state == "ready"
    else:
        assert not is_there() and not Member.objects.filter(pk=STRAY).exists()
    look(pool)
    assert list_drift() == []
    event = Event.objects.get(reason=f"drift.strays of the pool is {rule}")
    assert event.verb == ("adopt" if rule == "adopt" else "delete_stray")


def test_full_pool_leaves_strays_to_a_person() -> None:
    pool = make_yard(drift={"strays": "adopt"}, members={"max": 1, "list": ["a"]})
    strand()
    look(pool)
    assert find().repairs == ("adopt", "delete")
    update_pool("yard", config_of(pool) | {"members": {"max": 2}})
    look(pool)
    assert Member.objects.filter(pk=STRAY).exists()
