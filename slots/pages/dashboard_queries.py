"""Reads members and slots for pages. display.py and dashboard_queries.sql have the rule for the
class of a slot.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from project.kernel.live.regions import reads_cells
from slots.agent.version import name_version
from slots.agent_versions import SAME, WORDS, compare
from slots.pages import dashboard_queries_sql
from slots.pages.display import (
    HIDDEN,
    MEMBER_WORDS,
    SLOT_WORDS,
    BarPart,
    SlotUse,
    bar_parts,
    member_class,
)

DENSE_FROM = 61  # members from which the page is dense; fewer have a box each
DENSE_SLOTS = 600  # slots above which the page is dense
WIDE_FROM = 9  # slots of a member from which its box has several lines


@dataclass(frozen=True, slots=True)
class SlotCell:
    id: int
    lane: str
    number: int
    name: str  # its class
    state: str
    claim_id: int | None  # the holder, or the last holder of a draining slot
    since: datetime

    @property
    def word(self) -> str:
        return SLOT_WORDS.get(self.name, self.name)

    @property
    def place(self) -> str:
        return f"{self.lane} {self.number}"


@dataclass(frozen=True, slots=True)
class MemberCard:
    """A member with its slots."""

    id: int
    pool_id: int
    name: str
    state: str
    css: str
    is_cordoned: bool
    is_leaving: bool
    note: str
    labels: Mapping[str, str]
    drain_until: datetime | None
    created_at: datetime
    changed_at: datetime
    beat_at: datetime | None
    external_id: str
    incarnation: int
    cells: tuple[SlotCell, ...] = ()
    restarts: int = 0
    gave_up_at: datetime | None = None  # no more automatic restarts since then
    is_outdated: bool = False  # created from an older configuration of its pool
    outside: str = ""  # what the provider waits for, or its last error
    drain_since: datetime | None = None
    drain_by: str = ""
    version: str = ""  # of its agent
    token_since: datetime | None = None
    is_token_new: bool = False  # issued, but not yet used by the agent
    cordon_by: str = ""  # actor of an order to cordon, independent of a drain
    cordon_note: str = ""
    unsaved: tuple[int, ...] = ()  # claims with a Terraform state that only the agent has

    @property
    def is_draining(self) -> bool:
        return self.is_leaving or self.drain_until is not None

    @property
    def stays(self) -> bool:
        """Whether the member stays after its drain."""
        return self.drain_until is not None and not self.is_leaving

    @property
    def stays_cordoned(self) -> bool:
        """Whether the member stays cordoned if its drain is cancelled."""
        return self.is_draining and bool(self.cordon_by)

    @property
    def empty_count(self) -> int:
        """Number of free and clean slots."""
        return sum(cell.state == "idle" for cell in self.cells)

    @property
    def empty_percent(self) -> int:
        return round(100 * self.empty_count / len(self.cells)) if self.cells else 100

    @property
    def unclean(self) -> list[SlotCell]:
        """Slots that are not clean yet after their claim has left."""
        return [cell for cell in self.cells if cell.state == "draining"]

    @property
    def zone(self) -> str:
        return self.labels.get("zone") or self.labels.get("topology.kubernetes.io/zone") or ""

    @property
    def version_mark(self) -> str:
        """A note about an agent version that differs from the server's; else empty."""
        return "" if (found := compare(self.version, name_version())) == SAME else WORDS[found]

    @property
    def version_state(self) -> str:
        return compare(self.version, name_version())

    @property
    def word(self) -> str:
        return (
            "draining"
            if self.css == "draining" and self.drain_until
            else MEMBER_WORDS.get(self.css, self.css)
        )

    @property
    def open_count(self) -> int:
        return sum(cell.name == "idle" for cell in self.cells)

    @property
    def lanes(self) -> list[tuple[str, list[SlotCell]]]:
        """Slots by lane, for a box with several lines."""
        found: dict[str, list[SlotCell]] = defaultdict(list)
        for cell in self.cells:
            found[cell.lane].append(cell)
        return list(found.items())

    @property
    def held(self) -> list[SlotCell]:
        return [cell for cell in self.cells if cell.state in ("held", "reserved")]

    @property
    def parts(self) -> list[BarPart]:
        counts: dict[str, int] = defaultdict(int)
        for cell in self.cells:
            counts[cell.name] += 1
        return bar_parts(counts)

    @property
    def summary(self) -> str:
        return f"{self.word}; " + ", ".join(f"{part.count} {part.word}" for part in self.parts)


