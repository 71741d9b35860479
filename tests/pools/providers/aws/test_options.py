"""The `provider:` options of a pool of network load balancers, and the slots that fit them."""

from typing import Any

import pytest

from pools.config.layout_spec import LayoutType
from pools.config.parsing import Faults
from pools.config.spec import read_pool
from pools.lifecycle.provider_rights import list_deciding
from pools.providers.aws.names import (
    TOKENS,
    GroupKey,
    ObjectOwner,
    balancer_name,
    is_named_for,
    number_in,
)
from pools.providers.aws.options import AwsOptions
from pools.providers.aws.provider import AwsProvider
from pools.providers.base import option_readers

CERTIFICATE = "arn:aws:acm:eu-west-1:123456789012:certificate/one"


def read(**options: Any) -> tuple[dict[str, Any], list[str]]:
    faults = Faults()
    given = {"kind": "aws", "region": "eu-west-1", **options}
    found = AwsProvider.read_options(given, "provider", faults)
    return dict(found), [each.field.removeprefix("provider.") for each in faults.found]


def test_full_options_round_trip() -> None:
    options = {
        "endpoint": "https://vpce.example.com",
        "endpoint_sts": "https://sts.example.com",
        "endpoint_ec2": "https://ec2.example.com",
        "scheme": "internal",
        "subnets": ["subnet-0a1b2c3d"],
        "ip_type": "dualstack",
        "cross_zone": True,
        "security_groups": ["sg-0a1b2c3d"],
        "tags": {"team": "games"},
        "name_prefix": "game",
        "health_check": {
            "protocol": "http",
            "port": 8080,
            "path": "/live",
            "interval": "10s",
            "timeout": "5s",
            "healthy": 2,
            "unhealthy": 3,
        },
        "deregistration_delay": "30s",
        "certificate": CERTIFICATE,
    }
    once, faults = read(**options)
    assert (once, faults) == ({"region": "eu-west-1", **options}, [])
    assert read(**once) == (once, [])


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"region": "Ireland"}, "region"),
        ({"region": ""}, "region"),
        ({"endpoint": "ftp://a"}, "endpoint"),
        ({"endpoint": "https://user:secret@a"}, "endpoint"),
        ({"scheme": "public"}, "scheme"),
        ({"subnets": ["10.0.0.0/24"]}, "subnets[0]"),
        ({"subnets": ["subnet-0a1b2c3d", "subnet-0a1b2c3d"]}, "subnets[1]"),
        ({"ip_type": "ipv6"}, "ip_type"),
        ({"cross_zone": "yes"}, "cross_zone"),
        ({"security_groups": ["default"]}, "security_groups[0]"),
        ({"tags": {"berth-pool": "x"}}, "tags.berth-pool"),
        ({"tags": {"aws:x": "x"}}, "tags.aws:x"),
        ({"tags": {"a": "<"}}, "tags.a"),
        ({"name_prefix": "internal"}, "name_prefix"),
        ({"name_prefix": "a-long-prefix"}, "name_prefix"),
        ({"health_check": {"path": "/"}}, "health_check.path"),
        ({"health_check": {"protocol": "udp"}}, "health_check.protocol"),
        ({"health_check": {"interval": "5s", "timeout": "6s"}}, "health_check.timeout"),
        ({"health_check": {"port": 0}}, "health_check.port"),
        ({"deregistration_delay": "2h"}, "deregistration_delay"),
        ({"certificate": CERTIFICATE.replace("eu-west-1", "us-east-1")}, "certificate"),
        ({"certificate": "one"}, "certificate"),
        ({"secret_key": "x"}, "secret_key"),
    ],
)
def test_wrong_option_is_refused_at_its_field(options: dict[str, Any], field: str) -> None:
    assert read(**options)[1] == [field]


