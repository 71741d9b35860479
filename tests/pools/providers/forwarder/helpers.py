"""Forwarders in the test's own folder, free ports, and targets that answer."""

import os
import random
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from pools.providers.base import (
    MemberReport,
    MemberSnapshot,
    PoolSnapshot,
    PortTarget,
    PortUse,
    SlotSnapshot,
)
from pools.providers.forwarder.addresses import is_here
from pools.providers.forwarder.control_client import ask
from pools.providers.forwarder.forwarder_folder import FOLDER, folder_of
from pools.providers.forwarder.provider import ForwarderProvider
from project.kernel.embedded import detached
from tests.waiting import wait_until

PATIENCE = 20.0
LOCALHOST = "127.0.0.1"
needs_ipv6 = pytest.mark.skipif(not is_here("::1"), reason="this machine has no IPv6 loopback")
# Health checks off, so that a report does not change by itself.
QUIET = {"health": {"enabled": False}, "drain": "0s"}


def pool(
    *members: MemberSnapshot,
    options: Mapping[str, Any] = QUIET,
    ports: tuple[int, int] | None = None,
    segment: int = 1,
    is_precreated: bool = False,
) -> PoolSnapshot:
    return PoolSnapshot(
        id=7, name="doors", provider="forwarder", options=options, members=members,
        installation="lab", ports=ports, segment=segment, is_precreated=is_precreated,
    )  # fmt: skip


def member(
    state: str = "ready",
    *slots: SlotSnapshot,
    number: int = 1,
    incarnation: int = 1,
    ports: tuple[int, int] | None = None,
) -> MemberSnapshot:
    return MemberSnapshot(
        id=number, name=f"m{number}", state=state, incarnation=incarnation, is_owned=True,
        slots=slots, ports=ports,
    )  # fmt: skip


def slot(
    number: int,
    target: tuple[str, int] | None = None,
    *,
    lane: str = "tcp",
    state: str = "held",
    generation: int = 5,
    is_overdue: bool = False,
    protocol: str = "",
    is_known: bool = True,
) -> SlotSnapshot:
    """`is_known`: the slot has a use, if it is held or reserved."""
    use = PortUse(protocol or lane, None if target is None else PortTarget(*target))
    return SlotSnapshot(
        id=number * 10 + (lane == "udp"),
        lane=lane,
        number=number,
        state=state,
        claim_id=3 if state in ("held", "reserved") else None,
        generation=generation,
        is_overdue=is_overdue,
        use=use if is_known and state in ("held", "reserved") else None,
    )


def start(*slots: SlotSnapshot, **more: Any) -> MemberReport:
    """A forwarder with these slots, up."""
    made = member("creating", *slots)
    report = ForwarderProvider().sync(pool(made, **more), made)
    assert report.is_ready, report
    return report


def sync(*slots: SlotSnapshot, **more: Any) -> MemberReport:
    made = member("ready", *slots)
    return ForwarderProvider().sync(pool(made, **more), made)


def folder(number: int = 1) -> Path:
    return folder_of(pool(), member(number=number))


def process_id(number: int = 1) -> int:
    """The running forwarder of a member; 0: none."""
    process = detached.read(folder(number))
    return process.pid if process is not None and detached.is_alive(process) else 0


def state_of(number: int = 1) -> Mapping[str, Any]:
    return ask(folder(number), {"do": "describe"})


def counts_of(port: int, lane: str = "tcp") -> Mapping[str, Any]:
    (found,) = [
        each for each in state_of()["listeners"] if (each["lane"], each["number"]) == (lane, port)
    ]
    return dict(found)


