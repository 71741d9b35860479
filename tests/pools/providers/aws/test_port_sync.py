"""A sync makes listeners, target groups and targets equal to the rows."""

from dataclasses import replace

import pytest

from project.kernel.outbox.operations import (
    ConflictError,
    Misconfigured,
    NotFoundOutside,
    ProviderError,
    QuotaExceeded,
    Unauthorised,
)
from tests.pools.providers.aws.elbv2_cloud import Cloud
from tests.pools.providers.aws.harness import (
    make_options,
    put_balancer,
    put_foreign_listener,
)
from tests.pools.providers.aws.scene import (
    CERTIFICATE,
    AwsScene,
    make_port,
    slot_at,
)


def count_calls(cloud: Cloud, action: str) -> int:
    return sum(call.action == action for call in cloud.log)


def test_protocols_become_listeners_with_fitting_groups(scene: AwsScene, cloud: Cloud) -> None:
    scene.sync(
        scene.declare(
            make_port(30000, protocol="tcp"),
            make_port(30001, protocol="udp"),
            make_port(30002, protocol="tcp_udp"),
            make_port(30003, protocol="tcp_ssl", certificate=CERTIFICATE),
        )
    )
    assert scene.ports() == {
        30000: ("TCP", "10.0.0.10:8080", ""),
        30001: ("UDP", "10.0.0.10:8080", ""),
        30002: ("TCP_UDP", "10.0.0.10:8080", ""),
        30003: ("TLS", "10.0.0.10:8080", CERTIFICATE),
    }
    names = [each.name for each in cloud.groups.values()]
    assert all(len(name) <= 32 for name in names)
    scene.audit()


def test_new_port_takes_two_writes_and_one_registration(scene: AwsScene, cloud: Cloud) -> None:
    scene.sync(scene.declare(make_port(30000)))
    writes = [call.action for call in cloud.writes()]
    assert writes == ["CreateTargetGroup", "RegisterTargets", "CreateListener"]


def test_sync_of_ports_that_are_right_writes_no_object(scene: AwsScene, cloud: Cloud) -> None:
    member = scene.declare(make_port(30000), make_port(30001, protocol="tcp_udp"))
    scene.sync(member)
    before = len(cloud.writes())
    scene.sync(member)
    assert len(cloud.writes()) == before


def test_tls_port_without_a_certificate_names_the_fault(scene: AwsScene) -> None:
    member = scene.declare(make_port(30000, protocol="tcp_ssl"), make_port(30001))
    report = scene.sync(member)
    assert "needs a certificate" in str(slot_at(report, 30000).attributes["problem"])
    assert slot_at(report, 30001).attributes["health"] == "healthy"
    tls = make_port(30000, protocol="tcp_ssl", certificate=CERTIFICATE)
    scene.sync(replace(member, slots=(tls, *member.slots[1:])))
    assert scene.ports()[30000] == ("TLS", "10.0.0.10:8080", CERTIFICATE)


def test_missing_certificate_does_not_delay_other_ports_and_heals(
    scene: AwsScene, cloud: Cloud
) -> None:
    cloud.certificates.clear()
    member = scene.declare(
        make_port(30000, protocol="tcp_ssl", certificate=CERTIFICATE), make_port(30001)
    )
    report = scene.sync(member)
    assert "CertificateNotFound" in str(slot_at(report, 30000).attributes["problem"])
    assert list(scene.ports()) == [30001]
    cloud.certificates.add(CERTIFICATE)
    assert "problem" not in slot_at(scene.sync(member), 30000).attributes
    scene.audit()


@pytest.mark.parametrize(
    ("protocol", "certificate", "text"),
    [
        ("quic", "", "no quic listeners"),
        ("tcp_ssl", "arn:aws:acm:us-east-1:123456789012:certificate/x", "region us-east-1"),
        ("tcp_ssl", "certificate-1", "not the ARN of a certificate"),
    ],
)
def test_port_that_no_listener_can_serve_has_a_problem(
    scene: AwsScene, protocol: str, certificate: str, text: str
) -> None:
    port = make_port(30000, protocol=protocol, certificate=certificate)
    report = scene.sync(scene.declare(port))
    assert text in str(slot_at(report, 30000).attributes["problem"])
    assert scene.ports() == {}


def test_target_outside_of_the_vpc_leaves_no_old_target_behind(scene: AwsScene) -> None:
    """The address may belong to another claim by now."""
    member = scene.declare(make_port(30000))
    scene.sync(member)
    moved = replace(member, slots=(make_port(30000, target="192.168.0.1:80"),))
    report = scene.sync(moved)
    assert "InvalidTarget" in str(slot_at(report, 30000).attributes["problem"])
    assert scene.ports() == {30000: ("TCP", "", "")}
    assert "target" not in slot_at(report, 30000).attributes


