"""A load balancer of the user that two pools share, beside foreign listeners."""

from dataclasses import replace

from pools.providers.aws.provider import AwsProvider
from pools.providers.base import MemberReport, MemberSnapshot
from tests.pools.providers.aws.elbv2_cloud import Cloud
from tests.pools.providers.aws.scene import AwsScene, make_port, slot_at


def sync_other(scene: AwsScene, member: MemberSnapshot) -> MemberReport:
    return AwsProvider().sync(scene.pool(member, name="other", id=8), member)


def test_each_pool_sees_the_listeners_of_the_other_as_foreign(scene: AwsScene) -> None:
    member = scene.declare(make_port(30000))
    other = scene.declare(make_port(31000), number=2, arn=member.external_id)
    scene.sync(member)
    report = sync_other(scene, other)
    assert slot_at(report, 30000).is_foreign
    assert slot_at(report, 443).is_foreign
    assert not slot_at(report, 31000).is_foreign
    assert slot_at(scene.sync(member), 31000).is_foreign


def test_end_of_a_pool_removes_its_own_listeners_only(scene: AwsScene, cloud: Cloud) -> None:
    member = scene.declare(make_port(30000), make_port(30001))
    other = scene.declare(make_port(31000), number=2, arn=member.external_id)
    before = scene.foreign_state()
    scene.sync(member)
    sync_other(scene, other)
    with_other = scene.foreign_state()
    assert scene.sync(replace(member, state="deleting", slots=())).is_gone
    assert scene.foreign_state() == with_other
    assert {each.port for each in cloud.listeners.values()} == {443, 30500, 31000}
    assert sync_other(scene, replace(other, state="deleting", slots=())).is_gone
    assert scene.foreign_state() == before
    assert scene.balancers() == []
    scene.audit()


def test_sweep_of_one_pool_leaves_the_other_alone(scene: AwsScene) -> None:
    member = scene.declare(make_port(30000))
    other = scene.declare(make_port(31000), number=2, arn=member.external_id)
    scene.sync(member)
    sync_other(scene, other)
    with_other = scene.foreign_state()
    scene.sweep()
    assert scene.foreign_state() == with_other
    assert scene.ports() == {}


def test_listener_at_a_number_of_the_other_pool_is_not_taken_over(
    scene: AwsScene, cloud: Cloud
) -> None:
    """Ranges of pools that share a load balancer are disjoint; an old copy of rows may not be."""
    member = scene.declare(make_port(30000))
    other = scene.declare(make_port(30000), number=2, arn=member.external_id)
    scene.sync(member)
    before = cloud.outside()
    assert slot_at(sync_other(scene, other), 30000).is_foreign
    assert cloud.outside() == before
