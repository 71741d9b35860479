"""A listener that was changed outside is a difference of its own: target, protocol, certificate."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from claims.allocation.claim_view import ClaimView
from claims.ports.backends import BackendRequest, set_backend
from pools.models import Pool
from pools.providers.base import PortTarget, PortUse
from project.kernel.models import Event
from project.kernel.outbox.operations import perform_due
from slots.members.store import request_sync
from slots.models import Slot
from slots.sync.drift import DriftFinding, list_drift
from slots.sync.listener_changes import describe_change
from slots.sync.orders import repair_slot
from slots.sync.quarantine import end_quarantine, find_quarantine
from slots.sync.slot_drift import LASTS
from slots.sync.watcher import observe_pool
from tests.claims.helpers import again, ask, let_go
from tests.claims.ports.quay import PROVIDERS, Place, Quay, QuayProvider, make_quay, work

pytestmark = pytest.mark.usefixtures("committed_tables")
OTHER = PortTarget("10.0.9.9", 666)


@pytest.fixture(autouse=True)
def _world(settings: Any) -> None:
    settings.BERTH_PROVIDERS = PROVIDERS
    QuayProvider.world = Quay()


def serve(**more: Any) -> ClaimView:
    """A claim whose port works."""
    make_quay(**more)
    claim = ask("lb", ports="80/TCP")
    set_backend(claim_id=claim.id, generation=claim.generation, backend=BackendRequest("10.0.0.7"))
    work()
    look()
    return claim


def look() -> None:
    observe_pool(Pool.objects.get())


def sync() -> None:
    slot = Slot.objects.select_related("member__pool").get(state="held")
    request_sync(slot.member.pool, slot.member)
    perform_due("quay")


def pass_minute(slot: Slot) -> None:
    """The problem of the slot was first seen a minute earlier."""
    slot.refresh_from_db()
    since = datetime.fromisoformat(slot.observed["failing_since"]) - timedelta(seconds=LASTS)
    observed = {**slot.observed, "failing_since": since.isoformat()}
    Slot.objects.filter(pk=slot.pk).update(observed=observed)


def change(**fields: Any) -> None:
    """By another program."""
    ((place, use),) = QuayProvider.world.listeners.items()
    QuayProvider.world.listeners[place] = replace(use, **fields)


def find() -> DriftFinding:
    (found,) = list_drift()
    return found


def ready_of(claim: ClaimView) -> tuple[bool, str]:
    (found,) = [each for each in again(claim).conditions if each["type"] == "ready"]
    return found["is_met"], str(found["reason"])


@pytest.mark.parametrize(
    ("fields", "change_text"),
    [
        ({"target": OTHER}, "target 10.0.9.9:666 in place of 10.0.0.7:80"),
        ({"target": None}, "target none in place of 10.0.0.7:80"),
        ({"protocol": "udp"}, "protocol udp in place of tcp"),
    ],
)
def test_changed_listener_is_found_and_repaired(fields: dict[str, Any], change_text: str) -> None:
    claim = serve()
    assert list_drift() == [] and ready_of(claim) == (True, "")
    change(**fields)
    look()
    finding = find()
    assert finding.kind == "changed" and change_text in finding.found
    assert finding.repairs == ("repair", "quarantine")
    is_ready, why = ready_of(claim)
    assert not is_ready and f"The listener was changed outside: {change_text}" in why
    event = Event.objects.filter(verb="drift").latest("id")
    assert event.reason == "tcp 30000 was changed outside"
    assert finding.slot_id is not None
    repair_slot(slot_id=finding.slot_id, reason="a test")
    work()
    assert list_drift() == [] and ready_of(claim) == (True, "")


def test_look_during_a_change_of_backend_finds_no_difference() -> None:
    """What the claim wants is newer than what the provider was told."""
    claim = serve()
    set_backend(claim_id=claim.id, generation=claim.generation, backend=BackendRequest("10.0.0.8"))
    look()
    assert list_drift() == []
    work()
    look()
    assert list_drift() == []


def test_look_that_a_sync_overtakes_finds_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = serve()
    original = QuayProvider.look

    def overtaken(provider: QuayProvider, pool: Any) -> Any:
        seen = original(provider, pool)
        set_backend(
            claim_id=claim.id, generation=claim.generation, backend=BackendRequest("10.0.0.8")
        )
        perform_due("quay")
        return seen

    monkeypatch.setattr(QuayProvider, "look", overtaken)
    look()
    assert list_drift() == []


def test_change_waits_for_an_ordered_sync() -> None:
    serve()
    change(target=OTHER)
    slot = Slot.objects.select_related("member__pool").get(state="held")
    request_sync(slot.member.pool, slot.member)
    look()
    assert list_drift() == []
    perform_due("quay")
    look()
    assert list_drift() == []


def test_pool_may_let_berth_repair_a_change_once() -> None:
    serve(drift={"changed": "repair"})
    change(target=OTHER)
    look()
    assert Event.objects.get(verb="repair").reason == "drift.changed of the pool is repair"
    perform_due("quay")
    look()
    assert list_drift() == []


@pytest.mark.parametrize("rule", ["person", "repair"])
def test_missing_listener_is_repaired_without_a_person_if_the_pool_says_so(rule: str) -> None:
    serve(drift={"missing": rule})
    place: Place = next(iter(QuayProvider.world.listeners))
    QuayProvider.world.listeners.clear()
    look()
    perform_due("quay")
    assert (place in QuayProvider.world.listeners) is (rule == "repair")


def test_problem_puts_its_slot_into_quarantine_if_the_pool_says_so() -> None:
    claim = serve(drift={"problem": "quarantine"})
    number = again(claim).slots[0].number
    QuayProvider.world.problems[number] = "the certificate has expired"
    sync()
    slot = Slot.objects.get(claim_id=claim.id)
    assert find_quarantine(slot.pk) is None and find().kind == "problem", "it may pass"
    pass_minute(slot)
    sync()
    known = find_quarantine(slot.pk)
    assert known is not None and known.reason == "drift.problem of the pool is quarantine"
    slot.refresh_from_db()
    assert (slot.state, slot.is_open) == ("held", False)
    end_quarantine(slot_id=slot.pk, reason="a person looks at it")
    pass_minute(slot)
    sync()
    assert find_quarantine(slot.pk) is None, "the rule acts once on a problem"


def test_problem_that_passes_puts_no_slot_into_quarantine() -> None:
    """A sync finds the listener without it in between; a look sees fewer problems than a sync."""
    claim = serve(drift={"problem": "quarantine"})
    slot = Slot.objects.get(claim_id=claim.id)
    problems = QuayProvider.world.problems
    for _ in range(2):
        problems[slot.number] = "the cloud is busy"
        sync()
        pass_minute(slot)
        problems.clear()
        sync()
    assert find_quarantine(slot.pk) is None and list_drift() == []


@pytest.mark.parametrize("is_same_claim", [True, False])
def test_look_without_the_problem_does_not_end_it_and_a_later_claim_begins_anew(
    is_same_claim: bool,
) -> None:
    claim = serve(drift={"problem": "quarantine"})
    slot = Slot.objects.get(claim_id=claim.id)
    problems = QuayProvider.world.problems
    problems[slot.number] = "the certificate has expired"
    sync()
    pass_minute(slot)
    problems.clear()
    look()
    assert list_drift() == []
    if not is_same_claim:
        let_go(again(claim))
        perform_due("quay")
        assert ask("lb", ports="80/TCP").slots[0].number == slot.number
    problems[slot.number] = "the certificate has expired"
    sync()
    assert (find_quarantine(slot.pk) is not None) is is_same_claim


USE = PortUse("tcp_ssl", PortTarget("2001:db8::7", 443), certificate="cert-1")


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        ({"protocol": "tcp_ssl", "target": "[2001:db8::7]:443", "certificate": "cert-1"}, ""),
        ({"target": "[2001:db8::7]:443", "certificate": "cert-2"},
         "certificate cert-2 in place of cert-1"),
        ({"target": "[2001:db8::7]:443"}, ""),
        ({"unread": True}, ""),
        ({}, "target none in place of [2001:db8::7]:443"),
        ({"problem": "no certificate"}, ""),
    ],
)  # fmt: skip
def test_what_a_provider_does_not_report_has_not_changed(seen: dict[str, Any], text: str) -> None:
    assert describe_change(USE, seen) == text
