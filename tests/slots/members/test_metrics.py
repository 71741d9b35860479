"""Prometheus metrics of slots, members and providers."""

from typing import Any

import pytest

from pools.lifecycle.services import create_pool
from pools.models import Member
from project.kernel.metrics import REGISTRY
from project.kernel.outbox.operations import ProviderError, perform_due
from slots.members.chores import finish_leaving_members
from slots.members.services import remove_member
from slots.sync.watcher import observe_pool
from tests.pools.providers.fake_providers import ALL, CraneProvider, fresh
from tests.slots.helpers import hold
from tests.slots.sync.test_performer import let_drain, overdue, shelf

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tables")]


@pytest.fixture(autouse=True)
def _worlds(settings: Any) -> None:
    settings.BERTH_PROVIDERS = ALL
    fresh()


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def test_slots_and_members_are_counted_by_pool_and_state() -> None:
    pool = create_pool({"name": "lab", "slots": 2, "members": {"list": ["a", "b"]}})
    hold(pool)
    assert value("berth_slots", pool="lab", state="held") == 1
    assert value("berth_slots", pool="lab", state="open") == 3
    assert value("berth_slots", pool="lab", state="reserved") == 0, (
        "a state without slots is told, too"
    )
    assert value("berth_slots_total", pool="lab") == 4
    assert value("berth_members", pool="lab", state="ready") == 2


def test_slot_that_drains_too_long_counts_as_overdue() -> None:
    pool, _ = shelf()
    let_drain(pool)
    assert value("berth_slots_draining_overdue", pool="shelf") == 0
    overdue()
    assert value("berth_slots_draining_overdue", pool="shelf") == 1


def test_provider_calls_are_timed_by_call_and_outcome() -> None:
    def count(call: str, outcome: str) -> float:
        return (
            value("berth_provider_seconds_count", provider="shelf", call=call, outcome=outcome)
            or 0.0
        )

    before = {key: count(*key) for key in (("sync", "ok"), ("sync", "unavailable"), ("look", "ok"))}
    pool, world = shelf()
    assert count("sync", "ok") == before["sync", "ok"] + 1
    assert count("look", "ok") == before["look", "ok"] + 1
    hold(pool)
    world.errors = [ProviderError("away")]
    perform_due("shelf")
    assert count("sync", "unavailable") == before["sync", "unavailable"] + 1


def test_found_strays_are_counted() -> None:
    pool = create_pool(
        {"name": "yard", "provider": "crane", "slots": 1, "members": {"list": ["a"]}}
    )
    perform_due("crane")
    observe_pool(pool)
    gone = Member.objects.get()
    remove_member(member_id=gone.pk, reason="test")
    finish_leaving_members()
    perform_due("crane")
    assert Member.objects.get(pk=gone.pk).state == "gone"
    CraneProvider.world.things[f"yard/{gone.pk}"] = "late-thing"  # by a call that came late
    before = value("berth_strays_found_total", provider="crane") or 0.0
    observe_pool(pool)
    assert value("berth_strays_found_total", provider="crane") == before + 1
    assert CraneProvider.world.things == {}
