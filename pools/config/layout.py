"""The slots that a member offers, and the kinds of claims that each slot serves. Pure: no clock,
chance or database.

A configuration writes a layout in one of five forms, which `Layout` unifies:

    3                                       three slots of one class
    [any, plan, plan]                       task slots; `any` also takes plan_and_apply
    {ports: "30000-30049", shared: true}    one listener per number; with `protocols: [tcp, udp]`
                                            one listener per number and protocol
                                            one listener per number and protocol;
                                            with `precreate: {tcp: 25}` the first 25 listeners exist
                                            before a claim holds them
    node                                    the member as a whole
    [{class: gpu, count: 2, accepts: [train]}]

A lane groups the slots that accept the same kinds of claims: task classes and protocols are lanes.
The lane that accepts the fewest kinds comes first, so that a claim takes a special slot before it
competes for a general slot.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

Form = Literal["plain", "tasks", "ports", "node", "classes"]

PLAIN = "slot"
NODE = "node"
SHARED = "port"
DRIFT_CHECK = "drift_check"  # a plan without an apply: runs in every slot for plans
TASKS: Mapping[str, tuple[str, ...]] = {
    "plan": ("plan", DRIFT_CHECK),
    "any": ("plan", DRIFT_CHECK, "plan_and_apply"),
}
PROTOCOLS: Mapping[str, tuple[str, ...]] = {"tcp": ("tcp", "tcp_ssl"), "udp": ("udp", "quic")}
PAIR = ("tcp", "udp")  # lanes of a pool with one listener per protocol
# Kinds that take the same number in both lanes: the present name and an older name.
PAIRED = ("tcp_udp", "tcpudp")
ENCRYPTED = ("tcp_ssl", "quic")  # kinds of claims whose listeners need a certificate
ANY_PROTOCOL = ("port", "tcp", "udp", *PAIRED, "tcp_ssl", "quic")

DEFAULT_QUOTA = 50  # listeners of a load balancer, unless the pool sets a quota
LAST_PORT = 65535


@dataclass(frozen=True, slots=True)
class SlotClass:
    lane: str
    accepts: tuple[str, ...]  # kinds of claims


@dataclass(frozen=True, slots=True)
class Ports:
    first: int
    last: int
    segment: int = 1
    quota: int = DEFAULT_QUOTA  # listeners on one member, foreign ones included
    foreign: frozenset[int] = frozenset()  # ports that foreign listeners use on every member
    # Protocols with the number of listeners that exist before a claim holds them. Empty: a listener
    # exists while its port is held.
    precreated: tuple[tuple[str, int], ...] = ()
    # Pre-created listeners of all protocols share the numbers: each number has one of them.
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    form: Form
    classes: tuple[SlotClass, ...]  # in declared order, each lane once
    # Lane and count, in the order of the numbers; empty for ports.
    runs: tuple[tuple[str, int], ...] = ()
    ports: Ports | None = None


@dataclass(frozen=True, slots=True)
class OwnSlots:
    """Slots and ports that a member declares for itself."""

    runs: tuple[tuple[str, int], ...] | None = None
    first: int | None = None
    last: int | None = None
    foreign: frozenset[int] = frozenset()


NO_OWN_SLOTS = OwnSlots()


def lanes(layout: Layout) -> list[str]:
    """The lanes; those that accept fewer kinds first, equals in declared order."""
    return _order(layout.classes)


def _order(classes: Iterable[SlotClass]) -> list[str]:
    return [c.lane for c in sorted(classes, key=lambda c: len(c.accepts))]


def kinds(layout: Layout) -> list[str]:
    found = dict.fromkeys(kind for c in layout.classes for kind in c.accepts if kind != PAIRED[1])
    return [*found, *([PAIRED[0]] if pair_for(layout, PAIRED[0]) else [])]


def lanes_for(layout: Layout, kind: str) -> list[str]:
    """The lanes that serve this kind, those with fewer kinds first. Empty: no member of the pool
    serves it. A claim takes one of the lanes, or (`pair_for`) both at once.
    """
    accepting = _order(c for c in layout.classes if kind in c.accepts)
    return accepting or list(pair_for(layout, kind) or ())


def pair_for(layout: Layout, kind: str) -> tuple[str, str] | None:
    """Both lanes in which such a claim takes the same number. None: a claim takes one slot per
    number, or the pool does not serve the kind.
    """
    is_apart = (
        layout.form == "ports"
        and set(PAIR) <= {c.lane for c in layout.classes}
        and not (layout.ports and layout.ports.is_shared)
    )
    return PAIR if is_apart and kind in PAIRED else None


def default_kind(layout: Layout) -> str | None:
    """The kind of a claim that names none. None: there are several, and the claim must name one."""
    if layout.form == "ports" and layout.classes[0].lane == SHARED:
        return SHARED
    if len(layout.classes) == 1 and layout.form != "tasks":
        return layout.classes[0].accepts[0]
    # A claim must name a drift check.
    found = [kind for kind in kinds(layout) if kind != DRIFT_CHECK]
    return found[0] if len(found) == 1 else None


def step_of(layout: Layout) -> int:
    """The difference between the numbers of two adjacent slots."""
    return layout.ports.segment if layout.ports else 1


def ports_of(layout: Layout, own: OwnSlots = NO_OWN_SLOTS) -> tuple[int, int] | None:
    """First and last port that a member may use; None: the slots are not ports."""
    if layout.ports is None:
        return None
    return (
        layout.ports.first if own.first is None else own.first,
        layout.ports.last if own.last is None else own.last,
    )


def slots_of(
    layout: Layout,
    own: OwnSlots = NO_OWN_SLOTS,
    *,
    seen: Collection[tuple[str, int]] = (),
    occupied: Collection[tuple[str, int]] = (),
    taken: Collection[tuple[str, int]] = (),
    kept: Collection[tuple[str, int]] = (),
) -> list[tuple[str, int]]:
    """Lane and number of each slot that the member offers. A segment of ports has the number of its
    first port; other slots count from 0.

    `seen`: lane and number of the foreign listeners that the provider sees. `occupied`: places that
    claims use; the member offers them in any case, and each takes a listener of the quota. `taken`:
    lane and number of ports of other members on the same address, which take none. `kept`: places
    that the member offers now, which go before lower ones.
    """
    if layout.ports is not None:
        return _OfferedPorts(
            layout,
            layout.ports,
            own,
            frozenset(seen),
            frozenset(occupied),
            frozenset(taken),
            frozenset(kept),
        ).find()
    expanded = [lane for lane, count in (own.runs or layout.runs) for _ in range(count)]
    return [(lane, number) for number, lane in enumerate(expanded)]


def numbers_for(layout: Layout, kind: str, own: OwnSlots = NO_OWN_SLOTS) -> dict[str, list[int]]:
    """The numbers on which a member serves this kind, by lane. For a kind that takes two lanes at
    once: the numbers that both lanes offer.
    """
    found: dict[str, list[int]] = {lane: [] for lane in lanes_for(layout, kind)}
    for lane, number in slots_of(layout, own):
        if lane in found:
            found[lane].append(number)
    if pair_for(layout, kind) is None:
        return found
    first, second = found.values()
    both = set(second)
    return {"+".join(PAIR): [number for number in first if number in both]}


def segments_of(first: int, last: int, segment: int) -> range:
    """First ports of the segments that fit whole between first and last (both included)."""
    return range(first, min(last, LAST_PORT) - segment + 2, segment)


@dataclass(frozen=True, slots=True)
class _OfferedPorts:
    """The lowest numbers without a foreign listener, as many as the quota leaves. Each foreign
    listener counts against the quota, also outside of the range. The ports of other members on the
    same address do not.
    """

    layout: Layout
    ports: Ports
    own: OwnSlots
    seen: frozenset[tuple[str, int]]
    occupied: frozenset[tuple[str, int]]
    taken: frozenset[tuple[str, int]]
    kept: frozenset[tuple[str, int]]

    def find(self) -> list[tuple[str, int]]:
        offered, used = set(self.occupied), Counter(lane for lane, _ in self.occupied)
        left = self.ports.quota - self._count_foreign() - len(offered)
        most = dict(self.ports.precreated)
        places: Iterable[tuple[str, int]] = self._places()
        if self.kept:
            places = sorted(places, key=lambda place: place not in self.kept)
        for lane, number in places:
            if left <= 0:
                break
            if (lane, number) in offered or used[lane] >= most.get(lane, LAST_PORT):
                continue
            offered.add((lane, number))
            used[lane] += 1
            left -= 1
        order = {lane: i for i, lane in enumerate(lanes(self.layout))}
        return sorted(offered, key=lambda place: (place[1], order.get(place[0], 0)))

    def _count_foreign(self) -> int:
        """Foreign listeners without those in occupied places, which the quota counts already. A
        declared port may be one of the listeners that the provider sees.
        """
        declared = self.ports.foreign | self.own.foreign
        return len(declared - {n for _, n in self.seen}) + len(self.seen - self.occupied)

    def _places(self) -> Iterator[tuple[str, int]]:
        """Places without a foreign listener, the lowest first."""
        first, last = ports_of(self.layout, self.own) or (0, -1)
        in_order = lanes(self.layout)
        declared = self.ports.foreign | self.own.foreign
        # A listener in a lane that the layout does not know takes its number in all lanes.
        seen: dict[str, set[int]] = {lane: set() for lane in in_order}
        for lane, number in self.seen:
            for each in (lane,) if lane in seen else in_order:
                seen[each].add(number)
        for lane, number in self.taken:
            seen.setdefault(lane, set()).add(number)
        shares = [lane for lane, count in self.ports.precreated for _ in range(count)]
        for number in segments_of(first, last, self.ports.segment):
            ports = range(number, number + self.ports.segment)
            if not declared.isdisjoint(ports):
                continue
            if self.ports.is_shared:  # the first numbers are those of the first protocol
                if not shares:
                    return
                in_order = [shares.pop(0)]
            for lane in in_order:
                if seen[lane].isdisjoint(ports):
                    yield lane, number


def plain(count: int) -> Layout:
    return Layout("plain", (SlotClass(PLAIN, (PLAIN,)),), ((PLAIN, count),))


def tasks(names: Sequence[str]) -> Layout:
    return Layout(
        "tasks",
        tuple(SlotClass(name, TASKS[name]) for name in dict.fromkeys(names)),
        runs_of(names),
    )


def node() -> Layout:
    return Layout("node", (SlotClass(NODE, (NODE,)),), ((NODE, 1),))


def port_lanes(ports: Ports, protocols: Sequence[str] | None) -> Layout:
    """`protocols` None: one listener per number serves every protocol. A pre-created listener
    serves its own protocol only.
    """
    if ports.precreated:
        return Layout(
            "ports", tuple(SlotClass(lane, (lane,)) for lane, _ in ports.precreated), ports=ports
        )
    if protocols is None:
        return Layout("ports", (SlotClass(SHARED, ANY_PROTOCOL),), ports=ports)
    return Layout(
        "ports", tuple(SlotClass(p, PROTOCOLS[p]) for p in dict.fromkeys(protocols)), ports=ports
    )


def slot_classes(classes: Sequence[tuple[str, int, tuple[str, ...]]]) -> Layout:
    return Layout(
        "classes",
        tuple(SlotClass(lane, accepts) for lane, _, accepts in classes),
        tuple((lane, n) for lane, n, _ in classes),
    )


def runs_of(names: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """`any, plan, plan` as (any, 1), (plan, 2)."""
    return tuple((name, len(list(run))) for name, run in groupby(names))


def as_config(layout: Layout) -> Any:
    """The layout in its shortest form in a configuration."""
    if layout.form == "plain":
        return layout.runs[0][1]
    if layout.form == "node":
        return NODE
    if layout.form == "tasks":
        return [lane for lane, count in layout.runs for _ in range(count)]
    if layout.form == "classes":
        return [
            {"class": c.lane, "count": n, "accepts": list(c.accepts)}
            for c, (_, n) in zip(layout.classes, layout.runs, strict=True)
        ]
    assert layout.ports is not None
    written: dict[str, Any] = {"ports": f"{layout.ports.first}-{layout.ports.last}"}
    if layout.classes[0].lane == SHARED or layout.ports.is_shared:
        written["shared"] = True
    else:
        written["protocols"] = [c.lane for c in layout.classes]
    written |= {"segment": layout.ports.segment, "quota": layout.ports.quota}
    if layout.ports.precreated:
        written["precreate"] = dict(layout.ports.precreated)
    if layout.ports.foreign:
        written["foreign"] = sorted(layout.ports.foreign)
    return written
