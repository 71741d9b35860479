"""Few reads for new ports: their health is read between writes, and the region is rarely listed."""

from types import SimpleNamespace

import pytest

from pools.providers.aws import loose_groups
from pools.providers.aws.loose_groups import forget_groups
from pools.providers.aws.provider import AwsProvider
from pools.providers.pacing import Pacer, PartlySynced
from project.kernel.outbox.budgets import CallBudget
from project.kernel.outbox.operations import Postponed, ProviderError
from tests.pools.providers.aws.elbv2_cloud import Cloud
from tests.pools.providers.aws.scene import AwsScene, make_port, slot_at

PORTS = tuple(make_port(30000 + i) for i in range(25))


def actions(cloud: Cloud) -> list[str]:
    return [call.action for call in cloud.log]


def before_last_listener(cloud: Cloud) -> int:
    """Reads of health before the last listener was created."""
    done = actions(cloud)
    last = len(done) - 1 - done[::-1].index("CreateListener")
    return done[:last].count("DescribeTargetHealth")


def lists_of_the_region(cloud: Cloud) -> int:
    return sum(
        call.action == "DescribeTargetGroups" and not call.params.keys() & {"LoadBalancerArn"}
        for call in cloud.log
    )


def test_health_of_new_ports_is_read_between_writes_and_once(scene: AwsScene, cloud: Cloud) -> None:
    member = scene.declare(*PORTS)
    cloud.log.clear()
    report = scene.sync(member)
    assert before_last_listener(cloud) == 10
    assert actions(cloud).count("DescribeTargetHealth") == len(PORTS)
    assert all(slot_at(report, port.number).attributes["health"] == "healthy" for port in PORTS)


def test_checks_that_take_longer_end_the_reads_between_writes(
    scene: AwsScene, cloud: Cloud
) -> None:
    member = scene.declare(*PORTS)
    cloud.initial = 60.0
    cloud.log.clear()
    scene.sync(member)
    assert before_last_listener(cloud) == 1


class NoReadsOfHealth(Pacer):
    """The budget of reads is empty while health would be read between writes."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    def take(self, budget: CallBudget, calls: int = 1) -> None:
        if budget.key.endswith(" read") and 10 <= len(self.cloud.listeners) < 25 + 2:
            done = actions(self.cloud)
            if done[-1] == "DescribeTags" and done[-2] == "CreateListener":
                raise Postponed(1.0)


def test_empty_budget_of_reads_does_not_end_the_writes(scene: AwsScene, cloud: Cloud) -> None:
    member = scene.declare(*PORTS)
    cloud.log.clear()
    AwsProvider.pacer = NoReadsOfHealth(cloud)
    scene.sync(member)
    assert before_last_listener(cloud) == 0
    assert len(scene.ports()) == len(PORTS)


def test_region_is_listed_for_the_first_sync_and_for_ports_that_drain(
    scene: AwsScene, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = scene.declare(make_port(30000))
    cloud.log.clear()
    scene.sync(member)
    assert lists_of_the_region(cloud) == 1
    scene.sync(member)
    assert lists_of_the_region(cloud) == 1
    leaving = scene.member(
        make_port(30000, "draining"), is_owned=False, external_id=member.external_id
    )
    scene.sync(leaving)
    assert lists_of_the_region(cloud) == 2
    monkeypatch.setattr(loose_groups, "LISTED_AGE", 0.0)
    scene.sync(member)
    assert lists_of_the_region(cloud) == 3, "another process may have left a group meanwhile"


def test_syncs_of_a_process_share_the_list_of_the_region(scene: AwsScene, cloud: Cloud) -> None:
    members = [scene.declare(make_port(30000), number=n) for n in range(3)]
    forget_groups()
    cloud.log.clear()
    for member in members * 2:
        scene.sync(member)
    assert lists_of_the_region(cloud) == 1
    scene.audit()


def test_group_that_another_process_left_is_found_by_the_list_of_any_member(
    scene: AwsScene, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(loose_groups, "time", SimpleNamespace(monotonic=lambda: clock.now))
    members = [scene.declare(make_port(30000), number=n) for n in range(2)]
    for member in members:
        scene.sync(member)
    mine = dict(loose_groups._left), dict(loose_groups._ended), dict(loose_groups._regions)
    more = scene.member(*PORTS[:2], number=1, is_owned=False, external_id=members[1].external_id)
    cloud.fail(action="CreateTargetGroup", is_after=True)
    forget_groups()  # the other process
    with pytest.raises(ProviderError):
        scene.sync(more)
    left, ended, regions = mine
    loose_groups._left.update(left)
    loose_groups._ended.update(ended)
    loose_groups._regions.update(regions)
    cloud.log.clear()
    for member in members:
        scene.sync(member)
    assert lists_of_the_region(cloud) == 0
    assert sum(scene.is_ours(each.tags) for each in cloud.groups.values()) == len(members) + 1
    clock.now += 61.0
    for member in members:
        scene.sync(member)
    assert lists_of_the_region(cloud) == 1
    scene.audit()


def test_region_is_listed_again_after_a_sync_that_failed(scene: AwsScene, cloud: Cloud) -> None:
    """Its call had an effect, and a group that no listener uses is left outside."""
    member = scene.declare(make_port(30000))
    scene.sync(member)
    more = scene.member(*PORTS[:2], is_owned=False, external_id=member.external_id)
    cloud.fail(action="CreateTargetGroup", is_after=True)
    with pytest.raises(ProviderError):
        scene.sync(more)
    cloud.log.clear()
    scene.sync(member)
    assert lists_of_the_region(cloud) == 1
    scene.audit()


def test_region_is_listed_where_a_listener_was_deleted_outside(
    scene: AwsScene, cloud: Cloud
) -> None:
    """Its group has the target of a former backend."""
    member = scene.declare(make_port(30000, target="10.0.0.99:1"))
    scene.sync(member)
    (arn,) = (arn for arn, each in cloud.listeners.items() if scene.is_ours(each.tags))
    del cloud.listeners[arn]
    cloud.log.clear()
    changed = scene.member(make_port(30000), is_owned=False, external_id=member.external_id)
    scene.sync(changed)
    assert lists_of_the_region(cloud) == 1
    assert scene.ports() == {30000: ("TCP", "10.0.0.10:8080", "")}
    scene.audit()


class NoListeners(Pacer):
    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    def take(self, budget: CallBudget, calls: int = 1) -> None:
        if "RegisterTargets" in actions(self.cloud) and budget.key.endswith(" write"):
            raise Postponed(1.0)


def test_group_of_a_postponed_sync_is_used_by_the_next_or_deleted(
    scene: AwsScene, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pools.providers.aws.provider.SYNC_PATIENCE", 0.0)
    pacer = AwsProvider.pacer
    member = scene.declare(make_port(30000))
    scene.sync(scene.member(is_owned=False, external_id=member.external_id))
    cloud.log.clear()
    for wanted in ((make_port(30000),), ()):
        AwsProvider.pacer = NoListeners(cloud)
        with pytest.raises(PartlySynced):
            scene.sync(member)
        AwsProvider.pacer = pacer
        scene.sync(scene.member(*wanted, is_owned=False, external_id=member.external_id))
        assert lists_of_the_region(cloud) == 0
        assert len(scene.ports()) == len(wanted)
        scene.audit()
        cloud.log.clear()
        scene.sync(scene.member(is_owned=False, external_id=member.external_id))
        cloud.log.clear()
