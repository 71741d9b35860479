"""Calls keep to the rates of AWS, and a throttled account stops one sync and no other."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pytest

from pools.providers.aws.account import RATES
from pools.providers.aws.provider import AwsProvider
from pools.providers.base import MemberSnapshot
from pools.providers.pacing import Pacer, PartlySynced
from project.kernel.outbox.budgets import CallBudget
from project.kernel.outbox.operations import Postponed, Throttled
from tests.pools.providers.aws.elbv2_cloud import Cloud, make_buckets
from tests.pools.providers.aws.harness import use_cloud
from tests.pools.providers.aws.scene import AwsScene, make_port, slot_at
from tests.pools.providers.pacers import MemoryPacer

SCALE = 10.0  # of all rates, so that the test ends soon
PORTS = 8


@pytest.fixture
def pace(monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(AwsProvider, "pace", SCALE)
    return SCALE


def sync_until_done(scene: AwsScene, member: MemberSnapshot) -> int:
    """How often the budget sent the sync back. Like the outbox, this waits as long as the budget
    says: a sync that began again at once would spend its calls on reads.
    """
    postponed = 0
    while True:
        try:
            scene.sync(member)
        except Postponed as early:
            postponed += 1
            time.sleep(early.seconds)
        else:
            return postponed


def test_workers_that_share_the_buckets_are_never_throttled(
    scene: AwsScene, cloud: Cloud, pace: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pools.providers.aws.provider.SYNC_PATIENCE", 0.2)
    slots = [make_port(30000 + i) for i in range(PORTS)]
    members = [scene.declare(*slots, number=n) for n in range(4)]
    cloud.buckets = make_buckets(cloud.now, pace)
    AwsProvider.pacer = MemoryPacer()
    with ThreadPoolExecutor(4) as threads:
        postponed = list(threads.map(lambda member: sync_until_done(scene, member), members))
    assert cloud.throttled == 0
    assert sum(postponed) > 0, "the buckets were empty at times"
    ours = [each for each in cloud.listeners.values() if scene.is_ours(each.tags)]
    assert len(ours) == 4 * PORTS
    writes = [call for call in cloud.writes() if call.action.startswith("Create")]
    assert len(writes) == 2 * 4 * PORTS, "a postponed sync repeats no write"
    scene.audit()


def test_each_class_of_calls_takes_from_its_own_bucket(scene: AwsScene) -> None:
    member = scene.declare(make_port(30000))
    AwsProvider.pacer = pacer = MemoryPacer()
    scene.sync(member)
    counts = {name: pacer.taken.count(f"aws 123456789012 eu-west-1 {name}") for name in RATES}
    assert counts["write"] == 2
    assert counts["register"] == 1
    assert sum(counts.values()) == len(pacer.taken)


def test_throttling_storm_ends_each_sync_at_its_first_call_and_loses_no_port(
    scene: AwsScene, cloud: Cloud
) -> None:
    """The outbox backs off meanwhile. Another account is served."""
    member = scene.declare(make_port(30000), make_port(30001))
    scene.sync(member)
    changed = replace(member, slots=(make_port(30000, "draining"), make_port(30002)))
    now = cloud.now
    cloud.clock = lambda: now
    cloud.buckets = make_buckets(cloud.now, 1.0)
    for bucket in cloud.buckets.values():
        bucket.left, bucket.at = 0.0, cloud.now + 60  # empty for a minute
    for _ in range(5):
        before = len(cloud.log)
        with pytest.raises(Throttled):
            scene.sync(changed)
        assert len(cloud.log) == before + 1
    calm = Cloud()
    with use_cloud(calm) as address:
        other = AwsScene(calm, address)
        other.sync(other.declare(make_port(30000)))
        assert list(other.ports()) == [30000]
    assert list(scene.ports()) == [30000, 30001]
    cloud.advance(90)
    assert scene.sync(changed).clean == {30000}
    assert list(scene.ports()) == [30002], "the port of no row goes, too"
    scene.audit()


def test_postponed_sync_reports_what_it_has_done(
    scene: AwsScene, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50 ports take half a minute of an idle account's budget; the first ones need not wait."""
    monkeypatch.setattr("pools.providers.aws.provider.SYNC_PATIENCE", 0.0)
    member = scene.declare(make_port(30000), make_port(30001))
    scene.sync(member)
    wanted = [make_port(30100 + i) for i in range(20)]
    changed = replace(
        member, slots=(make_port(30000, "draining"), make_port(30001, "draining"), *wanted)
    )
    AwsProvider.pacer = MemoryPacer(clock=lambda: 0.0)
    with pytest.raises(PartlySynced) as caught:
        scene.sync(changed)
    report = caught.value.report
    assert report.clean == {30000, 30001}
    assert report.slots is not None
    ours = {slot.number: slot.attributes for slot in report.slots if not slot.is_foreign}
    assert set(ours) == set(scene.ports())
    assert 0 < len(ours) < 20
    assert all(each["target"] == "10.0.0.10:8080" for each in ours.values())
    assert all(each["health"] == "initial" for each in ours.values())


