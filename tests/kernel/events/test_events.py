"""The event log is append-only, ordered by commit, and loses no event for its readers."""

import threading
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from django.db import DatabaseError, connection, connections, transaction

from project.kernel.actor import acting_as
from project.kernel.db.direct_connection import connect_direct, direct_parameters
from project.kernel.db.sql import run
from project.kernel.events import log
from project.kernel.events.log import Position, now_position, read_events, record
from project.kernel.models import Event

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def other() -> Iterator[psycopg.Connection]:
    """A second session."""
    with connect_direct("test") as session:
        yield session


def held_up_seconds() -> float:
    return float(run(log.HELD_UP, prepare=False)[0][0])


def write(session: psycopg.Connection, verb: str) -> None:
    session.execute("INSERT INTO kernel_event (verb, actor) VALUES (%s, 'other')", [verb])


def test_event_keeps_actor_verb_subjects_states_and_reason():
    start = now_position()
    with acting_as("user:7"):
        record(
            "bind",
            pool_id=1,
            member_id=2,
            slot_id=3,
            claim_id=4,
            generation=5,
            before="waiting",
            after="bound",
            reason="r",
            data={"k": [1]},
        )
    (row,), _ = read_events(start)
    assert (row.verb, row.pool_id, row.member_id, row.slot_id, row.claim_id, row.generation) == (
        "bind",
        1,
        2,
        3,
        4,
        5,
    )
    assert (row.before, row.after, row.actor, row.reason, row.data) == (
        "waiting",
        "bound",
        "user:7",
        "r",
        {"k": [1]},
    )
    assert row.at.tzinfo is not None


def test_default_actor_is_the_system_and_actors_are_truncated():
    start = now_position()
    record("a")
    record("b", actor="x" * 200)
    rows, _ = read_events(start)
    assert [r.actor for r in rows] == ["system", "x" * 80]


def test_event_of_a_late_commit_is_not_lost(other):
    """It drew the smaller id and commits after the larger one was read: a reader that trusts ids
    would pass over it.
    """
    start = now_position()
    with other.transaction():
        write(other, "early id, late commit")
        record("late id, early commit")
        seen, position = read_events(start)
        assert seen == []  # held back: an event with a lower id may still be committed
        assert held_up_seconds() > 0
    rows, end = read_events(position)
    assert [r.verb for r in rows] == ["early id, late commit", "late id, early commit"]
    assert rows[0].id < rows[1].id
    assert read_events(end) == ([], end)
    assert held_up_seconds() == 0


def test_reader_by_id_alone_would_lose_a_late_commit(other):
    """What the position is for. Seen red: this is the reader that was replaced."""
    newest = 0
    with other.transaction():
        write(other, "early id, late commit")
        record("late id, early commit")
        newest = Event.objects.latest("id").id
    assert not Event.objects.filter(id__gt=newest).exists()


def test_transactions_are_read_whole_and_in_order(other):
    start = now_position()
    with transaction.atomic():
        record("first")
        with other.transaction():
            write(other, "second")
        record("first again")
    rows, _ = read_events(start)
    assert [r.verb for r in rows] == ["first", "first again", "second"]


def test_log_pages_have_no_gap_and_no_overlap():
    start = now_position()
    with transaction.atomic():
        for n in range(25):
            record(f"v{n}")
    seen, position = [], start
    while rows := read_events(position, 10):
        if not rows[0]:
            break
        seen += [r.verb for r in rows[0]]
        position = rows[1]
    assert seen == [f"v{n}" for n in range(25)]


def test_reader_from_a_position_sees_events_its_snapshot_missed(other):
    """An event open at that moment is after the position, even if the snapshot did not show it."""
    with other.transaction():
        write(other, "open")
        position = now_position()
        assert not Event.objects.filter(verb="open").exists()
    assert [r.verb for r in read_events(position)[0]] == ["open"]


def test_read_statement_works_on_a_direct_connection():
    start = now_position()
    record("x", data={"a": 1})
    parameters = direct_parameters("test")
    with psycopg.connect(**parameters) as session:
        rows = session.execute(
            log.READ_EVENTS.format(limit=10), {"tx": str(start.tx), "id": start.id}
        ).fetchall()
    assert [log.row_of(r) for r in rows] == read_events(start)[0]


def test_log_is_read_through_its_index():
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO kernel_event (verb, actor) SELECT 'x', 'y' FROM generate_series(1, 5000)"
        )
        cursor.execute("EXPLAIN " + log.READ_EVENTS.format(limit=10), {"tx": "5", "id": 1})
        plan = "\n".join(r[0] for r in cursor.fetchall())
    assert "Index Scan using event_position" in plan
    assert "Sort" not in plan


@pytest.mark.parametrize(
    "text",
    ["", ".", "1", "1.", ".2", "a.b", "-1.2", "1.2.3", "١.٢", "9" * 30 + ".1", " 1.2"],  # noqa: RUF001
)
def test_invalid_position_text_is_refused(text):
    with pytest.raises(ValueError, match="not a position"):
        Position.parse(text)


def test_position_round_trips_through_its_text():
    assert Position.parse(str(Position(7, 12))) == Position(7, 12)


def test_event_cannot_be_updated():
    record("x")
    event = Event.objects.get()
    event.verb = "y"
    with pytest.raises(DatabaseError, match="events do not change"):
        event.save()


def test_event_cannot_be_deleted():
    record("x")
    with pytest.raises(DatabaseError, match="events are kept"):
        Event.objects.all().delete()


def test_renumbering_may_change_the_number_only():
    record("x")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL berth.retention = 'renumber'")
        with pytest.raises(DatabaseError, match="events do not change"), transaction.atomic():
            cursor.execute(
                "UPDATE kernel_event SET tx = pg_current_xact_id(), actor = 'somebody else'"
            )
        cursor.execute("UPDATE kernel_event SET tx = pg_current_xact_id()")


def test_listeners_are_notified_only_after_the_commit(monkeypatch):
    heard = []
    monkeypatch.setattr("project.kernel.events.notify._sender.add", heard.append)
    with transaction.atomic():
        record("x")
        assert heard == []
    assert heard == [("events",)]


def test_first_id_of_a_time_is_found_without_a_time_index():
    record("before")
    with connection.cursor() as cursor:
        # Holes.
        cursor.execute(
            "SELECT nextval(pg_get_serial_sequence('kernel_event', 'id')) "
            "FROM generate_series(1, 50)"
        )
    record("after")
    before, after = Event.objects.order_by("id")
    assert log.first_id_at(before.at - timedelta(seconds=1)) <= before.id
    assert before.id < log.first_id_at(after.at) <= after.id
    assert log.first_id_at(after.at + timedelta(seconds=1)) > after.id


def test_reader_beside_four_writers_sees_every_event_once():
    start, count, stop = now_position(), 50, threading.Event()
    seen: list[int] = []

    def work() -> None:
        for n in range(count):
            with transaction.atomic():
                record("x", slot_id=n)
                record("y", slot_id=n)
        connections.close_all()

    def follow() -> None:
        position = start
        while True:
            is_last = stop.is_set()
            rows, position = read_events(position, 7)
            seen.extend(r.id for r in rows)
            if is_last and not rows:
                break
        connections.close_all()

    writers = [threading.Thread(target=work) for _ in range(4)]
    reader = threading.Thread(target=follow)
    for thread in [*writers, reader]:
        thread.start()
    for thread in writers:
        thread.join(60)
    stop.set()
    reader.join(60)
    assert sorted(seen) == sorted(Event.objects.values_list("id", flat=True))
    assert len(seen) == len(set(seen)) == 4 * count * 2
