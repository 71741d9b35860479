"""The addresses to which no backend leads: of this machine, and of the services of Berth."""

import ipaddress
import socket
from typing import Any

import pytest

from claims.ports import own_addresses
from claims.ports.own_addresses import OwnAddresses, list_interfaces


def test_hosts_of_database_valkey_and_public_address_are_own(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"db.internal": "10.1.1.1", "valkey.internal": "10.1.1.2", "berth.example": "10.1.1.3"}

    def resolve(name: str, *given: Any, **more: Any) -> list[Any]:
        if name not in known:
            raise OSError(name)
        return [(0, 0, 0, "", (known[name], 0)), (0, 0, 0, "", ("fe80::1%eth0", 0, 0, 2))]

    monkeypatch.setitem(settings.DATABASES["default"], "HOST", "db.internal")
    settings.REDIS_URL = "redis://:secret@valkey.internal:6379/0"
    settings.BERTH_URL = "https://berth.example"
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    found = OwnAddresses().get()
    assert {ipaddress.ip_address(address) for address in known.values()} <= found
    assert ipaddress.ip_address("fe80::1") in found


def test_interfaces_of_this_machine_are_own(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ipv4 = tmp_path / "fib_trie"
    ipv4.write_text(
        "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 192.0.2.0\n        /24 link UNICAST\n"
        "     |-- 192.0.2.2\n        /32 host LOCAL\n     |-- 192.0.2.255\n"
        "        /32 link BROADCAST\n"
    )
    ipv6 = tmp_path / "if_inet6"
    ipv6.write_text("20010db8000000000000000000000005 04 40 20 80     eth0\n")
    monkeypatch.setattr(own_addresses, "LOCAL_IPV4", ipv4)
    monkeypatch.setattr(own_addresses, "LOCAL_IPV6", ipv6)
    assert [str(each) for each in list_interfaces()] == ["192.0.2.2", "2001:db8::5"]
    monkeypatch.setattr(own_addresses, "LOCAL_IPV4", tmp_path / "none")
    monkeypatch.setattr(own_addresses, "LOCAL_IPV6", tmp_path / "none")
    assert list(list_interfaces()) == []


def test_names_are_resolved_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[str]()

    def resolve(name: str, *given: Any, **more: Any) -> list[Any]:
        calls.append(name)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    addresses = OwnAddresses()
    addresses.get()
    count = len(calls)
    addresses.get()
    assert len(calls) == count > 0
