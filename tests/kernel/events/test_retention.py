"""Retention deletes old rows in chunks, by age, and no other rows."""

import pytest
from django.db import connection

from project.kernel.db.locks import RETENTION, try_lock
from project.kernel.events import retention
from project.kernel.events.log import record
from project.kernel.events.retention import (
    RetentionRule,
    delete_chunk,
    delete_old,
    retention_days,
    retention_rule,
)
from project.kernel.models import Beat, Event, Operation
from project.kernel.outbox.operations import acquire_operations, add_operation, finish_operation
from tests.kernel.conftest import run_in_thread

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tables")]


def write_events(old: int, young: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO kernel_event (verb, actor, at)
            SELECT CASE WHEN n <= %s THEN 'old' ELSE 'young' END, 'x',
              now() - CASE WHEN n <= %s THEN interval '91 d' ELSE interval '89 d' END
            FROM generate_series(1, %s) n""",
            [old, old, old + young],
        )


def test_old_events_are_deleted_and_young_ones_stay():
    write_events(old=5, young=3)
    assert delete_chunk("events") == 5
    assert set(Event.objects.values_list("verb", flat=True)) == {"young"}


def test_events_are_deleted_in_chunks_oldest_first():
    write_events(old=25, young=1)
    first = Event.objects.order_by("id").first()
    assert first is not None
    assert [delete_chunk("events", 10) for _ in range(4)] == [10, 10, 5, 0]
    assert Event.objects.count() == 1
    assert not Event.objects.filter(pk=first.pk).exists()


def test_chunk_reads_no_more_rows_than_it_may_delete():
    """A deletion without a match must not read the whole log."""
    write_events(old=0, young=5000)
    with connection.cursor() as cursor:
        cursor.execute(
            "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) " + retention.DELETE_EVENTS,
            {"days": 90, "chunk": 100},
        )
        plan = "\n".join(r[0] for r in cursor.fetchall())
    assert (
        "Index Scan using kernel_event_pkey on kernel_event kernel_event_1 (actual rows=100" in plan
    ), plan
    assert "Sort" not in plan


def test_permission_to_delete_events_ends_with_the_chunk():
    write_events(old=1, young=1)
    delete_chunk("events")
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('berth.retention', true)")
        assert cursor.fetchone()[0] in (None, "")


@pytest.mark.usefixtures("committed_tables")
def test_two_processes_delete_different_rows():
    write_events(old=5, young=0)
    with try_lock(RETENTION, "events"):
        assert run_in_thread(lambda: delete_chunk("events")) == 0
    assert delete_chunk("events") == 5


def test_done_operations_are_deleted_after_a_week_and_open_ones_never():
    done, young, open_ = (add_operation(lane=lane, kind="sync", queue="q") for lane in "abc")
    for lane in "ab":
        assert finish_operation(acquire_operations("q", lane)[0])
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE kernel_operation SET done_at = now() - interval '8 d' WHERE id = %s", [done]
        )
        cursor.execute("UPDATE kernel_operation SET created_at = now() - interval '80 d'")
    assert delete_chunk("done operations") == 1
    assert set(Operation.objects.values_list("id", flat=True)) == {young, open_}


def test_beats_of_dead_processes_are_deleted():
    Beat.objects.create(
        name="allocate",
        instance="dead",
        started_at="2020-01-01T00:00:00Z",
        at="2020-01-02T00:00:00Z",
    )
    Beat.objects.create(name="allocate", instance="alive")
    assert delete_chunk("beats") == 1
    assert Beat.objects.get().instance == "alive"


def test_retention_days_are_a_setting_and_none_keeps_for_ever(settings):
    write_events(old=2, young=2)
    settings.BERTH_KEEP_DAYS = {"events": None}
    assert delete_chunk("events") == 0
    settings.BERTH_KEEP_DAYS = {"events": 80}
    assert retention_days("events") == 80
    assert delete_chunk("events") == 4


def test_delete_old_deletes_a_chunk_by_every_retention_rule(monkeypatch):
    monkeypatch.setattr(
        retention,
        "_rules",
        {
            "a": RetentionRule("a", 1, lambda days, n: 3),
            "b": RetentionRule("b", 1, lambda days, n: 0),
        },
    )
    assert delete_old() == 3

    @retention_rule("c", days=2)
    def delete(days: float, chunk: int) -> int:
        assert (days, chunk) == (2, retention.CHUNK)
        return 1

    assert delete_old() == 4


def test_event_outside_the_chunk_survives_the_deletion():
    write_events(old=3, young=0)
    record("x")
    assert delete_chunk("events") == 3
    assert Event.objects.get().verb == "x"
