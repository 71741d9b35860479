"""What an agent is to do: read from the slots of its member, and watched for all agents of the
process that wait.

An agent asks with what it has been told; it is answered at once where that is old, else when it
changes. Waiting costs a socket: one connection and one query serve all who wait, woken by hints,
and one statement a second notes who was heard.
"""

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from claims.tasks.runs import agents_sql
from project.kernel.http.long_poll import Connection, Watches

EVERY = 1.0  # seconds between two statements about who was heard


@dataclass(frozen=True, slots=True)
class OrderList:
    version: str
    orders: list[dict[str, Any]]
    stop: list[dict[str, int | None]]
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


def read_orders(member_id: int) -> OrderList:
    rows = agents_sql.orders(member=member_id)
    orders: list[dict[str, Any]] = []
    stop: list[dict[str, int | None]] = []
    keep: list[int] = []
    for row in rows:
        if row.state == "held" and row.step:
            orders.append(
                {
                    "claim": row.claim, "generation": row.generation, "step": row.step,
                    "slot": row.slot, "place": place_of(row), "task": row.task or "plan",
                }
            )  # fmt: skip
        elif row.state == "draining":
            stop.append({"slot": row.slot, "generation": row.generation})
        elif row.state == "reserved" and row.claim is not None:
            keep.append(row.claim)
    mark = rows[0].mark if rows else 0
    return OrderList(version_of(mark), orders, stop, keep, bool(rows and rows[0].is_leaving))


def place_of(row: Any) -> str:
    return f"{row.lane}-{row.number}"


def version_of(mark: int) -> str:
    return f"{mark & (1 << 64) - 1:016x}"


# Who waits ----------------------------------------------------------------------------------------


async def find_changed(
    connection: Connection, waiting: Iterable[tuple[int, int]]
) -> Iterable[tuple[int, int]]:
    """Members with the mark of what they were told, for whom it is something else by now. Who
    was heard is written on the way.
    """
    known = list(waiting)
    cursor = await connection.execute(
        agents_sql.statements.texts["changed"],  # type: ignore[arg-type]
        {"members": [member for member, _ in known], "marks": [mark for _, mark in known]},
        prepare=True,
    )
    changed = {row[0] for row in await cursor.fetchall()}
    if heard := heartbeat_buffer.take():
        told = {"members": list(heard), "incarnations": list(heard.values())}
        try:
            await connection.execute(agents_sql.statements.texts["hear"], told, prepare=True)  # type: ignore[arg-type]
        except BaseException:
            heartbeat_buffer.restore(heard)
            raise
    return [each for each in known if each[0] in changed] if changed else ()


watches = Watches("agents", find_changed)


async def wait_for_orders(member_id: int, version: str, seconds: float) -> None:
    """Until its orders are others than in that version, or the time is over: the caller looks
    what they are.
    """
    await watches.here().wait_for((member_id, mark_of(version)), seconds)


def mark_of(version: str) -> int:
    number = int(version, 16)
    return number - (1 << 64) if number >= 1 << 63 else number


# Who was heard ------------------------------------------------------------------------------------


class HeartbeatBuffer:
    """Members that were heard since the last statement about it. Whoever finds that a second old
    writes for all of them; so does the watch. What a process has not written when it is killed is a
    second of silence, of the two minutes that count.
    """

    def __init__(self) -> None:
        self._heard: dict[int, int] = {}
        self._written_at = 0.0
        self._lock = threading.Lock()

    def note(self, member_id: int, incarnation: int) -> None:
        """Written by the watch: who says so waits there, too."""
        with self._lock:
            self._heard[member_id] = incarnation

    def hear(self, member_id: int, incarnation: int) -> None:
        self.note(member_id, incarnation)
        if heard := self.take():
            try:
                agents_sql.hear(members=list(heard), incarnations=list(heard.values()))
            except Exception:
                self.restore(heard)
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

    def restore(self, heard: Mapping[int, int]) -> None:
        with self._lock:
            self._heard = {**heard, **self._heard}
            self._written_at = 0.0


heartbeat_buffer = HeartbeatBuffer()
