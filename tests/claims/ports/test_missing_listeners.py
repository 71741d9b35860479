"""A pre-created listener that is missing outside is a difference, before a claim holds its slot."""

from typing import Any

import pytest

from pools.models import Pool
from project.kernel.outbox.operations import perform_due
from slots.members.services import cordon_member
from slots.members.store import request_sync
from slots.models import Slot
from slots.pages.dashboard_queries_sql import get_port
from slots.sync.drift import list_drift
from slots.sync.orders import repair_slot
from slots.sync.watcher import observe_pool
from tests.claims.helpers import ask, let_go
from tests.claims.ports.quay import PROVIDERS, Quay, QuayProvider, make_quay, work

pytestmark = pytest.mark.usefixtures("committed_tables")
SLOTS = {"ports": "30000-30009", "protocols": ["tcp"], "precreate": {"tcp": 2}}


@pytest.fixture(autouse=True)
def _world(settings: Any) -> None:
    settings.BERTH_PROVIDERS = PROVIDERS
    QuayProvider.world = Quay()


def make_waters(**more: Any) -> Slot:
    """The first of two slots with pre-created listeners."""
    make_quay(slots=SLOTS, **more)
    assert len(QuayProvider.world.listeners) == 2
    look()
    assert list_drift() == []
    return Slot.objects.order_by("number")[0]


def look() -> None:
    observe_pool(Pool.objects.get())


def lose(slot: Slot) -> None:
    """The listener is deleted outside."""
    del QuayProvider.world.listeners[slot.member_id, slot.lane, slot.number]
    look()


def class_of(slot: Slot) -> str:
    port = get_port(slot=slot.pk, pool=slot.pool_id)
    assert port is not None
    return port.name


def test_missing_listener_of_an_idle_slot_is_found_and_repaired() -> None:
    slot = make_waters()
    lose(slot)
    (finding,) = list_drift()
    assert (finding.kind, finding.slot_id, finding.claim_id) == ("missing", slot.pk, None)
    assert "pre-created listener" in finding.found and finding.may_repair
    assert class_of(slot) == "missing"
    repair_slot(slot_id=slot.pk, reason="a test")
    work()
    assert list_drift() == [] and class_of(slot) == "idle"
    assert len(QuayProvider.world.listeners) == 2


def test_pool_may_let_berth_create_it_again() -> None:
    slot = make_waters(drift={"missing": "repair"})
    lose(slot)
    perform_due("quay")
    assert list_drift() == [] and len(QuayProvider.world.listeners) == 2


def test_listener_that_an_ordered_sync_may_create_is_not_missing() -> None:
    slot = make_waters()
    request_sync(slot.pool, slot.member)
    lose(slot)
    assert list_drift() == []


def test_listener_of_a_slot_that_takes_no_claims_is_not_missing() -> None:
    slot = make_waters()
    cordon_member(member_id=slot.member_id, reason="a test")
    lose(slot)
    assert list_drift() == []


def test_sync_that_cannot_create_it_keeps_the_difference() -> None:
    slot = make_waters()
    lose(slot)
    QuayProvider.world.missing.add(slot.number)
    repair_slot(slot_id=slot.pk, reason="a test")
    perform_due("quay")
    assert [each.slot_id for each in list_drift()] == [slot.pk]


def test_slot_that_its_claim_has_left_since_the_look_has_no_difference() -> None:
    slot = make_waters()
    claim = ask("lb", kind="tcp")
    work()
    lose(slot)
    assert [each.claim_id for each in list_drift()] == [claim.id]
    let_go(claim)
    QuayProvider.world.missing.add(slot.number)
    Slot.objects.filter(pk=slot.pk).update(state="idle", drain_until=None, due_at=None)
    assert list_drift() == [] and class_of(slot) == "idle"
