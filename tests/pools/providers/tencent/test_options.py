"""Options of a pool, their rules, and the call that they become."""

from typing import Any

import pytest

from pools.config.layout import Ports, plain, port_lanes
from pools.config.parsing import Faults
from pools.providers.tencent.create_request import create_request
from pools.providers.tencent.provider import TencentProvider
from tests.pools.providers.tencent.clb_parameters import check_parameters
from tests.pools.providers.tencent.scene import Scene

VPC, SUBNET = "vpc-12345678", "subnet-12345678"
INTERNAL = {"type": "INTERNAL", "vpc_id": VPC, "subnet_id": SUBNET}
FULL_CHAIN = {"address_ip_version": "IPv6FullChain", "vpc_id": VPC, "subnet_id": SUBNET}


def read(load_balancer: dict[str, Any], **options: Any) -> tuple[dict[str, Any], list[str]]:
    faults = Faults()
    given = {"region": "ap-guangzhou", "load_balancer": load_balancer, **options}
    found = TencentProvider.read_options(given, "provider", faults)
    return dict(found), [fault.field for fault in faults.found]


@pytest.mark.parametrize(
    ("load_balancer", "field"),
    [
        ({"type": "INTERNAL", "subnet_id": SUBNET}, "vpc_id"),
        ({"type": "INTERNAL", "vpc_id": VPC}, "subnet_id"),
        ({**INTERNAL, "vip_isp": "CMCC"}, "vip_isp"),
        ({**INTERNAL, "zone_id": "ap-guangzhou-1"}, "zone_id"),
        ({**INTERNAL, "address_ip_version": "IPV6"}, "address_ip_version"),
        ({"subnet_id": SUBNET}, "subnet_id"),
        ({"address_ip_version": "IPv6FullChain"}, "subnet_id"),
        ({**FULL_CHAIN, "pass_to_target": True}, "pass_to_target"),
        ({**FULL_CHAIN, "master_zone_id": "ap-guangzhou-1"}, "master_zone_id"),
        ({"address_ip_version": "IPV6", "vip": "2001:db8::1"}, "vip"),
        (
            {"vip_isp": "CTCC", "internet": {"charge_type": "TRAFFIC_POSTPAID_BY_HOUR"}},
            "internet.charge_type",
        ),
        (
            {
                "bandwidth_package_id": "bwp-12345678",
                "internet": {"charge_type": "BANDWIDTH_PREPAID"},
            },
            "internet.charge_type",
        ),
        ({"tags": {"berth-pool": "x"}}, "tags.berth-pool"),
        ({"internet": {"max_bandwidth_out": 0}}, "internet.max_bandwidth_out"),
        ({"vpc_id": "subnet-12345678"}, "vpc_id"),
        ({"vip_isp": "ISP"}, "vip_isp"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_wrong_parameters_are_errors_at_their_fields(
    load_balancer: dict[str, Any], field: str
) -> None:
    assert read(load_balancer)[1] == [f"provider.load_balancer.{field}"]


@pytest.mark.parametrize(
    ("endpoint", "is_right"),
    [
        ("clb.internal.tencentcloudapi.com", True),
        ("http://127.0.0.1:8080", True),
        ("https://clb.example.com/", True),
        ("ftp://clb.example.com", False),
        ("https://clb.example.com/path", False),
        ("https://user:secret@clb.example.com", False),
        ("clb.example.com:port", False),
    ],
)
def test_endpoint_is_a_host_or_an_address_without_a_path(endpoint: str, is_right: bool) -> None:
    assert read({}, endpoint=endpoint)[1] == ([] if is_right else ["provider.endpoint"])


def test_region_is_required_and_has_the_form_of_one() -> None:
    for given in ({}, {"region": "Guangzhou!"}):
        faults = Faults()
        TencentProvider.read_options(given, "provider", faults)
        assert [fault.field for fault in faults.found] == ["provider.region"]


ALL = {
    "type": "OPEN",
    "name": "edge",
    "vpc_id": VPC,
    "zone_id": "ap-guangzhou-3",
    "vip_isp": "CUCC",
    "bandwidth_package_id": "bwp-12345678",
    "internet": {"max_bandwidth_out": 200, "package_sub_type": "SINGLEISP_CUCC"},
    "pass_to_target": False,
    "dynamic_vip": True,
    "vip": "203.0.113.9",
    "project_id": 12,
    "sla_type": "clb.c2.medium",
    "charge_type": "POSTPAID_BY_HOUR",
    "tags": {"team": "games"},
}


def test_all_parameters_reach_the_call(scene: Scene) -> None:
    scene.options = read(ALL)[0]
    request = create_request(scene.pool(), scene.new_member(3))
    token = request.pop("ClientToken")
    assert isinstance(token, str) and len(token) == 64
    assert request == {
        "LoadBalancerType": "OPEN",
        "Forward": 1,
        "Number": 1,
        "LoadBalancerName": "edge-m3",
        "Tags": [
            {"TagKey": "berth-installation", "TagValue": "b1"},
            {"TagKey": "berth-member", "TagValue": "3"},
            {"TagKey": "berth-pool", "TagValue": "games"},
            {"TagKey": "team", "TagValue": "games"},
        ],
        "VpcId": VPC,
        "ZoneId": "ap-guangzhou-3",
        "VipIsp": "CUCC",
        "BandwidthPackageId": "bwp-12345678",
        "InternetAccessible": {
            "InternetMaxBandwidthOut": 200,
            "BandwidthpkgSubType": "SINGLEISP_CUCC",
            "InternetChargeType": "BANDWIDTH_PACKAGE",
        },
        "LoadBalancerPassToTarget": False,
        "AddressIPVersion": "IPV4",
        "DynamicVip": True,
        "Vip": "203.0.113.9",
        "ProjectId": 12,
        "SlaType": "clb.c2.medium",
        "LBChargeType": "POSTPAID_BY_HOUR",
    }
    check_parameters("CreateLoadBalancer", request)


def test_defaults_are_those_of_the_replaced_controller(scene: Scene) -> None:
    request = create_request(scene.pool(), scene.new_member())
    assert request["LoadBalancerPassToTarget"] is True
    assert request["DynamicVip"] is False
    assert request["AddressIPVersion"] == "IPV4"
    assert "InternetAccessible" not in request


@pytest.mark.parametrize("load_balancer", [INTERNAL, FULL_CHAIN])
def test_parameters_without_meaning_for_the_type_are_left_out(
    scene: Scene, load_balancer: dict[str, Any]
) -> None:
    options, faults = read(load_balancer)
    assert faults == []
    scene.options = options
    request = create_request(scene.pool(), scene.new_member())
    assert ("LoadBalancerPassToTarget" in request) is (load_balancer is INTERNAL)
    assert ("AddressIPVersion" in request) is (load_balancer is FULL_CHAIN)


def test_token_differs_between_members_and_incarnations(scene: Scene) -> None:
    member = scene.new_member(1)
    other = scene.new_member(2)
    tokens = {create_request(scene.pool(), each)["ClientToken"] for each in (member, member, other)}
    assert len(tokens) == 2


def test_slots_without_protocols_are_errors_at_their_fields() -> None:
    shared = Faults()
    TencentProvider.check_layout(port_lanes(Ports(30000, 30049), None), shared)
    assert [fault.field for fault in shared.found] == ["slots.shared"]
    precreated = Faults()
    ports = Ports(30000, 30049, precreated=(("tcp", 2), ("udp", 2)), is_shared=True)
    TencentProvider.check_layout(port_lanes(ports, None), precreated)
    assert [fault.field for fault in precreated.found] == ["slots.shared"]
    tasks = Faults()
    TencentProvider.check_layout(plain(2), tasks)
    assert [fault.field for fault in tasks.found] == ["slots"]
    right = Faults()
    segments = port_lanes(Ports(30000, 65535, 1001), ["tcp", "udp"])
    TencentProvider.check_layout(segments, right)
    assert right.found == []
