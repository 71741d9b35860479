"""Wake whoever waits for a topic, after the commit.

A hint is NOTIFY "berth" with the topic as payload. It is never the only way to learn of a change:
everybody who listens also looks by timer. NOTIFY inside the transaction serialises commits (0.2 to
0.4 of the throughput), so the process sends it afterwards, on a connection of its own: the first at
once, then at most ten a second for each topic, the last one always.
"""

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg

from project.kernel.db.after_commit import after_commit
from project.kernel.db.direct_connection import connect_direct

logger = logging.getLogger(__name__)

CHANNEL = "berth"
Subscriber = Callable[[], None]
TOPICS = ("claims", "slots", "operations", "pools", "events")
INTERVAL = 0.1  # seconds between two hints of one topic
PAUSE_LONGEST = 5.0  # after the database refused


class Sender:
    """Sends what is pending, from a daemon thread that starts with the first hint."""

    def __init__(
        self, send: Callable[[str], None] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._send = send or self._notify
        self._clock = clock
        self._change = threading.Condition()
        self._sending_now = threading.Lock()  # guards the connection
        self._pending: set[str] = set()
        self._sending: set[str] = set()
        self._sent_at: dict[str, float] = {}
        self._thread: threading.Thread | None = None
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def add(self, topics: tuple[str, ...]) -> None:
        # Nobody has taken it yet: what will be sent is sent after this commit, too.
        if self._pending.issuperset(topics):
            return
        with self._change:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="hints", daemon=True)
                self._thread.start()
            self._pending.update(topics)
            self._change.notify_all()

    def flush(self, timeout: float = 1.0) -> bool:
        """Wait until all is sent. False: not in time; the timers of those who listen make
        up for it.
        """
        with self._change:
            return self._change.wait_for(lambda: not (self._pending or self._sending), timeout)

    def disconnect(self, timeout: float = 1.0) -> None:
        """Send what is left and let go of the connection; the next hint opens another."""
        self.flush(timeout)
        with self._sending_now:
            self._forget_connection()

    def _run(self) -> None:
        failures = 0
        while True:
            self._take()
            try:
                with self._sending_now:
                    for topic in sorted(self._sending):
                        self._send(topic)
                failures = 0
            except Exception as error:
                failures += 1
                with self._sending_now:
                    self._forget_connection()
                # The first is the stale connection after a restart of the database.
                if failures == 2:
                    logger.warning("hints are not sent, work goes on by timer: %s", error)
                with self._change:
                    self._pending |= self._sending
            with self._change:
                self._sending = set()
                self._change.notify_all()
            if failures > 1:
                time.sleep(min(PAUSE_LONGEST, 0.1 * 2 ** min(failures, 10)))

    def _take(self) -> None:
        """What may go now moves from pending to sending, in one step for `flush`. Waits until
        there is something.
        """
        with self._change:
            while True:
                now = self._clock()
                due = {
                    t for t in self._pending if now - self._sent_at.get(t, -INTERVAL) >= INTERVAL
                }
                if due:
                    self._pending -= due
                    self._sending = due
                    self._sent_at.update(dict.fromkeys(due, now))
                    return
                waits = [self._sent_at[t] + INTERVAL - now for t in self._pending]
                self._change.wait(min(waits) if waits else None)

    def _notify(self, topic: str) -> None:
        if self._connection is None or self._connection.closed:
            self._connection = connect_direct("hints")
        self._connection.execute("SELECT pg_notify(%s, %s)", [CHANNEL, topic])

    def _forget_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


_sender = Sender()
# Of this process: what it has changed itself it need not hear of by NOTIFY first.
_subscribers: set[Subscriber] = set()


def publish(*topics: str) -> None:
    """After the present transaction (at once, if there is none): something changed. Never raises
    for the caller's commit.
    """
    if unknown := set(topics) - set(TOPICS):
        raise ValueError(f"no such topic: {', '.join(sorted(unknown))}")

    def send() -> None:
        _sender.add(topics)
        for ear in tuple(_subscribers):
            ear()

    after_commit(send)


def subscribe(ear: Subscriber) -> None:
    """Called with every hint of this process, from whatever thread; it does next to nothing and
    never raises.
    """
    _subscribers.add(ear)


def unsubscribe(ear: Subscriber) -> None:
    _subscribers.discard(ear)


def flush(timeout: float = 1.0) -> bool:
    return _sender.flush(timeout)


def disconnect() -> None:
    """For tests: whoever drops the database must be alone on it."""
    _sender.disconnect()


def _start_anew() -> None:
    """In a forked child: the thread stayed behind, and the connection is the parent's, not to be
    used or closed here.
    """
    global _sender
    _abandoned.append(_sender)
    _sender = Sender()


# Keeps the parent's connection object alive: collecting it would end the parent's session.
_abandoned: list[Sender] = []
os.register_at_fork(after_in_child=_start_anew)
atexit.register(flush)
