"""When a worker counts as wedged, and what its probes report."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from redis.exceptions import ConnectionError as BrokerAway

from project.kernel.controllers import heartbeats, worker_liveness
from project.kernel.controllers.worker_liveness import WorkerLiveness
from project.kernel.db.direct_connection import connect_direct
from project.kernel.models import Beat

pytestmark = pytest.mark.django_db(transaction=True)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def make() -> Iterator[Callable[..., WorkerLiveness]]:
    """Pulses that leave no connection behind."""
    made = []

    def make(ask: Callable[[], bool], **options: Any) -> WorkerLiveness:
        made.append(WorkerLiveness(ask, "here:1", **options))
        return made[-1]

    yield make
    for pulse in made:
        pulse.stop()
        pulse.run()  # ends at once, and takes its beat along
    assert not Beat.objects.filter(instance="here:1").exists()


def away() -> bool:
    raise BrokerAway("refused")


def test_silent_consumer_beside_a_live_broker_counts_as_wedged(make):
    clock = Clock()
    pulse = make(lambda: False, clock=clock)
    pulse.check()
    assert (pulse.explain_stuck(), pulse.explain_unready()) == ("", "")
    then = timezone.now() - timedelta(seconds=heartbeats.STALE * 2)
    Beat.objects.update(at=then, started_at=then)
    clock.now += heartbeats.STALE + 1
    pulse.check()
    assert "the consumer has not answered for 31 s" in pulse.explain_stuck()
    (health,) = [h for h in heartbeats.check_loops(["worker"]) if h.name == "worker"]
    assert not health.is_well
    assert "has not moved" in health.detail
    pulse.stop()
    assert pulse.explain_stuck() == "", "a worker that drains is not restarted"


def test_missing_broker_restarts_no_worker(make):
    clock = Clock()
    pulse = make(away, clock=clock)
    for _ in range(10):
        clock.now += heartbeats.STALE
        pulse.check()
    assert pulse.explain_stuck() == ""
    assert heartbeats.check_loops(["worker"])[0].is_well


def test_worker_without_a_beat_is_unready_but_alive(make):
    def refuse():
        raise worker_liveness.psycopg.OperationalError("refused")

    pulse = make(lambda: True, connect=refuse)
    pulse.check()
    assert pulse.explain_stuck() == ""
    assert pulse.explain_unready() == "no heartbeat of this worker is in the database"


def test_lost_database_connection_is_replaced_at_the_next_check(make):
    opened = []

    def connect():
        opened.append(connect_direct("test"))
        return opened[-1]

    pulse = make(lambda: True, connect=connect)
    pulse.check()
    opened[0].close()
    pulse.check()
    assert pulse.explain_unready() != ""
    pulse.check()
    assert (len(opened), pulse.explain_unready()) == (2, "")
    assert Beat.objects.filter(name="worker", instance="here:1").count() == 1
