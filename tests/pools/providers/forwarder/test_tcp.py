"""TCP through a forwarder: bytes, half-closed connections, back-pressure, limits and headers."""

import socket
import threading
from typing import Any

import pytest

from project.kernel.embedded import detached
from tests.pools.providers.forwarder.helpers import (
    LOCALHOST,
    QUIET,
    TcpTarget,
    ask_tcp,
    call,
    counts_of,
    exchange,
    folder,
    free_ports,
    is_refused,
    is_reset,
    needs_ipv6,
    read_all,
    slot,
    start,
    state_of,
)
from tests.waiting import wait_until

ADDRESSES = [LOCALHOST, pytest.param("::1", marks=needs_ipv6)]


@pytest.mark.parametrize("target_address", ADDRESSES)
@pytest.mark.parametrize("address", ADDRESSES)
def test_bytes_reach_the_target_and_its_answer_the_client(
    address: str, target_address: str
) -> None:
    port, data = free_ports(), bytes(range(256)) * 4000
    with TcpTarget("a", target_address) as target:
        start(slot(port, target.at))
        assert ask_tcp(port, data, address) == b"a" + data
        assert target.received == [data]


def test_listener_counts_connections_and_bytes() -> None:
    port = free_ports()
    with TcpTarget("abc") as target:
        start(slot(port, target.at))
        for _ in range(2):
            assert ask_tcp(port, b"12345") == b"abc12345"
        wait_until(lambda: counts_of(port)["connections"] == 0)
        found = counts_of(port)
    assert (found["opened"], found["bytes_in"], found["bytes_out"]) == (2, 10, 16)


def test_target_can_answer_after_the_client_has_closed_its_direction() -> None:
    port, may_answer = free_ports(), threading.Event()

    def late(client: socket.socket) -> None:
        assert read_all(client) == b"question"
        may_answer.wait(20)
        client.sendall(b"answer")

    with TcpTarget(handle=late) as target:
        start(slot(port, target.at))
        with call(LOCALHOST, port) as client:
            client.sendall(b"question")
            client.shutdown(socket.SHUT_WR)
            wait_until(lambda: counts_of(port)["bytes_in"] == 8)
            may_answer.set()
            assert read_all(client) == b"answer"


def test_client_can_send_after_the_target_has_closed_its_direction() -> None:
    port, received = free_ports(), []

    def close_first(client: socket.socket) -> None:
        client.sendall(b"bye")
        client.shutdown(socket.SHUT_WR)
        received.append(read_all(client))

    with TcpTarget(handle=close_first) as target:
        start(slot(port, target.at))
        with call(LOCALHOST, port) as client:
            assert read_all(client) == b"bye"
            client.sendall(b"still here")
            client.shutdown(socket.SHUT_WR)
            wait_until(lambda: received)
    assert received == [b"still here"]


def test_target_that_does_not_read_stops_its_client_in_bounded_memory() -> None:
    port, may_read, received = free_ports(), threading.Event(), []

    def slow(client: socket.socket) -> None:
        may_read.wait(60)
        received.append(len(read_all(client)))

    with TcpTarget(handle=slow) as target:
        start(slot(port, target.at))
        process = detached.read(folder())
        assert process is not None
        before = memory_of(process.pid)
        with call(LOCALHOST, port) as client:
            client.setblocking(False)
            sent = send_until_full(client)
            # What was accepted lies in the buffers of the kernel, not in the forwarder.
            assert memory_of(process.pid) - before < 4_000_000
            may_read.set()
            client.setblocking(True)
            client.shutdown(socket.SHUT_WR)
            wait_until(lambda: received)
    assert received == [sent]


def send_until_full(client: socket.socket) -> int:
    """The bytes that the way to the target takes while the target does not read."""
    sent, full = 0, 0
    while full < 25:
        try:
            sent += client.send(b"x" * 65536)
            full = 0
        except BlockingIOError:
            full += 1
            state_of()  # a round trip through the event loop of the forwarder
    assert sent < 100_000_000
    return sent


