"""Orders of operators: a repair makes the outside equal to the rows again, and a sweep makes the
next look due.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from project.kernel.errors import Conflict, NotFound
from project.kernel.models import Event, Operation
from project.kernel.outbox.operations import PermanentError, perform_due
from project.kernel.validation import moment
from slots.doctor.checks import find_slot_drift
from slots.models import Slot
from slots.sync.drift import list_drift
from slots.sync.orders import order_look, repair_slot
from slots.sync.watcher import LOOK_EVERY, Watcher, observe_pool
from tests.pools.providers.fake_providers import ALL, CraneProvider, World, fresh
from tests.slots.helpers import hold, is_consistent

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _worlds(settings: Any) -> Iterator[None]:
    settings.BERTH_PROVIDERS = ALL
    fresh()
    yield
    assert is_consistent()


@pytest.fixture
def yard() -> Pool:
    pool = create_pool(
        {"name": "yard", "provider": "crane", "slots": 2, "members": {"list": ["a"]}}
    )
    perform_due("crane")
    observe_pool(pool)
    hold(pool)
    perform_due("crane")
    observe_pool(pool)
    return pool


def world() -> World:
    return CraneProvider.world


def place_of(slot: Slot) -> tuple[str, str, int]:
    return f"yard/{slot.member_id}", slot.lane, slot.number


def kinds() -> list[str]:
    return [each.kind for each in list_drift()]


def test_repair_creates_a_missing_object_again(yard: Pool) -> None:
    held = Slot.objects.get(state="held")
    world().listeners.clear()
    observe_pool(yard)
    assert kinds() == ["missing"]
    repair_slot(slot_id=held.pk, reason="a player complained")
    event = Event.objects.get(verb="repair")
    assert (event.slot_id, event.reason) == (held.pk, "a player complained")
    assert perform_due("crane") == 1
    assert place_of(held) in world().listeners
    assert kinds() == []


def test_repair_removes_an_orphan(yard: Pool) -> None:
    free = Slot.objects.get(state="idle")
    world().listeners[place_of(free)] = "listener-left-over"
    observe_pool(yard)
    assert kinds() == ["orphan"]
    repair_slot(slot_id=free.pk, reason="left over")
    assert perform_due("crane") == 1
    assert place_of(free) not in world().listeners
    assert kinds() == []


def test_repair_uses_the_open_operation_of_the_member(yard: Pool) -> None:
    held = Slot.objects.get(state="held")
    world().listeners.clear()
    observe_pool(yard)
    for _ in range(2):
        repair_slot(slot_id=held.pk, reason="now")
    assert Operation.objects.filter(done_at=None).count() == 1


def test_repair_follows_an_operation_that_failed_for_good(yard: Pool) -> None:
    """Such an operation waits for a person, so it would never repair the slot."""
    held = Slot.objects.get(state="held")
    world().listeners.clear()
    observe_pool(yard)
    repair_slot(slot_id=held.pk, reason="first")
    world().errors.append(PermanentError("the crane is jammed"))
    perform_due("crane")
    repair_slot(slot_id=held.pk, reason="second")
    perform_due("crane")
    assert kinds() == []


def test_repair_refuses_a_slot_without_a_difference_and_a_foreign_object(yard: Pool) -> None:
    held, free = Slot.objects.get(state="held"), Slot.objects.get(state="idle")
    world().foreign_listeners.add(place_of(free))
    observe_pool(yard)
    for slot in (held, free):
        with pytest.raises(Conflict, match="no difference to repair"):
            repair_slot(slot_id=slot.pk, reason="now")
    with pytest.raises(NotFound):
        repair_slot(slot_id=free.pk + 5000, reason="now")
    assert not Event.objects.filter(verb="repair").exists()


def test_doctor_repairs_what_a_sync_repairs_and_leaves_foreign_objects(yard: Pool) -> None:
    free = Slot.objects.get(state="idle")
    world().listeners.clear()
    world().foreign_listeners.add(place_of(free))
    observe_pool(yard)
    missing, foreign = sorted(find_slot_drift(), key=lambda each: each.fix is None)
    assert foreign.fix is None
    assert missing.fix is not None
    missing.fix()
    perform_due("crane")
    assert kinds() == ["foreign"]


def test_strays_keep_the_time_of_their_first_look_and_say_who_removes_them(yard: Pool) -> None:
    unknown = Member.objects.get().pk + 5000
    world().things[f"yard/{unknown}"] = "late-thing"
    found = []
    for _ in range(2):
        yard.refresh_from_db()
        observe_pool(yard)
        found += list_drift()
    first, second = found
    assert first.since is not None
    assert (first.since, first.where) == (second.since, "late-thing")
    assert first.then.endswith("leaves it as it is until then.")
    Member.objects.create(pk=unknown, pool=yard, name="b", state="deleting")
    Member.objects.filter(pk=unknown).update(state="gone")
    yard.refresh_from_db()
    observe_pool(yard)
    assert Pool.objects.get().strays[0]["is_gone"] is True
    assert [each.then[:17] for each in list_drift()] == ["Berth removes it "]


def test_ordered_look_is_due_at_once_and_keeps_the_pool_fresh(yard: Pool) -> None:
    watcher, before = Watcher(), world().calls
    watcher.step()
    assert world().calls == before, "the look of the fixture is recent"
    order_look(pool_id=yard.pk, reason="a look at the console")
    observed = Pool.objects.get().observed_at
    assert observed is not None
    assert observed > moment() - timedelta(seconds=LOOK_EVERY + 20)
    watcher.step()
    assert world().calls == before + 1
    assert Event.objects.get(verb="sweep").reason == "a look at the console"


def test_ordered_look_does_not_move_an_older_look(yard: Pool) -> None:
    old = moment() - timedelta(hours=1)
    Pool.objects.filter(pk=yard.pk).update(observed_at=old)
    order_look(pool_id=yard.pk, reason="now")
    assert Pool.objects.get().observed_at == old
