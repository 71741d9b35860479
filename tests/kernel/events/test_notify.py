"""Hints: after the commit, the first at once, then few, the last one always, and never an error
for the caller.
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
from project.kernel.events.notify import Sender, hint


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


def test_the_first_goes_at_once(sent):
    sender = Sender(sent, Clock())
    sender.add(("claims",))
    assert sent.wait_for(1)
    assert sent.topics == ["claims"]


def test_a_thousand_become_one_now_and_one_last(sent):
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


def test_topics_do_not_hold_each_other_back(sent):
    sender = Sender(sent, Clock())
    for topic in notify.TOPICS:
        sender.add((topic, topic))
    assert sent.wait_for(len(notify.TOPICS))
    assert sorted(sent.topics) == sorted(notify.TOPICS)


def test_the_last_one_goes_by_itself(sent):
    sender = Sender(sent)
    sender.add(("claims",))
    assert sent.wait_for(1)
    sender.add(("claims",))
    assert sent.wait_for(2)  # with the real clock nobody needs to push


def test_what_fails_is_sent_again(sent):
    sent.failures = 2
    sender = Sender(sent)
    sender.add(("claims", "slots"))
    assert sent.wait_for(2)
    assert sender.flush(10)
    assert sorted(set(sent.topics)) == ["claims", "slots"]


def test_flush_knows_what_is_just_being_sent():
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


def test_a_topic_nobody_knows_is_a_mistake():
    with pytest.raises(ValueError, match="no such topic: claimz"):
        hint("claims", "claimz")


# On a real database -------------------------------------------------------------------------------


@pytest.fixture
def listener(transactional_db: None) -> Iterator[psycopg.Connection]:
    with connect_direct("test") as session:
        session.execute(f"LISTEN {notify.CHANNEL}")
        yield session


def heard(session: psycopg.Connection, n: int = 1, timeout: float = 10) -> list[str]:
    return [found.payload for found in session.notifies(timeout=timeout, stop_after=n)]


def test_listeners_hear_the_topic(listener):
    hint("slots")
    assert heard(listener) == ["slots"]


def test_nothing_is_heard_before_the_commit(listener):
    notify.flush()
    with transaction.atomic():
        hint("slots")
        assert heard(listener, timeout=0.1) == []
    assert heard(listener) == ["slots"]


def test_a_change_that_is_rolled_back_is_not_told(listener):
    with pytest.raises(KeyError), transaction.atomic():
        hint("pools")
        raise KeyError
    hint("slots")
    assert heard(listener) == ["slots"]


def test_a_lost_connection_is_replaced(listener):
    hint("slots")
    assert heard(listener) == ["slots"]
    listener.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name "
        "= 'berth hints'"
    )
    hint("slots")
    assert heard(listener) == ["slots"]


def test_the_caller_never_sees_an_error(monkeypatch, transactional_db):
    def refuse(*args: Any) -> None:
        raise RuntimeError("no thread can be started")

    monkeypatch.setattr(notify._sender, "add", refuse)
    with transaction.atomic():
        hint("slots")


# That is what this test is about.
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_sends_on_a_connection_of_its_own(listener):
    """The parent's thread does not exist in the child, and its connection must not be
    used there.
    """
    hint("slots")
    assert heard(listener) == ["slots"]
    child = os.fork()
    if child == 0:
        hint("pools")
        os._exit(0 if notify.flush(10) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert heard(listener) == ["pools"]
    hint("slots")  # the parent's connection is as good as before
    assert heard(listener) == ["slots"]
