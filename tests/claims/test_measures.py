"""What Prometheus reads of queues."""

import pytest

from project.kernel.metrics import REGISTRY
from tests.claims.kit import age, ask, make_pool

pytestmark = pytest.mark.django_db(transaction=True)


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def test_a_queue_is_told_by_its_length_and_the_age_of_its_oldest_claim() -> None:
    make_pool("lab", slots=1)
    make_pool("idle", slots=1)
    ask("lab")
    first, _ = ask("lab"), ask("lab")
    age(first, 90)
    assert value("berth_claims_waiting", pool="lab", state="waiting") == 2
    assert value("berth_claims_waiting", pool="lab", state="blocked") == 0
    assert 90 <= (value("berth_claims_oldest_waiting_seconds", pool="lab") or 0) < 120
    assert value("berth_claims_waiting", pool="idle", state="waiting") == 0, "an empty queue is told, too"
    assert value("berth_claims_oldest_waiting_seconds", pool="idle") == 0


def test_claims_whose_pool_does_not_exist_are_counted_apart() -> None:
    ask("nowhere")
    assert value("berth_claims_waiting", pool="", state="waiting") == 1
