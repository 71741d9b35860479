"""A failing chore of the periodic round holds up no other chore."""

import psycopg
import pytest
from django.db import OperationalError

from project.kernel.controllers import periodic
from project.kernel.controllers.periodic import Chore, PeriodicRunner


def chores_of(cause: Exception, done: list[str]) -> dict[str, Chore]:
    def fail() -> bool:
        raise OperationalError("not done") from cause

    def work() -> bool:
        done.append("b")
        return False

    return {"a": Chore("a", 1.0, fail), "b": Chore("b", 1.0, work)}


@pytest.mark.parametrize(
    "cause", [psycopg.errors.QueryCanceled(), psycopg.errors.LockNotAvailable()]
)
def test_statement_timeout_fails_only_its_own_chore(
    monkeypatch: pytest.MonkeyPatch, cause: Exception
) -> None:
    done: list[str] = []
    monkeypatch.setattr(periodic, "_chores", chores_of(cause, done))
    with pytest.raises(OperationalError):
        PeriodicRunner(clock=lambda: 0.0).step()
    assert done == ["b"]


def test_missing_database_ends_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(
        periodic,
        "_chores",
        chores_of(psycopg.OperationalError("server closed the connection"), done),
    )
    with pytest.raises(OperationalError):
        PeriodicRunner(clock=lambda: 0.0).step()
    assert not done
