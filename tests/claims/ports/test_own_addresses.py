"""The addresses to which no backend leads: of this machine, and of the services of Berth."""

import asyncio
import ipaddress
import socket
from typing import Any

import pytest
from django.db import connection

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
    monkeypatch.setattr(own_addresses, "list_processes", frozenset)
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


@pytest.mark.django_db
def test_addresses_of_connections_to_the_database_are_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process of Berth keeps one; the tests' server listens on an address of this machine."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT host(inet_client_addr())")
        mine = cursor.fetchone()[0]
    monkeypatch.setattr(own_addresses, "list_interfaces", lambda: iter(()))
    monkeypatch.setattr(own_addresses, "_names", set)
    assert OwnAddresses().get() == {ipaddress.ip_address(mine)}


@pytest.mark.django_db
def test_addresses_in_an_event_loop_are_completed_by_the_next_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No query may run there."""
    monkeypatch.setattr(own_addresses, "_names", set)
    addresses = OwnAddresses()

    async def read() -> bool:
        return addresses.known() == frozenset(list_interfaces())

    assert asyncio.run(read())
    known = ipaddress.ip_address("10.9.9.9")
    monkeypatch.setattr(own_addresses, "list_processes", lambda: frozenset({known}))
    assert known in addresses.get()


def test_api_of_the_cluster_is_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setattr(own_addresses, "list_processes", frozenset)
    assert ipaddress.ip_address("10.96.0.1") in OwnAddresses().get()


def test_names_are_resolved_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[str]()

    def resolve(name: str, *given: Any, **more: Any) -> list[Any]:
        calls.append(name)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(own_addresses, "list_processes", frozenset)
    addresses = OwnAddresses()
    addresses.get()
    count = len(calls)
    addresses.get()
    assert len(calls) == count > 0
