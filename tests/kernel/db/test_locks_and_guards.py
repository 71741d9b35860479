"""Guards on transactions, timeouts and scans, and advisory locks."""

import pytest
from django.db import connection, transaction

from project.kernel.db.guards import InsideTransaction, outside_transaction, patient, reporting
from project.kernel.db.locks import LANE, RETENTION, key_of, lock_in_transaction, try_lock

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