def memory_of(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_unreachable_target_resets_its_clients_and_is_counted() -> None:
    port = free_ports(2)
    start(slot(port, (LOCALHOST, port + 1)))
    assert is_reset(port)
    assert counts_of(port)["failed"] == 1
    wait_until(lambda: state_of()["used"] == 0)


def test_listener_without_a_target_keeps_its_port_and_refuses_clients() -> None:
    port = free_ports()
    report = start(slot(port))
    assert report.slots is not None
    assert dict(report.slots[0].attributes) == {"id": f"{folder().name}/tcp/{port}",
                                                "protocol": "tcp"}  # fmt: skip
    assert is_reset(port)
    assert counts_of(port)["refused"] == 1


@pytest.mark.parametrize("limit", ["connections", "total"])
def test_connection_beyond_a_limit_is_refused_and_counted(limit: str) -> None:
    port = free_ports()
    options = QUIET | {"limits": {limit: 2}}
    with TcpTarget("a") as target:
        start(slot(port, target.at), options=options)
        with call(LOCALHOST, port) as one, call(LOCALHOST, port):
            wait_until(lambda: counts_of(port)["connections"] == 2)
            assert is_reset(port)
            assert counts_of(port)["refused"] == 1
            assert exchange(one, b"x") == b"ax"
            wait_until(lambda: counts_of(port)["connections"] == 1)
            assert ask_tcp(port) == b"ahello"


def test_quiet_connection_ends_after_the_idle_time_out() -> None:
    port = free_ports()
    with TcpTarget("a") as target:
        start(slot(port, target.at), options=QUIET | {"tcp_idle": "1s"})
        assert is_reset(port)


def test_reset_of_a_client_reaches_the_target() -> None:
    port, seen = free_ports(), []

    def watch(client: socket.socket) -> None:
        try:
            client.recv(10)
            client.recv(10)
        except ConnectionResetError as error:
            seen.append(error)

    with TcpTarget(handle=watch) as target:
        start(slot(port, target.at))
        client = call(LOCALHOST, port)
        client.sendall(b"x")
        wait_until(lambda: counts_of(port)["bytes_in"] == 1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
        wait_until(lambda: seen)
        wait_until(lambda: state_of()["used"] == 0)


@pytest.mark.parametrize("address", ADDRESSES)
def test_proxy_header_names_the_client(address: str) -> None:
    port = free_ports()
    with TcpTarget() as target:
        start(slot(port, target.at), options=QUIET | {"proxy_protocol": "v2"})
        with call(address, port) as client:
            source = client.getsockname()[:2]
            exchange(client, b"data")
        (received,) = target.received
    signature = b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a"  # of the specification
    family, size = (b"\x11", 12) if address == LOCALHOST else (b"\x21", 36)
    packed = [socket.inet_pton(socket.AF_INET6 if ":" in each else socket.AF_INET, each)
              for each in (source[0], address)]  # fmt: skip
    body = b"".join(packed) + source[1].to_bytes(2, "big") + port.to_bytes(2, "big")
    assert len(body) == size
    assert received == signature + b"\x21" + family + size.to_bytes(2, "big") + body + b"data"


def test_segment_leads_each_port_to_the_port_with_the_same_offset() -> None:
    port, targets = free_ports(8), []
    first_target = port + 4
    try:
        targets = [TcpTarget(f"{i}:", port=first_target + i) for i in range(3)]
        report = start(slot(port, (LOCALHOST, first_target)), segment=3)
        answers = [ask_tcp(port + i, b"x", address) for i in range(3) for address in here()]
    finally:
        for each in targets:
            each.close()
    assert answers == [f"{i}:x".encode() for i in range(3) for _ in here()]
    assert report.slots is not None
    assert [each.attributes["end"] for each in report.slots] == [port + 2]
    assert is_refused(port + 3)


def here() -> list[Any]:
    return list(state_of()["bind"])


def test_target_that_is_the_forwarder_itself_is_refused() -> None:
    port = free_ports(2)
    report = start(slot(port, (LOCALHOST, port + 1)), slot(port + 1, (LOCALHOST, port)))
    assert report.slots is not None
    assert [each.attributes["problem"] for each in report.slots] == [
        "The target is a port of a forwarder of this machine."
    ] * 2
    assert is_reset(port)
    assert counts_of(port + 1)["opened"] == 0


def test_hundreds_of_connections_at_once_are_served() -> None:
    port, count = free_ports(), 400
    with TcpTarget("a") as target:
        start(slot(port, target.at))
        clients = [call(LOCALHOST, port) for _ in range(count)]
        wait_until(lambda: counts_of(port)["connections"] == count)
        answers = {exchange(client, b"x") for client in clients}
        for client in clients:
            client.close()
        assert answers == {b"ax"}
        wait_until(lambda: state_of()["used"] == 0)
    assert counts_of(port)["opened"] == count
