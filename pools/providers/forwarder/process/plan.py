"""The plan of a forwarder, as Berth sends it and as the state file keeps it: JSON to frozen objects
and back. Pure.
"""

import ipaddress
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, cast

Lane = Literal["tcp", "udp"]
LANES: tuple[Lane, ...] = ("tcp", "udp")
Place = tuple[str, int]  # lane, and first port
Port = tuple[str, str, int]  # lane, address and port of a listener
LAST_PORT = 65535
MOST_LISTENERS = 10_000


class InvalidPlan(Exception):
    """A field is wrong; the text names the field and the fault."""


@dataclass(frozen=True, slots=True)
class ForwardTarget:
    ip: str
    port: int  # of the first port of a segment

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"


@dataclass(frozen=True, slots=True)
class HealthPlan:
    interval: float = 10.0  # seconds
    timeout: float = 3.0
    threshold: int = 3  # checks in a row that change a known health


@dataclass(frozen=True, slots=True)
class ForwardOptions:
    """Options of all listeners of a forwarder. Times are in seconds."""

    drain: float = 10.0  # that connections have to end after a removal or a change of target
    connect: float = 5.0
    tcp_idle: float | None = None  # None: a quiet connection stays
    udp_idle: float = 60.0
    connections: int = 1000  # of one listener
    flows: int = 1000  # of one UDP listener
    total: int = 4000  # connections and flows of all listeners
    is_proxy: bool = False  # targets get the header of PROXY protocol v2
    health: HealthPlan | None = field(default_factory=HealthPlan)


@dataclass(frozen=True, slots=True)
class ListenerPlan:
    lane: Lane
    number: int  # first port
    count: int = 1  # ports of the segment
    target: ForwardTarget | None = None
    generation: int = 0
    fault: str = ""  # why the listener cannot serve its claim; such a listener is not opened

    @property
    def place(self) -> Place:
        return self.lane, self.number

    @property
    def end(self) -> int:
        return self.number + self.count - 1


@dataclass(frozen=True, slots=True)
class ForwardPlan:
    incarnation: int
    bind: tuple[str, ...]
    options: ForwardOptions = field(default_factory=ForwardOptions)
    listeners: tuple[ListenerPlan, ...] = ()
    # Places that stay as they are, and places whose claims have ended, each with its generation.
    kept: Mapping[Place, int] = field(default_factory=dict)
    released: Mapping[Place, int] = field(default_factory=dict)
    ended: frozenset[Place] = frozenset()  # connections that drain there end now


def write_plan(plan: ForwardPlan) -> dict[str, object]:
    return {
        "incarnation": plan.incarnation,
        "bind": list(plan.bind),
        "options": asdict(plan.options),
        "listeners": [asdict(each) for each in plan.listeners],
        "kept": [[*place, generation] for place, generation in plan.kept.items()],
        "released": [[*place, generation] for place, generation in plan.released.items()],
        "ended": sorted(map(list, plan.ended)),
    }


def read_plan(value: object) -> ForwardPlan:
    """Raises InvalidPlan."""
    given = _mapping(value, "plan")
    listeners = tuple(_read_listener(each) for each in _list(given, "listeners"))
    _refuse_overlap(listeners)
    return ForwardPlan(
        incarnation=_integer(given, "incarnation", 0),
        bind=read_bind(_list(given, "bind")),
        options=read_options(given.get("options")),
        listeners=listeners,
        kept=dict(_read_place(each, "kept") for each in _list(given, "kept")),
        released=dict(_read_place(each, "released") for each in _list(given, "released")),
        ended=frozenset(_read_place([*_sequence(each, "ended"), 0], "ended")[0]
                        for each in _list(given, "ended")),
    )  # fmt: skip


def read_bind(words: Sequence[object]) -> tuple[str, ...]:
    """Addresses of this machine. A wildcard is refused: the replies to UDP clients could leave from
    another address than the one that the client called.
    """
    found = tuple(_address(word, "bind") for word in words)
    if not found:
        raise InvalidPlan("bind: at least one address is required")
    for each in found:
        address = ipaddress.ip_address(each)
        if address.is_unspecified or address.is_multicast:
            raise InvalidPlan(f"bind: {each} is not the address of one machine")
    return found


def read_options(value: object) -> ForwardOptions:
    # A plan that an earlier version kept lacks newer options.
    given = {**asdict(ForwardOptions()), **_mapping(value, "options")}
    health = given["health"]
    return ForwardOptions(
        drain=_seconds(given, "drain"),
        connect=_seconds(given, "connect"),
        tcp_idle=None if given.get("tcp_idle") is None else _seconds(given, "tcp_idle"),
        udp_idle=_seconds(given, "udp_idle"),
        connections=_integer(given, "connections", 1),
        flows=_integer(given, "flows", 1),
        total=_integer(given, "total", 1),
        is_proxy=given.get("is_proxy") is True,
        health=None if health is None else _read_health(_mapping(health, "health")),
    )


