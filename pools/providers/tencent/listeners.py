"""Listeners as they are and as the rows want them, and the difference. Pure.

A slot is a listener of its lane: TCP, TCP_SSL, HTTP and HTTPS share the numbers of the lane tcp,
UDP and QUIC those of udp. Only listeners with a name that this pool wrote for this member are
created, changed or deleted; every other listener is foreign.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address

from pools.providers.base import MemberSnapshot, PoolSnapshot, PortUse, SeenSlot, SlotSnapshot
from pools.providers.tencent.names import listener_name, owner_of

PROTOCOLS = {"tcp": "TCP", "udp": "UDP", "tcp_ssl": "TCP_SSL", "quic": "QUIC"}
LANE_OF = {"TCP": "tcp", "TCP_SSL": "tcp", "UDP": "udp", "QUIC": "udp"}
ENCRYPTED = ("TCP_SSL", "QUIC")  # protocols that need a certificate
BOTH = ("tcp_udp", "tcpudp")  # in a lane: the protocol of the lane

Place = tuple[str, int]  # lane and first port


@dataclass(frozen=True, slots=True, order=True)
class Binding:
    """A target of a listener."""

    ip: str
    port: int
    instance: str = ""  # a machine that was bound by its id and not by its IP

    @property
    def parameters(self) -> dict[str, object]:
        target = {"InstanceId": self.instance} if self.instance else {"EniIp": self.ip}
        return {**target, "Port": self.port}

    @property
    def key(self) -> tuple[str, int]:
        """Equal for equal addresses, however they are written."""
        try:
            return ip_address(self.ip).compressed, self.port
        except ValueError:
            return self.ip, self.port

    def __str__(self) -> str:
        ip, port = self.key
        return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


@dataclass(frozen=True, slots=True)
class Listener:
    id: str
    name: str
    protocol: str  # as the cloud writes it: TCP, UDP, TCP_SSL, QUIC, HTTP or HTTPS
    port: int
    end: int  # the last port, equal to `port` without a segment
    certificate: str = ""
    is_checked: bool = False  # the cloud checks the health of its targets

    @property
    def lane(self) -> str:
        return LANE_OF.get(self.protocol, "tcp")

    @property
    def place(self) -> Place:
        return self.lane, self.port

    def overlaps(self, lane: str, first: int, last: int) -> bool:
        return self.lane == lane and self.port <= last and first <= self.end


@dataclass(frozen=True, slots=True)
class ListenerSpec:
    """A listener as the rows want it."""

    name: str
    lane: str
    protocol: str
    port: int
    end: int
    certificate: str = ""
    target: Binding | None = None

    @property
    def place(self) -> Place:
        return self.lane, self.port

    def fits(self, found: Listener) -> bool:
        is_same = (found.protocol, found.end) == (self.protocol, self.end)
        return is_same and (self.protocol not in ENCRYPTED or found.certificate == self.certificate)


@dataclass(slots=True)
class ListenerChanges:
    foreign: list[Listener] = field(default_factory=list)
    delete: list[Listener] = field(default_factory=list)
    create: list[ListenerSpec] = field(default_factory=list)
    keep: list[tuple[Listener, ListenerSpec]] = field(default_factory=list)  # targets may differ
    left: list[Listener] = field(default_factory=list)  # own, and left as they are
    problems: dict[Place, str] = field(default_factory=dict)

    @property
    def own(self) -> list[Listener]:
        """Own listeners that stay."""
        return [*(listener for listener, _ in self.keep), *self.left]


class Unservable(Exception):
    """The listener that a claim wants cannot exist."""


def plan_listeners(
    pool: PoolSnapshot, member: MemberSnapshot, listeners: Iterable[Listener]
) -> ListenerChanges:
    plan = ListenerChanges()
    own: dict[Place, Listener] = {}
    for each in listeners:
        if owner_of(pool, each.name, *each.place) == member.id:
            own[each.place] = each
        else:
            plan.foreign.append(each)
    for slot in member.slots:
        found = own.pop((slot.lane, slot.number), None)
        if slot.state in ("held", "reserved") and slot.use is None:
            plan.left += [found] if found else []
            continue
        try:
            wanted = _want(pool, member, slot)
        except Unservable as fault:
            plan.problems[slot.lane, slot.number] = str(fault)
            plan.left += [found] if found else []
            continue
        _compare(plan, found, wanted)
    # The slots of a member that is being created may not be there yet.
    (plan.left if member.state == "creating" else plan.delete).extend(own.values())
    return plan


def _compare(plan: ListenerChanges, found: Listener | None, wanted: ListenerSpec | None) -> None:
    if found is not None and (wanted is None or not wanted.fits(found)):
        plan.delete.append(found)
        found = None
    if wanted is None:
        return
    if found is not None:
        plan.keep.append((found, wanted))
    elif blocker := find_blocker(plan.foreign, wanted):
        plan.problems[wanted.place] = explain_blocker(blocker, wanted)
    else:
        plan.create.append(wanted)


def find_blocker(foreign: Iterable[Listener], wanted: ListenerSpec) -> Listener | None:
    """The foreign listener that uses one of the ports."""
    blocking = (each for each in foreign if each.overlaps(wanted.lane, wanted.port, wanted.end))
    return next(blocking, None)


def explain_blocker(blocker: Listener, wanted: ListenerSpec) -> str:
    return (
        f"Port {max(blocker.port, wanted.port)} of the lane {wanted.lane} is used by the listener "
        f"{blocker.id} ({blocker.name or blocker.protocol}), which Berth did not create for this "
        "slot. Remove the listener, or list its port in slots.foreign."
    )


def _want(pool: PoolSnapshot, member: MemberSnapshot, slot: SlotSnapshot) -> ListenerSpec | None:
    """The listener of a slot; None: it needs none. Raises Unservable."""
    if member.state == "deleting" or slot.lane not in ("tcp", "udp"):
        return None
    use = slot.use if slot.state in ("held", "reserved") else None
    if use is None:
        if not pool.is_precreated or slot.state not in ("idle", "draining"):
            return None
        use = PortUse(slot.lane)
    protocol = PROTOCOLS.get(slot.lane if use.protocol in BOTH else use.protocol, "")
    if LANE_OF.get(protocol) != slot.lane:
        raise Unservable(f"A listener of the lane {slot.lane} cannot have protocol {use.protocol}.")
    if pool.is_precreated and protocol in ENCRYPTED:
        raise Unservable(
            f"The listeners of this pool exist before their claims, as {slot.lane}, so that a "
            f"claim cannot have protocol {use.protocol}. Use a pool without pre-created listeners."
        )
    if protocol in ENCRYPTED and not use.certificate:
        raise Unservable(
            f"Protocol {use.protocol} needs a certificate. Name its id in the claim, or set "
            "provider.certificate of the pool."
        )
    return ListenerSpec(
        name=listener_name(pool, member.id, slot.lane, slot.number),
        lane=slot.lane,
        protocol=protocol,
        port=slot.number,
        end=slot.number + pool.segment - 1,
        certificate=use.certificate if protocol in ENCRYPTED else "",
        target=None if use.target is None else Binding(use.target.ip, use.target.port),
    )


def stale_of(bound: Sequence[Binding], wanted: Binding | None) -> list[Binding]:
    return [each for each in bound if wanted is None or each.key != wanted.key]


def see_slots(
    own: Iterable[Listener],
    foreign: Iterable[Listener],
    targets: Mapping[str, Sequence[Binding]],
    health: Mapping[str, str],
    *,
    places: Mapping[Place, int] | None = None,
    problems: Mapping[Place, str] | None = None,
) -> tuple[SeenSlot, ...]:
    """All listeners in the order of their places. `places`: the last ports of the member's slots;
    a foreign segment blocks each slot that it overlaps.
    """
    seen: dict[Place, tuple[dict[str, object], bool]] = {}
    for each in foreign:
        found = _describe(each)
        for (lane, number), last in (places or {}).items():
            if each.overlaps(lane, number, last):
                seen[lane, number] = dict(found), True
        seen[each.place] = found, True
    for each in own:
        found = _describe(each)
        if bound := targets.get(each.id):
            found["target"] = ", ".join(sorted(str(binding) for binding in bound))
        if not each.is_checked:
            found["health"] = "unchecked"
        elif bound:
            found["health"] = health.get(each.id, "initial")
        seen[each.place] = found, False
    for place, problem in (problems or {}).items():
        seen.setdefault(place, ({}, False))[0]["problem"] = problem
    return tuple(
        SeenSlot(lane, number, attributes, is_foreign)
        for (lane, number), (attributes, is_foreign) in sorted(
            seen.items(), key=lambda entry: (entry[0][1], entry[0][0])
        )
    )


def _describe(listener: Listener) -> dict[str, object]:
    found: dict[str, object] = {"id": listener.id, "protocol": listener.protocol.lower()}
    if listener.protocol in ENCRYPTED:
        found["certificate"] = listener.certificate
    if listener.end > listener.port:
        found["end"] = listener.end
    return found
