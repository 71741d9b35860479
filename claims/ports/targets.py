"""The targets of a claim's slots: to which port of its backend a listener sends traffic. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pools.config.layout import PAIRED, SHARED

BELOW: Mapping[str, tuple[str, ...]] = {"tcp_ssl": ("tcp",), "quic": ("udp",), "port": ("tcp",)}


@dataclass(frozen=True, slots=True)
class Backend:
    """The stored backend of a claim. The lists have an item for each slot."""

    ip: str
    asked: tuple[int, ...]  # a port for each part, or for each number of a claim without parts
    ports: tuple[int, ...]
    keys: tuple[tuple[str, ...], ...]  # at most one live claim of a pool has each key

    def as_json(self) -> str:
        targets = [write_target(self.ip, port) for port in self.ports]
        return json.dumps(
            {
                "ip": self.ip,
                "asked": self.asked,
                "ports": self.ports,
                "targets": targets,
                "keys": self.keys,
            }
        )


def write_target(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def protocol_of(kind: str, lane: str) -> str:
    """The protocol of the listener in a lane, for a claim of this kind."""
    if kind in PAIRED:
        return "tcp_udp" if lane == SHARED else lane
    return "tcp" if kind == SHARED else kind


def keys_of(kind: str, lane: str, ip: str, port: int, step: int = 1) -> tuple[str, ...]:
    """A key for each protocol and port to which a listener leads. `step`: the ports of its slot."""
    protocol = protocol_of(kind, lane)
    protocols = ("tcp", "udp") if protocol == "tcp_udp" else BELOW.get(protocol, (protocol,))
    return tuple(
        f"{each} {write_target(ip, number)}"
        for each in protocols
        for number in range(port, port + step)
    )


def make_backend(
    ip: str, asked: Sequence[int], slots: Iterable[tuple[int, str, str, int]]
) -> Backend:
    """`slots`: for each slot, the index of its port in `asked`, its kind, its lane and its number
    of ports.
    """
    found = [(asked[index], kind, lane, step) for index, kind, lane, step in slots]
    return Backend(
        ip=ip,
        asked=tuple(asked),
        ports=tuple(port for port, _, _, _ in found),
        keys=tuple(keys_of(kind, lane, ip, port, step) for port, kind, lane, step in found),
    )
