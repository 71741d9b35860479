"""The options under `provider:` of a pool of network load balancers. Pure.

The rules are those of AWS, so that Berth reports faults before it calls AWS. Faults that only the
account knows (subnets, credentials) come from preflight.py.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from pools.config.fields import Fields, Option
from pools.config.layout import DEFAULT_QUOTA, SHARED, Layout
from pools.config.parsing import (
    Choice,
    Duration,
    Faults,
    Flag,
    Integer,
    ListOf,
    Pattern,
    Schema,
    Text,
    Texts,
    ValueType,
    field_path,
    show_value,
)
from pools.providers.aws.names import (
    DEFAULT_PREFIX,
    LONGEST_PREFIX,
    TAG_PREFIX,
    find_certificate_fault,
)

MOST_LISTENERS = DEFAULT_QUOTA  # of a network load balancer; AWS does not raise it
LONGEST_DELAY = 3600
TRAFFIC_PORT = "traffic-port"
ENDPOINTS = {"elbv2": "endpoint", "sts": "endpoint_sts", "ec2": "endpoint_ec2"}
TAG_TEXT = re.compile(r"[\w\s.:/=+\-@]*")
TAG_RULE = "Use letters, digits, spaces and . : / = + - @ _"


class EndpointUrl(ValueType[str]):
    def read(self, value: object, where: str, faults: Faults) -> str | None:
        url = Text(500).read(value, where, faults)
        if not url or _is_endpoint(url):
            return url
        fault = f"{show_value(url)} is not the address of an endpoint."
        faults.add(where, fault, "Write it like https://vpce-1.example.com, without a path.")
        return None

    def schema(self) -> Schema:
        return Text(500).schema()


def _is_endpoint(url: str) -> bool:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  (raises ValueError)
    except ValueError:
        return False
    extra = parts.username or parts.query or parts.fragment or parts.path.strip("/")
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not extra


class HealthPort(ValueType[int | str]):
    """A port, or the port that receives the traffic."""

    def read(self, value: object, where: str, faults: Faults) -> int | str | None:
        if value == TRAFFIC_PORT:
            return TRAFFIC_PORT
        return Integer(1, 65535).read(value, where, faults)

    def schema(self) -> Schema:
        return {"anyOf": [Integer(1, 65535).schema(), {"type": "string", "enum": [TRAFFIC_PORT]}]}

    @property
    def hint(self) -> str:
        return f"From 1 to 65,535, or {TRAFFIC_PORT}."


def _fault_of_tag(name: object) -> tuple[str, str] | None:
    if not isinstance(name, str) or not TAG_TEXT.fullmatch(name) or not 0 < len(name) <= 128:
        return "This is not the name of a tag.", f"{TAG_RULE}, 128 at most."
    if name.startswith(TAG_PREFIX):
        return "Berth finds its objects by the tags that begin with berth-.", "Choose another name."
    if name.lower().startswith("aws:"):
        return "AWS sets the tags that begin with aws:.", "Choose another name."
    return None


def _ids(what: str, example: str, pattern: str, most: int) -> ListOf[str]:
    item = Pattern(re.compile(pattern), f"Write it like {example}.", f"a {what}", missing="")
    return ListOf(item, f"{what}s", most, f"[{example}]")


HEALTH_FIELDS: Mapping[str, Option] = {
    "protocol": Option(Choice(("tcp", "http", "https")), "How targets are checked.", "tcp"),
    "port": Option(
        HealthPort(), "Port of the checks. A UDP service needs a TCP port.", TRAFFIC_PORT
    ),
    "path": Option(
        Pattern(re.compile(r"/[!-~]{0,1023}"), "Begin with a slash.", "a path"),
        "Path of HTTP checks.",
        "/",
    ),
    "interval": Option(Duration(5, 300), "Time between two checks.", 30.0),
    "timeout": Option(Duration(2, 120), "Time that a target has to answer."),
    "healthy": Option(Integer(2, 10), "Successes until a target is healthy.", 5),
    "unhealthy": Option(Integer(2, 10), "Failures until a target is unhealthy.", 2),
}
FIELDS = Fields(
    {
        "region": Option(
            Pattern(
                re.compile(r"[a-z]{2,4}(?:-[a-z]+)+-[0-9]{1,2}"),
                "Write it like eu-west-1.",
                "a region",
                missing="The region is missing.",
            ),
            "Region of the load balancers.",
            is_required=True,
        ),
        "endpoint": Option(
            EndpointUrl(), "Address of the load balancer API. Empty: that of the region."
        ),
        "endpoint_sts": Option(EndpointUrl(), "Address of STS. Empty: that of the region."),
        "endpoint_ec2": Option(EndpointUrl(), "Address of EC2. Empty: that of the region."),
        "scheme": Option(
            Choice(("internet-facing", "internal")),
            "Which addresses new load balancers have.",
            "internet-facing",
        ),
        "subnets": Option(
            _ids("subnet", "subnet-0a1b2c3d", r"subnet-[0-9a-f]{8,17}", 20),
            "Subnets of new load balancers, one of each zone.",
        ),
        "ip_type": Option(
            Choice(("ipv4", "dualstack")), "Address families of new load balancers.", "ipv4"
        ),
        "cross_zone": Option(
            Flag(), "Whether new load balancers send traffic to targets of other zones.", False
        ),
        "security_groups": Option(
            _ids("security group", "sg-0a1b2c3d", r"sg-[0-9a-f]{8,17}", 5),
            "Security groups of new load balancers.",
        ),
        "tags": Option(
            Texts(
                "tags are",
                "{team: games}",
                "tags",
                40,
                Pattern(re.compile(r"[\w\s.:/=+\-@]{0,256}"), TAG_RULE, "a tag", missing=""),
                _fault_of_tag,
            ),
            "Tags of all objects that Berth creates, besides its own.",
        ),
        "name_prefix": Option(
            Pattern(
                re.compile(r"(?!internal)[A-Za-z0-9](?:[A-Za-z0-9-]{0,7}[A-Za-z0-9])?"),
                f"Use up to {LONGEST_PREFIX} letters, digits and dashes.",
                "a prefix",
            ),
            "Prefix of the names of new load balancers and target groups.",
            DEFAULT_PREFIX,
        ),
        **{f"health_check.{name}": each for name, each in HEALTH_FIELDS.items()},
        "deregistration_delay": Option(
            Duration(0, LONGEST_DELAY),
            "How long a replaced target keeps its connections. Set: one more call for each new "
            "listener. Empty: 5m, the default of AWS.",
        ),
        "certificate": Option(
            Text(500), "ARN of the certificate of TLS ports, for claims that name none."
        ),
    }
)


def read_options(options: Mapping[str, Any], where: str, faults: Faults) -> Mapping[str, Any]:
    given = {name: value for name, value in options.items() if name != "kind"}
    found = FIELDS.read(given, where, faults)
    _check_health(found, field_path(where, "health_check"), faults)
    arn, region = found.get("certificate"), found.get("region")
    if arn and region and (fault := find_certificate_fault(arn, region)):
        faults.add(field_path(where, "certificate"), fault.message, fault.way_out)
    for name in ("subnets", "security_groups"):
        ids = found.get(name, ())
        for i, each in enumerate(ids):
            if each in ids[:i]:
                fault_at = f"{field_path(where, name)}[{i}]"
                faults.add(fault_at, f"{each} is listed twice.", "Remove one.")
    return FIELDS.write_given(found)


def _check_health(found: Mapping[str, Any], where: str, faults: Faults) -> None:
    if "health_check.path" in found and found.get("health_check.protocol", "tcp") == "tcp":
        faults.add(
            field_path(where, "path"),
            "Only HTTP checks have a path.",
            "Remove the path, or write protocol: http.",
        )
    interval = found.get("health_check.interval", 30.0)
    timeout = found.get("health_check.timeout")
    if timeout is not None and timeout > interval:
        faults.add(
            field_path(where, "timeout"),
            "The timeout is longer than the interval.",
            "Shorten the timeout, or lengthen the interval.",
        )


def check_layout(layout: Layout, faults: Faults) -> None:
    """Add the faults of slots that a network load balancer cannot offer."""
    if layout.ports is None:
        faults.add(
            "slots",
            "A load balancer offers ports.",
            'Write them like {ports: "30000-32767", shared: true}.',
        )
        return
    is_shared = layout.classes[0].lane == SHARED or layout.ports.is_shared
    if not is_shared:
        faults.add(
            "slots.protocols",
            "A network load balancer has one listener for each number, in TCP and UDP together.",
            "Replace protocols by shared: true; a claim for tcp_udp then takes one number.",
        )
    if layout.ports.segment > 1:
        faults.add(
            "slots.segment",
            "A network load balancer has no listeners for ranges of ports.",
            "Remove segment, and claim several ports.",
        )
    if layout.ports.quota > MOST_LISTENERS:
        faults.add(
            "slots.quota",
            f"A network load balancer has at most {MOST_LISTENERS} listeners.",
            f"Use {MOST_LISTENERS} at most, and more load balancers.",
        )


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """Settings of a target group, as AWS names them."""

    settings: Mapping[str, object]

    def differs_from(self, group: Mapping[str, object]) -> bool:
        return any(group.get(name) != value for name, value in self.settings.items())


@dataclass(frozen=True, slots=True)
class AwsOptions:
    """The options of a pool, with defaults."""

    region: str
    # By service, as botocore names it. A missing service uses the address of the region.
    endpoints: Mapping[str, str] = field(default_factory=dict)
    scheme: str = "internet-facing"
    subnets: tuple[str, ...] = ()
    ip_type: str = "ipv4"
    is_crossing_zones: bool = False
    security_groups: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    prefix: str = DEFAULT_PREFIX
    health: HealthCheck = field(default_factory=lambda: HealthCheck({}))
    delay: int | None = None  # seconds; None: AWS's default
    certificate: str = ""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "AwsOptions":
        """The options of a stored configuration."""
        found = FIELDS.read({k: v for k, v in options.items() if k != "kind"}, "", Faults())
        delay = found.get("deregistration_delay")
        return cls(
            region=found.get("region", ""),
            endpoints={name: found.get(option, "") for name, option in ENDPOINTS.items()},
            scheme=found.get("scheme", "internet-facing"),
            subnets=tuple(found.get("subnets", ())),
            ip_type=found.get("ip_type", "ipv4"),
            is_crossing_zones=found.get("cross_zone", False),
            security_groups=tuple(found.get("security_groups", ())),
            tags=found.get("tags", {}),
            prefix=found.get("name_prefix", DEFAULT_PREFIX),
            health=_health_of(found),
            delay=None if delay is None else int(delay),
            certificate=found.get("certificate", ""),
        )


def _health_of(found: Mapping[str, Any]) -> HealthCheck:
    """All settings, so that a group that differs in one of them is seen."""
    given = {name: found.get(f"health_check.{name}", each.default) for name, each in _named()}
    is_http = given["protocol"] != "tcp"
    interval = int(given["interval"])
    settings: dict[str, object] = {
        "HealthCheckProtocol": given["protocol"].upper(),
        "HealthCheckPort": str(given["port"]),
        "HealthCheckIntervalSeconds": interval,
        "HealthCheckTimeoutSeconds": int(given["timeout"] or min(interval, 6 if is_http else 10)),
        "HealthyThresholdCount": given["healthy"],
        "UnhealthyThresholdCount": given["unhealthy"],
    }
    return HealthCheck(settings | ({"HealthCheckPath": given["path"]} if is_http else {}))


def _named() -> list[tuple[str, Option]]:
    return list(HEALTH_FIELDS.items())