def test_target_that_another_program_registered_is_removed(scene: AwsScene, cloud: Cloud) -> None:
    member = scene.declare(make_port(30000))
    scene.sync(member)
    (group,) = (arn for arn, each in cloud.groups.items() if scene.is_ours(each.tags))
    params = {"TargetGroupArn": group, "Targets": [{"Id": "10.0.0.77", "Port": 1}]}
    cloud.operations["RegisterTargets"](cloud, params)
    scene.sync(member)
    assert scene.ports()[30000][1] == "10.0.0.10:8080"


def test_ipv6_target_gets_a_group_of_its_family_and_the_listener_stays(
    scene: AwsScene, cloud: Cloud
) -> None:
    scene.options = make_options(scene.address, ip_type="dualstack")
    member = scene.make(make_port(30000))
    before = slot_at(scene.sync(member), 30000).attributes
    moved = replace(member, slots=(make_port(30000, target="[2001:DB8:0::5]:80"),))
    after = slot_at(scene.sync(moved), 30000).attributes
    assert after["id"] == before["id"]
    assert after["target"] == "[2001:db8::5]:80"
    before_writes = len(cloud.writes())
    scene.sync(moved)
    assert len(cloud.writes()) == before_writes, "both spellings are one address"
    scene.audit()


def test_health_of_targets_is_reported_until_it_settles(scene: AwsScene, cloud: Cloud) -> None:
    cloud.initial = 30
    member = scene.declare(make_port(30000))
    report = scene.sync(member)
    assert (slot_at(report, 30000).attributes["health"], report.again) == ("initial", 10.0)
    cloud.advance(30)
    report = scene.sync(member)
    assert (slot_at(report, 30000).attributes["health"], report.again) == ("healthy", None)
    cloud.sick.add(("10.0.0.10", 8080))
    assert slot_at(scene.sync(member), 30000).attributes["health"] == "unhealthy"


def test_another_health_check_changes_existing_groups(scene: AwsScene, cloud: Cloud) -> None:
    member = scene.declare(make_port(30000))
    scene.sync(member)
    check = {"protocol": "http", "path": "/live", "port": 9000, "interval": "10s", "healthy": 3}
    scene.options = make_options(scene.address, health_check=check)
    scene.sync(member)
    (group,) = (each for each in cloud.groups.values() if scene.is_ours(each.tags))
    assert group.settings["HealthCheckPath"] == "/live"
    assert group.settings["HealthCheckPort"] == "9000"
    assert group.settings["HealthCheckIntervalSeconds"] == 10
    scene.sync(member)
    assert count_calls(cloud, "ModifyTargetGroup") == 1


def test_group_of_an_earlier_attempt_with_other_settings_is_adopted(
    scene: AwsScene, cloud: Cloud
) -> None:
    member = scene.declare(make_port(30000))
    cloud.fail("InternalFailure", action="CreateListener", status=500)
    assert scene.sync(member).failure
    scene.options = make_options(scene.address, health_check={"interval": "10s"})
    scene.sync(member)
    (group,) = (each for each in cloud.groups.values() if scene.is_ours(each.tags))
    assert group.settings["HealthCheckIntervalSeconds"] == 10
    scene.audit()


def test_equal_group_of_another_owner_is_not_used(scene: AwsScene, cloud: Cloud) -> None:
    """The create of an equal group succeeds, which proves no ownership."""
    member = scene.declare(make_port(30000))
    scene.sync(member)
    scene.sync(replace(member, slots=(make_port(30000, "draining"),)))
    cloud.log.clear()
    scene.sync(member)
    (group,) = (each for each in cloud.groups.values() if scene.is_ours(each.tags))
    scene.sync(replace(member, slots=(make_port(30000, "draining"),)))
    group.tags = {"owner": "another"}
    cloud.groups[group.arn] = group
    before = scene.foreign_state()
    report = scene.sync(member)
    assert isinstance(report.failure, ConflictError)
    assert "has not Berth's tags" in str(slot_at(report, 30000).attributes["problem"])
    assert scene.foreign_state() == before
    assert scene.ports() == {}


def test_deregistration_delay_is_set_before_the_listener_exists(
    scene: AwsScene, cloud: Cloud
) -> None:
    scene.options = make_options(scene.address, deregistration_delay="20s")
    scene.sync(scene.declare(make_port(30000)))
    (group,) = (each for each in cloud.groups.values() if scene.is_ours(each.tags))
    assert group.delay == 20
    writes = [call.action for call in cloud.writes()]
    assert writes.index("ModifyTargetGroupAttributes") < writes.index("CreateListener")


