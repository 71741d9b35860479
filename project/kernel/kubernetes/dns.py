"""Names of servers, looked up in threads of their own: nobody can break off what the system asks,
and where no name server answers it asks for minutes. Who has waited long enough goes on; the next
one who wants the same name joins what is under way."""

import ipaddress
import os
import socket
import threading
from typing import Any

from urllib3.util.connection import allowed_gai_family

# Seconds: the system's own are 5 for each name server that does not answer, and the next one may.
PATIENCE = 10.0
MOST = 16  # names at once: each is a thread, for as long as the system takes


class Lookup:
    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.done = threading.Event()
        self.addresses: list[str] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            found = socket.getaddrinfo(
                self.host, self.port, allowed_gai_family(), socket.SOCK_STREAM
            )
            self.addresses = list(dict.fromkeys(_address(each[4]) for each in found))
        except (OSError, UnicodeError) as error:
            self.error = error
        finally:
            self.done.set()


class NameLookups:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[tuple[str, int], Lookup] = {}

    def find(self, host: str, port: int, seconds: float) -> list[str]:
        """Its addresses. Raises socket.gaierror, or UnicodeError for what can be no name."""
        if is_address(host):
            return [host]
        lookup = self._ask(host, port)
        if not lookup.done.wait(seconds):
            raise socket.gaierror(
                socket.EAI_AGAIN, f"no name server answers within {seconds:.3g} s"
            )
        if isinstance(lookup.error, UnicodeError):
            raise UnicodeError(str(lookup.error)) from lookup.error
        if lookup.error is not None:
            raise socket.gaierror(*lookup.error.args) from lookup.error
        return lookup.addresses

    def _ask(self, host: str, port: int) -> Lookup:
        with self._lock:
            if (known := self._asked.get((host, port))) is not None:
                return known
            if len(self._asked) >= MOST:
                raise socket.gaierror(
                    socket.EAI_AGAIN,
                    f"{MOST} other names are being looked up, and no name server answers",
                )
            lookup = Lookup(host, port)
            threading.Thread(
                target=self._run, args=(lookup,), name=f"look-up {host}", daemon=True
            ).start()
            self._asked[host, port] = lookup
            return lookup

    def _run(self, lookup: Lookup) -> None:
        try:
            lookup.run()
        finally:
            with self._lock:
                self._asked.pop((lookup.host, lookup.port), None)


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return True


def _address(found: Any) -> str:
    """What getaddrinfo says of it, with the interface of a link-local one."""
    zone = f"%{found[3]}" if len(found) == 4 and found[3] and "%" not in found[0] else ""
    return f"{found[0]}{zone}"


class _ProcessResolver:
    """Of this process: one that was forked has none of the threads."""

    names = NameLookups()


def _begin_anew() -> None:
    _ProcessResolver.names = NameLookups()


os.register_at_fork(after_in_child=_begin_anew)


def resolve_host(host: str, port: int, seconds: float) -> list[str]:
    return _ProcessResolver.names.find(host, port, seconds)
