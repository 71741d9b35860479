"""Quarantine takes a slot out of allocation until a person ends it; its claim keeps it."""

from collections.abc import Iterator
from typing import Any

import pytest

from claims.lifecycle.release import release_claim
from pools.models import Pool
from project.kernel.errors import BerthError, Conflict
from project.kernel.models import Event
from project.kernel.outbox.operations import perform_due
from slots.members.services import cordon_member, remove_member, uncordon_member
from slots.models import Slot
from slots.sync.drift import list_drift
from slots.sync.quarantine import end_quarantine, list_quarantined, quarantine_slot
from slots.sync.watcher import observe_pool
from tests.claims.helpers import ask
from tests.pools.providers.fake_providers import ALL, CraneProvider, World, fresh
from tests.slots.helpers import is_consistent
from tests.slots.sync.test_stray_orders import make_yard

pytestmark = [pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def _worlds(settings: Any) -> Iterator[None]:
    settings.BERTH_PROVIDERS = ALL
    fresh()
    yield
    assert is_consistent()


def world() -> World:
    return CraneProvider.world


def slots() -> list[Slot]:
    return list(Slot.objects.order_by("number"))


def isolate(slot: Slot) -> bool:
    return quarantine_slot(slot_id=slot.pk, reason="it fails again and again")


def place_of(slot: Slot) -> tuple[str, str, int]:
    return f"yard/{slot.member_id}", slot.lane, slot.number


def look(pool: Pool) -> None:
    observe_pool(Pool.objects.get(pk=pool.pk))


def test_no_claim_gets_a_slot_in_quarantine() -> None:
    make_yard()
    first, second = slots()
    assert isolate(first) and not isolate(first)
    assert ask("yard").slots[0].id == second.pk
    assert ask("yard").state == "waiting"
    (found,) = list_quarantined([first.pool_id])
    assert (found.slot_id, found.reason, found.claim_id) == (
        first.pk, "it fails again and again", None,
    )  # fmt: skip
    event = Event.objects.get(verb="quarantine")
    assert (event.slot_id, event.reason) == (first.pk, "it fails again and again")


def test_claim_keeps_its_slot_and_the_next_claim_does_not_get_it() -> None:
    pool = make_yard()
    claim = ask("yard")
    held = Slot.objects.get(claim_id=claim.id)
    isolate(held)
    held.refresh_from_db()
    assert (held.state, held.is_open) == ("held", False)
    release_claim(claim_id=claim.id, generation=claim.generation)
    perform_due("crane")
    held.refresh_from_db()
    assert (held.state, held.is_open) == ("idle", False)
    assert ask("yard").slots[0].id != held.pk
    assert list_quarantined([pool.pk])[0].claim_id is None


def test_end_of_the_quarantine_serves_a_waiting_claim_again() -> None:
    make_yard()
    first, second = slots()
    for each in (first, second):
        isolate(each)
    assert end_quarantine(slot_id=first.pk, reason="mended")
    assert not end_quarantine(slot_id=first.pk, reason="again")
    assert ask("yard").slots[0].id == first.pk
    assert Event.objects.get(verb="end_quarantine").reason == "mended"


def test_quarantine_outlasts_cordon_and_uncordon() -> None:
    make_yard()
    first, second = slots()
    isolate(first)
    cordon_member(member_id=first.member_id, reason="a test")
    uncordon_member(member_id=first.member_id)
    assert list(Slot.objects.filter(is_open=True)) == [second]
    cordon_member(member_id=first.member_id, reason="a test")
    end_quarantine(slot_id=first.pk, reason="")
    assert not Slot.objects.filter(is_open=True).exists(), "the member takes no claims"
    uncordon_member(member_id=first.member_id)
    assert Slot.objects.filter(is_open=True).count() == 2


def test_foreign_object_in_quarantine_is_no_finding_and_keeps_its_slot_out() -> None:
    pool = make_yard()
    free = slots()[0]
    world().foreign_listeners.add(place_of(free))
    look(pool)
    (finding,) = list_drift()
    assert (finding.kind, finding.repairs) == ("foreign", ("quarantine",))
    isolate(free)
    assert list_drift() == []
    world().foreign_listeners.clear()
    look(pool)
    free.refresh_from_db()
    assert not free.is_open, "the foreign object may come back"
    assert list_quarantined([pool.pk])[0].slot_id == free.pk


def test_slot_of_a_gone_member_is_refused() -> None:
    make_yard()
    first = slots()[0]
    remove_member(member_id=first.member_id, reason="a test")
    perform_due("crane")
    with pytest.raises(Conflict):
        isolate(first)


def test_reason_is_needed() -> None:
    make_yard()
    with pytest.raises(BerthError):
        quarantine_slot(slot_id=slots()[0].pk, reason=" ")