def test_replaced_target_drains_and_then_disappears(scene: AwsScene, cloud: Cloud) -> None:
    member = scene.declare(make_port(30000))
    scene.sync(member)
    disabled = replace(member, slots=(make_port(30000, target=""),))
    assert slot_at(scene.sync(disabled), 30000).attributes["health"] == "draining"
    cloud.advance(300)
    assert "health" not in slot_at(scene.sync(disabled), 30000).attributes


def test_foreign_listeners_count_towards_the_quota(scene: AwsScene, cloud: Cloud) -> None:
    member = scene.declare(*(make_port(30000 + i) for i in range(49)))
    report = scene.sync(member)
    assert isinstance(report.failure, QuotaExceeded)
    assert "of at most 50" in str(slot_at(report, 30048).attributes["problem"])
    assert len(scene.ports()) == 48, "two listeners are of others"
    assert len(cloud.listeners) == 50
    scene.audit()


def test_ports_behind_a_quota_name_it(scene: AwsScene, cloud: Cloud) -> None:
    """AWS counts other listeners than Berth sees: no call follows the first refusal."""
    cloud.quotas.listeners = 4
    member = scene.declare(*(make_port(30000 + i) for i in range(15)))
    report = scene.sync(member)
    assert list(scene.ports()) == [30000, 30001]
    problems = {each.number for each in report.slots or () if "problem" in each.attributes}
    assert problems == set(range(30002, 30015))
    assert count_calls(cloud, "CreateListener") == 3


def test_refused_deletion_keeps_its_slot_draining_and_is_the_failure(
    scene: AwsScene, cloud: Cloud
) -> None:
    member = scene.declare(make_port(30000), make_port(30001))
    scene.sync(member)
    leaving = replace(member, slots=(make_port(30000, "draining"), make_port(30001, "draining")))
    cloud.fail("AccessDenied", action="DeleteListener", times=1)
    first = scene.sync(leaving)
    assert first.clean == {30001}, "the other slot does not wait for it"
    assert "AccessDenied" in first.why
    assert isinstance(first.failure, Unauthorised)
    assert "AccessDenied" in str(slot_at(first, 30000).attributes["problem"])
    still = replace(member, slots=(make_port(30000, "draining"),))
    cloud.fail("AccessDenied", action="DeleteListener", times=1)
    assert isinstance(scene.sync(still).failure, Unauthorised)
    assert scene.sync(still).clean == {30000}
    scene.audit()


def test_listener_that_is_already_gone_is_a_success(scene: AwsScene, cloud: Cloud) -> None:
    member = scene.declare(make_port(30000))
    scene.sync(member)
    for arn in [arn for arn, each in cloud.listeners.items() if scene.is_ours(each.tags)]:
        del cloud.listeners[arn]
    leaving = replace(member, slots=(make_port(30000, "draining"),))
    assert scene.sync(leaving).clean == {30000}
    assert scene.ports() == {}
    scene.audit()


def test_precreated_listeners_stay_and_only_targets_change(scene: AwsScene, cloud: Cloud) -> None:
    scene.options = make_options(scene.address, deregistration_delay="60s")
    idle = scene.declare(make_port(30000, "idle"), make_port(30001, "idle"))
    scene.sync(idle, is_precreated=True)
    assert scene.ports() == {30000: ("TCP_UDP", "", ""), 30001: ("TCP_UDP", "", "")}
    before = set(cloud.listeners)
    held = replace(idle, slots=(make_port(30000, protocol="udp"), make_port(30001, "idle")))
    scene.sync(held, is_precreated=True)
    assert scene.ports()[30000][1] == "10.0.0.10:8080"
    leaving = replace(idle, slots=(make_port(30000, "draining"), make_port(30001, "idle")))
    assert scene.sync(leaving, is_precreated=True).clean == frozenset(), "connections drain"
    cloud.advance(60)
    assert scene.sync(leaving, is_precreated=True).clean == {30000}
    assert set(cloud.listeners) == before
    secure = replace(idle, slots=(make_port(30000, protocol="tcp_ssl"), make_port(30001, "idle")))
    problem = slot_at(scene.sync(secure, is_precreated=True), 30000).attributes["problem"]
    assert "serves tcp and udp, not tcp_ssl" in str(problem)


def test_load_balancer_is_ready_once_aws_has_provisioned_it(scene: AwsScene, cloud: Cloud) -> None:
    cloud.provisioning = 120
    scene.options = make_options(scene.address, cross_zone=True)
    creating = scene.member(state="creating")
    report = scene.sync(creating)
    assert not report.is_ready
    assert report.external_id
    assert report.addresses
    assert report.why == "AWS provisions the load balancer"
    cloud.advance(120)
    report = scene.sync(replace(creating, external_id=report.external_id))
    assert report.is_ready
    (balancer,) = scene.balancers()
    assert cloud.balancers[balancer].is_crossing_zones
    assert count_calls(cloud, "CreateLoadBalancer") == 1