def list_refused(change: dict[str, Any]) -> list[str]:
    """The fields of a changed health check that an admin of one pool may not change."""
    check = {"protocol": "http", "port": 8080, "path": "/live", "interval": "30s"}
    specs = []
    for health in (check, check | change):
        provider = {"kind": "aws", "region": "eu-west-1", "health_check": health}
        slots = {"ports": "30000-30049", "shared": True}
        spec, faults = read_pool(
            {"name": "games", "provider": provider, "slots": slots}, option_readers()
        )
        assert spec is not None, faults
        specs.append(spec)
    return list_deciding(*specs)


@pytest.mark.parametrize(("name", "value"), [("port", 22), ("path", "/admin/reboot")])
def test_admin_of_one_pool_chooses_no_port_and_no_path_of_health_checks(
    name: str, value: object
) -> None:
    """Health checks would reach ports that `backends` does not allow."""
    assert list_refused({name: value}) == [f"provider.health_check.{name}"]
    assert list_refused({"interval": "10s", "healthy": 3}) == []


def test_region_is_required() -> None:
    faults = Faults()
    AwsProvider.read_options({"kind": "aws"}, "provider", faults)
    assert [each.field for each in faults.found] == ["provider.region"]


@pytest.mark.parametrize(
    ("slots", "fields"),
    [
        ({"ports": "30000-30049", "shared": True}, []),
        ({"ports": "30000-30049", "protocols": ["tcp", "udp"]}, ["slots.protocols"]),
        ({"ports": "30000-30049", "shared": True, "precreate": {"tcp": 2, "udp": 2}}, []),
        (
            {
                "ports": "30000-30049",
                "protocols": ["tcp", "udp"],
                "precreate": {"tcp": 2, "udp": 2},
            },
            ["slots.protocols"],
        ),
        ({"ports": "30000-39999", "shared": True, "segment": 10}, ["slots.segment"]),
        ({"ports": "30000-30099", "shared": True, "quota": 51}, ["slots.quota"]),
        (3, ["slots"]),
    ],
)
def test_slots_that_no_load_balancer_offers_are_refused(slots: Any, fields: list[str]) -> None:
    faults = Faults()
    layout = LayoutType().read(slots, "slots", faults)
    assert layout is not None
    assert faults.found == []
    AwsProvider.check_layout(layout, faults)
    assert [each.field for each in faults.found] == fields


def test_timeout_of_a_short_interval_fits_into_it() -> None:
    options = AwsOptions.of(read(health_check={"interval": "5s"})[0])
    assert options.health.settings["HealthCheckTimeoutSeconds"] == 5


def test_names_of_target_groups_are_short_and_unique() -> None:
    owners = [
        ObjectOwner(name, "games", member)
        for name in ("b-one", "b-two")
        for member in (1, 2, 10**18)
    ]
    names = [
        GroupKey(number, protocol, family).name(owner, "prefix-90")
        for owner in owners
        for number in (1, 30000, 65535)
        for protocol in TOKENS
        for family in (4, 6)
    ]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 32
    assert {number_in(name) for name in names} == {1, 30000, 65535}


def test_name_of_a_group_tells_its_member_under_any_prefix() -> None:
    owner, other = ObjectOwner("b", "games", 1), ObjectOwner("b", "games", 2)
    for prefix in ("berth", "x"):
        name = GroupKey(30000, "udp", 6).name(owner, prefix)
        assert is_named_for(name, owner)
        assert not is_named_for(name, other)
    assert not is_named_for("berth-30000-udp", owner)


@pytest.mark.parametrize("words", ["games-lb-1", "", "ünïcode ünïcode", "a" * 63, "internal-x"])
def test_names_of_load_balancers_are_valid(words: str) -> None:
    name = balancer_name(ObjectOwner("b", "games", 1), "berth", words)
    assert len(name) <= 32
    assert name.isascii()
    assert not name.startswith(("-", "internal-"))
    assert not name.endswith("-")
    assert "--" not in name
