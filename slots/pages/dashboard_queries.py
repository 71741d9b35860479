"""Reads members and slots for pages. dashboard_queries.sql has the rule for the class of a slot."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from project.kernel.live.regions import Cells, reads_cells
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

ShownMemberCounts = dashboard_queries_sql.CountMembersRow

MEMBER_CELLS, PORT_CELLS = "members", "ports"  # views of the cells of a pool
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


class MemberCard(dashboard_queries_sql.ListMembersRow):
    """A member with its slots.

    `outside` is what the provider waits for, or its last error; `unsaved` names claims with a
    Terraform state that only the agent has. There are no automatic restarts since `gave_up_at`.
    """

    cells: list[SlotCell]

    @property
    def css(self) -> str:
        return member_class(
            self.state,
            is_cordoned=self.is_cordoned,
            is_leaving=self.is_draining,
            is_lost=self.lost_at is not None,
            is_outdated=self.is_outdated,
        )

    @property
    def labels(self) -> dict[str, str]:
        labels: dict[str, str] = json.loads(self.labels_json)
        return labels

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
        if self.is_evacuating and self.css in ("cordoned", "draining"):
            return "evacuating"
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
    found = {row.pool_id: row for row in dashboard_queries_sql.count_members(pools=ids)}
    return {pool: found.get(pool, ShownMemberCounts(pool, 0, 0, 0, 0)) for pool in ids}


def list_member_cards(pool_id: int) -> list[MemberCard]:
    """Members of a pool with their slots, in the fixed order of the pool."""
    members = dashboard_queries_sql.list_members(pool=pool_id, member=None)
    cells = _cells_of([member.id for member in members])
    cards = [_card(member, cells) for member in members]
    return [card for card in cards if card.state != "gone" or card.cells]


def get_member_card(pool_id: int, member_id: int) -> MemberCard | None:
    members = dashboard_queries_sql.list_members(pool=pool_id, member=member_id)
    return _card(members[0], _cells_of([member_id])) if members else None


def _card(
    member: dashboard_queries_sql.ListMembersRow, cells: Mapping[int, list[SlotCell]]
) -> MemberCard:
    card = MemberCard._make(member)
    card.cells = cells.get(member.id, [])
    return card


def is_dense(cards: list[MemberCard]) -> bool:
    return len(cards) >= DENSE_FROM or sum(len(card.cells) for card in cards) > DENSE_SLOTS


def is_wide(cards: list[MemberCard]) -> bool:
    """Whether a member has too many slots for one line. Cells then show their number instead of
    their time.
    """
    return any(len(card.cells) >= WIDE_FROM for card in cards)


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


@reads_cells
async def read_cells(
    connection: AsyncConnection[TupleRow], slots: set[int], members: set[int], pools: set[int]
) -> Cells:
    """Current classes of slots by pool and view, for live updates. Runs on the live reader's
    connection.
    """
    cursor = await connection.execute(
        dashboard_queries_sql.statements.text("read_cells"),
        {"slots": list(slots), "members": list(members), "pools": list(pools)},
    )
    found: Cells = defaultdict(lambda: defaultdict(list))
    for pool_id, slot_id, name, port_name in await cursor.fetchall():
        found[pool_id, MEMBER_CELLS][name].append(slot_id)
        found[pool_id, PORT_CELLS][port_name].append(slot_id)
    return found
