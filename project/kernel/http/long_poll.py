"""Long polls: all requests of one process that wait for the same kind of change share one database
connection and one query at a time.

A waiting request holds neither thread nor connection (project.kernel.http.asgi). A watch queries
after a notification or by timer, and only while a request waits. The watch only wakes the request:
the request then reads the rows itself, with its own permissions.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable
from functools import partial
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import psycopg

from project.kernel.db.direct_connection import connect_direct_async
from project.kernel.events.notify import CHANNEL, subscribe, unsubscribe

logger = logging.getLogger(__name__)

POLL = 0.5  # seconds between two queries without a notification
PAUSE = 0.04  # between two queries with one: each topic sends up to ten a second
LINGER = 15.0  # seconds that the connection stays open after the last waiter

Subject = TypeVar("Subject", bound=Hashable)
Connection = psycopg.AsyncConnection[Any]
# Returns those of the awaited subjects that may have changed.
FindChanged = Callable[[Connection, Iterable[Subject]], Awaitable[Iterable[Subject]]]


Waiter = asyncio.Future[None]


def release(waiter: Waiter) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def wait_briefly(event: asyncio.Event, seconds: float | None) -> None:
    """Returns when the event is set, or after so many seconds."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


class Watch(Generic[Subject]):
    def __init__(self, name: str, find_changed: FindChanged[Subject], poll: float = POLL) -> None:
        self.name, self.find_changed, self.poll = name, find_changed, poll
        self._waiting: dict[Subject, set[Waiter]] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None

    async def wait_for(self, subject: Subject, seconds: float) -> None:
        """Returns when the subject may have changed, or after `seconds`."""
        loop = asyncio.get_running_loop()
        waiter: Waiter = loop.create_future()
        self._waiting.setdefault(subject, set()).add(waiter)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        elif len(self._waiting) == 1:
            self._wake.set()  # only the first waiter: for the next, timer and notification suffice
        timer = loop.call_later(seconds, release, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            waiters = self._waiting.get(subject, set())
            waiters.discard(waiter)
            if not waiters:
                self._waiting.pop(subject, None)

    async def close(self) -> None:
        """For tests: a database can be dropped only without connections."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._disconnect()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                loop.call_soon_threadsafe(self._wake.set)

        subscribe(wake)
        try:
            while await self._is_wanted():
                try:
                    await self._check()
                    await self._hint_or_timer()
                except (psycopg.Error, OSError) as error:
                    logger.warning(
                        "%s: the database does not answer; next query in %s s: %s",
                        self.name,
                        self.poll,
                        error,
                    )
                    await self._disconnect()
                    await asyncio.sleep(self.poll)
        finally:
            unsubscribe(wake)
            await self._disconnect()

    async def _is_wanted(self) -> bool:
        end = asyncio.get_running_loop().time() + LINGER
        while not self._waiting and (left := end - asyncio.get_running_loop().time()) > 0:
            self._wake.clear()
            await wait_briefly(self._wake, left)
        return bool(self._waiting)

    async def _check(self) -> None:
        self._wake.clear()
        connection = await self._connected()
        for subject in await self.find_changed(connection, list(self._waiting)):
            for waiter in self._waiting.get(subject, ()):
                release(waiter)

    async def _hint_or_timer(self) -> None:
        """Waits for a notification or the timer. psycopg reads the socket only during a query, so
        the event loop watches the socket between queries.
        """
        connection = await self._connected()
        loop, descriptor = asyncio.get_running_loop(), connection.fileno()
        loop.add_reader(descriptor, self._wake.set)
        try:
            await wait_briefly(self._wake, self.poll)
        finally:
            loop.remove_reader(descriptor)
        await asyncio.sleep(PAUSE)

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = await connect_direct_async(self.name)
            # Without a handler, psycopg stores every notification.
            self._connection.add_notify_handler(lambda notification: None)
            await self._connection.execute(f"LISTEN {CHANNEL}")
        return self._connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


class Watches(Generic[Subject]):
    """One watch for each event loop. A server has one loop; tests have many."""

    def __init__(self, name: str, find_changed: FindChanged[Subject], poll: float = POLL) -> None:
        self._make = partial(Watch, name, find_changed, poll)
        self._watches: WeakKeyDictionary[asyncio.AbstractEventLoop, Watch[Subject]] = (
            WeakKeyDictionary()
        )

    def here(self) -> Watch[Subject]:
        loop = asyncio.get_running_loop()
        found = self._watches.get(loop)
        if found is None:
            found = self._watches[loop] = self._make()
        return found
