"""The objects of the strict ELBv2: what the cloud stores, and how it describes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any

Params = Mapping[str, Any]
Answer = dict[str, Any]

# A listener's protocol, and the protocols of the groups that it may forward to.
FORWARDS: Mapping[str, tuple[str, ...]] = {
    "TCP": ("TCP", "TCP_UDP"),
    "UDP": ("UDP", "TCP_UDP"),
    "TCP_UDP": ("TCP_UDP",),
    "TLS": ("TCP", "TLS"),
}
NEEDED_ADDRESSES = 8  # free addresses of each subnet of a new load balancer


class Refusal(Exception):
    """The cloud refuses a call with this code."""

    def __init__(
        self, code: str, message: str = "", status: int = 400, *, is_injected: bool = False
    ) -> None:
        """`is_injected`: a test plays an answer that the documentation of AWS may not have."""
        self.code, self.status, self.is_injected = code, status, is_injected
        super().__init__(message or code)


@dataclass
class Quotas:
    """As describe_account_limits names them. The listeners of an NLB cannot be raised."""

    listeners: int = 50
    balancers: int = 50
    groups: int = 3000
    targets: int = 3000  # of one load balancer
    zone_targets: int = 500  # of one load balancer in one zone; in all with cross-zone
    certificates: int = 25  # of one load balancer

    def describe(self) -> list[Answer]:
        named = {
            "target-groups": self.groups,
            "targets-per-network-load-balancer": self.targets,
            "targets-per-availability-zone-per-network-load-balancer": self.zone_targets,
            "listeners-per-network-load-balancer": self.listeners,
            "network-load-balancers": self.balancers,
            "certificates-per-network-load-balancer": self.certificates,
        }
        return [{"Name": name, "Max": str(most)} for name, most in named.items()]


@dataclass
class FakeSubnet:
    id: str
    vpc: str
    zone: str
    cidr: str
    free: int = 200
    cidr6: str = "2001:db8::/64"

    def describe(self) -> Answer:
        return {
            "SubnetId": self.id,
            "VpcId": self.vpc,
            "AvailabilityZone": self.zone,
            "CidrBlock": self.cidr,
            "AvailableIpAddressCount": self.free,
            "State": "available",
        }

    def contains(self, address: Any) -> bool:
        return address in ip_network(self.cidr6 if address.version == 6 else self.cidr)


@dataclass
class FakeTarget:
    since: float  # of the registration, or of the deregistration
    is_draining: bool = False
    zone: str = ""


@dataclass
class FakeGroup:
    arn: str
    name: str
    settings: Answer  # the parameters of its creation, with defaults, without name and tags
    tags: dict[str, str]
    targets: dict[tuple[str, int], FakeTarget] = field(default_factory=dict)
    attributes: dict[str, str] = field(
        default_factory=lambda: {"deregistration_delay.timeout_seconds": "300"}
    )

    @property
    def delay(self) -> float:
        return float(self.attributes["deregistration_delay.timeout_seconds"])

    def describe(self, balancers: list[str]) -> Answer:
        return {
            "TargetGroupArn": self.arn,
            "TargetGroupName": self.name,
            **self.settings,
            "LoadBalancerArns": balancers,
        }


@dataclass
class FakeListener:
    arn: str
    balancer: str
    port: int
    protocol: str
    group: str
    certificates: tuple[str, ...]
    policy: str
    tags: dict[str, str]

    @property
    def settings(self) -> tuple[object, ...]:
        """What a repeated create must repeat to be a success."""
        return self.protocol, self.group, self.certificates, self.policy

    def describe(self) -> Answer:
        action = {
            "Type": "forward",
            "TargetGroupArn": self.group,
            "ForwardConfig": {"TargetGroups": [{"TargetGroupArn": self.group, "Weight": 1}]},
        }
        return {
            "ListenerArn": self.arn,
            "LoadBalancerArn": self.balancer,
            "Port": self.port,
            "Protocol": self.protocol,
            "Certificates": [{"CertificateArn": arn} for arn in self.certificates] or None,
            "SslPolicy": self.policy or None,
            "DefaultActions": [action],
        }


@dataclass
class FakeBalancer:
    arn: str
    name: str
    type: str
    scheme: str
    subnets: tuple[str, ...]
    vpc: str
    ip_type: str
    security_groups: tuple[str, ...]
    tags: dict[str, str]
    created: float
    state: str = ""  # set by a test: failed or active_impaired, in place of the time's
    attributes: dict[str, str] = field(
        default_factory=lambda: {
            "load_balancing.cross_zone.enabled": "false",
            "deletion_protection.enabled": "false",
        }
    )

    @property
    def is_crossing_zones(self) -> bool:
        return self.attributes["load_balancing.cross_zone.enabled"] == "true"

    @property
    def settings(self) -> tuple[object, ...]:
        return self.type, self.scheme, self.subnets, self.ip_type, self.security_groups

    def describe(self, state: str, zones: Mapping[str, str]) -> Answer:
        return {
            "LoadBalancerArn": self.arn,
            "DNSName": f"{self.name}-{self.arn[-16:]}.elb.example.amazonaws.com",
            "LoadBalancerName": self.name,
            "Scheme": self.scheme,
            "VpcId": self.vpc,
            "State": {"Code": state},
            "Type": self.type,
            "AvailabilityZones": [
                {"ZoneName": zones[each], "SubnetId": each, "LoadBalancerAddresses": []}
                for each in self.subnets
            ],
            "SecurityGroups": list(self.security_groups),
            "IpAddressType": self.ip_type,
        }


def read_tags(params: Params) -> dict[str, str]:
    pairs = params.get("Tags", ())
    found = {pair["Key"]: pair.get("Value", "") for pair in pairs}
    if len(found) < len(pairs):
        raise Refusal("DuplicateTagKeys", "A tag key was specified more than once.")
    if len(found) > 50:
        raise Refusal("TooManyTags", "A resource has at most 50 tags.")
    return found
