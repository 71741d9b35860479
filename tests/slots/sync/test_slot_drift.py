"""Slots that a provider reports: present, missing and foreign ones are recorded, and the doctor
lists the drift.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from pools.providers.base import SeenSlot
from project.kernel.outbox.operations import AcquiredOperation, perform_due
from slots.doctor.checks import find_slot_drift
from slots.models import Slot
from slots.sync import watcher
from slots.sync.performers import sync_member
from slots.sync.slot_drift import judge_slot
from slots.sync.watcher import observe_pool
from tests.pools.providers.fake_providers import ALL, CraneProvider, World, fresh
from tests.slots.helpers import give_back, hold, is_consistent

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _worlds(settings: Any) -> Iterator[None]:
    settings.BERTH_PROVIDERS = ALL
    fresh()
    yield
    assert is_consistent()


def yard() -> tuple[Pool, World, Slot, int, int]:
    """A pool with one held slot, whose listener exists outside; with its claim and generation."""
    pool = create_pool(
        {"name": "yard", "provider": "crane", "slots": 2, "members": {"list": ["a"]}}
    )
    perform_due("crane")
    observe_pool(pool)
    claim, slot, generation = hold(pool)
    perform_due("crane")
    return pool, CraneProvider.world, Slot.objects.get(pk=slot), claim, generation


def observed(slot: Slot) -> dict[str, object]:
    slot.refresh_from_db()
    found: dict[str, object] = slot.observed
    return found


def place_of(slot: Slot) -> tuple[str, str, int]:
    return f"yard/{slot.member_id}", slot.lane, slot.number


@pytest.mark.parametrize(
    ("state", "seen", "observed"),
    [
        ("held", SeenSlot("slot", 0, {"id": "l-1"}), {"id": "l-1", "presence": "present"}),
        ("idle", SeenSlot("slot", 0), {"presence": "present"}),
        ("idle", SeenSlot("slot", 0, is_foreign=True), {"presence": "foreign"}),
        ("held", None, {"presence": "missing"}),
        ("reserved", None, {"presence": "missing"}),
        ("draining", None, {}),
        ("idle", None, {}),
        ("retired", None, {}),
    ],
)
def test_slot_is_judged_by_its_state_and_its_object(
    state: str, seen: SeenSlot | None, observed: dict[str, object]
) -> None:
    assert judge_slot(state, seen) == observed


def test_sync_records_the_attributes_of_a_slot() -> None:
    _, _, slot, _, _ = yard()
    assert observed(slot) == {"listener": f"listener-{slot.number}", "presence": "present"}
    assert list(find_slot_drift()) == []


def test_missing_slot_is_found_by_a_look_and_cleared_when_it_is_back() -> None:
    pool, world, slot, claim, _ = yard()
    listeners, world.listeners = world.listeners, {}
    observe_pool(pool)
    assert observed(slot) == {"presence": "missing"}
    (found,) = find_slot_drift()
    assert found.subject == f"slot {slot.lane} {slot.number} of member a of pool yard"
    assert found.detail == f"claim {claim} holds it, and it is missing outside"
    world.listeners = listeners
    observe_pool(pool)
    assert observed(slot)["presence"] == "present"
    assert list(find_slot_drift()) == []


def test_foreign_object_in_the_place_of_a_free_slot_is_listed() -> None:
    pool, world, slot, _, _ = yard()
    free = Slot.objects.exclude(pk=slot.pk).get()
    world.foreign_listeners.add(place_of(free))
    observe_pool(pool)
    assert observed(free) == {"presence": "foreign"}
    assert [found.detail for found in find_slot_drift()] == [
        "a foreign object is in its place outside"
    ]


def test_slot_that_is_bound_during_a_look_is_not_called_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool, _, slot, _, _ = yard()
    look, bound = watcher.call_provider, list[int]()

    def bind_meanwhile(before: Any) -> Any:
        found = look(before)
        bound.append(hold(pool)[1])
        return found

    monkeypatch.setattr(watcher, "call_provider", bind_meanwhile)
    observe_pool(pool)
    later = Slot.objects.get(pk=bound[0])
    assert later.pk != slot.pk
    assert (later.state, later.observed) == ("held", {})


def test_sync_says_nothing_of_a_later_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, world, slot, claim, generation = yard()
    world.listeners.clear()
    sync = CraneProvider.sync

    def hand_over_meanwhile(self: CraneProvider, *arguments: Any) -> Any:
        monkeypatch.setattr(CraneProvider, "sync", sync)
        report = self.sync(*arguments)
        give_back(claim, generation)
        perform_due("crane")
        assert hold(pool)[1] == slot.pk
        return report

    monkeypatch.setattr(CraneProvider, "sync", hand_over_meanwhile)
    member = Member.objects.get()
    sync_member([AcquiredOperation(0, "crane", "x", "sync", pool.pk, member.pk, None, None, {}, 1)])
    assert observed(slot) == {}
