"""Heartbeats show which loops move: a beat stands still when its loop does."""

from collections.abc import Iterator

import psycopg
import pytest

from project.kernel.controllers import heartbeats
from project.kernel.controllers.heartbeats import LoopHeartbeat, check_loops
from project.kernel.db.direct_connection import connect_direct
from project.kernel.models import Beat

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session() -> Iterator[psycopg.Connection]:
    with connect_direct("test") as session:
        yield session


def pulse(
    name: str = "allocate", stuck: float = 0.0, failures: int = 0, error: str = ""
) -> LoopHeartbeat:
    return LoopHeartbeat(name, stuck, 1, failures, error)


def test_moving_loop_is_healthy(session):
    heartbeats.write(session, "here", [pulse()])
    assert [h.is_well for h in check_loops()] == [True]


def test_loop_stuck_in_one_step_is_reported(session):
    heartbeats.write(session, "here", [pulse()])
    session.execute(
        "UPDATE kernel_beat SET at = at - interval '1 hour', started_at = started_at - "
        "interval '1 hour'"
    )
    heartbeats.write(session, "here", [pulse(stuck=heartbeats.STALE + 5), pulse("other")])
    found = {h.name: h for h in check_loops()}
    assert not found["allocate"].is_well
    assert "has not moved for 35 s" in found["allocate"].detail
    assert found["other"].is_well


def test_beat_never_goes_back(session):
    heartbeats.write(session, "here", [pulse()])
    before = Beat.objects.get().at
    heartbeats.write(session, "here", [pulse(stuck=500)])
    assert Beat.objects.get().at == before


def test_dead_process_is_ignored_while_another_runs_the_same_loop(session):
    heartbeats.write(session, "dead", [pulse()])
    session.execute(
        "UPDATE kernel_beat SET at = at - interval '1 hour', started_at = started_at - "
        "interval '1 hour'"
    )
    assert not check_loops()[0].is_well
    heartbeats.write(session, "alive", [pulse()])
    assert check_loops()[0].is_well


def test_controller_without_a_process_is_named():
    assert [(h.name, h.is_well, h.detail) for h in check_loops(["finalize"])] == [
        ("finalize", False, "no process runs it")
    ]


@pytest.mark.parametrize(("failures", "is_well"), [(0, True), (1, True), (4, True), (5, False)])
def test_few_failures_are_reported_and_many_make_a_loop_unhealthy(session, failures, is_well):
    heartbeats.write(
        session, "here", [pulse(failures=failures, error="ValueError: x" if failures else "")]
    )
    (health,) = check_loops()
    assert health.is_well is is_well
    assert ("ValueError: x" in health.detail) is bool(failures)