def test_port_whose_group_is_still_there_is_not_clean(
    scene: AwsScene, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pools.providers.aws.provider.SYNC_PATIENCE", 0.0)
    member = scene.declare(*(make_port(30000 + i) for i in range(10)))
    scene.sync(member)
    leaving = tuple(make_port(30000 + i, "draining") for i in range(10))
    AwsProvider.pacer = MemoryPacer(clock=lambda: 0.0)  # 16 of the 20 writes
    with pytest.raises(PartlySynced) as caught:
        scene.sync(replace(member, slots=leaving))
    groups = [each for each in cloud.groups.values() if scene.is_ours(each.tags)]
    assert len(groups) == 4
    assert caught.value.report.clean == {slot.id for slot in leaving} - {
        group.settings["Port"] for group in groups
    }


def test_port_whose_targets_were_not_read_is_not_reported_as_without_target(
    scene: AwsScene, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pools.providers.aws.provider.SYNC_PATIENCE", 0.0)
    member = scene.declare(*(make_port(30000 + i) for i in range(40)))
    scene.sync(member)
    AwsProvider.pacer = MemoryPacer(clock=lambda: 0.0)
    with pytest.raises(PartlySynced) as caught:
        scene.sync(member)
    ours = [slot.attributes for slot in caught.value.report.slots or () if not slot.is_foreign]
    assert len(ours) == 40
    unread = [each for each in ours if each.get("unread")]
    assert 0 < len(unread) < 40
    assert all("target" in each for each in ours if not each.get("unread"))


def test_throttling_within_a_sync_keeps_what_is_done(scene: AwsScene, cloud: Cloud) -> None:
    member = scene.declare(*(make_port(30000 + i) for i in range(3)))
    cloud.fail("RequestLimitExceeded", action="CreateListener", times=1)
    with pytest.raises(Throttled):
        scene.sync(member)
    scene.sync(member)
    groups = [call for call in cloud.log if call.action == "CreateTargetGroup"]
    assert cloud.made["CreateTargetGroup"] == 4 + 1, "three of ours, two of others"
    assert groups
    assert len(scene.ports()) == 3
    scene.audit()


def test_reads_of_a_postponed_sync_are_not_repeated_and_those_of_a_whole_one_are(
    scene: AwsScene, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that share the budget would otherwise all read their first targets repeatedly."""
    monkeypatch.setattr("pools.providers.aws.provider.SYNC_PATIENCE", 0.0)
    member = scene.declare(*(make_port(30000 + i) for i in range(40)))
    scene.sync(member)

    def read() -> list[str]:
        return [
            call.params["TargetGroupArn"]
            for call in cloud.log
            if call.action == "DescribeTargetHealth"
        ]

    cloud.log.clear()
    now = 0.0
    AwsProvider.pacer = MemoryPacer(clock=lambda: now)
    with pytest.raises(Postponed):
        scene.sync(member)
    assert 0 < len(read()) < 40
    now += 10
    scene.sync(member)
    assert sorted(read()) == sorted(set(read())), "each group is read once"
    assert len(read()) == 40
    now += 10
    with pytest.raises(Postponed):
        scene.sync(member)
    assert len(read()) > 40, "a new sync reads the targets again"


@dataclass
class BudgetUntilListener(Pacer):
    """The budget ends once a created listener and its tags are known."""

    cloud: Cloud

    def take(self, budget: CallBudget, calls: int = 1) -> None:
        actions = [call.action for call in self.cloud.log]
        if "CreateListener" in actions and actions[-1] == "DescribeTags":
            raise Postponed(1.0)


def test_precreated_port_on_a_group_with_an_old_target_is_not_clean(
    scene: AwsScene, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its listener was deleted outside, and its group still has the target of the ended claim."""
    monkeypatch.setattr("pools.providers.aws.provider.SYNC_PATIENCE", 0.0)
    member = scene.declare(make_port(30000))
    scene.sync(member, is_precreated=True)
    (arn,) = (arn for arn, each in cloud.listeners.items() if scene.is_ours(each.tags))
    del cloud.listeners[arn]
    cloud.log.clear()
    AwsProvider.pacer = BudgetUntilListener(cloud)
    leaving = replace(member, slots=(make_port(30000, "draining"),))
    with pytest.raises(PartlySynced) as caught:
        scene.sync(leaving, is_precreated=True)
    assert scene.ports()[30000][1] == "10.0.0.10:8080", "the new listener serves the old target"
    report = caught.value.report
    assert report.clean == frozenset()
    assert slot_at(report, 30000).attributes["unread"]


def test_precreated_port_with_a_new_group_is_clean_before_its_targets_are_read(
    scene: AwsScene, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pools.providers.aws.provider.SYNC_PATIENCE", 0.0)
    member = scene.declare(make_port(30000, "draining"))
    cloud.log.clear()
    AwsProvider.pacer = BudgetUntilListener(cloud)
    with pytest.raises(PartlySynced) as caught:
        scene.sync(member, is_precreated=True)
    assert caught.value.report.clean == {30000}
