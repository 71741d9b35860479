"""Members are added, edited, cordoned, removed and kept while claims run. Each test ends with I8
true.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from project.kernel.errors import Conflict, Invalid, NotFound, Refused
from project.kernel.models import Event
from slots.members.services import (
    add_members,
    cancel_member_removal,
    cordon_member,
    edit_member,
    finish_leaving,
    remove_member,
    uncordon_member,
)
from slots.models import Slot
from tests.slots.helpers import give_back, hold, is_consistent, open_slots, places

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _stays_consistent() -> Iterator[None]:
    yield
    assert is_consistent()


def a_pool(**more: Any) -> Pool:
    return create_pool(
        {"name": "lab", "slots": 2, "members": {"max": 4, "list": ["a", "b"]}} | more
    )


def member(name: str) -> Member:
    return Member.objects.get(name=name)


def test_adding_members_moves_no_running_claim() -> None:
    pool = a_pool()
    claim, slot, generation = hold(pool)
    # The clock of the database stands still in this test.
    Slot.objects.filter(pk=slot).update(changed_at=Now() - timedelta(minutes=1))
    before = Slot.objects.get(pk=slot)
    added = add_members(
        pool_id=pool.pk, declared=["c", {"name": "d", "slots": 5}], reason="more room"
    )
    assert [(m.name, m.position, m.state) for m in added] == [("c", 2, "ready"), ("d", 3, "ready")]
    assert len(places(added[1].pk)) == 5
    after = Slot.objects.get(pk=slot)
    assert (after.claim_id, after.generation, after.changed_at) == (
        claim,
        generation,
        before.changed_at,
    )
    pool.refresh_from_db()
    assert pool.revision == 2


def test_faulty_members_are_all_reported_and_none_is_added() -> None:
    pool = a_pool()
    with pytest.raises(Invalid) as caught:
        add_members(
            pool_id=pool.pk, declared=["a", {"name": "c", "slots": 0}, {"name": "c", "label": {}}]
        )
    assert {f.field for f in caught.value.fields} == {
        "members[0].name", "members[1].slots", "members[2].name", "members[2].label", "members",
    }  # fmt: skip
    assert Member.objects.count() == 2


def test_members_never_exceed_the_maximum() -> None:
    pool = a_pool()
    with pytest.raises(Invalid, match="of at most 4"):
        add_members(pool_id=pool.pk, declared=["c", "d", "e"])
    add_members(pool_id=pool.pk, declared=["c", "d"])
    with pytest.raises(Invalid, match="of at most 4"):
        add_members(pool_id=pool.pk, declared=["e"])


def test_cordon_closes_free_slots_and_keeps_holders() -> None:
    pool = a_pool()
    claim, slot, _ = hold(pool)
    cordoned = cordon_member(member_id=member("a").pk, reason="new disk")
    assert (cordoned.is_cordoned, cordoned.note) == (True, "new disk")
    assert Slot.objects.get(pk=slot).claim_id == claim
    assert open_slots(pool) == 2
    assert hold(pool)[1] in Slot.objects.filter(member__name="b").values_list("pk", flat=True)
    uncordoned = uncordon_member(member_id=cordoned.pk, reason="done")
    assert (uncordoned.is_cordoned, uncordoned.note) == (False, "")
    assert open_slots(pool) == 2
    told = [
        (e.verb, e.before, e.after, e.reason)
        for e in Event.objects.filter(verb__in=("cordon", "uncordon")).order_by("id")
    ]
    assert told == [
        ("cordon", "ready", "cordoned", "new disk"),
        ("uncordon", "cordoned", "ready", "done"),
    ]


def test_cordon_twice_is_one_event_and_needs_a_reason() -> None:
    pool = a_pool()
    for _ in range(2):
        cordon_member(member_id=member("a").pk, reason="disk")
    assert Event.objects.filter(verb="cordon").count() == 1
    with pytest.raises(Invalid) as caught:
        cordon_member(member_id=member("b").pk, reason="  ")
    assert [f.field for f in caught.value.fields] == ["reason"]
    assert open_slots(pool) == 2


def test_empty_member_is_removed_at_once() -> None:
    pool = a_pool()
    removal = remove_member(member_id=member("b").pk, reason="sold")
    assert (removal.state, removal.holders) == ("gone", [])
    assert open_slots(pool) == 2
    assert set(
        Slot.objects.filter(member_id=removal.member_id).values_list("state", flat=True)
    ) == {"retired"}
    told = [
        (e.verb, e.after) for e in Event.objects.filter(member_id=removal.member_id).order_by("id")
    ]
    assert told == [
        ("add", "ready"),
        ("remove", "leaving"),
        ("delete", "deleting"),
        ("gone", "gone"),
    ]
    add_members(pool_id=pool.pk, declared=["b"])  # its name is free again


def test_removed_member_waits_for_its_holders_and_names_them() -> None:
    pool = a_pool()
    claim, slot, generation = hold(pool)
    removal = remove_member(member_id=member("a").pk, reason="sold")
    assert removal.state == "ready"
    assert [(h.claim_id, h.id, h.state) for h in removal.holders] == [(claim, slot, "held")]
    assert open_slots(pool) == 2
    assert not finish_leaving(removal.member_id)
    assert Slot.objects.get(pk=slot).claim_id == claim
    give_back(claim, generation)
    assert finish_leaving(removal.member_id)
    assert member("a").state == "gone"
    with pytest.raises(NotFound):
        remove_member(member_id=removal.member_id, reason="again")


def test_pending_removal_can_be_taken_back() -> None:
    pool = a_pool()
    claim, _, generation = hold(pool)
    removal = remove_member(member_id=member("a").pk, reason="sold")
    kept = cancel_member_removal(member_id=removal.member_id, reason="not sold")
    assert (kept.is_leaving, kept.note) == (False, "")
    give_back(claim, generation)
    assert not finish_leaving(removal.member_id)
    assert open_slots(pool) == 4
    remove_member(member_id=removal.member_id, reason="sold after all")
    with pytest.raises(Conflict):
        cancel_member_removal(member_id=removal.member_id)


def test_kept_member_that_is_cordoned_stays_closed() -> None:
    pool = a_pool()
    hold(pool)
    cordon_member(member_id=member("a").pk, reason="disk")
    remove_member(member_id=member("a").pk, reason="sold")
    cancel_member_removal(member_id=member("a").pk)
    assert open_slots(pool) == 2
    uncordon_member(member_id=member("a").pk)
    assert open_slots(pool) == 3


def test_edited_labels_are_recorded_in_an_event() -> None:
    pool = a_pool()
    edited = edit_member(member_id=member("a").pk, labels={"gpu": "h200"}, reason="upgraded")
    assert edited.labels == {"gpu": "h200"}
    event = Event.objects.get(verb="edit")
    assert (event.reason, event.data) == (
        "upgraded",
        {"changes": [{"field": "labels", "before": None, "after": {"gpu": "h200"}}]},
    )
    pool.refresh_from_db()
    assert pool.revision == 2
    edit_member(member_id=edited.pk, labels={"gpu": "h200"})
    assert Event.objects.filter(verb="edit").count() == 1


def test_member_is_resized_but_never_below_its_held_slots() -> None:
    pool = a_pool()
    a = member("a")
    edit_member(member_id=a.pk, slots=5)
    assert places(a.pk) == [("slot", n) for n in range(5)]
    held = [hold(pool) for _ in range(4)]
    with pytest.raises(Refused) as caught:
        edit_member(member_id=a.pk, slots=2)
    assert [h["claim_id"] for h in caught.value.data["holders"]] == [held[2][0], held[3][0]]
    assert len(places(a.pk)) == 5
    for claim, _, generation in held[2:]:
        give_back(claim, generation)
    edit_member(member_id=a.pk, slots=2)
    assert places(a.pk) == [("slot", 0), ("slot", 1)]
    edit_member(member_id=a.pk, slots=4)
    assert places(a.pk) == places(a.pk, with_retired=True)[:4]
    edit_member(member_id=a.pk, slots=None)
    assert len(places(a.pk)) == 2


def test_name_external_id_and_ports_of_a_member_are_fixed() -> None:
    a_pool()
    with pytest.raises(Invalid) as caught:
        edit_member(member_id=member("a").pk, name="z", external_id="lb-1", ports="1-2")
    assert [f.field for f in caught.value.fields] == ["ports", "name", "external_id"]


def test_two_pools_on_one_load_balancer_never_share_a_port() -> None:
    ports = {"ports": "30000-30099", "shared": True}
    create_pool(
        {
            "name": "east",
            "slots": ports,
            "members": {"list": [{"name": "lb", "external_id": "lb-1", "ports": "30000-30049"}]},
        }
    )
    west = {
        "name": "west",
        "slots": ports,
        "members": {"list": [{"name": "lb", "external_id": "lb-1", "ports": "30040-30099"}]},
    }
    with pytest.raises(Invalid) as caught:
        create_pool(west)
    assert [(f.field, f.message) for f in caught.value.fields] == [
        ("members.list[0].ports", "30040-30099 on lb-1 overlaps 30000-30049 of lb in pool east.")
    ]
    assert not Pool.objects.filter(name="west").exists()
    west["members"]["list"][0]["ports"] = "30050-30099"  # type: ignore[index]
    pool = create_pool(west)
    with pytest.raises(Invalid) as caught:
        edit_member(member_id=Member.objects.get(pool=pool).pk, ports="30049-30099")
    assert [f.field for f in caught.value.fields] == ["ports"]
    assert Member.objects.get(pool=pool).ports.lower == 30050


def test_foreign_listener_counts_against_the_quota_and_is_skipped() -> None:
    layout = {"ports": "30000-30099", "shared": True, "quota": 4, "foreign": [30001]}
    pool = create_pool(
        {
            "name": "net",
            "slots": layout,
            "members": {"list": ["x", {"name": "y", "foreign": [30002]}]},
        }
    )
    assert places(member("x").pk) == [("port", 30000), ("port", 30002), ("port", 30003)]
    assert places(member("y").pk) == [("port", 30000), ("port", 30003)]
    assert open_slots(pool) == 5
