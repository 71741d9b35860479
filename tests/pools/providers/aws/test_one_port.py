"""A refused call about one port is the fault of this port; other ports are served in the same sync.
Refusals that all calls meet end the sync.
"""

import pytest

from pools.providers.base import MemberSnapshot
from project.kernel.outbox.operations import ProviderError
from tests.pools.providers.aws.elbv2_cloud import Cloud
from tests.pools.providers.aws.harness import forget_objects
from tests.pools.providers.aws.scene import CERTIFICATE, AwsScene, make_port, slot_at

PORTS = range(30000, 30004)
UNKNOWN = "BrandNewRefusal"  # a code that neither botocore nor Berth knows


def four_ports(scene: AwsScene) -> MemberSnapshot:
    return scene.declare(*map(make_port, PORTS))


def test_unsupported_certificate_is_a_problem_of_its_port(scene: AwsScene, cloud: Cloud) -> None:
    """Red while the code was unknown: no sync came to the ports behind it."""
    cloud.unsupported.add(CERTIFICATE)
    tls = make_port(29999, protocol="tcp_ssl", certificate=CERTIFICATE)
    member = scene.declare(tls, *map(make_port, PORTS))
    report = scene.sync(member)
    assert list(scene.ports()) == list(PORTS)
    problem = str(slot_at(report, 29999).attributes["problem"])
    assert "UnsupportedCertificate" in problem
    assert "Use a certificate that is issued" in problem
    cloud.unsupported.clear()
    assert "problem" not in slot_at(scene.sync(member), 29999).attributes
    scene.audit()


@pytest.mark.parametrize("status", [400, 403, 404])
@pytest.mark.parametrize("action", ["CreateTargetGroup", "CreateListener"])
def test_unknown_refusal_of_one_port_does_not_stop_the_others(
    scene: AwsScene, cloud: Cloud, action: str, status: int
) -> None:
    member = four_ports(scene)
    cloud.fail(UNKNOWN, action=action, port=30001, status=status, times=99)
    for _ in range(2):
        report = scene.sync(member)
        assert list(scene.ports()) == [30000, 30002, 30003]
        assert UNKNOWN in str(report.failure)
        assert UNKNOWN in str(slot_at(report, 30001).attributes["problem"])
    cloud.heal()
    scene.sync(member)
    assert list(scene.ports()) == list(PORTS)
    scene.audit()


@pytest.mark.parametrize("action", ["RegisterTargets", "DescribeTargetHealth", "ModifyListener"])
def test_unknown_refusal_of_one_target_or_change_does_not_stop_the_others(
    scene: AwsScene, cloud: Cloud, action: str
) -> None:
    scene.sync(four_ports(scene))
    arn = next(each.balancer for each in cloud.listeners.values() if scene.is_ours(each.tags))
    changed = [make_port(each, protocol="tcp_udp", target="10.0.0.20:80") for each in PORTS]
    member = scene.declare(*changed, arn=arn)
    forget_objects()
    cloud.fail(UNKNOWN, action=action)
    assert UNKNOWN in str(scene.sync(member).failure)
    assert not cloud.faults[0].times, "the call was refused"
    right = [each for each in scene.ports().values() if each[:2] == ("TCP_UDP", "10.0.0.20:80")]
    assert len(right) >= 3
    scene.sync(member)
    assert set(scene.ports().values()) == {("TCP_UDP", "10.0.0.20:80", "")}
    scene.audit()


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("ThrottlingException", 400),
        ("ExpiredToken", 403),
        ("SignatureDoesNotMatch", 403),
        ("LoadBalancerNotFound", 400),
        ("InternalFailure", 500),
    ],
)
def test_refusal_that_all_ports_meet_ends_the_sync(
    scene: AwsScene, cloud: Cloud, code: str, status: int
) -> None:
    member = four_ports(scene)
    cloud.fail(code, action="CreateListener", status=status)
    with pytest.raises(ProviderError, match=code):
        scene.sync(member)
    assert scene.ports() == {}
    assert sum(call.action == "CreateListener" for call in cloud.log) == 1
