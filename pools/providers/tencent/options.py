"""The options under `provider:` of a pool of load balancers. Pure.

The fields of `load_balancer` are the parameters of CreateLoadBalancer with their rules, so that
Berth reports faults before it calls the cloud.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pools.config.fields import EMPTY, Fields, Option
from pools.config.parsing import (
    Choice,
    Faults,
    Flag,
    Integer,
    Pattern,
    Schema,
    Text,
    Texts,
    ValueType,
    field_path,
    show_value,
)
from pools.providers.tencent.names import PREFIX

ENDPOINT = "clb.tencentcloudapi.com"
OPEN, INTERNAL = "OPEN", "INTERNAL"
IPV4, NAT64, FULL_CHAIN = "IPV4", "IPV6", "IPv6FullChain"
PACKAGE = "BANDWIDTH_PACKAGE"
MOST_BANDWIDTH = 61_440  # Mbps of the largest type
MOST_TAGS = 17  # a load balancer has 20, and Berth needs three
LONGEST_TAG = 127
LONGEST_ID = 64

REGION = re.compile(r"[a-z]{2,4}(?:-[a-z0-9]+){1,4}")
ADDRESS = re.compile(r"[0-9A-Fa-f.:]{2,45}")
ZONE = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
SLA = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")


def _id(prefix: str, what: str) -> Pattern:
    return Pattern(
        re.compile(rf"(?:{prefix}-[A-Za-z0-9]{{4,32}})?"),
        f"Write it like {prefix}-1a2b3c4d.",
        what,
        missing="",
    )


class EndpointAddress(ValueType[str]):
    """A host name, or an address with its scheme."""

    def read(self, value: object, where: str, faults: Faults) -> str | None:
        text = Text(253).read(value, where, faults)
        if not text or _is_endpoint(text):
            return text
        way_out = f"Write a host like {ENDPOINT}, or an address like https://clb.example.com."
        faults.add(where, f"{show_value(text)} is not the address of an API.", way_out)
        return None

    def schema(self) -> Schema:
        return Text(253).schema()


def _is_endpoint(text: str) -> bool:
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
        parts.port  # noqa: B018  (raises ValueError)
    except ValueError:
        return False
    extra = parts.username or parts.query or parts.fragment or parts.path.strip("/")
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not extra


def _fault_of_tag(name: object) -> tuple[str, str] | None:
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_TAG:
        return "This is not a key of a tag.", f"Use 1 to {LONGEST_TAG} characters."
    if name.startswith(PREFIX):
        return "Berth finds its load balancers by the tags that begin with berth-.", "Rename it."
    return None


LOAD_BALANCER_FIELDS = Fields(
    {
        "type": Option(
            Choice({OPEN: "OPEN: public", INTERNAL: "INTERNAL: in a VPC"}),
            "Network of the load balancers.",
            OPEN,
        ),
        "name": Option(Text(40), "Prefix of names. Empty: berth- and the pool’s name."),
        "vpc_id": Option(_id("vpc", "the id of a VPC"), "VPC of the targets."),
        "subnet_id": Option(
            _id("subnet", "the id of a subnet"),
            "Subnet of the addresses, for INTERNAL and IPv6FullChain.",
        ),
        "zone_id": Option(
            Pattern(ZONE, "Write it like ap-guangzhou-1.", "a zone"),
            "Zone of public IPv4 load balancers.",
        ),
        "master_zone_id": Option(
            Pattern(ZONE, "Write it like ap-guangzhou-1.", "a zone"),
            "Main zone of public IPv4 load balancers that survive the loss of a zone.",
        ),
        "address_ip_version": Option(
            Choice(
                {
                    IPV4: IPV4,
                    NAT64: "IPV6: NAT64 to IPv4 targets",
                    FULL_CHAIN: "IPv6FullChain: IPv6 targets",
                }
            ),
            "IP version of the addresses.",
            IPV4,
        ),
        "vip_isp": Option(
            Choice(
                {"BGP": "BGP", "CMCC": "China Mobile", "CTCC": "China Telecom", "CUCC": "Unicom"}
            ),
            f"Line of public load balancers. A line forces internet.charge_type {PACKAGE}.",
        ),
        "bandwidth_package_id": Option(
            _id("bwp", "the id of a bandwidth package"), "Bandwidth package of the traffic."
        ),
        "internet.charge_type": Option(
            Choice(
                (
                    "TRAFFIC_POSTPAID_BY_HOUR",
                    "BANDWIDTH_POSTPAID_BY_HOUR",
                    "BANDWIDTH_PREPAID",
                    PACKAGE,
                )
            ),
            "How traffic is paid.",
        ),
        "internet.max_bandwidth_out": Option(
            Integer(1, MOST_BANDWIDTH), "Mbps towards the internet."
        ),
        "internet.package_sub_type": Option(
            Pattern(SLA, "Write it like SINGLEISP or BGP.", "a type of bandwidth packages"),
            "Type of the bandwidth package.",
        ),
        "pass_to_target": Option(
            Flag(),
            "Whether the security group of a load balancer alone decides. IPv6 has no such option.",
            True,
        ),
        "dynamic_vip": Option(Flag(), "Whether the address is a domain, not an IP.", False),
        "vip": Option(
            Pattern(ADDRESS, "Write an IP address.", "an IP address"),
            "The address of the only load balancer of a pool.",
        ),
        "project_id": Option(Integer(0, 2**31 - 1), "Project that pays."),
        "sla_type": Option(
            Pattern(SLA, "Write it like clb.c2.medium.", "a specification"),
            "Specification of LCU-supported load balancers.",
        ),
        "charge_type": Option(
            Choice(
                {
                    "POSTPAID_BY_HOUR": "POSTPAID_BY_HOUR",
                    "PREPAID": "PREPAID: the API cannot delete them",
                }
            ),
            "How load balancers are paid.",
        ),
        "tags": Option(
            Texts(
                "tags are",
                "{team: games}",
                "tags",
                MOST_TAGS,
                Text(LONGEST_TAG, False),
                _fault_of_tag,
            ),
            "Tags of the load balancers, besides those of Berth.",
        ),
    }
)


class LoadBalancerOptions(ValueType[Mapping[str, Any]]):
    fields = LOAD_BALANCER_FIELDS

    def read(self, value: object, where: str, faults: Faults) -> Mapping[str, Any] | None:
        before = faults.count
        found = LOAD_BALANCER_FIELDS.read(value, where, faults)
        if faults.count > before:
            return None
        _check_network(found, where, faults)
        _check_version(found, where, faults)
        _check_payment(found, where, faults)
        return LOAD_BALANCER_FIELDS.write_given(found)

    def schema(self) -> Schema:
        return LOAD_BALANCER_FIELDS.schema()


def _check_network(found: Mapping[str, Any], where: str, faults: Faults) -> None:
    is_internal = found.get("type", OPEN) == INTERNAL
    if is_internal:
        for name in ("vpc_id", "subnet_id"):
            if not found.get(name):
                faults.add(
                    field_path(where, name), "Type INTERNAL needs this field.", "Add the id."
                )
    for name in ("zone_id", "master_zone_id", "vip_isp", "bandwidth_package_id"):
        if is_internal and found.get(name):
            _refuse(faults, where, name, "Type INTERNAL takes no such field.")
    is_plain = not is_internal and found.get("address_ip_version", IPV4) == IPV4
    if is_plain and found.get("subnet_id"):
        _refuse(faults, where, "subnet_id", "Public IPv4 load balancers are in no subnet.")


def _check_version(found: Mapping[str, Any], where: str, faults: Faults) -> None:
    version = found.get("address_ip_version", IPV4)
    if version == IPV4:
        return
    if found.get("type", OPEN) == INTERNAL:
        _refuse(faults, where, "address_ip_version", "Type INTERNAL takes no such field.")
    if "pass_to_target" in found:
        _refuse(faults, where, "pass_to_target", "IPv6 load balancers always pass traffic.")
    for name in ("zone_id", "master_zone_id"):
        if found.get(name):
            _refuse(faults, where, name, "Only public IPv4 load balancers take a zone.")
    if version == NAT64 and found.get("vip"):
        _refuse(faults, where, "vip", "NAT64 load balancers take no address.")
    if version == FULL_CHAIN and not found.get("subnet_id"):
        faults.add(field_path(where, "subnet_id"), f"{FULL_CHAIN} needs this field.", "Add the id.")


def _check_payment(found: Mapping[str, Any], where: str, faults: Faults) -> None:
    paid = found.get("internet.charge_type")
    for name in ("vip_isp", "bandwidth_package_id"):
        is_line = found.get(name) not in (None, "", "BGP")
        if is_line and paid not in (None, PACKAGE):
            faults.add(
                field_path(where, "internet.charge_type"),
                f"{name} forces {PACKAGE}.",
                "Remove the field, or correct it.",
            )
            return


def _refuse(faults: Faults, where: str, name: str, fault: str) -> None:
    faults.add(field_path(where, name), fault, "Remove the field.")


FIELDS = Fields(
    {
        "region": Option(
            Pattern(
                REGION,
                "Write it like ap-guangzhou.",
                "a region",
                missing="The region is missing.",
                longest=40,
            ),
            "Region of the load balancers.",
            is_required=True,
        ),
        "endpoint": Option(EndpointAddress(), f"Address of the API. Empty: {ENDPOINT}."),
        "health_check": Option(
            Flag(), "Whether new listeners check the health of their targets.", False
        ),
        "certificate": Option(
            Text(LONGEST_ID), "Id of the certificate of encrypted ports whose claims name none."
        ),
        "load_balancer": Option(
            LoadBalancerOptions(), "Parameters of the load balancers that Berth creates."
        ),
    }
)


def read_options(options: Mapping[str, Any], where: str, faults: Faults) -> Mapping[str, Any]:
    given = {name: value for name, value in options.items() if name != "kind"}
    found = FIELDS.write_given(FIELDS.read(given, where, faults))
    return {name: each for name, each in found.items() if each is not False and each not in EMPTY}


def endpoint_of(options: Mapping[str, Any]) -> tuple[str, str]:
    """Scheme and host of the API."""
    scheme, _, host = str(options.get("endpoint") or ENDPOINT).rpartition("://")
    return scheme or "https", host.rstrip("/")
