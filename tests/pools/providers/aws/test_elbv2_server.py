"""The strict ELBv2 keeps AWS's rules. Each test calls it with boto3, as the provider does."""

import atexit
from collections.abc import Iterator
from functools import cache
from typing import Any

import boto3.session
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError

from tests.pools.providers.aws.elbv2_cloud import REGION, Cloud, make_buckets
from tests.pools.providers.aws.harness import SUBNETS, use_cloud
from tests.pools.providers.aws.scene import CERTIFICATE

TAGS = [{"Key": "a", "Value": "b"}]


@cache
def make_client(address: str) -> Any:
    config = Config(retries={"total_max_attempts": 1}, parameter_validation=False)
    session = boto3.session.Session(region_name=REGION)
    client = session.client("elbv2", endpoint_url=address, config=config)
    atexit.register(client.close)
    return client


@pytest.fixture
def elb(cloud: Cloud) -> Iterator[Any]:
    with use_cloud(cloud) as address:
        yield make_client(address)


def refused(call: Any, **params: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**params)
    code: str = caught.value.response["Error"]["Code"]
    return code


def make_balancer(elb: Any, name: str = "one", **more: Any) -> str:
    params = {"Name": name, "Type": "network", "Subnets": SUBNETS, "Tags": TAGS} | more
    arn: str = elb.create_load_balancer(**params)["LoadBalancers"][0]["LoadBalancerArn"]
    return arn


def group_params(name: str = "group-1", protocol: str = "TCP", **more: Any) -> dict[str, Any]:
    fixed = {"Port": 80, "VpcId": "vpc-1", "TargetType": "ip", "Tags": TAGS}
    return {"Name": name, "Protocol": protocol, **fixed, **more}


def make_group(elb: Any, *args: Any, **more: Any) -> str:
    answer = elb.create_target_group(**group_params(*args, **more))
    arn: str = answer["TargetGroups"][0]["TargetGroupArn"]
    return arn


def listener_params(
    balancer: str, group: str, port: int = 80, protocol: str = "TCP", **more: Any
) -> dict[str, Any]:
    action = {"Type": "forward", "TargetGroupArn": group}
    return {
        "LoadBalancerArn": balancer,
        "Port": port,
        "Protocol": protocol,
        "DefaultActions": [action],
        **more,
    }


def make_listener(elb: Any, *args: Any, **more: Any) -> str:
    answer = elb.create_listener(**listener_params(*args, **more))
    arn: str = answer["Listeners"][0]["ListenerArn"]
    return arn


def states(elb: Any, group: str) -> dict[tuple[str, int], str]:
    found = elb.describe_target_health(TargetGroupArn=group)["TargetHealthDescriptions"]
    return {
        (each["Target"]["Id"], each["Target"]["Port"]): each["TargetHealth"]["State"]
        for each in found
    }


def test_equal_creates_return_the_existing_objects_with_their_old_tags(
    elb: Any, cloud: Cloud
) -> None:
    balancer, group = make_balancer(elb), make_group(elb)
    listener = make_listener(elb, balancer, group, Tags=TAGS)
    other = [{"Key": "owner", "Value": "second"}]
    assert make_balancer(elb, Tags=other) == balancer
    assert make_group(elb, Tags=other) == group
    assert make_listener(elb, balancer, group, Tags=other) == listener
    arns = [balancer, group, listener]
    described = elb.describe_tags(ResourceArns=arns)["TagDescriptions"]
    assert [each["Tags"] for each in described] == [TAGS] * 3
    assert cloud.made == {
        "CreateLoadBalancer": 1, "CreateTargetGroup": 1, "CreateListener": 1
    }  # fmt: skip


def test_other_settings_under_one_name_or_port_are_refused(elb: Any) -> None:
    balancer, group = make_balancer(elb), make_group(elb)
    make_listener(elb, balancer, group)
    params = {"Name": "one", "Type": "network", "Subnets": SUBNETS, "Scheme": "internal"}
    assert refused(elb.create_load_balancer, **params) == "DuplicateLoadBalancerName"
    params = group_params(HealthCheckIntervalSeconds=10)
    assert refused(elb.create_target_group, **params) == "DuplicateTargetGroupName"


def test_port_has_one_listener_for_all_protocols(elb: Any) -> None:
    balancer = make_balancer(elb)
    make_listener(elb, balancer, make_group(elb))
    udp = make_group(elb, "udp", "UDP")
    params = listener_params(balancer, udp, protocol="UDP")
    assert refused(elb.create_listener, **params) == "DuplicateListener"


def test_group_serves_one_load_balancer(elb: Any) -> None:
    group = make_group(elb)
    make_listener(elb, make_balancer(elb), group)
    params = listener_params(make_balancer(elb, "two"), group)
    assert refused(elb.create_listener, **params) == "TargetGroupAssociationLimit"


