"""UDP through a forwarder: flows, their limit and their time-out."""

import os
import signal

import pytest

from tests.pools.providers.forwarder.helpers import (
    LOCALHOST,
    QUIET,
    UdpTarget,
    ask_udp,
    counts_of,
    free_ports,
    needs_ipv6,
    process_id,
    slot,
    start,
    state_of,
    sync,
    udp_client,
)
from tests.waiting import wait_until

ADDRESSES = [LOCALHOST, pytest.param("::1", marks=needs_ipv6)]


@pytest.mark.parametrize("target_address", ADDRESSES)
@pytest.mark.parametrize("address", ADDRESSES)
def test_datagrams_reach_the_target_and_its_replies_the_client(
    address: str, target_address: str
) -> None:
    port = free_ports()
    with UdpTarget("a", target_address) as target:
        report = start(slot(port, target.at, lane="udp"))
        assert ask_udp(port, b"ping", address) == b"aping"
        assert ask_udp(port, b"x" * 60_000, address) == b"a" + b"x" * 60_000
    assert report.slots is not None
    assert report.slots[0].attributes["health"] == "unchecked"


def test_each_client_has_a_flow_of_its_own() -> None:
    port = free_ports()
    with UdpTarget("a") as target:
        start(slot(port, target.at, lane="udp"))
        with udp_client(LOCALHOST, port) as one, udp_client(LOCALHOST, port) as two:
            for client, text in ((one, b"1"), (two, b"2"), (one, b"3")):
                client.send(text)
                assert client.recv(10) == b"a" + text
            assert target.clients[0] == target.clients[2] != target.clients[1]
            found = counts_of(port, "udp")
    assert (found["connections"], found["opened"]) == (2, 2)
    assert (found["bytes_in"], found["bytes_out"]) == (3, 6)


def test_flow_beyond_the_limit_is_refused_and_counted() -> None:
    port = free_ports()
    with UdpTarget("a") as target:
        start(slot(port, target.at, lane="udp"), options=QUIET | {"limits": {"flows": 1}})
        with udp_client(LOCALHOST, port) as one, udp_client(LOCALHOST, port) as two:
            one.send(b"1")
            assert one.recv(10) == b"a1"
            two.send(b"2")
            wait_until(lambda: counts_of(port, "udp")["refused"] == 1)
            one.send(b"3")
            assert one.recv(10) == b"a3"
    assert len(target.clients) == 2


def test_quiet_flow_makes_room_after_its_time_out() -> None:
    port = free_ports()
    options = QUIET | {"limits": {"flows": 1}, "udp_idle": "1s"}
    with UdpTarget("a") as target:
        start(slot(port, target.at, lane="udp"), options=options)
        assert ask_udp(port) == b"ahello"
        wait_until(lambda: state_of()["used"] == 0)
        assert ask_udp(port) == b"ahello"


def test_datagram_without_a_target_is_dropped_and_counted() -> None:
    port = free_ports()
    start(slot(port, lane="udp"))
    with udp_client(LOCALHOST, port) as client:
        client.send(b"x")
        wait_until(lambda: counts_of(port, "udp")["refused"] == 1)


def test_target_that_was_down_gets_the_next_datagrams() -> None:
    port = free_ports(2)
    start(slot(port, (LOCALHOST, port + 1), lane="udp"))
    with udp_client(LOCALHOST, port) as client:
        client.send(b"lost")
        wait_until(lambda: counts_of(port, "udp")["failed"] >= 1)
        with UdpTarget("a", port=port + 1):
            client.send(b"again")
            assert client.recv(10) == b"aagain"


def test_datagram_after_a_rejected_one_is_sent_all_the_same() -> None:
    """The rejection of the first datagram is reported to the sender of the second."""
    port = free_ports(2)
    start(slot(port, (LOCALHOST, port + 1), lane="udp"))
    with udp_client(LOCALHOST, port) as client:
        os.kill(process_id(), signal.SIGSTOP)  # so that both are read in one burst
        client.send(b"1")
        client.send(b"2")
        os.kill(process_id(), signal.SIGCONT)
        wait_until(lambda: counts_of(port, "udp")["opened"])
        found = counts_of(port, "udp")
    assert (found["bytes_in"], found["dropped"]) == (2, 0)


def test_segment_of_datagrams_keeps_the_offset_of_the_port() -> None:
    port = free_ports(6)
    with UdpTarget("0", port=port + 3), UdpTarget("1", port=port + 4):
        start(slot(port, (LOCALHOST, port + 3), lane="udp"), segment=2)
        assert [ask_udp(port + i, b"x") for i in range(2)] == [b"0x", b"1x"]


def test_flow_goes_to_the_new_target_at_once() -> None:
    port = free_ports()
    with UdpTarget("a") as old, UdpTarget("b") as new, udp_client(LOCALHOST, port) as client:
        start(slot(port, old.at, lane="udp"))
        client.send(b"1")
        assert client.recv(10) == b"a1"
        sync(slot(port, new.at, lane="udp"))
        client.send(b"2")
        assert client.recv(10) == b"b2"


def test_tcp_and_udp_share_a_number() -> None:
    port = free_ports()
    with UdpTarget("u") as target:
        report = start(
            slot(port, target.at, lane="udp", protocol="tcp_udp"), slot(port, protocol="tcp_udp")
        )
        assert ask_udp(port) == b"uhello"
    assert report.slots is not None
    assert {(each.lane, each.number) for each in report.slots} == {("tcp", port), ("udp", port)}
