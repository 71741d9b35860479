"""Addresses of forwarders: BERTH_FORWARDER_BIND, with addresses and networks."""

import sys
from typing import Any

import pytest

from pools.providers.forwarder import addresses
from pools.providers.forwarder.provider import ForwarderProvider
from project.kernel.outbox.operations import Misconfigured, QuotaExceeded
from tests.pools.providers.forwarder.helpers import (
    LOCALHOST,
    TcpTarget,
    ask_tcp,
    folder,
    free_ports,
    is_refused,
    member,
    pool,
    process_id,
    slot,
    start,
    sync,
)

linux = pytest.mark.skipif(
    sys.platform != "linux", reason="this system has one loopback address only"
)
NETWORK = "127.77.0.0/30"  # two addresses of hosts


def start_second(*slots: Any) -> Any:
    made = member("creating", *slots, number=2)
    return ForwarderProvider().sync(pool(made), made)


def test_forwarders_listen_on_loopback_only_by_default() -> None:
    report = start()
    assert set(report.addresses) <= {"127.0.0.1", "::1"}
    assert LOCALHOST in report.addresses


def test_machine_without_ipv6_serves_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    here = addresses.is_here
    monkeypatch.setattr(addresses, "is_here", lambda ip: ":" not in ip and here(ip))
    assert start().addresses == (LOCALHOST,)


@linux
def test_forwarders_of_a_network_have_the_same_ports_on_different_addresses(settings: Any) -> None:
    settings.BERTH_FORWARDER_BIND = [NETWORK]
    port = free_ports()
    with TcpTarget("a") as one, TcpTarget("b") as two:
        assert start(slot(port, one.at)).addresses == ("127.77.0.1",)
        assert start_second(slot(port, two.at)).addresses == ("127.77.0.2",)
        assert ask_tcp(port, address="127.77.0.1") == b"ahello"
        assert ask_tcp(port, address="127.77.0.2") == b"bhello"
        assert is_refused(port)
        assert sync(slot(port, one.at)).addresses == ("127.77.0.1",)


@linux
def test_network_without_a_free_address_is_a_quota_fault(settings: Any) -> None:
    settings.BERTH_FORWARDER_BIND = [NETWORK]
    start()
    start_second()
    made = member("creating", number=3)
    with pytest.raises(QuotaExceeded, match=NETWORK):
        ForwarderProvider().sync(pool(made), made)
    gone = member("deleting")
    ForwarderProvider().sync(pool(gone), gone)
    assert ForwarderProvider().sync(pool(made), made).addresses == ("127.77.0.1",)


@linux
def test_changed_setting_moves_a_running_forwarder(settings: Any) -> None:
    port = free_ports()
    with TcpTarget("a") as target:
        start(slot(port, target.at))
        pid = process_id()
        settings.BERTH_FORWARDER_BIND = ["127.77.0.9"]
        assert sync(slot(port, target.at)).addresses == ("127.77.0.9",)
        assert ask_tcp(port, address="127.77.0.9") == b"ahello"
        assert is_refused(port)
    assert process_id() == pid


@pytest.mark.parametrize(
    ("word", "fault"),
    [
        ("192.0.2.77", "not an address of this machine"),
        ("0.0.0.0", "not the address of one machine"),
        ("::", "not the address of one machine"),
        ("10.0.0.1/8", "neither an address nor a network"),
        ("eth0", "neither an address nor a network"),
    ],
)
def test_wrong_address_is_named_with_its_setting(settings: Any, word: str, fault: str) -> None:
    settings.BERTH_FORWARDER_BIND = [word]
    with pytest.raises(Misconfigured, match=f"BERTH_FORWARDER_BIND: .*{fault}"):
        start()
    assert not process_id()
    assert not (folder() / "process.json").exists()
    settings.BERTH_FORWARDER_BIND = []
    assert start().is_ready
