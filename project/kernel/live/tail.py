"""Reads of the live hub: new events of the log, and the present class of changed slots.

One asynchronous connection runs all reads, outside of transactions. The query for slots belongs to
`slots/pages/dashboard_queries.py`, which registers it with `reads_cells`.
"""

from typing import Any

import psycopg

from project.kernel.db.direct_connection import connect_direct_async
from project.kernel.events import log
from project.kernel.events.log import START, EventRow, Position

from . import regions

BATCH = 2000  # events of one read
CATCH_UP = 20_000  # events; a page that is further behind reloads
RECENT = 4 * BATCH  # remembered events, for sockets that reconnect soon


class LiveLog:
    """This process's position in the log, and the last events before it."""

    def __init__(self) -> None:
        self.position = START
        self._recent: list[EventRow] = []
        self._recent_from = START
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def begin(self) -> None:
        if self.position == START:
            connection = await self._connected()
            cursor = await connection.execute(log.NOW_POSITION)
            row = await cursor.fetchone()
            self.position = self._recent_from = Position(int(row[0]) if row else 0, 0)

    async def more(self) -> list[EventRow]:
        """The events committed since the last read; fewer than BATCH means all of them."""
        rows = await self._read(self.position)
        if rows:
            self.position = rows[-1].position
            self._recent += rows
            if len(self._recent) > RECENT:
                self._recent_from = self._recent[-RECENT // 2 - 1].position
                self._recent = self._recent[-RECENT // 2 :]
        return rows

    async def since(self, after: Position) -> list[EventRow] | None:
        """The events after a position, for a socket that reconnects; None: too many."""
        if after < self._recent_from:
            earlier = await self._between(after, self._recent_from)
            if earlier is None:
                return None
            # The next sockets that reconnect find these events in memory.
            self._recent, self._recent_from = earlier + self._recent, after
        return [row for row in self._recent if row.position > after]

    async def cells(self, slots: set[int], members: set[int], pools: set[int]) -> regions.Cells:
        """The changed slots, by pool, view and present class."""
        if regions.read_cells is None or not (slots or members or pools):
            return {}
        return await regions.read_cells(await self._connected(), slots, members, pools)

    async def held_up(self) -> float:
        connection = await self._connected()
        cursor = await connection.execute(log.HELD_UP)
        row = await cursor.fetchone()
        return float(row[0]) if row else 0.0

    async def forget_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _between(self, after: Position, end: Position) -> list[EventRow] | None:
        rows: list[EventRow] = []
        while len(rows) < CATCH_UP:
            more = await self._read(after)
            rows += [row for row in more if row.position <= end]
            if len(more) < BATCH or more[-1].position > end:
                return rows
            after = more[-1].position
        return None

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = await connect_direct_async("live")
        return self._connection

    async def _read(self, after: Position) -> list[EventRow]:
        connection = await self._connected()
        query: Any = log.READ_EVENTS.format(limit=BATCH)
        cursor = await connection.execute(query, {"tx": str(after.tx), "id": after.id})
        return [log.row_of(row) for row in await cursor.fetchall()]