def read_target(ip: object, port: int, count: int) -> ForwardTarget:
    """A target of that many ports. Raises InvalidPlan."""
    text = _address(ip, "target")
    address = ipaddress.ip_address(text)
    if address.is_unspecified or address.is_multicast:
        raise InvalidPlan(f"target: {text} is not the address of one machine")
    return ForwardTarget(text, _integer({"port": port}, "port", 1, LAST_PORT - count + 1))


def list_ports(plan: ForwardPlan) -> set[Port]:
    """The ports of all listeners of the plan."""
    return {
        (each.lane, ip, port)
        for each in plan.listeners
        if not each.fault
        for ip in plan.bind
        for port in range(each.number, each.end + 1)
    }


def find_loops(plan: ForwardPlan, others: Collection[Port] = ()) -> set[Place]:
    """Listeners whose target is a port of this forwarder, or of another one of this machine
    (`others`): their connections could call a forwarder without end.
    """
    refused = list_ports(plan).union(others)
    return {
        each.place
        for each in plan.listeners
        if each.target is not None
        and any(
            (each.lane, each.target.ip, each.target.port + i) in refused for i in range(each.count)
        )
    }


def _read_health(found: Mapping[str, object]) -> HealthPlan:
    given = {**asdict(HealthPlan()), **found}
    return HealthPlan(
        interval=_seconds(given, "interval"),
        timeout=_seconds(given, "timeout"),
        threshold=_integer(given, "threshold", 1),
    )


def _read_listener(value: object) -> ListenerPlan:
    given = _mapping(value, "listeners")
    (lane, number), generation = _read_place(
        [given.get("lane"), given.get("number"), given.get("generation")], "listeners"
    )
    count = _integer(given, "count", 1, LAST_PORT - number + 1)
    target = given.get("target")
    fault = given.get("fault", "")
    if not isinstance(fault, str):
        raise InvalidPlan("listeners: fault is not text")
    return ListenerPlan(
        lane=cast(Lane, lane),
        number=number,
        count=count,
        target=None if target is None else _read_target(_mapping(target, "target"), count),
        generation=generation,
        fault=fault,
    )


def _read_target(given: Mapping[str, object], count: int) -> ForwardTarget:
    return read_target(given.get("ip"), _integer(given, "port", 1, LAST_PORT), count)


def _refuse_overlap(listeners: Iterable[ListenerPlan]) -> None:
    last: dict[str, ListenerPlan] = {}
    for each in sorted(listeners, key=lambda each: each.number):
        before = last.get(each.lane)
        if before is not None and before.end >= each.number:
            raise InvalidPlan(f"listeners: {each.lane} {each.number} is in two listeners")
        last[each.lane] = each


def _read_place(value: object, where: str) -> tuple[Place, int]:
    given = _sequence(value, where)
    if len(given) != 3:
        raise InvalidPlan(f"{where}: a place has a lane, a number and a generation")
    lane, number, generation = given
    if not isinstance(lane, str) or lane not in LANES:
        raise InvalidPlan(f"{where}: the lane is neither tcp nor udp")
    fields = {"number": number, "generation": generation}
    return (
        (lane, _integer(fields, "number", 1, LAST_PORT)),
        _integer(fields, "generation", 0),
    )


def _address(value: object, where: str) -> str:
    try:
        address = ipaddress.ip_address(value if isinstance(value, str) else "")
    except ValueError:
        raise InvalidPlan(f"{where}: {str(value)[:60]} is not an address") from None
    if getattr(address, "scope_id", None):
        raise InvalidPlan(f"{where}: {address} has a scope; name an address without one")
    return str(address)


def _mapping(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise InvalidPlan(f"{where} is not an object")
    return value


def _sequence(value: object, where: str) -> Sequence[object]:
    if not isinstance(value, list):
        raise InvalidPlan(f"{where} is not a list")
    return value


def _list(given: Mapping[str, object], name: str) -> Sequence[object]:
    found = _sequence(given.get(name, []), name)
    if len(found) > MOST_LISTENERS:
        raise InvalidPlan(f"{name} has {len(found)} entries; the limit is {MOST_LISTENERS}")
    return found


def _integer(given: Mapping[str, object], name: str, low: int, high: int = 2**63 - 1) -> int:
    value = given.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidPlan(f"{name}: {str(value)[:60]} is not a whole number from {low} to {high}")
    return value


def _seconds(given: Mapping[str, object], name: str) -> float:
    value = given.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e6:
        raise InvalidPlan(f"{name}: {str(value)[:60]} is not a number of seconds")
    return float(value)
