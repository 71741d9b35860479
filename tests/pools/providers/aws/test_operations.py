"""Pools of load balancers through rows, operations and the watcher, paced by the database."""

from typing import Any

import pytest

from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from pools.providers.aws.provider import AwsProvider
from pools.providers.pacing import SharedPacer
from project.kernel.models import Budget, Operation
from project.kernel.outbox.operations import perform_due
from slots.sync.watcher import observe_pool
from tests.pools.providers.aws.elbv2_cloud import Cloud
from tests.pools.providers.aws.harness import SUBNETS, name_endpoints, put_balancer
from tests.pools.providers.aws.scene import AwsScene
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def make_pool(scene: AwsScene, **changes: Any) -> Pool:
    provider = {
        "kind": "aws",
        "region": scene.cloud.region,
        **name_endpoints(scene.address),
        "subnets": SUBNETS,
    }
    config = {
        "name": "games",
        "provider": provider,
        "slots": {"ports": "30000-30049", "shared": True},
        "members": {"max": 3, "list": ["one"]},
    }
    AwsProvider.pacer = SharedPacer()
    return create_pool(config | changes)


def perform_until(state: str) -> Member:
    """Perform operations as they become due, until the member has this state."""

    def step() -> Member | None:
        Operation.objects.update(due_at="2020-01-01T00:00:00Z")
        perform_due("aws")
        return Member.objects.filter(state=state).first()

    return wait_until(step, lambda: list(Operation.objects.values("error", "attempts")))


def test_member_gets_a_load_balancer_and_becomes_ready(scene: AwsScene, cloud: Cloud) -> None:
    pool = make_pool(scene)
    member = perform_until("ready")
    (arn,) = [
        arn for arn, each in cloud.balancers.items() if each.tags.get("berth-pool") == "games"
    ]
    assert member.external_id == arn
    assert cloud.balancers[arn].tags["berth-member"] == str(member.pk)
    observe_pool(pool, lambda pool, strays: None)
    assert Pool.objects.get().place == f"{cloud.account}/{cloud.region}"
    assert Member.objects.get().state == "ready"
    spent = {each.key: each.spent_today for each in Budget.objects.all()}
    calls = sum(call.action != "GetCallerIdentity" for call in cloud.log)
    assert sum(spent.values()) == calls
    assert spent[f"aws {cloud.account} {cloud.region} write"] == 1


def test_load_balancer_that_is_deleted_outside_is_lost(scene: AwsScene, cloud: Cloud) -> None:
    pool = make_pool(scene)
    member = perform_until("ready")
    del cloud.balancers[member.external_id]
    observe_pool(pool, lambda pool, strays: None)
    assert Member.objects.get(pk=member.pk).state != "ready"


def test_named_load_balancer_is_used_and_none_is_created(scene: AwsScene, cloud: Cloud) -> None:
    arn = put_balancer(cloud, "mine")
    before = cloud.outside()
    make_pool(scene, members={"max": 3, "list": [{"name": "one", "external_id": arn}]})
    member = perform_until("ready")
    assert member.external_id == arn
    assert cloud.outside() == before
