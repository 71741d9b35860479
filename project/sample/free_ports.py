"""Finds the ports of the sample's arcade: consecutive numbers that no program of this machine uses,
first those of the listeners, then those of the game rooms behind them.
"""

import socket
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from django.conf import settings

from pools.providers.forwarder.addresses import DEFAULT, is_here, read_networks
from pools.providers.forwarder.provider import check_machine
from project.kernel.errors import Conflict
from project.kernel.outbox.operations import ProviderError
from project.sample.scenario import ROOMS

# Below the ports of outgoing connections and of the examples.
FIRST, LAST = 21_000, 29_999


def find_ports() -> int:
    """The first listener. Raises Conflict if no forwarder can serve the arcade here."""
    if faults := check_machine():
        raise Conflict(faults[0].message, way_out=faults[0].way_out)
    addresses = list_addresses()
    if away := [each for each in addresses if not is_here(each)]:
        raise Conflict(
            f"BERTH_FORWARDER_BIND: {away[0]} is not an address of this machine.",
            way_out="Name addresses that it has, then load the sample again.",
        )
    for first in list_candidates():
        if all(
            is_free(address, port)
            for port in range(first, first + 2 * ROOMS)
            for address in addresses
        ):
            return first
    raise Conflict(
        f"No {2 * ROOMS} consecutive ports between {FIRST} and {LAST} are free.",
        way_out="Stop a program that uses some of them, then load the sample again.",
    )


def list_addresses() -> Sequence[str]:
    """Where forwarders will listen, and where game rooms do."""
    try:
        networks = read_networks()
    except ProviderError as error:
        raise Conflict(str(error), way_out="Correct the setting, then load the sample.") from None
    if not networks:
        return [each for each in DEFAULT if each == DEFAULT[0] or is_here(each)]
    return sorted({DEFAULT[0], *(str(next(iter(network.hosts()))) for network in networks)})


def list_candidates() -> Iterator[int]:
    """Each installation begins elsewhere, so that two that load the sample at the same time seldom
    choose the same ports.
    """
    every = range(FIRST, LAST - 2 * ROOMS + 2, 2 * ROOMS)
    digest = sha256(str(Path(settings.BERTH_HOME).resolve()).encode()).digest()
    start = int.from_bytes(digest[:4]) % len(every)
    yield from (*every[start:], *every[:start])


def is_free(address: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try:
            with socket.socket(family, kind) as probe:
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                if kind == socket.SOCK_STREAM:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address, port))
        except OSError:
            return False
    return True
