"""Slots that a provider reports: present, missing and foreign ones are recorded, and the doctor
lists the drift.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from pools.providers.base import SeenSlot
from project.kernel.models import Event
from project.kernel.outbox.operations import AcquiredOperation, perform_due
from slots.doctor.checks import find_slot_drift
from slots.models import Slot
from slots.sync import watcher
from slots.sync.performers import sync_member
from slots.sync.slot_drift import find_kind, judge_slot, observed_since
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
    """What was seen, without the holder and the times of the observation."""
    slot.refresh_from_db()
    return {k: v for k, v in slot.observed.items() if k not in ("claim", "since", "failing_since")}


def place_of(slot: Slot) -> tuple[str, str, int]:
    return f"yard/{slot.member_id}", slot.lane, slot.number


@pytest.mark.parametrize(
    ("state", "seen", "observed"),
    [
        ("held", SeenSlot("slot", 0, {"id": "l-1"}), {"id": "l-1", "presence": "present"}),
        ("idle", SeenSlot("slot", 0), {"presence": "orphan"}),
        ("retired", SeenSlot("slot", 0), {"presence": "orphan"}),
        ("draining", SeenSlot("slot", 0), {"presence": "present"}),
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


def test_object_created_in_advance_is_no_orphan() -> None:
    assert judge_slot("idle", SeenSlot("slot", 0), is_precreated=True) == {"presence": "present"}


@pytest.mark.parametrize(
    ("state", "observed", "kind"),
    [
        ("held", {"presence": "missing"}, "missing"),
        ("reserved", {"presence": "missing"}, "missing"),
        ("idle", {"presence": "missing", "claim": 7}, ""),  # its claim has left since the look
        ("idle", {"presence": "missing", "claim": None}, "missing"),  # it was expected in advance
        ("held", {"presence": "present"}, ""),
        ("held", {"presence": "present", "problem": "no certificate"}, "problem"),
        ("draining", {"presence": "present", "problem": "no certificate"}, ""),
        ("idle", {"presence": "orphan"}, "orphan"),
        ("held", {"presence": "orphan"}, ""),  # bound since the look
        ("idle", {"presence": "foreign"}, "foreign"),
        ("held", {"presence": "foreign"}, "foreign"),
        ("held", {}, ""),
    ],
)
def test_difference_needs_the_state_that_it_was_observed_in(
    state: str, observed: dict[str, object], kind: str
) -> None:
    assert find_kind(state, observed) == kind


def test_time_of_an_observed_value_changes_with_that_value_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool, _, slot, _, _ = yard()

    def look(health: str) -> tuple[datetime | None, datetime | None]:
        found = (SeenSlot(slot.lane, slot.number, {"health": health}),) if health else ()
        monkeypatch.setattr(CraneProvider, "see_slots", lambda self, token: found)
        observe_pool(pool)
        slot.refresh_from_db()
        return observed_since(slot.observed), observed_since(slot.observed, "health")

    first, initial = look("initial")
    second, healthy = look("healthy")
    assert first is not None and initial is not None and healthy is not None
    assert second == first
    assert healthy > initial
    missing, gone = look("")
    assert missing is not None and missing > healthy
    assert gone is None


@pytest.mark.parametrize("problem", ["", "The target group has targets of no claim."])
def test_look_that_does_not_read_a_target_keeps_the_last_known_one(
    monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    pool, _, slot, _, _ = yard()

    def look(**known: object) -> dict[str, object]:
        found = (SeenSlot(slot.lane, slot.number, {"id": "l-1", **known}),)
        monkeypatch.setattr(CraneProvider, "see_slots", lambda self, token: found)
        observe_pool(pool)
        slot.refresh_from_db()
        return slot.observed

    about = {"target": "10.0.0.7:80", "health": "unhealthy", "reason": "timeout"}
    read = look(**about, **({"problem": problem} if problem else {}))
    last = Event.objects.latest("pk").pk
    assert look(unread=True) == read
    assert not Event.objects.filter(pk__gt=last).exists()
    changed = look(unread=True, problem="no certificate")
    assert changed["problem"] == "no certificate" and changed["target"] == "10.0.0.7:80"
    look(target="10.0.0.8:80")
    assert observed(slot) == {"id": "l-1", "presence": "present", "target": "10.0.0.8:80"}


def test_target_of_a_former_holder_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, _, slot, claim, generation = yard()
    found = {"target": "10.0.0.7:80", "health": "healthy"}

    def see(self: CraneProvider, token: str) -> tuple[SeenSlot, ...]:
        return (SeenSlot(slot.lane, slot.number, found),)

    monkeypatch.setattr(CraneProvider, "see_slots", see)
    observe_pool(pool)
    assert observed(slot)["target"] == "10.0.0.7:80"
    give_back(claim, generation)
    perform_due("crane")
    assert hold(pool)[1] == slot.pk
    found = {"unread": True}
    observe_pool(pool)
    assert observed(slot) == {"presence": "present"}


def verbs_since(number: int) -> list[tuple[str, str]]:
    found = Event.objects.filter(pk__gt=number, verb__in=("drift", "drift_ends", "observe_slots"))
    return list(found.order_by("pk").values_list("verb", "reason"))


def test_difference_and_its_end_are_events_of_the_member() -> None:
    pool, world, slot, _, _ = yard()
    last = Event.objects.latest("pk").pk
    listeners, world.listeners = world.listeners, {}
    observe_pool(pool)
    observe_pool(pool)
    assert verbs_since(last) == [("drift", f"slot {slot.number} is missing outside")]
    world.listeners = listeners
    observe_pool(pool)
    assert verbs_since(last)[1:] == [("drift_ends", f"slot {slot.number}")]


def test_change_of_health_is_a_routine_event(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, _, slot, _, _ = yard()
    last = Event.objects.latest("pk").pk
    healthy = SeenSlot(slot.lane, slot.number, {"health": "healthy"})
    monkeypatch.setattr(CraneProvider, "see_slots", lambda self, token: (healthy,))
    observe_pool(pool)
    observe_pool(pool)
    assert verbs_since(last) == [("observe_slots", "")]


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
    assert found.detail == f"claim {claim} holds the slot, and nothing is in its place outside"
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
        "a foreign object is in the place of the slot"
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
    assert (later.state, later.observed) == ("held", {}), "the look was too early"


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
