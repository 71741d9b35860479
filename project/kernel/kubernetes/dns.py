"""Name lookups in threads of their own, because getaddrinfo has no timeout: without an answering
name server it takes minutes. Callers of the same name share one lookup.
"""

import os
import socket
import threading
from concurrent.futures import Future

from urllib3.util.connection import allowed_gai_family

from project.kernel.security.client_address import read_address

# Seconds. The resolver waits 5 s for each name server, and the next name server may answer.
PATIENCE = 10.0
MAX_LOOKUPS = 16  # names at once: each takes a thread until the resolver gives up

Target = tuple[socket.AddressFamily, tuple[str | int | bytes, ...]]


class NameLookups:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[tuple[str, int], Future[list[Target]]] = {}

    def find(self, host: str, port: int, seconds: float) -> list[Target]:
        """The addresses of a host. Raises socket.gaierror, or UnicodeError for an invalid name."""
        if is_address(host):
            return look_up(host.strip("[]"), port)
        try:
            return self._begin(host, port).result(seconds)
        except TimeoutError:
            raise socket.gaierror(
                socket.EAI_AGAIN, f"no name server answers within {seconds:.3g} s"
            ) from None

    def _begin(self, host: str, port: int) -> Future[list[Target]]:
        with self._lock:
            if (running := self._running.get((host, port))) is not None:
                return running
            if len(self._running) >= MAX_LOOKUPS:
                raise socket.gaierror(
                    socket.EAI_AGAIN,
                    f"{MAX_LOOKUPS} other names are being looked up, and no name server answers",
                )
            lookup = Future[list[Target]]()
            # A daemon: a process that ends does not wait for the resolver.
            threading.Thread(
                target=self._run, args=(host, port, lookup), name=f"look-up {host}", daemon=True
            ).start()
            self._running[host, port] = lookup  # not before: a start may fail
            return lookup

    def _run(self, host: str, port: int, lookup: Future[list[Target]]) -> None:
        found: list[Target] | Exception
        try:
            found = look_up(host, port)
        except Exception as error:
            found = error
        with self._lock:
            del self._running[host, port]
        if isinstance(found, Exception):
            lookup.set_exception(found)
        else:
            lookup.set_result(found)


def look_up(host: str, port: int) -> list[Target]:
    found = socket.getaddrinfo(host, port, allowed_gai_family(), socket.SOCK_STREAM)
    return [(family, target) for family, _, _, _, target in found]


def is_address(host: str) -> bool:
    return read_address(host.strip("[]").partition("%")[0]) is not None


class _ProcessResolver:
    names = NameLookups()


def _renew_resolver() -> None:
    _ProcessResolver.names = NameLookups()


os.register_at_fork(after_in_child=_renew_resolver)  # a forked process has none of the threads


def resolve_host(host: str, port: int, seconds: float) -> list[Target]:
    return _ProcessResolver.names.find(host, port, seconds)
