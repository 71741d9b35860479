"""The orders of an agent, read from the slots of its member.

An agent asks with the version of its last orders. Berth answers an old version at once, and the
current version after the next change. A waiting agent costs only its socket: one connection and one
query of the process, woken by hints, serve all waiting agents, and one statement a second records
their heartbeats.
"""

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from claims.tasks.runs import agents_sql
from project.kernel.http.long_poll import Connection, Watches

EVERY = 1.0  # seconds between two statements that write heartbeats


@dataclass(frozen=True, slots=True)
class OrderList:
    version: str
    orders: list[dict[str, object]]
    stop: list[dict[str, int | None]]
    keep: list[int]  # claims whose work directory is needed again
    is_leaving: bool

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def read_orders(member_id: int) -> OrderList:
    rows = agents_sql.orders(member=member_id)
    orders: list[dict[str, object]] = []
    stop: list[dict[str, int | None]] = []
    keep: list[int] = []
    for row in rows:
        if row.state == "held" and row.step:
            orders.append(
                {
                    "claim": row.claim, "generation": row.generation, "step": row.step,
                    "slot": row.slot, "place": f"{row.lane}-{row.number}",
                    "task": row.task or "plan",
                }
            )  # fmt: skip
        elif row.state == "draining":
            stop.append({"slot": row.slot, "generation": row.generation})
        elif row.state == "reserved" and row.claim is not None:
            keep.append(row.claim)
    mark = rows[0].mark if rows else 0
    return OrderList(version_of(mark), orders, stop, keep, bool(rows and rows[0].is_leaving))


def version_of(mark: int) -> str:
    return f"{mark & (1 << 64) - 1:016x}"


# Waiting agents -----------------------------------------------------------------------------------


async def find_changed(
    connection: Connection, waiting: Iterable[tuple[int, int]]
) -> Iterable[tuple[int, int]]:
    """The waiting members whose orders no longer have the given mark. The same call also writes the
    collected heartbeats.
    """
    known = list(waiting)
    cursor = await connection.execute(
        agents_sql.statements.texts["changed"],
        {"members": [member for member, _ in known], "marks": [mark for _, mark in known]},
        prepare=True,
    )
    changed = {row[0] for row in await cursor.fetchall()}
    if due := heartbeat_buffer.take_due():
        values = {"members": list(due), "incarnations": list(due.values())}
        try:
            await connection.execute(
                agents_sql.statements.texts["record_heartbeats"], values, prepare=True
            )
        except BaseException:
            heartbeat_buffer.restore(due)
            raise
    return [each for each in known if each[0] in changed] if changed else ()


watches = Watches("agents", find_changed)


async def wait_for_orders(member_id: int, version: str, seconds: float) -> None:
    """Returns when the orders differ from that version, or after `seconds`."""
    await watches.here().wait_for((member_id, mark_of(version)), seconds)


def mark_of(version: str) -> int:
    number = int(version, 16)
    return number - (1 << 64) if number >= 1 << 63 else number


# Heartbeats ---------------------------------------------------------------------------------------


class HeartbeatBuffer:
    """Heartbeats since the last statement that wrote them. The first caller after a second writes
    all of them, and so does the watch. A killed process loses the heartbeats of one second; a
    member counts as silent after two minutes.
    """

    def __init__(self) -> None:
        self._collected: dict[int, int] = {}
        self._written_at = 0.0
        self._lock = threading.Lock()

    def add(self, member_id: int, incarnation: int) -> None:
        """Leaves the write to the watch, because this member waits in it."""
        with self._lock:
            self._collected[member_id] = incarnation

    def record(self, member_id: int, incarnation: int) -> None:
        self.add(member_id, incarnation)
        if due := self.take_due():
            try:
                agents_sql.record_heartbeats(members=list(due), incarnations=list(due.values()))
            except Exception:
                self.restore(due)
                raise

    def take_due(self) -> Mapping[int, int]:
        """The heartbeats to write now; empty within a second of the last write."""
        now = time.monotonic()
        with self._lock:
            if not self._collected or now - self._written_at < EVERY:
                return {}
            self._written_at = now
            due, self._collected = self._collected, {}
        return due

    def restore(self, due: Mapping[int, int]) -> None:
        with self._lock:
            self._collected = {**due, **self._collected}
            self._written_at = 0.0


heartbeat_buffer = HeartbeatBuffer()
