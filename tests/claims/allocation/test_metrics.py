"""The Prometheus metrics of queues and binds."""

import pytest

from claims.allocation.create import create_claim
from project.kernel.metrics import REGISTRY
from slots.models import Slot
from tests.claims.helpers import age, ask, let_go, make_pool, serve, wish

pytestmark = pytest.mark.django_db(transaction=True)


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def test_waiting_claims_are_measured_by_number_and_oldest_age() -> None:
    make_pool("lab", slots=1)
    make_pool("idle", slots=1)
    ask("lab")
    first, _ = ask("lab"), ask("lab")
    age(first, 90)
    assert value("berth_claims_waiting", pool="lab", state="waiting") == 2
    assert value("berth_claims_waiting", pool="lab", state="blocked") == 0
    assert 90 <= (value("berth_claims_oldest_waiting_seconds", pool="lab") or 0) < 120
    assert value("berth_claims_waiting", pool="idle", state="waiting") == 0, (
        "an empty queue is told, too"
    )
    assert value("berth_claims_oldest_waiting_seconds", pool="idle") == 0


def test_claims_whose_pool_does_not_exist_are_counted_apart() -> None:
    ask("nowhere")
    assert value("berth_claims_waiting", pool="", state="waiting") == 1


def test_the_wait_of_a_claim_is_measured_when_it_is_bound() -> None:
    make_pool("waits", slots=1)
    holder, waiter = ask("waits"), ask("waits")
    age(waiter, 20)
    let_go(holder)
    assert serve() == 1
    assert value("berth_claim_wait_seconds_count", pool="waits") == 1
    assert 20 <= (value("berth_claim_wait_seconds_sum", pool="waits") or 0) < 60


def test_the_wait_of_a_claim_for_several_slots_is_measured_when_it_is_bound() -> None:
    make_pool("pairs", slots=2)
    holder, waiter = ask("pairs", size=2), ask("pairs", size=2)
    age(waiter, 20)
    let_go(holder)
    assert serve() == 1
    assert value("berth_claim_wait_seconds_count", pool="pairs") == 1
    assert 20 <= (value("berth_claim_wait_seconds_sum", pool="pairs") or 0) < 60


def test_an_allocation_failure_is_counted_once_for_each_reason() -> None:
    make_pool("full", slots=1)
    ask("full")
    ask("full")
    serve()
    serve()
    assert value("berth_allocation_failures_total", pool="full", reason="full") == 1


def test_a_created_claim_is_counted_once_also_with_a_named_slot() -> None:
    make_pool("lab", slots=1)
    before = value("berth_claims_created_total", state="bound") or 0
    create_claim(wish(slot=Slot.objects.get().pk, key="again"))
    create_claim(wish(slot=Slot.objects.get().pk, key="again"))
    assert value("berth_claims_created_total", state="bound") == before + 1
