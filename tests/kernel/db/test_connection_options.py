"""Timeouts and planner options of every database connection."""

import pytest
from django.db import connection


@pytest.mark.django_db
def test_every_connection_has_timeouts_and_planner_guards() -> None:
    shown = {}
    with connection.cursor() as cursor:
        for name in (
            "lock_timeout",
            "statement_timeout",
            "idle_in_transaction_session_timeout",
            "enable_seqscan",
            "plan_cache_mode",
        ):
            cursor.execute(f"show {name}")
            shown[name] = cursor.fetchone()[0]
    assert shown == {
        "lock_timeout": "2s",
        "statement_timeout": "5s",
        "idle_in_transaction_session_timeout": "10s",
        "enable_seqscan": "off",
        "plan_cache_mode": "force_generic_plan",
    }
