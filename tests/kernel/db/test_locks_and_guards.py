"""Guards on transactions, timeouts and scans, and advisory locks."""

import os
import signal
import subprocess
import sys
from datetime import datetime

import pytest
from django.db import connection, transaction

from project.kernel.db import locks
from project.kernel.db.guards import InsideTransaction, outside_transaction, patient, reporting
from project.kernel.db.locks import LANE, RETENTION, key_of, lock_in_transaction, try_lock
from tests.kernel.controllers.test_runtime import database_url
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def setting(name: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting(%s)", [name])
        return cursor.fetchone()[0]


@outside_transaction
def call_provider(n: int) -> int:
    return n + 1


def test_provider_call_inside_a_transaction_is_refused():
    with pytest.raises(InsideTransaction, match="call_provider"), transaction.atomic():
        call_provider(1)


def test_provider_call_outside_a_transaction_is_made():
    assert call_provider(1) == 2


def test_connection_without_autocommit_counts_as_a_transaction():
    transaction.set_autocommit(False)
    try:
        with pytest.raises(InsideTransaction):
            call_provider(1)
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


def test_hot_connections_have_short_timeouts_and_never_scan():
    assert [
        setting(n)
        for n in (
            "lock_timeout",
            "statement_timeout",
            "idle_in_transaction_session_timeout",
            "enable_seqscan",
        )
    ] == [
        "2s",
        "5s",
        "10s",
        "off",
    ]


def test_report_may_scan_and_restores_the_guards():
    with reporting():
        assert setting("enable_seqscan") == "on"
    assert setting("enable_seqscan") == "off"


def test_report_within_a_transaction_restores_the_guards():
    with transaction.atomic():
        with reporting():
            assert setting("enable_seqscan") == "on"
        assert setting("enable_seqscan") == "off"


def test_failed_report_restores_the_guards():
    with pytest.raises(KeyError), reporting():
        raise KeyError
    assert setting("enable_seqscan") == "off"


def test_patient_block_lifts_all_timeouts_for_itself_only():
    with patient():
        assert (
            setting("statement_timeout")
            == setting("lock_timeout")
            == setting("idle_in_transaction_session_timeout")
            == "0"
        )
    assert setting("statement_timeout") == "5s"


def test_patient_block_restores_timeouts_after_an_error():
    with pytest.raises(KeyError), patient():
        raise KeyError
    assert setting("statement_timeout") == "5s"


def test_lock_is_held_by_one_session_until_released(in_thread):
    def try_it() -> bool:
        with try_lock(LANE, "lb-1") as got:
            return got

    with try_lock(LANE, "lb-1") as got:
        assert got
        assert in_thread(try_it) is False
        assert in_thread(lambda: try_other_space()) is True
    assert in_thread(try_it) is True


def try_other_space() -> bool:
    with try_lock(RETENTION, "lb-1") as got:
        return got


def test_session_lock_lasts_through_transactions(in_thread):
    with try_lock(LANE, "lb-2") as got:
        with transaction.atomic():
            pass
        assert got
        assert in_thread(lambda: connection.cursor() and _tried("lb-2")) is False


def _tried(name: str) -> bool:
    with try_lock(LANE, name) as got:
        return got


def test_lost_session_releases_its_lock_without_an_error():
    with try_lock(LANE, "lb-3") as got:
        assert got
        connection.close()
    assert _tried("lb-3")


def test_process_that_stands_still_loses_its_lock():
    command = [sys.executable, "-m", "tests.kernel.db.lock_holder", "lb-4", "0.5"]
    holder = subprocess.Popen(
        command,
        env=os.environ | {"DATABASE_URL": database_url()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        try:
            assert holder.stdout and holder.stdout.readline() == b"held\n"
            holder.send_signal(signal.SIGSTOP)
            wait_until(lambda: _tried("lb-4"), "the frozen process keeps its lock")
        finally:
            holder.kill()


def test_session_of_a_held_lock_is_used_by_a_thread(in_thread, monkeypatch):
    monkeypatch.setattr(locks, "USED_EVERY", 0.02)

    def used_at() -> datetime:
        with connection.cursor() as cursor:
            cursor.execute("SELECT state_change FROM pg_stat_activity WHERE pid = %s", [session])
            return cursor.fetchone()[0]

    with try_lock(LANE, "lb-5"):
        session = connection.connection.info.backend_pid
        for _ in range(2):
            before = in_thread(used_at)
            wait_until(lambda: in_thread(used_at) > before, "no thread uses the session")  # noqa: B023
        assert in_thread(lambda: _tried("lb-5")) is False


def test_session_that_has_returned_its_lock_may_idle():
    with try_lock(LANE, "lb-6"):
        with try_lock(RETENTION, "lb-6"):
            pass
        assert setting("idle_session_timeout") == f"{locks.LOST_AFTER:.0f}s"
    assert setting("idle_session_timeout") == "0"


def test_lock_of_another_session_limits_nothing(in_thread):
    def read_limit() -> str:
        with try_lock(LANE, "lb-7") as got:
            assert not got
            return setting("idle_session_timeout")

    with try_lock(LANE, "lb-7"):
        assert in_thread(read_limit) == "0"


def test_transaction_lock_ends_with_its_transaction(in_thread):
    with transaction.atomic():
        lock_in_transaction(RETENTION, "x")
        assert in_thread(lambda: _tried_space("x")) is False
    assert in_thread(lambda: _tried_space("x")) is True


def _tried_space(name: str) -> bool:
    with try_lock(RETENTION, name) as got:
        return got


@pytest.mark.parametrize("name", ["", "a", "member:17", "x" * 300, "ü"])
def test_lock_key_fits_postgresql_advisory_lock_range(name):
    assert -(1 << 31) <= key_of(name) < 1 << 31


def test_forked_process_uses_its_own_locked_sessions_only():
    with try_lock(LANE, "lb-7") as got:
        assert got
        child = os.fork()
        if child == 0:
            are_own = not locks._in_use._sessions and locks._in_use._thread is None
            os._exit(0 if are_own else 1)
        assert os.waitpid(child, 0)[1] == 0
