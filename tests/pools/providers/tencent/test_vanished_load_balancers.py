"""Load balancers that are deleted outside: their members come to an end without an operator."""

import pytest

from claims.lifecycle.chores import lose_claims
from claims.scaling.scaler import scale_pools
from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from pools.providers.tencent import lifecycle
from project.kernel.models import Operation
from project.kernel.outbox.operations import perform_due
from slots.members.chores import finish_leaving_members
from slots.sync.watcher import observe_pool
from tests.claims.helpers import again, ask
from tests.pools.providers.tencent.harness import journal_of_test
from tests.pools.providers.tencent.scene import Scene
from tests.slots.helpers import is_consistent, open_slots

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tables")]

AT_ONCE = {"cooldown": {"up": "0s", "down": "1h"}}


def make_pool(scene: Scene, **members: object) -> Pool:
    place = {"region": scene.world.region, "endpoint": scene.server.endpoint}
    return create_pool(
        {
            "name": "games",
            "provider": {"kind": "tencent", "load_balancer": {"vpc_id": "vpc-12345678"}, **place},
            "slots": {"ports": "30000-30009", "protocols": ["tcp", "udp"], "quota": 20},
            "members": members,
            **({} if "list" in members else {"scaling": {"policy": "on_demand", **AT_ONCE}}),
        }
    )


def perform() -> None:
    Operation.objects.filter(done_at=None).update(due_at="2020-01-01T00:00:00Z")
    perform_due("tencent")


def test_member_that_is_created_gets_another_load_balancer(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "PROVISIONING_WAIT", 0.0)
    scene.world.provision_seconds = 3600.0
    pool = make_pool(scene, list=["a"])
    perform()
    member = Member.objects.get()
    first = member.external_id
    assert (member.state, list(scene.world.balancers)) == ("creating", [first])
    del scene.world.balancers[first]
    scene.world.provision_seconds = 0.0
    perform()
    observe_pool(pool)
    member.refresh_from_db()
    assert (member.state, member.external_id) == ("creating", first)
    assert f"does not list {first}" in member.outside
    journal_of_test().pass_time()
    perform()
    member.refresh_from_db()
    assert (member.state, list(scene.world.balancers)) == ("ready", [member.external_id])
    assert member.external_id != first
    assert open_slots(pool) == 20
    assert is_consistent()


def test_ready_member_is_gone_and_the_scaler_replaces_it(scene: Scene) -> None:
    pool = make_pool(scene, min=1, max=2)
    observe_pool(pool)
    scale_pools([pool.pk])
    perform()
    first = Member.objects.get()
    assert first.state == "ready"
    claim = ask("games", kind="tcp")
    del scene.world.balancers[first.external_id]
    perform()
    assert Operation.objects.filter(done_at=None, error_code="not_found").exists()
    observe_pool(pool)
    lose_claims()
    perform()
    assert (again(claim).state, again(claim).outcome) == ("ended", "lost")
    first.refresh_from_db()
    finish_leaving_members()
    perform()
    first.refresh_from_db()
    assert first.state == "gone"
    scale_pools([pool.pk])
    perform()
    (second,) = Member.objects.exclude(state="gone")
    assert (second.state, list(scene.world.balancers)) == ("ready", [second.external_id])
    assert not Operation.objects.filter(done_at=None).exclude(error_code="").exists()
    assert is_consistent()
