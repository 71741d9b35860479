"""Parses the field `ports` of a new claim: the ports under which a program is reached. Pure.

A text names them all, `80/TCP,9999/UDP,7777/TCPUDP`; a list has one object for each port, which may
name its pools and its certificate.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from claims.allocation.requests.claim_request import MOST_POOLS, POOL_NAME
from pools.config.fields import Fields, Option
from pools.config.layout import LAST_PORT
from pools.config.parsing import (
    Described,
    Faults,
    Flag,
    Integer,
    Schema,
    Text,
    kind_of,
    show_value,
)
from pools.config.spec import NAME, NAME_RULE

# Protocols as people write them, with the kind of claim and the protocols below.
PROTOCOLS: Mapping[str, tuple[str, frozenset[str]]] = {
    "TCP": ("tcp", frozenset({"TCP"})),
    "UDP": ("udp", frozenset({"UDP"})),
    "TCPUDP": ("tcp_udp", frozenset({"TCP", "UDP"})),
    "TCP_SSL": ("tcp_ssl", frozenset({"TCP"})),
    "QUIC": ("quic", frozenset({"UDP"})),
}
WITH_CERTIFICATE = ("TCP_SSL", "QUIC")
MOST_PORTS = 200
ENTRY = re.compile(r"\s*([0-9]{1,9})\s*/\s*([A-Za-z_]{1,16})\s*", re.ASCII)
FORM = 'Write it like "80/TCP,9999/UDP", or [{port: 80, protocol: TCP}].'
ONE_OF = f"Use one of {', '.join(PROTOCOLS)}."
NUMBER = Integer(1, LAST_PORT)
PORT_FIELDS = Fields(
    {
        "port": Option(NUMBER, "Port of the program.", is_required=True),
        "protocol": Option(
            Described({"type": "string", "enum": list(PROTOCOLS)}),
            "Protocol of the port.",
            is_required=True,
        ),
        "pools": Option(
            Described({"type": "array", "items": POOL_NAME, "minItems": 1, "maxItems": MOST_POOLS}),
            "Pools that each give the port a number. Default: the pools of the claim.",
        ),
        "same_number": Option(Flag(), "The same number in each of its pools."),
        "certificate": Option(
            Text(255),
            "Certificate of TCP_SSL and QUIC: its ARN or id at the provider. Default: that of the "
            "pool.",
        ),
    }
)
PORTS_SCHEMA: Schema = {
    "description": "The ports of a program. The claim gets a number for each, all or none.",
    "anyOf": [
        {"type": "string", "maxLength": 24 * MOST_PORTS, "example": "80/TCP,9999/UDP,7777/TCPUDP"},
        {"type": "array", "minItems": 1, "maxItems": MOST_PORTS, "items": PORT_FIELDS.schema()},
    ],
}


@dataclass(frozen=True, slots=True)
class PortRequest:
    """One requested port."""

    port: int
    protocol: str  # a key of PROTOCOLS
    pools: tuple[str, ...]
    same_number: bool = False
    certificate: str = ""
    where: str = ""

    @property
    def kind(self) -> str:
        return PROTOCOLS[self.protocol][0]

    @property
    def size(self) -> int:
        return 1

    @property
    def options(self) -> dict[str, object]:
        """The stored options of its part."""
        options: dict[str, object] = {"port": self.port, "protocol": self.protocol}
        if self.same_number:
            options["same_number"] = True
        if self.certificate:
            options["certificate"] = self.certificate
        return options

    @property
    def lacks_certificate(self) -> bool:
        """Whether the port can only be served with a certificate of its pools."""
        return self.protocol in WITH_CERTIFICATE and not self.certificate


@dataclass(frozen=True, slots=True)
class PortList:
    ports: tuple[PortRequest, ...]

    def digest(self) -> str:
        return hashlib.blake2b(repr(self.ports).encode(), digest_size=16).hexdigest()


def names_all_pools(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, Mapping) and item.get("pools") is not None for item in value
    )


def read_ports(
    value: object, where: str, pools: tuple[str, ...], faults: Faults
) -> PortList | None:
    before = faults.count
    if isinstance(value, str):
        found = _read_text(value, where, pools, faults)
    elif isinstance(value, list):
        found = _read_objects(value, where, pools, faults)
    else:
        faults.add(where, f"This is {kind_of(value)}, not a list of ports.", FORM)
        return None
    if faults.count > before:
        return None
    if not found:
        faults.add(where, "No port is named.", FORM)
    elif len(found) > MOST_PORTS:
        faults.add(where, f"{len(found)} ports are too many.", f"Use {MOST_PORTS} at most.")
    _check_apart(found, faults)
    return None if faults.count > before else PortList(tuple(found))


def _read_text(value: str, where: str, pools: tuple[str, ...], faults: Faults) -> list[PortRequest]:
    entries = value.split(",") if value.strip() else []
    found = []
    for i, entry in enumerate(entries[: MOST_PORTS + 1]):
        place = f"{where}[{i}]"
        match = ENTRY.fullmatch(entry)
        if match is None:
            faults.add(place, f"{show_value(entry)} is not a port with its protocol.", FORM)
            continue
        number = NUMBER.read(int(match[1]), place, faults)
        protocol = _read_protocol(match[2], place, faults)
        if number is not None and protocol:
            found.append(PortRequest(number, protocol, pools, where=place))
    return found


def _read_objects(
    value: Sequence[object], where: str, pools: tuple[str, ...], faults: Faults
) -> list[PortRequest]:
    found = []
    for i, item in enumerate(value[: MOST_PORTS + 1]):
        place, before = f"{where}[{i}]", faults.count
        given = PORT_FIELDS.read(item, place, faults)
        protocol = ""
        if "protocol" in given:
            protocol = _read_protocol(given["protocol"], f"{place}.protocol", faults)
        own = given.get("pools")
        of = pools if own is None else _read_own_pools(own, f"{place}.pools", faults)
        certificate, is_same = given.get("certificate", ""), given.get("same_number", False)
        if protocol and protocol not in WITH_CERTIFICATE and certificate:
            text = f"{protocol} has no certificate."
            faults.add(f"{place}.certificate", text, "Leave it out, or use TCP_SSL or QUIC.")
        if is_same and len(of) == 1:
            text = "The number is compared between pools, and the port has one pool."
            faults.add(f"{place}.same_number", text, "Leave it out, or name several pools.")
        if faults.count == before:
            found.append(PortRequest(given["port"], protocol, of, is_same, certificate, place))
    return found


def _read_protocol(value: object, where: str, faults: Faults) -> str:
    name = value.upper() if isinstance(value, str) else ""
    if name not in PROTOCOLS:
        faults.add(where, f"{show_value(value)} is not a protocol of ports.", ONE_OF)
        return ""
    return name


def _read_own_pools(value: object, where: str, faults: Faults) -> tuple[str, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_POOLS:
        text = f"This is not a list of 1 to {MOST_POOLS} pools."
        faults.add(where, text, "Write it like [game-eu, game-us].")
        return ()
    for i, name in enumerate(value):
        place = f"{where}[{i}]"
        if not isinstance(name, str) or not NAME.fullmatch(name):
            faults.add(place, f"{show_value(name)} is not the name of a pool.", NAME_RULE)
        elif name in value[:i]:
            faults.add(place, f"{name} is named twice.", "Name each pool once.")
    return tuple(name for name in value if isinstance(name, str))


def _check_apart(ports: Sequence[PortRequest], faults: Faults) -> None:
    """A port has one number for each of its protocols and pools."""
    seen: dict[tuple[int, str, str], PortRequest] = {}
    for each in ports:
        keys = [
            (each.port, below, pool)
            for below in sorted(PROTOCOLS[each.protocol][1])
            for pool in each.pools or ("",)
        ]
        twice = next((key for key in keys if key in seen), None)
        if twice is not None:
            first = seen[twice]
            text = f"Port {each.port}/{twice[1]} is named already, in {first.where}."
            faults.add(each.where, text, "Name each port once for each protocol and pool.")
        for key in keys:
            seen.setdefault(key, each)


def describe_port(port: int, protocol: str) -> str:
    return f"{port}/{protocol}"
