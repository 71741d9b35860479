"""The addresses of this machine, of Berth's other processes, and of the services that Berth uses:
no backend may lead there.
"""

import ipaddress
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import SynchronousOnlyOperation

from claims.ports import ports_sql
from pools.config.backend_spec import IP

KEPT = 60.0  # seconds until names are resolved again
LOCAL_IPV4 = Path("/proc/net/fib_trie")  # Linux; below each address is its kind
LOCAL_IPV6 = Path("/proc/net/if_inet6")


class OwnAddresses:
    """Resolves names at most once a minute. `get` may wait for a name server, so transactions and
    pages use `known`.
    """

    def __init__(self) -> None:
        self._read_at = float("-inf")
        self._found: frozenset[IP] = frozenset()

    def get(self) -> frozenset[IP]:
        if time.monotonic() - self._read_at > KEPT:
            resolved = {each for name in _names() for each in _resolve(name)}
            self._found = frozenset({*list_interfaces(), *resolved})
            try:
                self._found |= list_processes()
            except SynchronousOnlyOperation:  # in an event loop: the next caller reads them
                return self._found
            self._read_at = time.monotonic()
        return self._found

    def known(self) -> frozenset[IP]:
        """The last result, or a first one."""
        return self._found or self.get()


own_addresses = OwnAddresses()


def list_processes() -> frozenset[IP]:
    """The addresses from which processes of Berth are connected to the database: each of them keeps
    a connection. A pooler or a translation of addresses between them hides the processes.
    """
    rows = ports_sql.process_addresses()
    return frozenset(ipaddress.ip_address(row.address) for row in rows)


def _names() -> set[str]:
    """This machine, the hosts of the database and of Valkey, the public address, and the API of the
    cluster in which Berth runs.
    """
    urls = (settings.REDIS_URL, settings.BERTH_URL, settings.BERTH_DIRECT_DATABASE_URL)
    hosts = {str(urlsplit(url).hostname or "") for url in urls if url}
    cluster = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    names = {socket.gethostname(), str(settings.DATABASES["default"]["HOST"]), cluster, *hosts}
    return {name for name in names if name and not name.startswith("/")}


def _resolve(name: str) -> Iterator[IP]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:  # this machine cannot resolve the name
        return
    for *_, address in found:
        yield ipaddress.ip_address(str(address[0]).partition("%")[0])


def list_interfaces() -> Iterator[IP]:
    """The addresses of the network interfaces; none on other systems than Linux."""
    last = ""
    for line in _read(LOCAL_IPV4):
        words = line.split()
        if words[:1] == ["|--"]:
            last = words[1]
        elif words == ["/32", "host", "LOCAL"]:
            yield ipaddress.ip_address(last)
    for line in _read(LOCAL_IPV6):
        yield ipaddress.ip_address(bytes.fromhex(line.split()[0]))


def _read(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
