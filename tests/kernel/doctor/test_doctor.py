"""Each of the kernel's doctor checks finds a planted fault, repairs it where it can, and finds no
other fault.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from project.kernel.db.direct_connection import connect_direct
from project.kernel.doctor import checks, registry
from project.kernel.doctor.registry import Finding, examine, get_check, repair
from project.kernel.errors import Invalid
from project.kernel.events.log import (
    START,
    now_position,
    read_events,
    record,
    renumber_future_events,
)
from project.kernel.models import Event, Operation
from project.kernel.outbox import operations as outbox
from project.kernel.outbox.operations import (
    AcquiredOperation,
    add_operation,
    perform_due,
    register_performer,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("performers")]
KERNEL = ["I18a", "I18b", "I22", "I23a", "I23b"]


def find(id: str) -> list[Finding]:
    return list(get_check(id).find())


def age(operation_id: int, seconds: float) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE kernel_operation SET created_at = now() - make_interval(secs => "
            "%s) WHERE id = %s",
            [seconds, operation_id],
        )


def test_healthy_database_has_no_findings():
    record("x")
    add_operation(lane="a", kind="sync")
    assert [(r.check.id, list(r.findings)) for r in examine(KERNEL)] == [(i, []) for i in KERNEL]


# I18 ----------------------------------------------------------------------------------------------


def test_operation_open_too_long_is_found():
    number = add_operation(lane="lb-1", kind="sync")
    age(number, checks.OPERATION_LIMIT + 10)
    (finding,) = find("I18a")
    assert finding.subject == f"operation {number}"
    assert "lb-1" in finding.detail
    assert "No worker performs" in finding.detail
    assert finding.fix is None


def test_repeatedly_failing_operation_is_found_and_made_due_by_repair():
    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        raise outbox.QuotaExceeded("50 listeners")

    number = add_operation(lane="lb-1", kind="sync", queue="q")
    perform_due("q")
    age(number, checks.OPERATION_LIMIT + 10)
    (finding,) = find("I18a")
    assert "50 listeners" in finding.detail
    assert repair("I18a")[0] == 1
    assert Operation.objects.get().error == ""


def test_pool_can_have_its_own_operation_age_limit(monkeypatch):
    monkeypatch.setattr(checks, "operation_limits", [lambda: {7: 5.0, 8: 5000.0}])
    short, long = (
        add_operation(lane="a", kind="sync", pool_id=7),
        add_operation(lane="a", kind="sync", pool_id=8),
    )
    for number in (short, long):
        age(number, 1000)
    assert [f.subject for f in find("I18a")] == [f"operation {short}"]


def fail_for_good() -> int:
    number = add_operation(lane="a", kind="nobody does", queue="q")
    perform_due("q")
    return number


def test_permanent_error_is_found_until_acknowledged():
    number = fail_for_good()
    assert [f.subject for f in find("I18b")] == [f"operation {number}"]
    outbox.acknowledge_operation(number)
    assert find("I18b") == []
    age(number, 10_000)
    assert find("I18a") == [], "it is not late, it has failed"


def test_permanent_error_can_be_retried():
    fail_for_good()
    assert repair("I18b") == (1, [])


# I22 ----------------------------------------------------------------------------------------------


@pytest.fixture
def restored() -> list[str]:
    """As after a restore from a dump: the log was written by a server that had come further."""
    for n in range(5):
        record(f"v{n}")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE kernel_event DISABLE TRIGGER event_unchanged")
        cursor.execute("UPDATE kernel_event SET tx = (tx::text::bigint + 1000000 - id)::text::xid8")
        cursor.execute("ALTER TABLE kernel_event ENABLE TRIGGER event_unchanged")
    return [f"v{n}" for n in range(5)]


def test_events_from_the_future_are_found(restored):
    (finding,) = find("I22")
    assert "5 events" in finding.detail


def test_events_from_the_future_are_not_read(restored):
    """Why it is an invariant. Their transactions have not been: the reader waits for them."""
    assert read_events(START) == ([], START)


def test_renumbered_events_are_read_in_their_written_order(restored):
    mended, left = repair("I22")
    assert (mended, left) == (1, [])
    rows, position = read_events(START)
    assert [r.verb for r in rows] == [*restored, "renumber"]
    record("after")
    assert [r.verb for r in read_events(position)[0]] == ["after"]


def test_renumbering_is_recorded_and_done_once(restored):
    assert renumber_future_events() == 5
    assert renumber_future_events() == 0
    assert Event.objects.get(verb="renumber").data == {"events": 5}


def test_events_of_this_server_keep_their_number():
    start = now_position()
    record("x")
    before = read_events(start)
    assert renumber_future_events() == 0
    assert read_events(start) == before


def test_only_events_from_the_future_are_renumbered(restored):
    start = now_position()
    record("of this server")
    before = Event.objects.get(verb="of this server").tx
    assert renumber_future_events() == 5
    assert Event.objects.get(verb="of this server").tx == before
    assert read_events(start)[0][0].verb == "of this server"


def test_renumbering_leaves_no_permission_to_change_events(restored):
    renumber_future_events()
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('berth.retention', true)")
        assert cursor.fetchone()[0] in (None, "")


# I23 ----------------------------------------------------------------------------------------------


@contextmanager
def forgotten(statement: str) -> Iterator[psycopg.Connection]:
    """A transaction that was left open."""
    with connect_direct("forgotten") as session:
        session.execute("SET idle_in_transaction_session_timeout = 0")
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        session.execute(statement)
        yield session
        if not session.closed:
            session.close()


def named(findings: list[Finding], session: psycopg.Connection) -> list[Finding]:
    """Those about this session: other tests' servers and sessions may be old as well."""
    pid = session.info.backend_pid
    return [f for f in findings if f.subject.startswith(f"process {pid}") and str(pid) in f.subject]