def processes_in(home: Path) -> list[int]:
    """All forwarders of this home, whether they are on record or not."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            place = words[words.index("--state") + 1] if "--state" in words[:-1] else ""
            if place.startswith(f"{home / FOLDER}/") and detached.start_time(int(entry.name)):
                found.append(int(entry.name))
    return sorted(found)


@contextmanager
def own_home(settings: Any, home: Path, *bind: str) -> Iterator[Path]:
    """A state folder of its own. Forwarders that still run in the end are killed."""
    settings.BERTH_HOME, settings.BERTH_FORWARDER_BIND = home, list(bind)
    try:
        yield home
    finally:
        for pid in (left := processes_in(home)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        detached.wait_until_gone(left, PATIENCE)
        detached.find(home, lambda words: None)  # finds none, and reaps those that have ended


def free_ports(count: int = 1) -> int:
    """The first of so many ports that no program uses, below those that the kernel gives to
    outgoing connections.
    """
    for _ in range(200):
        first = random.randint(12_000, 31_000 - count)
        if all(_is_free(port) for port in range(first, first + count)):
            return first
    raise AssertionError("no free ports")


def _is_free(port: int) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        for address in (LOCALHOST, "::1") if is_here("::1") else (LOCALHOST,):
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            with socket.socket(family, kind) as probe:
                try:
                    probe.bind((address, port))
                except OSError:
                    return False
    return True


def call(address: str, port: int, timeout: float = PATIENCE) -> socket.socket:
    return socket.create_connection((address, port), timeout)


def is_refused(port: int, address: str = LOCALHOST) -> bool:
    try:
        with call(address, port):
            return False
    except ConnectionRefusedError:
        return True


def is_reset(port: int, address: str = LOCALHOST) -> bool:
    """True if the forwarder resets the connection, perhaps while it is being made."""
    try:
        with call(address, port) as client:
            assert client.recv(1) == b""
            return False
    except ConnectionResetError:
        return True


def exchange(client: socket.socket, data: bytes) -> bytes:
    """Send, close this direction, and read to the end."""
    client.sendall(data)
    client.shutdown(socket.SHUT_WR)
    return read_all(client)


def read_all(client: socket.socket) -> bytes:
    found = b""
    while chunk := client.recv(1 << 16):
        found += chunk
    return found


def ask_tcp(port: int, data: bytes = b"hello", address: str = LOCALHOST) -> bytes:
    with call(address, port) as client:
        return exchange(client, data)


def ask_udp(port: int, data: bytes = b"hello", address: str = LOCALHOST) -> bytes:
    with udp_client(address, port) as client:
        client.send(data)
        return client.recv(70_000)


def udp_client(address: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(PATIENCE)
    made.connect((address, port))
    return made


class TcpTarget:
    """Answers each connection with its name and what it received, once the client has finished.
    With `handle`, that function serves the connection.
    """

    def __init__(
        self,
        name: str = "",
        address: str = LOCALHOST,
        port: int = 0,
        handle: Callable[[socket.socket], None] | None = None,
    ) -> None:
        self.name = name
        self.received: list[bytes] = []
        self._handle = handle or self._echo
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.socket = socket.create_server((address, port), family=family, backlog=100)
        self.at = (address, int(self.socket.getsockname()[1]))
        self._is_closed = False
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        self._is_closed = True
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes accept
        self.socket.close()

    def __enter__(self) -> "TcpTarget":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._is_closed:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            client.settimeout(PATIENCE)
            self._handle(client)

    def _echo(self, client: socket.socket) -> None:
        data = read_all(client)
        if data:
            self.received.append(data)
            client.sendall(self.name.encode() + data)


class UdpTarget:
    """Answers each datagram with its name and the datagram."""

    def __init__(self, name: str = "", address: str = LOCALHOST, port: int = 0) -> None:
        self.name = name
        self.clients: list[Any] = []
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        self.socket.bind((address, port))
        self.at = (address, int(self.socket.getsockname()[1]))
        threading.Thread(target=self._run, daemon=True).start()

    def __enter__(self) -> "UdpTarget":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self.socket.close()

    def _run(self) -> None:
        while True:
            try:
                data, client = self.socket.recvfrom(70_000)
            except OSError:
                return
            if not client:  # shut down
                return
            self.clients.append(client)
            with suppress(OSError):
                self.socket.sendto(self.name.encode() + data, client)


def health_of(port: int) -> str:
    return str(counts_of(port).get("health"))


def wait_for_health(port: int, health: str) -> None:
    wait_until(
        lambda: health_of(port) == health, lambda: f"it is {health_of(port)}", patience=PATIENCE
    )


def places(report: MemberReport) -> Sequence[tuple[str, int]]:
    assert report.slots is not None
    return [(each.lane, each.number) for each in report.slots]
