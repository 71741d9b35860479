"""What AWS has: load balancers, listeners, target groups and targets, as values."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address

from pools.config.layout import SHARED
from pools.providers.aws.account import Account, Answer
from pools.providers.aws.names import (
    ObjectOwner,
    find_balancer_fault,
    number_in,
    owner_of,
)
from pools.providers.base import MemberSnapshot, PoolSnapshot, PortTarget, SeenSlot
from project.kernel.outbox.operations import Misconfigured, NotFoundOutside

LIVE_STATES = ("active", "active_impaired")
HEALTH: Mapping[str, str] = {
    "healthy": "healthy",
    "unhealthy": "unhealthy",
    "initial": "initial",
    "unused": "initial",  # the listener is new, or no zone of the load balancer has the target
    "draining": "draining",
    "unhealthy.draining": "draining",
}


@dataclass(frozen=True, slots=True)
class NetworkBalancer:
    arn: str
    name: str
    dns_name: str
    vpc: str
    state: str  # provisioning, active, active_impaired, failed
    reason: str = ""
    ips: tuple[str, ...] = ()

    @property
    def is_live(self) -> bool:
        return self.state in LIVE_STATES

    @property
    def addresses(self) -> tuple[str, ...]:
        return (self.dns_name, *self.ips)

    @property
    def why(self) -> str:
        """Why it is not active; empty: it is."""
        if self.state == "active":
            return ""
        if self.state == "provisioning":
            return "AWS provisions the load balancer"
        return f"AWS calls the load balancer {self.state}{self.reason and f': {self.reason}'}"


@dataclass(frozen=True, slots=True)
class PortListener:
    arn: str
    number: int
    protocol: str  # as AWS writes it
    group: str  # ARN of the target group; empty: it forwards in another way
    certificate: str = ""
    is_ours: bool = False  # of this member, by its tags
    owner: int | None = None  # the member of this pool that the tags name


@dataclass(frozen=True, slots=True)
class PortGroup:
    arn: str
    name: str
    number: int
    health: Mapping[str, object]  # the settings of the health check, as AWS names them
    balancers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SeenTarget:
    target: PortTarget
    state: str  # as AWS writes it
    reason: str = ""


def read_balancers(answers: Iterable[Answer]) -> list[NetworkBalancer]:
    """The network load balancers among the answers."""
    found = []
    for each in answers:
        if each.get("Type") != "network":
            continue
        state = each.get("State", {})
        addresses = (
            address
            for zone in each.get("AvailabilityZones", ())
            for address in zone.get("LoadBalancerAddresses", ())
        )
        ips = (
            address.get(name)
            for address in addresses
            for name in ("IpAddress", "PrivateIPv4Address", "IPv6Address")
        )
        found.append(
            NetworkBalancer(
                arn=each["LoadBalancerArn"],
                name=each["LoadBalancerName"],
                dns_name=each.get("DNSName", ""),
                vpc=each.get("VpcId", ""),
                state=state.get("Code", ""),
                reason=state.get("Reason", ""),
                ips=tuple(ip for ip in ips if ip),
            )
        )
    return found


def list_balancers(account: Account) -> list[NetworkBalancer]:
    """All network load balancers of the region."""
    return read_balancers(account.pages("DescribeLoadBalancers", "LoadBalancers"))


def get_balancer(account: Account, arn: str) -> NetworkBalancer | None:
    """The load balancer of an ARN. Raises Misconfigured for an ARN that names no network load
    balancer of this region and account.
    """
    if fault := find_balancer_fault(arn, account.region, account.id):
        raise Misconfigured(f"{fault.message} {fault.way_out}")
    try:
        answer = account.call("DescribeLoadBalancers", LoadBalancerArns=[arn])
    except NotFoundOutside:
        return None
    return next(iter(read_balancers(answer["LoadBalancers"])), None)


def find_made(account: Account, owner: ObjectOwner) -> list[NetworkBalancer]:
    """The load balancers with the tags of a member, by ARN: what an earlier attempt created."""
    there = {each.arn: each for each in list_balancers(account)}
    tags = account.read_tags(there)
    return [each for arn, each in sorted(there.items()) if owner.owns(tags[arn])]


def find_balancer(
    account: Account, pool: PoolSnapshot, member: MemberSnapshot
) -> NetworkBalancer | None:
    """The load balancer of a member: by its ARN, else by its tags."""
    if member.external_id:
        found = get_balancer(account, member.external_id)
        if found is not None or not member.is_owned or member.state != "creating":
            return found
    if not member.is_owned:
        return None
    return next(iter(find_made(account, owner_of(pool, member))), None)


def list_listeners(account: Account, balancer: str) -> list[PortListener]:
    """All listeners of a load balancer, by number. Whose they are is not read yet."""
    answers = account.pages("DescribeListeners", "Listeners", LoadBalancerArn=balancer)
    return sorted(map(read_listener, answers), key=lambda each: each.number)


def read_listener(answer: Answer) -> PortListener:
    groups = {
        arn
        for action in answer.get("DefaultActions", ())
        for arn in _groups_of(action)
        if action.get("Type") == "forward"
    }
    certificates: Sequence[Answer] = answer.get("Certificates") or ({},)
    return PortListener(
        arn=answer["ListenerArn"],
        number=answer.get("Port", 0),
        protocol=answer.get("Protocol", ""),
        group=groups.pop() if len(groups) == 1 else "",
        certificate=certificates[0].get("CertificateArn", ""),
    )


def _groups_of(action: Answer) -> list[str]:
    several = action.get("ForwardConfig", {}).get("TargetGroups", ())
    found = [action.get("TargetGroupArn"), *(each.get("TargetGroupArn") for each in several)]
    return [str(arn) for arn in found if arn]


def list_groups(account: Account, balancer: str = "") -> list[PortGroup]:
    """All target groups of the region, or those that listeners of a load balancer use, with a name
    that Berth writes.
    """
    where = {"LoadBalancerArn": balancer} if balancer else {}
    answers = account.pages("DescribeTargetGroups", "TargetGroups", **where)
    found = (read_group(each) for each in answers)
    return [each for each in found if each is not None]


def read_group(answer: Answer) -> PortGroup | None:
    number = number_in(answer["TargetGroupName"])
    if number is None:
        return None
    return PortGroup(
        arn=answer["TargetGroupArn"],
        name=answer["TargetGroupName"],
        number=number,
        health={name: value for name, value in answer.items() if "health" in name.lower()},
        balancers=tuple(answer.get("LoadBalancerArns", ())),
    )


def read_targets(account: Account, group: str) -> tuple[SeenTarget, ...]:
    answer = account.call("DescribeTargetHealth", TargetGroupArn=group)
    found = []
    for each in answer["TargetHealthDescriptions"]:
        target, health = each["Target"], each.get("TargetHealth", {})
        place = PortTarget(normalise_ip(target["Id"]), target.get("Port", 0))
        found.append(SeenTarget(place, health.get("State", ""), health.get("Reason", "")))
    return tuple(sorted(found, key=lambda seen: (seen.target.ip, seen.target.port)))


def normalise_ip(ip: str) -> str:
    """The usual spelling of an address; IPv6 has several."""
    try:
        return str(ip_address(ip))
    except ValueError:
        return ip


def is_leaving(seen: SeenTarget) -> bool:
    return HEALTH.get(seen.state) == "draining"


def is_checking(seen: SeenTarget) -> bool:
    """The first health checks are not through."""
    return HEALTH.get(seen.state) == "initial"


def show_target(target: PortTarget) -> str:
    return f"[{target.ip}]:{target.port}" if ":" in target.ip else f"{target.ip}:{target.port}"


def see_slot(
    listener: PortListener, targets: tuple[SeenTarget, ...] | None, problem: str = ""
) -> SeenSlot:
    """The listener in the place of a slot. `targets` None: this look has not read them."""
    known: dict[str, object] = {"id": listener.arn, "protocol": listener.protocol.lower()}
    if not listener.is_ours:
        return SeenSlot(SHARED, listener.number, known, is_foreign=True)
    if listener.protocol == "TLS":
        known["protocol"] = "tcp_ssl"
        known["certificate"] = listener.certificate
    if targets is None:
        known["unread"] = True
    else:
        known |= _describe_targets(targets)
    if problem:
        known["problem"] = problem
    return SeenSlot(SHARED, listener.number, known)


def _describe_targets(targets: tuple[SeenTarget, ...]) -> dict[str, object]:
    staying = [each for each in targets if not is_leaving(each)]
    if not staying:
        return {"health": "draining"} if targets else {}
    first = staying[0]
    known: dict[str, object] = {
        "target": show_target(first.target),
        "health": HEALTH.get(first.state, "unchecked"),
    }
    if first.reason:
        known["reason"] = first.reason
    if len(staying) > 1:
        others = ", ".join(show_target(each.target) for each in staying[1:])
        known["problem"] = f"The target group has targets of no claim: {others}."
    return known


def mark_ours(listener: PortListener, owner: int | None, member: int) -> PortListener:
    return replace(listener, owner=owner, is_ours=owner == member)
