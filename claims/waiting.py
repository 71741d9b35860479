"""Claims that requests of this process wait for (`?wait=`). One connection and one query at a time for all of them, none while nobody
waits; a hint or the timer says when to look. It knows states only: the request looks at the claim itself, with its permissions."""

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from asgiref.sync import sync_to_async

from project.kernel.database import direct_parameters
from project.kernel.hints import CHANNEL

logger = logging.getLogger(__name__)

POLL = 0.5  # seconds between two looks without a hint
PAUSE = 0.02  # between two looks with one: hints come ten times a second for each topic
LINGER = 15.0  # the connection is kept so long after the last one who waited
STATES = "SELECT id, state FROM claims_claim WHERE id = ANY (%s::bigint[])"


@dataclass(eq=False, slots=True)
class Waiter:
    claim_id: int
    states: frozenset[str]
    reached: asyncio.Future[None]

    def see(self, state: str | None) -> None:
        """None: the claim is not there. One that has ended will never be anything else."""
        if not self.reached.done() and (state is None or state == "ended" or state in self.states):
            self.reached.set_result(None)


class Watch:
    def __init__(self) -> None:
        self._waiting: set[Waiter] = set()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def wait_for(self, claim_id: int, states: frozenset[str], seconds: float) -> None:
        """Until it is in one of these states, has ended, or the time is over: the caller looks what it is."""
        waiter = Waiter(claim_id, states, asyncio.get_running_loop().create_future())
        self._waiting.add(waiter)
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(waiter.reached, seconds)
        finally:
            self._waiting.discard(waiter)

    async def _run(self) -> None:
        try:
            while await self._is_wanted():
                try:
                    await self._look()
                    await self._hint_or_timer()
                except (psycopg.Error, OSError) as error:
                    logger.warning("long-polls: the database does not answer, looking again in %s s: %s", POLL, error)
                    await self._close()
                    await asyncio.sleep(POLL)
        finally:
            await self._close()

    async def _is_wanted(self) -> bool:
        if not self._waiting:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), LINGER)
        return bool(self._waiting)

    async def _look(self) -> None:
        self._wake.clear()
        waiting = list(self._waiting)
        connection = await self._connected()
        cursor = await connection.execute(STATES, [list({w.claim_id for w in waiting})], prepare=True)
        states = dict(await cursor.fetchall())
        for waiter in waiting:
            waiter.see(states.get(waiter.claim_id))

    async def _hint_or_timer(self) -> None:
        """psycopg reads the socket only while it runs a query, so the loop looks for hints in between."""
        connection = await self._connected()
        loop, descriptor = asyncio.get_running_loop(), connection.fileno()
        loop.add_reader(descriptor, self._wake.set)
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), POLL)
        finally:
            loop.remove_reader(descriptor)
        await asyncio.sleep(PAUSE)

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        if self._connection is None or self._connection.closed:
            parameters = await sync_to_async(direct_parameters, thread_sensitive=False)("long-polls")
            self._connection = await psycopg.AsyncConnection.connect(**parameters)
            self._connection.add_notify_handler(lambda notification: None)  # else each would be kept for a reader who never comes
            await self._connection.execute(f"LISTEN {CHANNEL}")  # type: ignore[arg-type]
        return self._connection

    async def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, Watch] = WeakKeyDictionary()


def watch() -> Watch:
    """That of this event loop. A server has one loop; tests have many."""
    loop = asyncio.get_running_loop()
    found = _watches.get(loop)
    if found is None:
        found = _watches[loop] = Watch()
    return found