def test_vanished_load_balancer_is_named_as_such(scene: AwsScene, cloud: Cloud) -> None:
    member = scene.make(make_port(30000))
    scene.sync(member)
    cloud.operations["DeleteLoadBalancer"](cloud, {"LoadBalancerArn": member.external_id})
    with pytest.raises(NotFoundOutside):
        scene.sync(member)


def test_object_that_vanishes_during_a_call_does_not_pass_for_the_load_balancer(
    scene: AwsScene, cloud: Cloud
) -> None:
    """A worker would take the missing load balancer of a deleted member as success."""
    member = scene.make(make_port(30000))
    scene.sync(member)
    cloud.fail("ListenerNotFound", action="DescribeTags", times=5)
    with pytest.raises(ProviderError) as caught:
        scene.sync(replace(member, state="deleting"))
    assert not isinstance(caught.value, NotFoundOutside)


def test_load_balancer_without_berths_tags_is_not_deleted(scene: AwsScene, cloud: Cloud) -> None:
    member = scene.make(make_port(30000))
    cloud.balancers[member.external_id].tags.clear()
    with pytest.raises(ConflictError, match="no longer has Berth's tags"):
        scene.sync(replace(member, state="deleting"))
    assert member.external_id in cloud.balancers


def test_load_balancer_with_foreign_listeners_is_not_deleted(scene: AwsScene, cloud: Cloud) -> None:
    member = scene.make(make_port(30000))
    scene.sync(member)
    listener = put_foreign_listener(cloud, member.external_id, 443)
    leaving = replace(member, state="deleting", slots=())
    with pytest.raises(ConflictError, match="on the ports 443"):
        scene.sync(leaving)
    assert scene.ports() == {}
    del cloud.listeners[listener]
    assert scene.sync(leaving).is_gone


def test_equal_load_balancer_of_another_owner_is_not_adopted(scene: AwsScene, cloud: Cloud) -> None:
    creating = scene.member(state="creating")
    scene.sync(creating)
    (arn,) = scene.balancers()
    cloud.balancers[arn].tags = {"berth-pool": "games"}  # one of two tags is not enough
    with pytest.raises(ConflictError, match="has not Berth's tags"):
        scene.sync(creating)
    assert len(cloud.balancers) == 1


def test_new_load_balancer_needs_subnets_and_room_in_the_quota(
    scene: AwsScene, cloud: Cloud
) -> None:
    creating = scene.member(state="creating")
    cloud.quotas.balancers = 0
    with pytest.raises(QuotaExceeded, match="may have 0 network load balancers"):
        scene.sync(creating)
    scene.options = make_options(scene.address, subnets=[])
    with pytest.raises(Misconfigured, match=r"provider\.subnets"):
        scene.sync(creating)


@pytest.mark.parametrize(
    ("arn", "text"),
    [
        ("arn:aws:elasticloadbalancing:us-east-1:123456789012:loadbalancer/net/a/1", "us-east-1"),
        ("arn:aws:elasticloadbalancing:eu-west-1:123456789012:loadbalancer/old", "a classic"),
        ("arn:aws:elasticloadbalancing:eu-west-1:123456789012:loadbalancer/app/a/1", "an appl"),
        ("arn:aws:elasticloadbalancing:eu-west-1:999999999999:loadbalancer/net/a/1", "account"),
        ("arn:aws:elasticloadbalancing:eu-west-1:123456789012:loadbalancer/net/a/1", "not exist"),
        ("games-1", "is not the ARN"),
        ("", "names no load balancer"),
    ],
)
def test_wrong_arn_of_a_users_load_balancer_is_named(scene: AwsScene, arn: str, text: str) -> None:
    creating = scene.member(is_owned=False, state="creating", external_id=arn)
    with pytest.raises(Misconfigured, match=text):
        scene.sync(creating)


def test_credentials_of_another_account_call_no_load_balancer_gone(
    scene: AwsScene, cloud: Cloud
) -> None:
    member = scene.make()
    for call in (lambda: scene.sync(member, place="999999999999/eu-west-1"),):
        with pytest.raises(Misconfigured, match="confirm_place games"):
            call()
    assert member.external_id in cloud.balancers


def test_users_load_balancer_keeps_its_tags_attributes_and_listeners(
    scene: AwsScene, cloud: Cloud
) -> None:
    arn = put_balancer(cloud, "mine", team="games")
    put_foreign_listener(cloud, arn, 443)
    before = scene.foreign_state()
    scene.options = make_options(scene.address, cross_zone=True, tags={"team": "berth"})
    member = scene.declare(make_port(30000), arn=arn)
    scene.sync(replace(member, state="creating"))
    scene.sync(member)
    assert scene.sync(replace(member, state="deleting", slots=())).is_gone
    assert scene.foreign_state() == before
    assert scene.ports() == {}
