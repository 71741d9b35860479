"""What the rows want of each port. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from pools.config.layout import SHARED
from pools.providers.aws.inventory import normalise_ip
from pools.providers.aws.names import GroupKey, ObjectOwner, find_certificate_fault
from pools.providers.aws.options import AwsOptions
from pools.providers.base import PoolSnapshot, PortTarget, SlotSnapshot

# The protocol of a listener by that of a claim, and the protocol of its target group.
LISTENERS: Mapping[str, str] = {"tcp": "TCP", "udp": "UDP", "tcp_udp": "TCP_UDP", "tcp_ssl": "TLS"}
GROUPS: Mapping[str, str] = {"tcp": "TCP", "udp": "UDP", "tcp_udp": "TCP_UDP", "tcp_ssl": "TCP"}
# The protocol of a listener that exists before its claim, by lane.
PRECREATED: Mapping[str, str] = {SHARED: "tcp_udp", "tcp": "tcp", "udp": "udp"}
SERVED: Mapping[str, tuple[str, ...]] = {
    "tcp": ("tcp",),
    "udp": ("udp",),
    "tcp_udp": ("tcp", "udp", "tcp_udp"),
}
HELD = ("held", "reserved")


@dataclass(frozen=True, slots=True)
class WantedPort:
    """The listener that a slot must have."""

    number: int
    protocol: str  # of the claim
    target: PortTarget | None = None
    certificate: str = ""
    is_target_known: bool = True  # False: the targets stay as they are

    @property
    def listener_protocol(self) -> str:
        return LISTENERS[self.protocol]

    @property
    def group_protocol(self) -> str:
        return GROUPS[self.protocol]

    @property
    def families(self) -> tuple[int, ...]:
        """The address families that the target group may have, the preferred one first."""
        if self.target is None:
            return (4, 6)
        return (6,) if ":" in self.target.ip else (4,)

    def suffixes(self, owner: ObjectOwner) -> tuple[str, ...]:
        """How the names of target groups end that serve this port."""
        keys = (GroupKey(self.number, self.protocol, family) for family in self.families)
        return tuple(key.suffix(owner) for key in keys)


@dataclass(frozen=True, slots=True)
class PortPlan:
    """The ports of a member. A port in none of the fields has no listener."""

    wanted: Mapping[int, WantedPort]
    kept: frozenset[int]  # their use is not known: listeners stay as they are
    problems: Mapping[int, str]  # why a port cannot have what its claim wants


def plan_ports(
    pool: PoolSnapshot, slots: tuple[SlotSnapshot, ...], options: AwsOptions
) -> PortPlan:
    wanted, kept, problems = dict[int, WantedPort](), set[int](), dict[int, str]()
    for slot in slots:
        if pool.is_precreated:
            if slot.state != "retired":
                wanted[slot.number] = _plan_precreated(slot, problems)
        elif slot.state in HELD and slot.use is None:
            kept.add(slot.number)
        elif slot.state in HELD:
            _plan_held(slot, options, wanted, kept, problems)
    return PortPlan(wanted, frozenset(kept), problems)


def _plan_held(
    slot: SlotSnapshot,
    options: AwsOptions,
    wanted: dict[int, WantedPort],
    kept: set[int],
    problems: dict[int, str],
) -> None:
    """A port that cannot be served keeps what it has: its claim may still use it."""
    assert slot.use is not None
    certificate = ""
    problem = ""
    if slot.use.protocol == "tcp_ssl":
        certificate = slot.use.certificate
        problem = _find_certificate_problem(certificate, options.region)
    elif slot.use.protocol not in LISTENERS:
        problem = (
            f"A network load balancer of a port pool has no {slot.use.protocol} listeners. Claim "
            "tcp, udp, tcp_udp or tcp_ssl."
        )
    if problem:
        problems[slot.number] = problem
        kept.add(slot.number)
        return
    target = _normalise(slot.use.target)
    wanted[slot.number] = WantedPort(slot.number, slot.use.protocol, target, certificate)


def _find_certificate_problem(certificate: str, region: str) -> str:
    if not certificate:
        return (
            "The port needs a certificate. Name its ARN in the claim, or set provider.certificate "
            "of the pool."
        )
    fault = find_certificate_fault(certificate, region)
    return "" if fault is None else f"{fault.message} {fault.way_out}"


def _plan_precreated(slot: SlotSnapshot, problems: dict[int, str]) -> WantedPort:
    protocol = PRECREATED.get(slot.lane, "tcp_udp")
    if slot.state not in HELD:
        return WantedPort(slot.number, protocol)
    if slot.use is None:
        return WantedPort(slot.number, protocol, is_target_known=False)
    if slot.use.protocol not in SERVED[protocol]:
        problems[slot.number] = (
            f"The listener of this port exists before its claims and serves "
            f"{' and '.join(SERVED[protocol][:2])}, not {slot.use.protocol}."
        )
        return WantedPort(slot.number, protocol)
    return WantedPort(slot.number, protocol, _normalise(slot.use.target))


def _normalise(target: PortTarget | None) -> PortTarget | None:
    return None if target is None else PortTarget(normalise_ip(target.ip), target.port)
