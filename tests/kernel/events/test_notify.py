"""Hints are sent after the commit, throttled per topic with the last one always sent, and never
raise in the caller.
"""

import os
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import transaction

from project.kernel.db.direct_connection import connect_direct
from project.kernel.events import notify
from project.kernel.events.notify import Sender, publish


class Sent:
    """Stands in for the database: notes what is sent and when, and can be down."""

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.change = threading.Condition()
        self.failures = 0

    def __call__(self, topic: str) -> None:
        with self.change:
            self.change.notify_all()
            if self.failures:
                self.failures -= 1
                raise psycopg.OperationalError("down")
            self.topics.append(topic)

    def wait_for(self, n: int) -> bool:
        with self.change:
            return self.change.wait_for(lambda: len(self.topics) >= n, 10)


class Clock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def sent() -> Sent:
    return Sent()


def test_first_hint_is_sent_at_once(sent):
    sender = Sender(sent, Clock())
    sender.add(("claims",))
    assert sent.wait_for(1)
    assert sent.topics == ["claims"]


def test_thousand_hints_become_one_at_once_and_one_at_the_end(sent):
    clock = Clock()
    sender = Sender(sent, clock)
    sender.add(("claims",))
    assert sender.flush(10)
    for _ in range(1000):
        sender.add(("claims",))
    assert not sender.flush(0.05)  # held back: it is too early for a second one
    assert sent.topics == ["claims"]
    clock.now += notify.INTERVAL
    sender.add(())  # any call makes the thread look at the clock
    assert sender.flush(10)
    assert sent.topics == ["claims", "claims"]


def test_topics_are_throttled_independently(sent):
    sender = Sender(sent, Clock())
    for topic in notify.TOPICS:
        sender.add((topic, topic))
    assert sent.wait_for(len(notify.TOPICS))
    assert sorted(sent.topics) == sorted(notify.TOPICS)


def test_last_hint_is_sent_without_another_call(sent):
    sender = Sender(sent)
    sender.add(("claims",))
    assert sent.wait_for(1)
    sender.add(("claims",))
    assert sent.wait_for(2)  # with the real clock no further call is needed


def test_failed_hint_is_sent_again(sent):
    sent.failures = 2
    sender = Sender(sent)
    sender.add(("claims", "slots"))
    assert sent.wait_for(2)
    assert sender.flush(10)
    assert sorted(set(sent.topics)) == ["claims", "slots"]


def test_flush_waits_for_the_hint_that_is_being_sent():
    inside, go_on = threading.Event(), threading.Event()

    def slow(topic: str) -> None:
        inside.set()
        assert go_on.wait(10)

    sender = Sender(slow)
    sender.add(("claims",))
    assert inside.wait(10)
    assert not sender.flush(0.01)
    go_on.set()
    assert sender.flush(10)


def test_unknown_topic_is_refused():
    with pytest.raises(ValueError, match="no such topic: claimz"):
        publish("claims", "claimz")


# On a real database -------------------------------------------------------------------------------


@pytest.fixture
def listener(transactional_db: None) -> Iterator[psycopg.Connection]:
    assert notify.flush(10)  # hints of earlier tests
    with connect_direct("test") as session:
        session.execute(f"LISTEN {notify.CHANNEL}")
        yield session


def heard(session: psycopg.Connection, n: int = 1, timeout: float = 10) -> list[str]:
    return [found.payload for found in session.notifies(timeout=timeout, stop_after=n)]


def test_listener_receives_the_topic(listener):
    publish("slots")
    assert heard(listener) == ["slots"]


def test_hint_is_not_sent_before_the_commit(listener):
    with transaction.atomic():
        publish("slots")
        assert heard(listener, timeout=0.1) == []
    assert heard(listener) == ["slots"]


def test_rolled_back_change_sends_no_hint(listener):
    with pytest.raises(KeyError), transaction.atomic():
        publish("pools")
        raise KeyError
    publish("slots")
    assert heard(listener) == ["slots"]


def test_lost_connection_is_replaced(listener):
    publish("slots")
    assert heard(listener) == ["slots"]
    listener.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name "
        "= 'berth hints'"
    )
    publish("slots")
    assert heard(listener) == ["slots"]


def test_caller_never_sees_an_error(monkeypatch, transactional_db):
    refused: list[Any] = []

    def refuse(*args: Any) -> None:
        refused.append(args)
        raise RuntimeError("no thread can be started")

    monkeypatch.setattr(notify._sender, "add", refuse)
    with transaction.atomic():
        publish("slots")
    assert len(refused) == 1


# That is what this test is about.
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_forked_child_sends_on_its_own_connection(listener):
    """The parent's thread does not exist in the child, and its connection must not be
    used there.
    """
    publish("slots")
    assert heard(listener) == ["slots"]
    child = os.fork()
    if child == 0:
        publish("pools")
        os._exit(0 if notify.flush(10) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert heard(listener) == ["pools"]
    publish("slots")  # the parent's connection is as good as before
    assert heard(listener) == ["slots"]