@pytest.mark.parametrize(
    ("listener", "group", "fits"),
    [
        ("TCP", "TCP", True),
        ("TCP", "UDP", False),
        ("UDP", "UDP", True),
        ("UDP", "TCP", False),
        ("TCP_UDP", "TCP_UDP", True),
        ("TCP_UDP", "TCP", False),
        ("TCP", "TCP_UDP", True),
    ],
)
def test_protocols_of_listener_and_group_must_match(
    elb: Any, listener: str, group: str, fits: bool
) -> None:
    params = listener_params(make_balancer(elb), make_group(elb, "g", group), protocol=listener)
    if fits:
        elb.create_listener(**params)
    else:
        assert refused(elb.create_listener, **params) == "IncompatibleProtocols"


def test_tls_listener_needs_a_certificate_that_exists(elb: Any, cloud: Cloud) -> None:
    params = listener_params(make_balancer(elb), make_group(elb), protocol="TLS")
    assert refused(elb.create_listener, **params) == "ValidationError"
    params["Certificates"] = [{"CertificateArn": CERTIFICATE}]
    assert refused(elb.create_listener, **params) == "CertificateNotFound"
    cloud.certificates.add(CERTIFICATE)
    elb.create_listener(**params)


def test_group_in_use_is_not_deleted_and_outlives_its_load_balancer(elb: Any) -> None:
    balancer, group = make_balancer(elb), make_group(elb)
    make_listener(elb, balancer, group)
    assert refused(elb.delete_target_group, TargetGroupArn=group) == "ResourceInUse"
    elb.delete_load_balancer(LoadBalancerArn=balancer)
    assert elb.describe_target_groups()["TargetGroups"][0]["LoadBalancerArns"] == []
    elb.delete_target_group(TargetGroupArn=group)
    assert elb.describe_target_groups()["TargetGroups"] == []


def test_quotas_are_kept(elb: Any, cloud: Cloud) -> None:
    cloud.quotas.listeners, cloud.quotas.groups, cloud.quotas.balancers = 1, 2, 1
    cloud.quotas.targets = 1
    balancer, group, second = make_balancer(elb), make_group(elb), make_group(elb, "second")
    params = {"Name": "two", "Type": "network", "Subnets": SUBNETS}
    assert refused(elb.create_load_balancer, **params) == "TooManyLoadBalancers"
    assert refused(elb.create_target_group, **group_params("third")) == "TooManyTargetGroups"
    make_listener(elb, balancer, group)
    params = listener_params(balancer, second, 81)
    assert refused(elb.create_listener, **params) == "TooManyListeners"
    targets = [{"Id": "10.0.0.1"}, {"Id": "10.0.0.2"}]
    params = {"TargetGroupArn": group, "Targets": targets}
    assert refused(elb.register_targets, **params) == "TooManyTargets"
    assert states(elb, group) == {}


def test_subnets_need_free_addresses_and_zones_of_their_own(elb: Any, cloud: Cloud) -> None:
    cloud.subnets[SUBNETS[1]].free = 7
    params = {"Name": "one", "Type": "network", "Subnets": SUBNETS}
    assert refused(elb.create_load_balancer, **params) == "InvalidSubnet"
    cloud.subnets[SUBNETS[1]].zone = cloud.subnets[SUBNETS[0]].zone
    assert refused(elb.create_load_balancer, **params) == "InvalidConfigurationRequest"
    params["Subnets"] = ["subnet-ffffffff"]
    assert refused(elb.create_load_balancer, **params) == "SubnetNotFound"


def test_targets_are_unused_initial_healthy_and_draining(elb: Any, cloud: Cloud) -> None:
    cloud.initial = 30
    balancer, group = make_balancer(elb), make_group(elb)
    place = ("10.0.0.5", 9000)
    target = [{"Id": place[0], "Port": place[1]}]
    elb.register_targets(TargetGroupArn=group, Targets=target)
    assert states(elb, group) == {place: "unused"}
    make_listener(elb, balancer, group)
    assert states(elb, group) == {place: "initial"}
    cloud.advance(30)
    assert states(elb, group) == {place: "healthy"}
    cloud.sick.add(place)
    assert states(elb, group) == {place: "unhealthy"}
    elb.deregister_targets(TargetGroupArn=group, Targets=target)
    cloud.advance(299)
    assert states(elb, group) == {place: "draining"}
    cloud.advance(1)
    assert states(elb, group) == {}


def test_two_ports_of_one_address_are_two_targets(elb: Any) -> None:
    group = make_group(elb)
    targets = [{"Id": "10.0.0.5", "Port": port} for port in (1, 2)]
    elb.register_targets(TargetGroupArn=group, Targets=targets)
    assert set(states(elb, group)) == {("10.0.0.5", 1), ("10.0.0.5", 2)}


