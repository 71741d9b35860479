"""The port map: load balancers of a pool as rows, their ports as cells.

A map of up to 2,000 cells shows all load balancers. Above that, each load balancer is one row with
its counts, and the map shows the cells of the load balancer that the viewer opens.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pools.config.layout import Layout, Ports
from pools.lifecycle.selectors import LIVE, layout_of, member_spec_of
from pools.models import Member, Pool
from project.kernel.ui import formatting
from slots.models import Evacuation
from slots.pages import dashboard_queries_sql
from slots.pages.dashboard_queries_sql import ListPortsRow
from slots.pages.display import HIDDEN, MEMBER_WORDS, member_class

PER_LINE = 50  # ports in a line
MOST_CELLS = 2_000  # cells of a map; a larger map is folded
MOST_OF_ONE = 5_000  # cells of one opened load balancer

# In the order of the legend.
PORT_WORDS = {
    "running": "serving",
    "reserved": "not ready yet",
    "bound": "held",
    "draining": "draining",
    "offline": "offline",
    "lost": "lost",
    "closed": "closed",
    "idle": "open",
    "missing": "missing",
    "changed": "changed outside",
    "problem": "cannot serve",
    "orphan": "orphan",
    "foreign": "foreign, uses quota",
    "quarantine": "in quarantine",
}
FINDINGS = ("missing", "changed", "problem", "orphan", "foreign")
HEALTH_WORDS = {
    "": "listener not seen yet",
    "initial": "target not healthy yet",
    "unhealthy": "target unhealthy",
    "draining": "target draining",
}


@dataclass(frozen=True, slots=True)
class PortCell:
    id: int  # 0: a foreign listener of the configuration, which has no slot
    name: str  # its class
    title: str
    claim_id: int | None = None

    @property
    def is_marked(self) -> bool:
        """Whether the key that jumps to the next finding stops here."""
        return bool(self.id) and self.name in FINDINGS


@dataclass(frozen=True, slots=True)
class PortLine:
    """A row of the grid. None: the load balancer does not offer this number."""

    lane: str
    start: int
    cells: Sequence[PortCell | None]
    is_first: bool  # of its load balancer


@dataclass(frozen=True, slots=True)
class PortPart:
    name: str
    count: int

    @property
    def word(self) -> str:
        return PORT_WORDS[self.name]


@dataclass(slots=True)
class PortMember:
    id: int
    name: str
    css: str
    is_evacuating: bool = False
    used: int = 0  # listeners, also those that drain, orphans and foreign ones
    quota: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    foreign: frozenset[int] = frozenset()  # ports that the configuration lists as foreign
    lines: list[PortLine] = field(default_factory=list)

    @property
    def used_title(self) -> str:
        text = formatting.plural(self.used, "listener")
        return f"{text} of a quota of {self.quota}: held, draining, orphaned and foreign ones"

    @property
    def word(self) -> str:
        return "evacuating" if self.is_evacuating else MEMBER_WORDS.get(self.css, self.css)

    @property
    def parts(self) -> list[PortPart]:
        return parts_of(self.counts)

    @property
    def findings(self) -> int:
        return sum(self.counts[name] for name in FINDINGS)

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class PortMap:
    members: list[PortMember]  # of this view
    hidden: int  # load balancers that the filter leaves out
    is_folded: bool
    opened: PortMember | None  # whose cells a folded map shows
    columns: list[int]  # numbers of the columns; empty: lines begin with different numbers
    parts: list[PortPart]
    has_lanes: bool
    has_more: bool  # not all ports of the opened load balancer are shown

    @property
    def width(self) -> int:
        return len(self.columns) or PER_LINE

    @property
    def axis(self) -> list[tuple[int, int]]:
        """Each tenth number, and how many columns its label spans."""
        return [
            (self.columns[n], min(10, len(self.columns) - n))
            for n in range(0, len(self.columns), 10)
        ]


Owners = Callable[[Iterable[int]], Mapping[int, str]]


def parts_of(counts: Mapping[str, int]) -> list[PortPart]:
    return [PortPart(name, counts[name]) for name in PORT_WORDS if counts.get(name)]


def read_map(
    pool: Pool, owners_of: Owners, *, opened: str = "", only_findings: bool = False
) -> PortMap:
    """Five queries, whatever the size. `opened`: the name of a load balancer, for a folded map."""
    layout = layout_of(pool)
    assert layout.ports is not None
    every = list_port_members(pool, layout)
    members = [each for each in every if each.findings or not only_findings]
    is_folded = sum(each.total for each in every) > MOST_CELLS
    chosen = next((each for each in members if each.name == opened), None) if is_folded else None
    drawn = ([] if chosen is None else [chosen]) if is_folded else members
    most = MOST_OF_ONE if is_folded else MOST_CELLS
    rows = dashboard_queries_sql.list_ports(most + 1, members=[each.id for each in drawn])
    has_more = len(rows) > most
    shown = [row for row in rows[:most] if row.name != HIDDEN]
    columns = draw_lines(drawn, shown, layout.ports, owners_of)
    return PortMap(
        members=members,
        hidden=len(every) - len(members),
        is_folded=is_folded,
        opened=chosen,
        columns=columns,
        parts=parts_of(sum((each.counts for each in every), Counter[str]())),
        has_lanes=len(layout.classes) > 1,
        has_more=has_more,
    )


def list_port_members(pool: Pool, layout: Layout) -> list[PortMember]:
    """The load balancers in their fixed order, with counts and without cells."""
    found = {}
    members = Member.objects.filter(LIVE, pool=pool)
    evacuating = set(
        Evacuation.objects.filter(member_id__in=members.values("pk")).values_list("pk", flat=True)
    )
    for row in members.order_by("position", "id"):
        css = member_class(
            row.state,
            is_cordoned=row.is_cordoned,
            is_leaving=row.is_leaving or row.drain_until is not None,
            is_lost=row.lost_at is not None,
            is_outdated=bool(row.spec_digest and pool.member_digest != row.spec_digest),
        )
        assert layout.ports is not None
        foreign = layout.ports.foreign | member_spec_of(row, layout).own.foreign
        found[row.pk] = PortMember(
            row.pk,
            row.name,
            css,
            row.pk in evacuating,
            len(foreign),
            layout.ports.quota,
            foreign=foreign,
        )
    for count in dashboard_queries_sql.count_ports(members=list(found)):
        if count.name != HIDDEN:
            found[count.member_id].counts[count.name] += count.n
        if count.is_used:
            found[count.member_id].used += count.n
    return list(found.values())


def draw_lines(
    members: Sequence[PortMember],
    rows: Sequence[ListPortsRow],
    ports: Ports,
    owners_of: Owners,
) -> list[int]:
    """Set the lines of the members. Returns the numbers of the columns; empty if the members offer
    too many different numbers for one axis.
    """
    claims = {row.claim_id or row.last_claim_id for row in rows} - {None}
    owners = owners_of(claim for claim in claims if claim is not None)
    by_lane: dict[int, dict[str, list[ListPortsRow]]] = defaultdict(lambda: defaultdict(list))
    numbers = set[int]()
    for row in rows:
        by_lane[row.member_id][row.lane].append(row)
        numbers.add(row.number)
    for member in members:
        numbers |= {n for n in member.foreign if ports.first <= n <= ports.last}
    is_aligned = len(numbers) <= PER_LINE
    columns = sorted(numbers) if is_aligned else []
    for member in members:
        for lane, found in sorted(by_lane[member.id].items()):
            line = _align if is_aligned else _wrap
            member.lines += line(member, lane, found, columns, ports.segment, owners)
    return columns


def _align(
    member: PortMember,
    lane: str,
    rows: Sequence[ListPortsRow],
    columns: Sequence[int],
    segment: int,
    owners: Mapping[int, str],
) -> list[PortLine]:
    """One line, with each port in the column of its number."""
    there = {row.number: describe_port(row, segment, owners) for row in rows}
    cells = [there.get(number) or _outside(member, number) for number in columns]
    return [PortLine(lane, columns[0], cells, not member.lines)]


def _outside(member: PortMember, number: int) -> PortCell | None:
    """The place of a number that the member does not offer."""
    if number not in member.foreign:
        return None
    return PortCell(0, "foreign", f"{number} is configured as foreign, and uses the quota")


def _wrap(
    member: PortMember,
    lane: str,
    rows: Sequence[ListPortsRow],
    columns: Sequence[int],
    segment: int,
    owners: Mapping[int, str],
) -> list[PortLine]:
    """Lines of 50 ports each, in the order of their numbers."""
    found = list[PortLine]()
    for start in range(0, len(rows), PER_LINE):
        part = rows[start : start + PER_LINE]
        cells = [describe_port(row, segment, owners) for row in part]
        found.append(PortLine(lane, part[0].number, cells, not member.lines and not found))
    return found


def describe_port(row: ListPortsRow, segment: int, owners: Mapping[int, str]) -> PortCell:
    claim = row.claim_id or (row.last_claim_id if row.name in ("draining", "lost") else None)
    place = name_place(row.lane, row.number, segment, row.protocol)
    holder = f"{claim} {owners.get(claim, '')}".strip() if claim else ""
    title = f"{place} {_describe(row, holder)}"
    if row.quarantine and row.name != "quarantine":
        title = f"{title}, in quarantine: {row.quarantine}"
    return PortCell(row.id, row.name, title, claim)


def name_place(lane: str, number: int, segment: int = 1, protocol: str = "") -> str:
    """The port as people write it: 30017/UDP, 30000–30006/TCP. A port that serves any protocol has
    none until a listener is seen.
    """
    numbers = f"{number}" if segment == 1 else f"{number}–{number + segment - 1}"
    word = protocol or ("" if lane == "port" else lane)
    return f"{numbers}/{word.upper()}" if word else numbers


def _describe(row: ListPortsRow, holder: str) -> str:
    match row.name:
        case "running":
            return f"serving {holder}"
        case "reserved":
            is_seen = bool(row.protocol) and not row.health
            word = "no healthy target" if is_seen else HEALTH_WORDS.get(row.health, row.health)
            return f"{holder}, {word}"
        case "draining":
            return f"draining after {holder}" if holder else "draining"
        case "missing":
            if not holder:
                return "missing: its pre-created listener is gone"
            return f"missing: {holder} holds it, and the listener is gone"
        case "changed":
            return f"{holder}, changed outside: {row.changed}"
        case "problem":
            return f"{holder}, cannot serve: {row.problem}"
        case "orphan":
            return "orphan: a listener without a claim"
        case "quarantine":
            return f"in quarantine: {row.quarantine}"
        case "foreign":
            text = "foreign listener in this place"
            return f"{text}, held by {holder}" if holder else text
        case name:
            word = PORT_WORDS.get(name, name)
            return f"{word}, {holder}" if holder else word
