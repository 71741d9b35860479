"""The addresses on which forwarders of this machine listen: BERTH_FORWARDER_BIND, or 127.0.0.1 and
::1. All forwarders share an address that the setting names; of a network, each forwarder gets an
address of its own, so that several load balancers can have the same ports.
"""

import fcntl
import ipaddress
import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from django.conf import settings

from project.kernel.embedded import detached
from project.kernel.outbox.operations import Misconfigured, QuotaExceeded
from project.kernel.security.private_files import write_private

DEFAULT = ("127.0.0.1", "::1")
FILE = "addresses.json"
MOST_TRIED = 65_536  # addresses of one network
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def read_networks() -> list[Network]:
    """The setting. Empty: the default."""
    found = []
    for word in settings.BERTH_FORWARDER_BIND:
        try:
            network = ipaddress.ip_network(word)
        except ValueError:
            raise Misconfigured(
                f"BERTH_FORWARDER_BIND: {word[:60]} is neither an address nor a network. Write "
                "addresses of this machine like 192.0.2.7, or networks like 127.77.0.0/24."
            ) from None
        if network.network_address.is_unspecified or network.network_address.is_multicast:
            raise Misconfigured(
                f"BERTH_FORWARDER_BIND: {word[:60]} is not the address of one machine. Name the "
                "addresses that clients call."
            )
        found.append(network)
    return found


def is_shared() -> bool:
    """Whether all forwarders listen on one address, by the setting. A wrong setting counts as
    shared, until it is corrected.
    """
    try:
        networks = read_networks()
    except Misconfigured:
        return True
    return not networks or any(each.num_addresses == 1 for each in networks)


def assign(top: Path, folder: Path) -> tuple[str, ...]:
    """The addresses of the forwarder in this folder. They stay the same while the setting permits
    them.
    """
    networks = read_networks()
    if not networks:
        return tuple(each for each in DEFAULT if each == DEFAULT[0] or is_here(each))
    with _lock(top):
        mine = _read(folder)
        found = [_choose(network, mine, top, folder) for network in networks]
        if found != mine:
            write_private(folder / FILE, json.dumps(found))
    for each in found:
        if not is_here(each):
            raise Misconfigured(
                f"BERTH_FORWARDER_BIND: {each} is not an address of this machine. Name addresses "
                "that it has."
            )
    return tuple(found)


def is_here(address: str) -> bool:
    """Whether this machine has the address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _choose(network: Network, mine: Sequence[str], top: Path, folder: Path) -> str:
    if network.num_addresses == 1:
        return str(network.network_address)
    for each in mine:
        if ipaddress.ip_address(each) in network:
            return each
    used = {
        address
        for other in top.glob("*.*")
        if other != folder and other.is_dir()
        for address in _read(other)
    }
    for i, each_host in enumerate(network.hosts()):
        if i >= MOST_TRIED:
            break
        if str(each_host) not in used:
            return str(each_host)
    raise QuotaExceeded(
        f"BERTH_FORWARDER_BIND: every address of {network} has a forwarder. Name a larger network."
    )


def _read(folder: Path) -> list[str]:
    with suppress(*detached.GONE, ValueError):
        found = json.loads((folder / FILE).read_text())
        if isinstance(found, list):
            return [each for each in found if isinstance(each, str)]
    return []


@contextmanager
def _lock(top: Path) -> Iterator[None]:
    with open(os.open(top / "addresses.lock", os.O_RDWR | os.O_CREAT, 0o600), "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # held for a few reads
        yield
