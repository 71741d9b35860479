"""What an agent is to do: read from the slots of its member, and watched for all agents of the process that wait.

An agent asks with what it has been told; it is answered at once where that is old, else when it changes. Waiting costs a socket: one
connection and one query serve all who wait, woken by hints, and one statement a second notes who was heard.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from asgiref.sync import sync_to_async

from project.kernel.database import direct_parameters
from project.kernel.hints import CHANNEL
from project.kernel.sql import Statements

logger = logging.getLogger(__name__)

AGENTS = Statements(Path(__file__).with_name("agents.sql"))
CHANGED, HEAR = AGENTS.texts["changed"], AGENTS.texts["hear"]

POLL = 0.5  # seconds between two looks without a hint
PAUSE = 0.04  # between two looks with one
LINGER = 15.0  # the connection is kept so long after the last one who waited
EVERY = 1.0  # seconds between two statements about who was heard


@dataclass(frozen=True, slots=True)
class Orders:
    version: str
    orders: list[dict[str, Any]]
    stop: list[dict[str, int]]
    keep: list[int]  # claims whose work directory is needed again
    is_leaving: bool

    def as_dict(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "orders": self.orders,
            "stop": self.stop,
            "keep": self.keep,
            "is_leaving": self.is_leaving,
        }


def read_orders(member_id: int) -> Orders:
    rows = AGENTS.rows("orders", member=member_id)
    orders: list[dict[str, Any]] = []
    stop: list[dict[str, int]] = []
    keep: list[int] = []
    for row in rows:
        if row.state == "held" and row.step:
            orders.append(
                {
                    "claim": row.claim, "generation": row.generation, "step": row.step, "slot": row.slot, "place": place_of(row),
                    "task": row.task or "plan",
                }
            )  # fmt: skip
        elif row.state == "draining":
            stop.append({"slot": row.slot, "generation": row.generation})
        elif row.state == "reserved":
            keep.append(row.claim)
    mark = rows[0].mark if rows else 0
    return Orders(version_of(mark), orders, stop, keep, bool(rows and rows[0].is_leaving))


def place_of(row: Any) -> str:
    return f"{row.lane}-{row.number}"


def version_of(mark: int) -> str:
    return f"{mark & (1 << 64) - 1:016x}"


# Who waits -----------------------------------------------------------------------------------------------------------------------------


def mark_of(version: str) -> int:
    number = int(version, 16)
    return number - (1 << 64) if number >= 1 << 63 else number


@dataclass(eq=False, slots=True)
class Waiter:
    member_id: int
    mark: int
    changed: asyncio.Future[None]


@dataclass
class Watch:
    _waiting: set[Waiter] = field(default_factory=set)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None
    _connection: psycopg.AsyncConnection[Any] | None = None

    async def wait_for(self, member_id: int, version: str, seconds: float) -> None:
        """Until its orders are others, or the time is over: the caller looks what they are."""
        waiter = Waiter(member_id, mark_of(version), asyncio.get_running_loop().create_future())
        self._waiting.add(waiter)
        # Not woken for each who comes: what was read a moment ago is looked at again with the next hint, or the timer.
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        elif len(self._waiting) == 1:
            self._wake.set()
        timer = asyncio.get_running_loop().call_later(seconds, release, waiter)
        try:
            await waiter.changed
        finally:
            timer.cancel()
            self._waiting.discard(waiter)

    async def _run(self) -> None:
        try:
            while await self._is_wanted():
                try:
                    await self._look()
                    await self._hint_or_timer()
                except (psycopg.Error, OSError) as error:
                    logger.warning("agents: the database does not answer, looking again in %s s: %s", POLL, error)
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
        marks = {"members": [w.member_id for w in waiting], "marks": [w.mark for w in waiting]}
        cursor = await connection.execute(CHANGED, marks, prepare=True)  # type: ignore[arg-type]
        changed = {row[0] for row in await cursor.fetchall()}
        for waiter in waiting if changed else ():
            if waiter.member_id in changed:
                release(waiter)
        if heard := ears.take():
            try:
                told = {"members": list(heard), "incarnations": list(heard.values())}
                await connection.execute(HEAR, told, prepare=True)  # type: ignore[arg-type]
            except BaseException:
                ears.put_back(heard)
                raise

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
            parameters = await sync_to_async(direct_parameters, thread_sensitive=False)("agents")
            self._connection = await psycopg.AsyncConnection.connect(**parameters)
            self._connection.add_notify_handler(lambda notification: None)  # else each would be kept for a reader who never comes
            await self._connection.execute(f"LISTEN {CHANNEL}")  # type: ignore[arg-type]
        return self._connection

    async def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def release(waiter: Waiter) -> None:
    if not waiter.changed.done():
        waiter.changed.set_result(None)


_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, Watch] = WeakKeyDictionary()


def watch() -> Watch:
    """That of this event loop. A server has one loop; tests have many."""
    loop = asyncio.get_running_loop()
    found = _watches.get(loop)
    if found is None:
        found = _watches[loop] = Watch()
    return found


# Who was heard -------------------------------------------------------------------------------------------------------------------------


class Ears:
    """Members that were heard since the last statement about it. Whoever finds that a second old writes for all of them; so does the
    watch. What a process has not written when it is killed is a second of silence, of the two minutes that count.
    """

    def __init__(self) -> None:
        self._heard: dict[int, int] = {}
        self._written_at = 0.0
        self._lock = threading.Lock()

    def hear(self, member_id: int, incarnation: int) -> None:
        with self._lock:
            self._heard[member_id] = incarnation
        if heard := self.take():
            try:
                AGENTS.rows("hear", members=list(heard), incarnations=list(heard.values()))
            except Exception:
                self.put_back(heard)
                raise

    def take(self) -> Mapping[int, int]:
        """Who is to be written, if the last time is long enough ago."""
        now = time.monotonic()
        with self._lock:
            if not self._heard or now - self._written_at < EVERY:
                return {}
            self._written_at = now
            heard, self._heard = self._heard, {}
        return heard

    def put_back(self, heard: Mapping[int, int]) -> None:
        with self._lock:
            self._heard = {**heard, **self._heard}
            self._written_at = 0.0


ears = Ears()
