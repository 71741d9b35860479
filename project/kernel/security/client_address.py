"""The address of a client: the peer of its connection, or the address that trusted proxies send in
X-Forwarded-For.

All limits per address (sign-in, unknown tokens, connections) count this address. No limit counts a
proxy.
"""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

from django.conf import settings

# The verb of the event about a peer that sends X-Forwarded-For and is not trusted.
UNTRUSTED_PROXY = "untrusted_proxy"
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def read_networks(words: Iterable[str]) -> list[Network]:
    """Networks from addresses and CIDR ranges. Raises ValueError for a malformed word."""
    found = []
    for word in words:
        try:
            found.append(ipaddress.ip_network(word, strict=False))
        except ValueError:
            raise ValueError(
                f"{word[:60]} is neither an address nor a network. Write one like 10.0.0.7 "
                "or 10.0.0.0/8."
            ) from None
    return found


def read_address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


@lru_cache(4096)
def normalize_address(address: str) -> str:
    """The IPv4 address of a mapped IPv6 address (::ffff:10.0.0.7). Text that is no address is
    returned unchanged.
    """
    found = read_address(address.partition("%")[0])
    if found is None:
        return address
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found)


@lru_cache(4096)
def network_of(address: str) -> str:
    """The unit that limits count: an IPv4 address, or the /64 of an IPv6 address, which usually
    belongs to one client.
    """
    plain = normalize_address(address)
    if isinstance(read_address(plain), ipaddress.IPv6Address):
        return str(ipaddress.ip_network((plain, 64), strict=False))
    return plain


def is_trusted_proxy(address: str) -> bool:
    return _is_in(address, settings.BERTH_TRUSTED_PROXIES)


@lru_cache(4096)
def _is_in(address: str, networks: tuple[Network, ...]) -> bool:
    found = read_address(address)
    return found is not None and any(found in network for network in networks)


def counted_address(address: str) -> str:
    """The key under which limits count this client; empty for an unknown client (a proxy, or no
    network peer), which has no limit per address.
    """
    return (
        "" if not address or is_trusted_proxy(normalize_address(address)) else network_of(address)
    )
