"""`backends:` of a pool: the networks and ports to which its listeners may send traffic. Pure.

Addresses that lead into Berth's own machine or to the metadata of a cloud are refused unless the
pool lists them exactly, as a network of one address.
"""

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass

from pools.config.fields import Object, option, required
from pools.config.layout_spec import PortRange
from pools.config.parsing import Faults, ListOf, Schema, Text, ValueType, show_value

IP = ipaddress.IPv4Address | ipaddress.IPv6Address
MOST_NETWORKS = 100
UNPRIVILEGED = (1024, 65535)
# Services of clouds that hand out credentials, beside the link-local addresses.
METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fd00:c1::a9fe:a9fe",
        "fd20:ce::254",
    )
)
# EC2 serves metadata, credentials of EKS pods, time and names at addresses of this network.
METADATA_NETWORK = ipaddress.ip_network("fd00:ec2::/32")
THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")
MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
COMPATIBLE = ipaddress.ip_network("::/96")
ISATAP = frozenset({0x00005EFE, 0x02005EFE})  # the upper half of an interface id, before the IPv4
NETWORK_RULE = "Write it like 10.0.0.0/16 or 2001:db8::/32."


class Network(ValueType[str]):
    def read(self, value: object, where: str, faults: Faults) -> str | None:
        if isinstance(value, str) and "%" in value:  # no backend has a zone, see read_address
            way_out = "Write the network without it."
            faults.add(where, f"{show_value(value)} has a zone of one machine.", way_out)
            return None
        try:
            network = ipaddress.ip_network(value if isinstance(value, str) else "")
        except ValueError as error:
            has_host_bits = "host bits" in str(error)
            fault = "sets bits behind its prefix" if has_host_bits else "is not a network"
            faults.add(where, f"{show_value(value)} {fault}.", NETWORK_RULE)
            return None
        if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(MAPPED):
            faults.add(where, f"{show_value(value)} maps IPv4 addresses.", "Write them as IPv4.")
            return None
        return str(network)

    def schema(self) -> Schema:
        return {"type": "string", "maxLength": 49}

    @property
    def hint(self) -> str:
        return "Like 10.0.0.0/16."


@dataclass(frozen=True, slots=True)
class BackendRules:
    """Where the listeners of a pool may send traffic."""

    networks: tuple[str, ...] = required(
        ListOf(Network(), "networks", MOST_NETWORKS, "[10.0.0.0/16]", least=1),
        "Networks of backends. Loopback, link-local, metadata and Berth's own addresses count only "
        "if they are listed one by one, as a network of one address.",
    )
    ports: tuple[int, int] = option(PortRange(), UNPRIVILEGED, "First and last port of backends.")


BACKENDS = Object(BackendRules)
CERTIFICATES = ListOf(Text(255), "certificates", 100, "[cert-1]")


def read_address(text: object) -> IP | None:
    """The address of a backend; None: it is not an address. A mapped IPv4 address is IPv4."""
    if not isinstance(text, str) or "%" in text:  # a zone would name an interface of one machine
        return None
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def refuse_address(
    address: IP, rules: BackendRules | None, own: Collection[IP] = ()
) -> tuple[str, str] | None:
    """Why the pool sends no traffic to the address, and the way out. `own`: addresses of Berth."""
    if rules is None:
        text = "The pool lists no networks of backends."
        return text, "Ask an admin of all pools to set `backends` of the pool."
    networks = [ipaddress.ip_network(each) for each in rules.networks]
    if any(each.num_addresses == 1 and each.network_address == address for each in networks):
        return None
    what = next((word for each in reached(address) if (word := special(each, own))), "")
    if what:
        text = f"{address} is {what}."
        return text, f"An admin of all pools has to list {address} itself in `backends.networks`."
    if any(each.version == address.version and address in each for each in networks):
        return None
    text = f"{address} is in none of the networks {', '.join(rules.networks[:5])}."
    return (
        text,
        "Use an address of them, or ask an admin of all pools to add its network.",
    )


def refuse_port(port: int, rules: BackendRules, count: int = 1) -> tuple[str, str] | None:
    """Why a listener may not send traffic to a port, and the way out. `count`: ports from it on, to
    which the listener of a segment leads.
    """
    first, last = rules.ports
    end = port + count - 1
    if first <= port and end <= last:
        return None
    way_out = "Use one of these ports, or ask an admin of all pools to change `backends.ports`."
    if count > 1:
        return f"The segment {port}-{end} is not inside of {first}-{last}.", way_out
    return f"Port {port} is not one of {first}-{last}.", way_out


def reached(address: IP) -> list[IP]:
    """The address, and the IPv4 addresses that it carries through a tunnel or a translation."""
    found: list[IP] = [address]
    if isinstance(address, ipaddress.IPv6Address):
        if address.sixtofour is not None:
            found.append(address.sixtofour)
        if address.teredo is not None:
            found += address.teredo
        is_isatap = ((int(address) >> 32) & 0xFFFFFFFF) in ISATAP
        if address in TRANSLATED or address in COMPATIBLE or is_isatap:
            found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return found


def special(address: IP, own: Collection[IP]) -> str:
    """What makes the address special; empty: it is an ordinary address."""
    if address in METADATA or address in METADATA_NETWORK:
        return "a metadata service"
    if address.is_unspecified or (address.version == 4 and address in THIS_NETWORK):
        return "an unspecified address"
    for word, is_it in (
        ("a loopback address", address.is_loopback),
        ("a link-local address", address.is_link_local),
        ("a multicast address", address.is_multicast),
        ("a reserved address", address.is_reserved and address not in TRANSLATED),
        ("an address of Berth itself", address in own),
    ):
        if is_it:
            return word
    return ""
