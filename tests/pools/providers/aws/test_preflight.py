"""Faults of a configuration that only the account knows, each at its field."""

from collections.abc import Iterator

import pytest

from pools.providers.aws.account import forget_clients
from pools.providers.aws.options import AwsOptions
from pools.providers.aws.provider import AwsProvider
from project.kernel.errors import FieldError
from tests.pools.providers.aws.elbv2_cloud import Cloud
from tests.pools.providers.aws.elbv2_server import serve
from tests.pools.providers.aws.harness import SUBNETS, make_options, put_balancer
from tests.pools.providers.aws.scene import CERTIFICATE, AwsScene


def check(scene: AwsScene, **options: object) -> list[FieldError]:
    scene.options = make_options(scene.address, **options)
    return AwsProvider().check(scene.pool())


def fields(found: list[FieldError]) -> list[str]:
    return [each.field for each in found]


def test_right_configuration_has_no_faults(scene: AwsScene) -> None:
    assert check(scene, certificate=CERTIFICATE) == []


def test_each_wrong_subnet_is_named(scene: AwsScene, cloud: Cloud) -> None:
    one, two = SUBNETS
    assert fields(check(scene, subnets=[one, "subnet-ffffffff"])) == ["provider.subnets[1]"]
    cloud.subnets[two].zone = cloud.subnets[one].zone
    assert "in the zone" in check(scene)[0].message
    cloud.subnets[two].vpc = "vpc-2"
    assert "is in vpc-2" in check(scene)[0].message
    cloud.subnets[one].free = 7
    assert fields(check(scene)) == ["provider.subnets[0]", "provider.subnets[1]"]
    assert "has 7 free addresses" in check(scene)[0].message


def test_certificate_of_another_account_is_a_fault(scene: AwsScene) -> None:
    arn = CERTIFICATE.replace("123456789012", "999999999999")
    assert fields(check(scene, certificate=arn)) == ["provider.certificate"]


def test_credentials_without_a_right_are_a_fault_that_names_the_call(
    scene: AwsScene, cloud: Cloud
) -> None:
    cloud.denied.add("DescribeLoadBalancers")
    (fault,) = check(scene)
    assert fault.field == "provider"
    assert "DescribeLoadBalancers" in fault.message
    assert "docs/aws.md" in fault.message
    cloud.heal()
    assert check(scene) == [], "it heals"


@pytest.fixture
def own_clients() -> Iterator[None]:
    """The clients of this test read its own credentials."""
    forget_clients()
    yield
    forget_clients()


@pytest.mark.usefixtures("own_clients")
def test_missing_and_invalid_credentials_are_faults(
    scene: AwsScene, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.keys.clear()
    assert "InvalidClientTokenId" in check(scene)[0].message
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    forget_clients()
    assert "no usable credentials" in check(scene)[0].message


def test_account_that_does_not_answer_is_no_fault(scene: AwsScene, cloud: Cloud) -> None:
    cloud.fail("InternalFailure", status=500, times=9)
    assert check(scene) == []


def test_each_service_is_called_at_its_own_endpoint(scene: AwsScene, cloud: Cloud) -> None:
    """A VPC endpoint of elasticloadbalancing answers no call to EC2 and STS."""
    sts, ec2 = Cloud(), Cloud()
    with serve(sts) as sts_address, serve(ec2) as ec2_address:
        addresses = {"endpoint_sts": sts_address, "endpoint_ec2": ec2_address}
        assert check(scene, certificate=CERTIFICATE, **addresses) == []
    assert {call.action for call in sts.log} == {"GetCallerIdentity"}
    assert {call.action for call in ec2.log} == {"DescribeSubnets"}
    assert {call.action for call in cloud.log} == {"DescribeLoadBalancers"}


def test_endpoint_of_load_balancers_leaves_other_services_at_those_of_aws() -> None:
    options = AwsOptions.of({"region": "eu-west-1", "endpoint": "https://vpce.example.com"})
    assert options.endpoints == {"elbv2": "https://vpce.example.com", "sts": "", "ec2": ""}


def test_named_load_balancers_are_checked(scene: AwsScene, cloud: Cloud) -> None:
    right = put_balancer(cloud, "right")
    other = right.replace("eu-west-1", "us-east-1")
    missing = f"{right[:-4]}ffff"
    application = right.replace("loadbalancer/net/", "loadbalancer/app/")
    members = [
        scene.member(number=n, is_owned=False, external_id=arn)
        for n, arn in enumerate((right, other, missing, application))
    ]
    found = AwsProvider().check(scene.pool(*members))
    assert fields(found) == [f"members.list[{i}].external_id" for i in (1, 2, 3)]
    assert "us-east-1" in found[0].message
    assert "There is no load balancer" in found[1].message
    assert "an application load balancer" in found[2].message
