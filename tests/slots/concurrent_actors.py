"""Concurrent actors for race tests, each in a thread with its own connection, stopped at a
chosen point.
"""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, connections, transaction

from tests.waiting import PATIENCE, load, wait_until


class Actor(threading.Thread):
    """Does one thing. `outcome` is what it answered or raised."""

    def __init__(self, does: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._does = does
        self._is_connected = threading.Event()
        self._pid = 0
        self.outcome: Any = None

    def run(self) -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                self._pid = cursor.fetchone()[0]
            self._is_connected.set()
            self.outcome = self._does()
        except Exception as error:
            self.outcome = error
        finally:
            connections.close_all()

    def begin(self) -> "Actor":
        self.start()
        assert self._is_connected.wait(PATIENCE * load())
        return self

    def until_blocked_or_done(self) -> str:
        """ "blocked" while the actor waits for a lock, "done" after its end."""

        def state() -> str:
            if not self.is_alive():
                return "done"
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s",
                    [self._pid],
                )
                row = cursor.fetchone()
            return "blocked" if row is not None and row[0] else ""

        return wait_until(state, "the actor neither waits for a lock nor ends")

    def result(self) -> Any:
        self.join(PATIENCE * load())
        assert not self.is_alive(), "it hangs"
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class Gate:
    """A place in the code where one actor stops. All other actors pass."""

    def __init__(self) -> None:
        self.is_reached = threading.Event()
        self._is_open = threading.Event()
        self._who: threading.Thread | None = None

    def before(self, monkeypatch: pytest.MonkeyPatch, place: str) -> "Gate":
        return self._around(monkeypatch, place, is_before=True)

    def after(self, monkeypatch: pytest.MonkeyPatch, place: str) -> "Gate":
        return self._around(monkeypatch, place, is_before=False)

    def _around(self, monkeypatch: pytest.MonkeyPatch, place: str, *, is_before: bool) -> "Gate":
        module, _, name = place.rpartition(".")
        original = getattr(__import__(module, fromlist=[name]), name)

        def passing(*args: Any, **kwargs: Any) -> Any:
            if is_before:
                self.stop_here()
            result = original(*args, **kwargs)
            if not is_before:
                self.stop_here()
            return result

        monkeypatch.setattr(place, passing)
        return self

    def stop_here(self) -> None:
        if threading.current_thread() is self._who:
            self.is_reached.set()
            assert self._is_open.wait(PATIENCE * load())

    def stops(self, does: Callable[[], Any]) -> Actor:
        """This actor, stopped at the gate."""
        actor = Actor(does)
        self._who = actor
        actor.begin()
        wait_until(lambda: self.is_reached.is_set() or not actor.is_alive())
        if not self.is_reached.is_set():
            assert isinstance(actor.outcome, Exception), "the actor ended before the gate"
            raise actor.outcome
        return actor

    def open(self) -> None:
        self._is_open.set()


def in_order(first: Callable[[], Any], second: Callable[[], Any]) -> tuple[Any, Any]:
    """The outcomes of two actors. The second begins when the first has acted and not committed."""
    gate = Gate()

    def lead() -> Any:
        with transaction.atomic():
            found = first()
            gate.stop_here()
        return found

    leader = gate.stops(lead)
    follower = Actor(second).begin()
    follower.until_blocked_or_done()
    gate.open()
    leader.join()
    follower.join()
    return leader.outcome, follower.outcome