@dataclass(frozen=True, slots=True)
class ShownSlotCounts:
    """Slots of a pool by displayed class and by stored state."""

    shown: Mapping[str, int] = field(default_factory=dict)
    held: int = 0
    reserved: int = 0
    total: int = 0

    @property
    def parts(self) -> list[BarPart]:
        return bar_parts(self.shown)

    @property
    def open(self) -> int:
        return self.shown.get("idle", 0)

    @property
    def use(self) -> SlotUse:
        return SlotUse(self.held, self.reserved, self.total)


@dataclass(frozen=True, slots=True)
class ShownMemberCounts:
    there: int = 0
    offline: int = 0
    cordoned: int = 0
    leaving: int = 0


def count_slots(pool_ids: Iterable[int]) -> dict[int, ShownSlotCounts]:
    """Slots of many pools, in one query."""
    ids = list(pool_ids)
    shown: dict[int, dict[str, int]] = {pool: defaultdict(int) for pool in ids}
    stored: dict[int, dict[str, int]] = {pool: defaultdict(int) for pool in ids}
    for row in dashboard_queries_sql.count_slots(pools=ids):
        shown[row.pool_id][row.name] += row.n
        stored[row.pool_id][row.state] += row.n
    return {
        pool: ShownSlotCounts(
            dict(shown[pool]),
            stored[pool]["held"],
            stored[pool]["reserved"],
            sum(n for state, n in stored[pool].items() if state != "retired"),
        )
        for pool in ids
    }


def count_members(pool_ids: Iterable[int]) -> dict[int, ShownMemberCounts]:
    ids = list(pool_ids)
    found = {
        row.pool_id: ShownMemberCounts(row.there, row.offline, row.cordoned, row.leaving)
        for row in dashboard_queries_sql.count_members(pools=ids)
    }
    return {pool: found.get(pool, ShownMemberCounts()) for pool in ids}


def list_boards(pool_id: int) -> list[MemberCard]:
    """Members of a pool with their slots, in the fixed order of the pool."""
    members = dashboard_queries_sql.list_members(pool=pool_id, member=None)
    cells = _cells_of([member.id for member in members])
    boards = [_board(member, cells.get(member.id, [])) for member in members]
    return [board for board in boards if board.state != "gone" or board.cells]


def get_board(pool_id: int, member_id: int) -> MemberCard | None:
    members = dashboard_queries_sql.list_members(pool=pool_id, member=member_id)
    return _board(members[0], _cells_of([member_id]).get(member_id, [])) if members else None


def is_dense(boards: list[MemberCard]) -> bool:
    return len(boards) >= DENSE_FROM or sum(len(board.cells) for board in boards) > DENSE_SLOTS


def is_wide(boards: list[MemberCard]) -> bool:
    """Whether a member has too many slots for one line. Cells then show their number instead of
    their time.
    """
    return any(len(board.cells) >= WIDE_FROM for board in boards)


def _cells_of(member_ids: list[int]) -> dict[int, list[SlotCell]]:
    cells: dict[int, list[SlotCell]] = defaultdict(list)
    for row in dashboard_queries_sql.list_cells(members=member_ids):
        if row.name != HIDDEN:
            claim = row.claim_id or (
                row.last_claim_id if row.name in ("draining", "lost") else None
            )
            cells[row.member_id].append(
                SlotCell(row.id, row.lane, row.number, row.name, row.state, claim, row.changed_at)
            )
    return cells


def _board(row: dashboard_queries_sql.ListMembersRow, cells: list[SlotCell]) -> MemberCard:
    css = member_class(
        row.state,
        is_cordoned=row.is_cordoned,
        is_leaving=row.is_leaving or row.drain_until is not None,
        is_lost=row.lost_at is not None,
        is_outdated=row.is_outdated,
    )
    return MemberCard(
        row.id,
        row.pool_id,
        row.name,
        row.state,
        css,
        row.is_cordoned,
        row.is_leaving,
        row.note,
        json.loads(row.labels),
        row.drain_until,
        row.created_at,
        row.changed_at,
        row.beat_at,
        row.external_id,
        row.incarnation,
        tuple(cells),
        row.restarts,
        row.gave_up_at,
        row.is_outdated,
        row.outside,
        row.drain_since,
        row.drain_by,
        row.version[:60],
        row.token_since,
        row.is_token_new,
        row.cordon_by,
        row.cordon_note,
        tuple(row.unsaved),
    )


@reads_cells
async def read_cells(
    connection: AsyncConnection[TupleRow], slots: set[int], members: set[int], pools: set[int]
) -> dict[int, dict[str, list[int]]]:
    """Current classes of slots by pool, for live updates. Runs on the live reader's connection."""
    cursor = await connection.execute(
        dashboard_queries_sql.statements.text("read_cells"),
        {"slots": list(slots), "members": list(members), "pools": list(pools)},
    )
    found: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for pool_id, slot_id, name in await cursor.fetchall():
        found[pool_id][name].append(slot_id)
    return found
