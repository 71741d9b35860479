"""A look at a pool: its load balancers, their listeners, and what is left of gone members."""

from dataclasses import replace
from typing import Any

import pytest

from pools.providers.aws import look
from pools.providers.aws.provider import AwsProvider
from pools.providers.base import MemberSnapshot, Observation
from project.kernel.outbox.operations import Misconfigured, ProviderError, Throttled
from tests.pools.providers.aws.elbv2_cloud import Cloud
from tests.pools.providers.aws.scene import AwsScene, make_port
from tests.pools.providers.pacers import MemoryPacer


def look_at(scene: AwsScene, *members: MemberSnapshot, place: str = "") -> Observation:
    return AwsProvider().look(scene.pool(*members, place=place))


def count_calls(cloud: Cloud, action: str) -> int:
    return sum(call.action == action for call in cloud.log)


def test_member_without_a_recorded_arn_is_found_by_its_tags(scene: AwsScene) -> None:
    creating = scene.member(state="creating")
    report = scene.sync(creating)
    (seen,) = look_at(scene, creating).seen
    assert (seen.external_id, seen.is_ready) == (report.external_id, True)
    assert seen.addresses == report.addresses


def test_load_balancer_that_aws_provisions_is_not_ready(scene: AwsScene, cloud: Cloud) -> None:
    member = scene.make()
    for state, is_ready in (("provisioning", False), ("failed", False), ("active_impaired", True)):
        cloud.balancers[member.external_id].state = state
        (seen,) = look_at(scene, member).seen
        assert (seen.is_ready, bool(seen.why)) == (is_ready, True)


def test_all_pages_are_read(scene: AwsScene, cloud: Cloud) -> None:
    cloud.page_size = 2
    members = [scene.make(*(make_port(30000 + i) for i in range(5)), number=n) for n in (1, 2, 3)]
    for member in members:
        scene.sync(member)
    found = look_at(scene, *members)
    assert [len(seen.slots or ()) for seen in found.seen] == [5, 5, 5]
    assert found.strays == {}


def test_group_without_a_listener_of_a_gone_member_is_a_stray(
    scene: AwsScene, cloud: Cloud
) -> None:
    scene.sync(scene.declare(make_port(30000), number=4))
    for arn in [arn for arn, each in cloud.listeners.items() if scene.is_ours(each.tags)]:
        del cloud.listeners[arn]
    assert set(look_at(scene).strays) == {4}
    scene.sweep()
    assert not [each for each in cloud.groups.values() if scene.is_ours(each.tags)]


def test_listener_of_a_gone_member_is_a_stray_also_without_its_group(
    scene: AwsScene, cloud: Cloud
) -> None:
    gone = scene.declare(make_port(30000), number=4)
    scene.sync(gone)
    (listener,) = (each for each in cloud.listeners.values() if scene.is_ours(each.tags))
    listener.group, old = next(iter(cloud.groups)), listener.group
    del cloud.groups[old]
    kept = scene.declare(number=5, arn=gone.external_id)
    assert set(look_at(scene, kept).strays) == {4}
    scene.sweep(kept)
    assert scene.ports() == {}


def test_second_look_reads_no_tags_again(scene: AwsScene, cloud: Cloud) -> None:
    member = scene.make(*(make_port(30000 + i) for i in range(3)))
    scene.sync(member)
    look_at(scene, member)
    before = count_calls(cloud, "DescribeTags")
    again = look_at(scene, member)
    assert count_calls(cloud, "DescribeTags") == before
    assert [slot.is_foreign for slot in again.seen[0].slots or ()] == [False] * 3


def test_targets_are_read_in_turn_and_others_are_reported_unread(
    scene: AwsScene, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, "TARGETS_A_LOOK", 2)
    member = scene.make(*(make_port(30000 + i) for i in range(4)))
    scene.sync(member)

    def unread() -> list[int]:
        (seen,) = look_at(scene, member).seen
        return [slot.number for slot in seen.slots or () if slot.attributes.get("unread")]

    first, second = unread(), unread()
    assert (len(first), len(second)) == (2, 2)
    assert set(first) | set(second) == {30000, 30001, 30002, 30003}


def test_server_error_of_one_target_group_leaves_it_unread(scene: AwsScene, cloud: Cloud) -> None:
    """Red while it ended the look. Without any success it still does, after three calls."""
    member = scene.make(*(make_port(30000 + i) for i in range(4)))
    scene.sync(member)
    cloud.fail("InternalFailure", action="DescribeTargetHealth", status=500)
    (seen,) = look_at(scene, member).seen
    assert sum(bool(slot.attributes.get("unread")) for slot in seen.slots or ()) == 1
    cloud.fail("InternalFailure", action="DescribeTargetHealth", status=500, times=99)
    before = count_calls(cloud, "DescribeTargetHealth")
    with pytest.raises(ProviderError, match="InternalFailure"):
        look_at(scene, member)
    assert count_calls(cloud, "DescribeTargetHealth") == before + 3


def test_look_with_credentials_of_another_account_calls_no_member_gone(
    scene: AwsScene, cloud: Cloud
) -> None:
    member = scene.make()
    place = look_at(scene, member).place
    assert place == f"{cloud.account}/{cloud.region}"
    with pytest.raises(Misconfigured, match="confirm_place games"):
        look_at(scene, replace(member, external_id="arn:elsewhere"), place=f"9{place[1:]}")


def test_look_without_budget_comes_back_later(
    scene: AwsScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pools.providers.aws.provider.LOOK_PATIENCE", 0.0)
    AwsProvider.pacer = MemoryPacer(clock=lambda: 0.0)
    members = [scene.member(number=n, external_id="arn") for n in range(3)]
    with pytest.raises(Throttled) as caught:
        for _ in range(40):
            look_at(scene, *members)
    assert caught.value.retry_after == pytest.approx(0.1)


def hide_from_lists(cloud: Cloud, arn: str) -> None:
    """Lists of all load balancers lack this one, as they do for a while after a change."""
    describe = cloud.operations["DescribeLoadBalancers"]

    def describe_others(there: Cloud, params: dict[str, Any]) -> dict[str, Any]:
        answer = describe(there, params)
        if params.get("LoadBalancerArns"):
            return answer
        found = [each for each in answer["LoadBalancers"] if each["LoadBalancerArn"] != arn]
        return {**answer, "LoadBalancers": found}

    cloud.operations = {**cloud.operations, "DescribeLoadBalancers": describe_others}


def test_load_balancer_that_one_list_lacks_is_not_gone(scene: AwsScene, cloud: Cloud) -> None:
    member = scene.make(make_port(30000))
    scene.sync(member)
    hide_from_lists(cloud, member.external_id)
    (seen,) = look_at(scene, member).seen
    assert (seen.external_id, seen.is_ready) == (member.external_id, True)
    assert [slot.number for slot in seen.slots or ()] == [30000]


def test_load_balancer_that_no_answer_has_is_gone(scene: AwsScene, cloud: Cloud) -> None:
    member, other = scene.make(number=1), scene.make(number=2)
    del cloud.balancers[member.external_id]
    assert [each.member_id for each in look_at(scene, member, other).seen] == [2]


def test_wrong_arn_of_one_member_keeps_no_other_from_a_look(scene: AwsScene) -> None:
    wrong = scene.member(number=1, is_owned=False, external_id="arn:elsewhere")
    assert [each.member_id for each in look_at(scene, wrong, scene.make(number=2)).seen] == [2]
