"""A refused call about one port is the fault of this port; other ports are served in the same sync.
Refusals that all calls meet end the sync. A server error is the fault of one port while the same
call succeeds for others.
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


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize("action", ["RegisterTargets", "DescribeTargetHealth", "ModifyListener"])
def test_unknown_refusal_of_one_target_or_change_does_not_stop_the_others(
    scene: AwsScene, cloud: Cloud, action: str, status: int
) -> None:
    scene.sync(four_ports(scene))
    arn = next(each.balancer for each in cloud.listeners.values() if scene.is_ours(each.tags))
    changed = [make_port(each, protocol="tcp_udp", target="10.0.0.20:80") for each in PORTS]
    member = scene.declare(*changed, arn=arn)
    forget_objects()
    cloud.fail(UNKNOWN, action=action, status=status)
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


FAULT = {"code": "InternalFailure", "status": 500, "times": 999}


@pytest.mark.parametrize("action", ["CreateTargetGroup", "CreateListener"])
def test_lasting_server_error_of_one_port_does_not_stop_the_others(
    scene: AwsScene, cloud: Cloud, action: str
) -> None:
    """Red while a server error ended the sync at its port."""
    member = four_ports(scene)
    cloud.fail(**FAULT, action=action, port=30000)
    for _ in range(2):
        report = scene.sync(member)
        assert list(scene.ports()) == [30001, 30002, 30003]
        assert "InternalFailure" in str(report.failure)
        assert "AWS fails at" in str(slot_at(report, 30000).attributes["problem"])
        assert all("problem" not in slot_at(report, each).attributes for each in PORTS[1:])
    cloud.heal()
    report = scene.sync(member)
    assert list(scene.ports()) == list(PORTS)
    assert report.failure is None and "problem" not in slot_at(report, 30000).attributes
    scene.audit()


def test_draining_ports_are_clean_beside_a_port_with_a_server_error(
    scene: AwsScene, cloud: Cloud
) -> None:
    arn = str(scene.sync(four_ports(scene)).external_id)
    cloud.fail(**FAULT, action="CreateListener", port=30010)
    draining = make_port(30001, "draining")
    ports = [make_port(30000), draining, make_port(30002), make_port(30003), make_port(30010)]
    report = scene.sync(scene.declare(*ports, arn=arn))
    assert report.clean == {draining.id}
    assert list(scene.ports()) == [30000, 30002, 30003]


def test_server_error_that_took_effect_leaves_nothing_behind(scene: AwsScene, cloud: Cloud) -> None:
    """The group of a call that failed is found, though no sync ended with an error."""
    arn = str(scene.sync(four_ports(scene)).external_id)
    cloud.fail(**FAULT | {"times": 1}, action="CreateTargetGroup", port=30010, is_after=True)
    member = scene.declare(*map(make_port, PORTS), make_port(30010), arn=arn)
    assert slot_at(scene.sync(member), 30010).attributes["problem"]
    report = scene.sync(scene.declare(*map(make_port, PORTS), arn=arn))
    assert report.failure is None
    assert sum(scene.is_ours(each.tags) for each in cloud.groups.values()) == len(PORTS)
    scene.audit()


def test_call_that_fails_for_three_ports_is_not_made_for_the_others(
    scene: AwsScene, cloud: Cloud
) -> None:
    """Its next sync begins with these, so that three lasting faults do not hide the others."""
    member = scene.declare(*map(make_port, range(30000, 30006)))
    for port in (30000, 30001, 30002):
        cloud.fail(**FAULT, action="CreateListener", port=port)
    report = scene.sync(member)
    assert scene.ports() == {}
    assert sum(call.action == "CreateListener" for call in cloud.log) == 3
    assert not {30003, 30004, 30005} & {each.number for each in report.slots or ()}
    for _ in range(2):
        report = scene.sync(member)
        assert list(scene.ports()) == [30003, 30004, 30005]
        assert all(slot_at(report, each).attributes["problem"] for each in (30000, 30001, 30002))


def test_each_port_has_its_turn_beside_six_lasting_faults(scene: AwsScene, cloud: Cloud) -> None:
    """Red while a sync remembered the faults of the sync before it only."""
    member = scene.declare(*map(make_port, range(30000, 30008)))
    for port in range(30000, 30006):
        cloud.fail(**FAULT, action="CreateListener", port=port)
    for _ in range(3):
        scene.sync(member)
    assert list(scene.ports()) == [30006, 30007]


def test_sync_in_which_no_call_about_a_port_succeeds_is_an_outage(
    scene: AwsScene, cloud: Cloud
) -> None:
    """Ports that serve keep their state while AWS does not tell their health."""
    arn = str(scene.sync(four_ports(scene)).external_id)
    forget_objects()
    cloud.log.clear()
    cloud.fail(**FAULT, action="DescribeTargetHealth")
    with pytest.raises(ProviderError, match="InternalFailure"):
        scene.sync(scene.declare(*map(make_port, PORTS), arn=arn))
    assert sum(call.action == "DescribeTargetHealth" for call in cloud.log) == 3
