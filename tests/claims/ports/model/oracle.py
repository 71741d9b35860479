"""Says which places each claim holds, from the rules of docs/ports.md and nothing else.

The oracle imports no code of the product. The test tells it what callers do and what the rows
offer; it says which numbers a claim must get, and to which listeners its backend belongs.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

BOTH = "tcp_udp"
LANES = {"tcp": "tcp", "tcp_ssl": "tcp", "udp": "udp"}  # where TCP and UDP are apart
TAKEN = {"tcp": ("tcp",), "tcp_ssl": ("tcp",), "udp": ("udp",), BOTH: ("tcp", "udp")}


class Place(NamedTuple):
    pool: str
    member: int
    lane: str
    number: int


@dataclass(frozen=True)
class Part:
    """A port of a program: a number in each of these pools."""

    kind: str  # tcp, udp, tcp_udp or tcp_ssl
    pools: tuple[str, ...]
    port: int


@dataclass(frozen=True, repr=False)
class Wanted:
    parts: tuple[Part, ...]
    is_contiguous: bool = False  # numbers of one kind in a row, on one member
    is_plain: bool = False  # numbers of one kind, to which no ports of a program belong

    def __repr__(self) -> str:
        said = (f"{part.port}/{part.kind}@{'+'.join(part.pools)}" for part in self.parts)
        return f"<{' '.join(said)}{' in a row' if self.is_contiguous else ''}>"

    @property
    def pools(self) -> set[str]:
        return {pool for part in self.parts for pool in part.pools}


class Target(NamedTuple):
    pool: str
    protocol: str
    address: str


@dataclass(eq=False, repr=False)
class Wish:
    """A claim."""

    id: int
    wanted: Wanted
    state: str = "waiting"  # waiting, bound, released, cancelled or lost
    held: list[Place] = field(default_factory=list)
    ip: str = ""  # of the backend; empty: none
    owned: set[Target] = field(default_factory=set)
    awaited: set[Target] = field(default_factory=set)

    def __repr__(self) -> str:
        return f"<claim {self.id} {self.state} {self.wanted}>"


@dataclass
class Free:
    """The open and idle places. `positions`: of the members in their pool."""

    places: set[Place]
    positions: Mapping[int, int]

    def in_order(self, pool: str, lane: str, but: Collection[Place]) -> list[Place]:
        found = (p for p in self.places if (p.pool, p.lane) == (pool, lane) and p not in but)
        return sorted(found, key=lambda place: (self.positions[place.member], place.number))


class Oracle:
    def __init__(self, lanes: Sequence[str], pools: Sequence[str]) -> None:
        self.lanes, self.pools = tuple(lanes), tuple(pools)
        self.wishes: dict[int, Wish] = {}
        self.owners: dict[Target, int] = {}

    def in_state(self, state: str) -> list[Wish]:
        return [wish for wish in self.wishes.values() if wish.state == state]

    def holders(self) -> dict[Place, int]:
        """Raises if two claims hold one place."""
        found: dict[Place, int] = {}
        for wish in self.in_state("bound"):
            for place in wish.held:
                assert place not in found, f"claims {found[place]} and {wish.id} hold {place}"
                found[place] = wish.id
        return found

    # -- where a claim fits ------------------------------------------------------------------------

    def fit(self, wanted: Wanted, free: Free) -> list[Place] | None:
        """The places of an empty queue's next claim, in the order of its parts. None: too few."""
        if wanted.is_contiguous:
            return self._run(wanted, free)
        groups: dict[tuple[str, tuple[str, ...]], list[Part]] = {}
        for part in wanted.parts:
            groups.setdefault((part.kind, part.pools), []).append(part)
        taken: set[Place] = set()
        found: dict[tuple[str, tuple[str, ...]], list[list[Place]]] = {}
        # A number in TCP and UDP has the least choice.
        for key in sorted(groups, key=lambda key: not self.is_pair(key[0])):
            kind, pools = key
            columns = []
            for pool in pools:
                numbers = self._numbers(kind, pool, len(groups[key]), free, taken)
                if numbers is None:
                    return None
                taken |= {place for places in numbers for place in places}
                columns.append(numbers)
            rows = zip(*columns, strict=True)
            found[key] = [[place for column in row for place in column] for row in rows]
        return [place for part in wanted.parts for place in found[part.kind, part.pools].pop(0)]

    def is_pair(self, kind: str) -> bool:
        return kind == BOTH and len(self.lanes) == 2

    def lane_of(self, kind: str, pool: str) -> str:
        return LANES[kind] if len(self.lanes) == 2 or pool in PRECREATED else self.lanes[0]

    def _numbers(
        self, kind: str, pool: str, count: int, free: Free, taken: set[Place]
    ) -> list[list[Place]] | None:
        if self.is_pair(kind):
            tcp = free.in_order(pool, "tcp", taken)
            udp = set(free.in_order(pool, "udp", taken))
            both = [[place, place._replace(lane="udp")] for place in tcp]
            numbers = [pair for pair in both if pair[1] in udp]
        else:
            numbers = [[p] for p in free.in_order(pool, self.lane_of(kind, pool), taken)]
        return numbers[:count] if len(numbers) >= count else None

    def _run(self, wanted: Wanted, free: Free) -> list[Place] | None:
        part, size = wanted.parts[0], len(wanted.parts)
        (pool,) = part.pools
        in_order = free.in_order(pool, self.lane_of(part.kind, pool), ())
        for first in range(len(in_order) - size + 1):
            run = in_order[first : first + size]
            if all(
                (place.member, place.number) == (run[0].member, run[0].number + i)
                for i, place in enumerate(run)
            ):
                return run
        return None

    def must_bind(self, wanted: Wanted, free: Free, before: Iterable[Wish]) -> bool | None:
        """Whether a claim is bound now, if these claims wait before it. None: the rules of the
        queue may hold it back.
        """
        if self.fit(wanted, free) is None:
            return False
        return None if any(wish.wanted.pools & wanted.pools for wish in before) else True

    # -- what callers do ---------------------------------------------------------------------------

    def create(self, claim: int, wanted: Wanted) -> Wish:
        made = self.wishes[claim] = Wish(claim, wanted)
        return made

    def bind(self, wish: Wish, places: list[Place]) -> None:
        wish.state, wish.held = "bound", places

    def end(self, wish: Wish, state: str) -> None:
        wish.state, wish.held = state, []
        # Its targets stay with it until a live claim takes them.

    # -- backends ----------------------------------------------------------------------------------

    def set_backend(self, wish: Wish, ip: str) -> None:
        if wish.ip == ip:
            return
        for target in wish.owned:
            del self.owners[target]
        wish.ip, wish.owned, wish.awaited = ip, set(), set()
        if ip:
            self._take(wish, {t for targets in self.targets_of(wish) for t in targets})

    def settle(self) -> None:
        """Claims take the targets for which they wait and that no live claim has."""
        for wish in self.in_state("bound"):
            wanted, wish.awaited = wish.awaited, set()
            self._take(wish, wanted)

    def _take(self, wish: Wish, wanted: set[Target]) -> None:
        for target in wanted:
            owner = self.owners.get(target)
            if owner not in (None, wish.id) and self.wishes[owner].state == "bound":
                wish.awaited.add(target)
                continue
            if owner is not None:
                self.wishes[owner].owned.discard(target)
            self.owners[target] = wish.id
            wish.owned.add(target)

    def targets_of(self, wish: Wish) -> Iterator[list[Target]]:
        """For each place, what only one live claim of its pool may have."""
        for place, part in zip(wish.held, self.parts_of(wish), strict=True):
            protocols = TAKEN[part.kind]
            if self.is_pair(part.kind):
                protocols = (place.lane,)
            address = f"{wish.ip}:{part.port}"
            yield [Target(place.pool, protocol, address) for protocol in protocols]

    def parts_of(self, wish: Wish) -> list[Part]:
        """The part of each place."""
        return [
            part
            for part in wish.wanted.parts
            for _ in part.pools
            for _ in range(2 if self.is_pair(part.kind) else 1)
        ]

    def listeners_of(self, wish: Wish) -> Iterator[tuple[Place, str, str]]:
        """Each place with the protocol of its listener, and its target or nothing."""
        owned = list(self.targets_of(wish)) if wish.ip else [[] for _ in wish.held]
        for place, part, targets in zip(wish.held, self.parts_of(wish), owned, strict=True):
            protocol = place.lane if self.is_pair(part.kind) else part.kind
            is_routed = bool(targets) and all(self._has(wish, each) for each in targets)
            yield place, protocol, targets[0].address if is_routed else ""

    def _has(self, wish: Wish, target: Target) -> bool:
        owner = self.owners.get(target)
        return owner in (None, wish.id) or self.wishes[owner].state != "bound"


PRECREATED = ("fixed",)