def test_old_transaction_is_found_and_ended(monkeypatch):
    with forgotten("SELECT 1") as session:
        assert named(find("I23a"), session) == [], "10 s have not passed"
        monkeypatch.setattr(checks, "TRANSACTION_LIMIT", 0.0)
        (finding,) = named(find("I23a"), session)
        assert "berth forgotten" in finding.detail
        assert finding.fix is not None
        finding.fix()
        with pytest.raises(psycopg.OperationalError):
            session.execute("SELECT 1")


def test_old_snapshot_is_found(monkeypatch):
    with forgotten("SELECT count(*) FROM kernel_event") as session:
        assert named(find("I23b"), session) == []
        monkeypatch.setattr(checks, "SNAPSHOT_LIMIT", 0.0)
        (finding,) = named(find("I23b"), session)
        assert "kept a snapshot" in finding.detail


def test_old_transaction_in_another_database_is_found(monkeypatch):
    """Its snapshot holds up readers of the log here."""
    monkeypatch.setattr(checks, "TRANSACTION_LIMIT", 0.0)
    with connect_direct("test") as session:
        conninfo = session.info.get_parameters() | {
            "password": session.info.password,
            "dbname": "postgres",
        }
    with psycopg.connect(**conninfo) as other:
        other.execute("SELECT 1")
        (finding,) = named(find("I23a"), other)
        assert "@postgres" in finding.detail


# The command --------------------------------------------------------------------------------------


def run_doctor(*args: str, **options: Any) -> tuple[int, str]:
    out: list[str] = []

    class Out:
        def write(self, text: str) -> int:
            out.append(text)
            return len(text)

    try:
        call_command("doctor", *args, stdout=Out(), stderr=Out(), **options)
    except SystemExit as left:
        return int(left.code or 0), "".join(out)
    return 0, "".join(out)


def test_doctor_exits_with_0_without_findings():
    status, text = run_doctor(*KERNEL)
    assert status == 0
    assert "5 checks, no findings." in text


def test_doctor_exits_with_1_and_names_finding_reason_and_repair():
    number = fail_for_good()
    status, text = run_doctor("I18b")
    assert status == 1
    assert all(
        part in text
        for part in (f"operation {number}", get_check("I18b").explain, "--repair tries again")
    )


def test_doctor_json_is_one_object():
    fail_for_good()
    status, text = run_doctor("I18b", json=True)
    found = json.loads(text)
    assert (status, found["ok"]) == (1, False)
    assert found["checks"][0]["findings"][0]["is_repairable"] is True


def test_doctor_repairs_on_request():
    fail_for_good()
    status, text = run_doctor(repair="I18b")
    assert status == 0
    assert "I18b: repaired 1" in text


def test_unknown_check_is_refused_with_the_known_ones():
    with pytest.raises(CommandError, match="There is no check I99. Checks: .*I18a"):
        call_command("doctor", "I99")


def test_checks_are_listed_by_their_number(monkeypatch):
    monkeypatch.setattr(registry, "_checks", {})
    for id in ("I10", "I9b", "I2", "I9a"):
        registry.check(id, "t", "e")(list)
    assert [c.id for c in registry.list_checks()] == ["I2", "I9a", "I9b", "I10"]
    with pytest.raises(ValueError, match="twice"):
        registry.check("I2", "t", "e")(list)


def test_unrepairable_finding_remains_and_is_reported(monkeypatch):
    monkeypatch.setattr(registry, "_checks", {})
    mended = threading.Event()
    found = [Finding("a", "", fix=mended.set), Finding("b", "by hand")]
    registry.check("I1", "t", "e")(lambda: [f for f in found if not (f.fix and mended.is_set())])
    assert repair("I1") == (1, [found[1]])
    with pytest.raises(Invalid):
        repair("I2")
