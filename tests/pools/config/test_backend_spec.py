"""Where the listeners of a pool may send traffic, and every spelling of an address."""

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pools.config.backend_spec import (
    BACKENDS,
    BackendRules,
    read_address,
    refuse_address,
    refuse_port,
)
from pools.config.parsing import Faults
from pools.config.spec import OptionReader, read_pool

ALL = BackendRules(networks=("0.0.0.0/0", "::/0"))
OWN = frozenset({ipaddress.ip_address("10.9.9.9"), ipaddress.ip_address("2001:db8::9")})


def is_allowed(text: str, rules: BackendRules | None = ALL) -> bool:
    address = read_address(text)
    return address is not None and refuse_address(address, rules, OWN) is None


@pytest.mark.parametrize(
    "text",
    ["10.0.0.1", "192.0.2.7", "2001:db8::1", "fd12::1", "fd00:ec3::23", "2001:db8::5efe:a00:1"],
)
def test_ordinary_addresses_of_a_listed_network_are_allowed(text: str) -> None:
    assert is_allowed(text)
    assert not is_allowed(text, None), "without networks no backend is allowed"
    assert not is_allowed(text, BackendRules(networks=("198.51.100.0/24", "2001:db8:1::/48")))


SPECIAL = [
    "127.0.0.1",
    "127.255.255.254",
    "::1",
    "0.0.0.0",
    "0.1.2.3",
    "::",
    "169.254.169.254",
    "169.254.0.23",
    "fe80::1",
    "fd00:ec2::254",
    "fd00:ec2::23",
    "fd00:c1::a9fe:a9fe",
    "fd20:ce::254",
    "100.100.100.200",
    "224.0.0.1",
    "ff02::1",
    "255.255.255.255",
    "10.9.9.9",
    "2001:db8::9",
    # IPv4 in other clothes.
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
    "0:0:0:0:0:ffff:a9fe:a9fe",
    "::FFFF:169.254.169.254",
    "::127.0.0.1",
    "::10.9.9.9",
    "64:ff9b::127.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b::10.9.9.9",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "2002:0a09:0909::1",
    "2001:0:a9fe:a9fe:0:0:0:0",
    "2001:db8::5efe:7f00:1",
    "2001:db8::200:5efe:a9fe:a9fe",
    "fd12::5efe:10.9.9.9",
    # The other spellings of one address.
    "0000:0000:0000:0000:0000:0000:0000:0001",
    "FE80:0:0:0:0:0:0:1",
    "fd00:0ec2:0000::0254",
]


@pytest.mark.parametrize("text", SPECIAL)
def test_special_addresses_are_refused_in_every_spelling(text: str) -> None:
    assert not is_allowed(text)


@pytest.mark.parametrize("text", SPECIAL)
def test_special_address_is_allowed_once_it_is_listed_itself(text: str) -> None:
    address = read_address(text)
    assert address is not None
    host = BackendRules(networks=(str(ipaddress.ip_network(address)),))
    assert is_allowed(text, host)
    wider = ipaddress.ip_network(address).supernet()
    assert not is_allowed(text, BackendRules(networks=(str(wider),))), "a network is not enough"


@pytest.mark.parametrize(
    "text",
    [
        "", " 10.0.0.1", "10.0.0.1 ", "10.0.0.1\n", "10.1", "2130706433", "0x7f000001",
        "0177.0.0.1", "127.0.0.01", "localhost", "fe80::1%eth0", "[::1]", "10.0.0.1:80",
        "10.0.0.1/32", "\u0661\u0660.\u0660.\u0660.\u0661",
        "::ffff:127.0.0.1%1", "1" * 200, None, 1, ["10.0.0.1"], b"10.0.0.1",
    ],
)  # fmt: skip
def test_other_texts_are_no_address(text: Any) -> None:
    assert read_address(text) is None


@given(st.ip_addresses(v=4))
def test_mapped_address_counts_as_the_ipv4_address(address: ipaddress.IPv4Address) -> None:
    mapped = read_address(f"::ffff:{address}")
    assert mapped == address
    assert is_allowed(f"::ffff:{address}") == is_allowed(str(address))


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({}, ["backends.networks"]),
        ({"networks": []}, ["backends.networks"]),
        ({"networks": ["10.0.0.7/8"]}, ["backends.networks[0]"]),
        ({"networks": ["10.0.0.0/8", "lan"]}, ["backends.networks[1]"]),
        ({"networks": ["::ffff:10.0.0.0/104"]}, ["backends.networks[0]"]),
        ({"networks": [167772160]}, ["backends.networks[0]"]),
        (
            {"networks": ["fe80::1%eth0/128", "fe80::%1/64"]},
            ["backends.networks[0]", "backends.networks[1]"],
        ),
        ({"networks": ["10.0.0.0/8"], "ports": "80"}, ["backends.ports"]),
        ({"networks": ["10.0.0.0/8"], "ports": "1-70000"}, ["backends.ports"]),
    ],
)
def test_wrong_rules_are_faults_at_their_fields(given: Any, fields: list[str]) -> None:
    faults = Faults()
    BACKENDS.read(given, "backends", faults)
    assert [fault.field for fault in faults.found] == fields


def test_rules_keep_their_canonical_form() -> None:
    config = {
        "name": "nlb",
        "provider": "lb",
        "slots": {"ports": "1-9", "shared": True},
        "backends": {"networks": ["10.0.0.0/8", "2001:DB8:0::/48"], "ports": "8000-8999"},
    }
    spec, faults = read_pool(config, {"lb": OptionReader()})
    assert faults == [] and spec is not None
    assert spec.backends == BackendRules(("10.0.0.0/8", "2001:db8::/48"), (8000, 8999))
    assert spec.as_stored()["backends"] == {
        "networks": ["10.0.0.0/8", "2001:db8::/48"],
        "ports": "8000-8999",
    }
    assert refuse_port(8000, spec.backends) is None
    assert refuse_port(7999, spec.backends) is not None
    assert refuse_port(8990, spec.backends, 10) is None
    refusal = refuse_port(8991, spec.backends, 10)
    assert refusal is not None
    assert refusal[0] == "The segment 8991-9000 is not inside of 8000-8999."
    config["slots"] = 3
    assert [fault.field for fault in read_pool(config, {"lb": OptionReader()})[1]] == ["backends"]


def test_pool_without_the_field_allows_no_backend() -> None:
    spec, _ = read_pool(
        {"name": "nlb", "provider": "lb", "slots": {"ports": "1-9", "shared": True}},
        {"lb": OptionReader()},
    )
    assert spec is not None and spec.backends is None
    assert "backends" not in spec.as_stored()
