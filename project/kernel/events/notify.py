"""Wake the listeners of a topic after a commit.

A hint is NOTIFY "berth" with the topic as payload. Listeners also look by timer, so a lost hint
only costs time. NOTIFY inside the transaction serialises commits (0.2 to 0.4 of the throughput), so
the process sends hints after the commit, on a connection of its own: the first hint at once, then
at most ten per second and topic, and always the last one.
"""

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable

import psycopg

from project.kernel.db.after_commit import after_commit
from project.kernel.db.direct_connection import connect_direct

logger = logging.getLogger(__name__)

CHANNEL = "berth"
Subscriber = Callable[[], None]
TOPICS = ("claims", "slots", "operations", "pools", "events")
INTERVAL = 0.1  # seconds between two hints of one topic
PAUSE_LONGEST = 5.0  # seconds after a failure of the database


class Sender:
    """Sends pending hints from a daemon thread, which starts with the first hint."""

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
        self._connection: psycopg.Connection[object] | None = None

    def add(self, topics: tuple[str, ...]) -> None:
        # The thread has not taken these hints yet, so it sends them after this commit.
        if self._pending.issuperset(topics):
            return
        with self._change:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="hints", daemon=True)
                self._thread.start()
            self._pending.update(topics)
            self._change.notify_all()

    def flush(self, timeout: float = 1.0) -> bool:
        """Wait until all hints are sent. False: not in time; then listeners look by timer."""
        with self._change:
            return self._change.wait_for(lambda: not (self._pending or self._sending), timeout)

    def disconnect(self) -> None:
        """Send pending hints and close the connection; the next hint opens another one."""
        self.flush()
        with self._sending_now:
            self._forget_connection()

    def _run(self) -> None:
        failures = 0
        while True:
            self._take_due()
            try:
                with self._sending_now:
                    for topic in sorted(self._sending):
                        self._send(topic)
                failures = 0
            except Exception as error:
                failures += 1
                with self._sending_now:
                    self._forget_connection()
                # The first failure may be the stale connection after a restart of the database.
                if failures == 2:
                    logger.warning("hints are not sent, listeners look by timer: %s", error)
                with self._change:
                    self._pending |= self._sending
            with self._change:
                self._sending = set()
                self._change.notify_all()
            if failures > 1:
                time.sleep(min(PAUSE_LONGEST, 0.1 * 2 ** min(failures, 10)))

    def _take_due(self) -> None:
        """Waits for due hints and moves them from pending to sending, in one step for `flush`."""
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
# Subscribers of this process get its own hints without NOTIFY.
_subscribers: set[Subscriber] = set()


def publish(*topics: str) -> None:
    """Sends hints after the current transaction, or at once without a transaction. A failure never
    reaches the caller's commit.
    """
    if unknown := set(topics) - set(TOPICS):
        raise ValueError(f"no such topic: {', '.join(sorted(unknown))}")

    def send() -> None:
        _sender.add(topics)
        for subscriber in tuple(_subscribers):
            subscriber()

    after_commit(send)


def subscribe(subscriber: Subscriber) -> None:
    """Calls `subscriber` with each hint of this process, from any thread. The subscriber must be
    fast and must not raise.
    """
    _subscribers.add(subscriber)


def unsubscribe(subscriber: Subscriber) -> None:
    _subscribers.discard(subscriber)


def flush(timeout: float = 1.0) -> bool:
    return _sender.flush(timeout)


def disconnect() -> None:
    """For tests: dropping a database needs all connections closed."""
    _sender.disconnect()


def _reset_after_fork() -> None:
    """A forked child has no sender thread, and the connection belongs to the parent: the child must
    neither use nor close it.
    """
    global _sender
    _abandoned.append(_sender)
    _sender = Sender()


# Keeps the parent's connection object alive: garbage collection would end the parent's session.
_abandoned: list[Sender] = []
os.register_at_fork(after_in_child=_reset_after_fork)
atexit.register(flush)