def test_target_outside_of_the_vpc_is_refused(elb: Any) -> None:
    params = {"TargetGroupArn": make_group(elb), "Targets": [{"Id": "192.168.1.1"}]}
    assert refused(elb.register_targets, **params) == "InvalidTarget"


def test_load_balancer_is_provisioned_after_a_time(elb: Any, cloud: Cloud) -> None:
    cloud.provisioning = 120
    make_balancer(elb)

    def state() -> str:
        found: str = elb.describe_load_balancers()["LoadBalancers"][0]["State"]["Code"]
        return found

    assert state() == "provisioning"
    cloud.advance(120)
    assert state() == "active"


def test_each_class_of_calls_has_a_bucket_of_its_own(elb: Any, cloud: Cloud) -> None:
    cloud.clock = lambda: 0.0
    cloud.buckets = make_buckets(cloud.now)
    for _ in range(40):
        elb.describe_load_balancers()
    assert refused(elb.describe_load_balancers) == "ThrottlingException"
    group = make_group(elb)  # a write
    elb.register_targets(TargetGroupArn=group, Targets=[{"Id": "10.0.0.5"}])
    cloud.advance(0.1)
    elb.describe_load_balancers()
    assert refused(elb.describe_load_balancers) == "ThrottlingException"
    assert cloud.throttled == 2


def test_lists_come_in_pages(elb: Any, cloud: Cloud) -> None:
    cloud.page_size = 2
    names = {make_group(elb, f"g{i}")[-16:] for i in range(5)}
    pages = list(elb.get_paginator("describe_target_groups").paginate())
    assert [len(page["TargetGroups"]) for page in pages] == [2, 2, 1]
    found = {each["TargetGroupArn"][-16:] for page in pages for each in page["TargetGroups"]}
    assert found == names


def test_tags_are_read_of_twenty_objects_at_most(elb: Any) -> None:
    arn = make_balancer(elb)
    assert refused(elb.describe_tags, ResourceArns=[arn] * 21) == "ValidationError"


@pytest.mark.parametrize(
    "changes",
    [
        {"Protocol": "TCPX"},
        {"Port": 0},
        {"Port": 65536},
        {"HealthCheckIntervalSeconds": 4},
        {"HealthCheckTimeoutSeconds": 121},
        {"Name": "a" * 33},
        {"Name": "a_b"},
        {"Tags": [{"Key": "a", "Value": "<"}]},
        {"NoSuchParameter": "1"},
        {"HealthCheckProtocol": "UDP"},
    ],
)
def test_parameters_are_checked_against_the_model(elb: Any, changes: dict[str, Any]) -> None:
    def add_unknown(params: Any, **_: Any) -> None:
        params["body"] |= {
            name: text for name, text in changes.items() if name == "NoSuchParameter"
        }

    params = group_params(**changes)
    params.pop("NoSuchParameter", None)
    elb.meta.events.register("before-call", add_unknown)
    try:
        assert refused(elb.create_target_group, **params) == "ValidationError"
    finally:
        elb.meta.events.unregister("before-call", add_unknown)


def test_fault_before_a_call_has_no_effect_and_a_fault_after_it_has(elb: Any, cloud: Cloud) -> None:
    cloud.fail("InternalFailure", action="CreateTargetGroup", status=500)
    assert refused(elb.create_target_group, **group_params()) == "InternalFailure"
    assert cloud.groups == {}
    cloud.fail(action="CreateTargetGroup", is_after=True)
    with pytest.raises(ConnectionClosedError):
        elb.create_target_group(**group_params())
    assert len(cloud.groups) == 1
    log = [(call.action, call.outcome, call.is_answered) for call in cloud.log]
    assert log == [
        ("CreateTargetGroup", "InternalFailure", True),
        ("CreateTargetGroup", "", False),
    ]


def test_credentials_and_rights_are_checked(elb: Any, cloud: Cloud) -> None:
    cloud.denied.add("DescribeLoadBalancers")
    assert refused(elb.describe_load_balancers) == "AccessDenied"
    cloud.denied.clear()
    cloud.keys.clear()
    assert refused(elb.describe_load_balancers) == "InvalidClientTokenId"


def test_deletion_protection_is_kept(elb: Any) -> None:
    balancer = make_balancer(elb)
    value = {"Key": "deletion_protection.enabled", "Value": "true"}
    elb.modify_load_balancer_attributes(LoadBalancerArn=balancer, Attributes=[value])
    params = {"LoadBalancerArn": balancer}
    assert refused(elb.delete_load_balancer, **params) == "OperationNotPermitted"


def test_account_limits_are_those_that_are_kept(elb: Any, cloud: Cloud) -> None:
    cloud.quotas.balancers = 3
    limits = {each["Name"]: each["Max"] for each in elb.describe_account_limits()["Limits"]}
    assert limits["network-load-balancers"] == "3"
    assert limits["listeners-per-network-load-balancer"] == "50"
    assert limits["target-groups"] == "3000"
