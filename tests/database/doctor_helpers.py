"""Helpers for the doctor's tests: plant a fault past every rule, find it, repair it."""

from typing import Any

from django.db import connection

from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import ClaimRequest
from project.kernel.discovery import discover
from project.kernel.doctor.registry import Finding, get_check
from project.kernel.models import Event
from tests.database import helpers

discover("checks")


def plant(statement: str, *values: Any) -> None:
    """Past every trigger and foreign key, as a bug in the rules or a hand in the database would."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(statement, list(values))
        cursor.execute("SET LOCAL session_replication_role = origin")


def find(check: str) -> list[Finding]:
    return list(get_check(check).find())


def told(check: str) -> list[tuple[str, str]]:
    return [(f.subject, f.detail) for f in find(check)]


def mend(check: str) -> None:
    for finding in find(check):
        assert finding.fix is not None
        finding.fix()
    assert find(check) == []


def ask(pool: str = "lab", **more: Any) -> Any:
    return create_claim(ClaimRequest(pools=(pool,), requested_by="ana", **more))


def agree() -> bool:
    with connection.cursor() as cursor:
        for query in helpers.AUDIT.values():
            cursor.execute(query)
            if cursor.fetchone()[0]:
                return False
    return True


def is_told(claim: int) -> bool:
    return Event.objects.filter(verb="repair", claim_id=claim).exists()


def age(table: str, row: int, column: str = "changed_at", seconds: int = 120) -> None:
    plant(
        f"UPDATE {table} SET {column} = now() - make_interval(secs => %s) WHERE id = %s",
        seconds,
        row,
    )


def fill() -> list[Any]:
    return [ask() for _ in range(4)]
