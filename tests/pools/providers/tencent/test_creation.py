"""Load balancers: created once, adopted, deleted, and kept when they are not this pool’s alone."""

from dataclasses import replace

import pytest

from pools.providers.tencent import lifecycle
from project.kernel.outbox.operations import (
    ConflictError,
    Misconfigured,
    NotFoundOutside,
    ProviderError,
    QuotaExceeded,
)
from tests.pools.providers.tencent.clb_world import Fault
from tests.pools.providers.tencent.harness import journal_of_test
from tests.pools.providers.tencent.scene import Scene, slot, tcp

TAGS = {"berth-installation": "b1", "berth-pool": "games"}


def test_created_load_balancer_has_tags_and_addresses(scene: Scene) -> None:
    report = scene.sync(scene.new_member(4))
    balancer = scene.world.balancers[report.external_id]
    assert balancer.tags == {**TAGS, "berth-member": "4"}
    assert report.is_ready and report.addresses == ("203.0.113.1",)


def test_ipv6_load_balancer_is_created_without_pass_to_target(scene: Scene) -> None:
    scene.options = {
        "load_balancer": {"address_ip_version": "IPv6FullChain", "subnet_id": "subnet-12345678"}
    }
    report = scene.sync(scene.new_member())
    balancer = scene.world.balancers[report.external_id]
    assert "LoadBalancerPassToTarget" not in balancer.parameters
    assert report.addresses == ("2001:db8::1",)


def test_load_balancer_with_the_tags_of_the_member_is_adopted(scene: Scene) -> None:
    """The token of a creation is forgotten by the cloud after a while; the tags stay."""
    balancer = scene.world.add_balancer({**TAGS, "berth-member": "1"})
    report = scene.sync(scene.new_member())
    assert report.external_id == balancer.id
    assert scene.world.count("CreateLoadBalancer") == 0


def test_creation_without_an_answer_is_not_repeated_before_its_tags_are_found(
    scene: Scene,
) -> None:
    scene.world.tags_late = True
    scene.world.faults.append(Fault("CreateLoadBalancer", is_after=True))
    with pytest.raises(ProviderError):
        scene.sync(scene.new_member())
    report = scene.sync(scene.new_member())
    assert list(scene.world.balancers) == [report.external_id]
    assert scene.world.count("CreateLoadBalancer") == 2, "with one token"


@pytest.mark.parametrize("missing", ["berth-installation", "berth-pool", "berth-member"])
def test_load_balancer_without_one_of_the_tags_is_not_adopted(scene: Scene, missing: str) -> None:
    tags = {**TAGS, "berth-member": "1"}
    del tags[missing]
    balancer = scene.world.add_balancer(tags)
    report = scene.sync(scene.new_member())
    assert report.external_id != balancer.id
    assert scene.world.balancers[balancer.id].tags == tags


def test_second_load_balancer_of_a_new_member_is_deleted_if_it_is_empty(scene: Scene) -> None:
    tags = {**TAGS, "berth-member": "1"}
    first, second = scene.world.add_balancer(tags), scene.world.add_balancer(tags)
    used = scene.world.add_balancer(tags)
    scene.world.add_listener(used.id, "TCP", 80)
    report = scene.sync(scene.new_member())
    assert report.external_id == first.id
    assert second.id not in scene.world.balancers
    assert used.id in scene.world.balancers


def test_order_that_names_no_load_balancer_yet_is_followed_by_its_task(scene: Scene) -> None:
    scene.world.names_late = True
    report = scene.sync(scene.new_member())
    assert report.is_ready
    assert list(scene.world.balancers) == [report.external_id]


def test_new_load_balancer_that_is_not_listed_yet_is_not_created_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "PROVISIONING_WAIT", 0.0)
    scene.world.provision_seconds = 3600.0
    member = scene.new_member()
    first = scene.sync(member).external_id
    late = scene.world.balancers.pop(first)
    member = replace(member, external_id=first)
    report = scene.sync(member)
    assert (report.is_ready, report.external_id) == (False, first)
    assert report.why.startswith(f"Tencent Cloud does not list {first}.")
    assert report.again is not None
    late.active_at = 0.0
    scene.world.balancers[first] = late
    assert scene.sync(member).is_ready
    assert scene.world.count("CreateLoadBalancer") == 1
    assert journal_of_test().tasks == {}


def test_load_balancer_that_was_deleted_before_its_member_was_ready_is_created_again(
    scene: Scene,
) -> None:
    """The cloud remembers the token of the first creation, and answers with its load balancer."""
    member = scene.new_member()
    first = scene.sync(member).external_id
    del scene.world.balancers[first]
    member = replace(member, external_id=first)
    journal_of_test().pass_time()
    scene.world.faults.append(Fault("CreateLoadBalancer", "ResourcesSoldOut"))
    with pytest.raises(QuotaExceeded):
        scene.sync(member)
    scene.world.faults.append(Fault("CreateLoadBalancer", is_after=True))
    with pytest.raises(ProviderError):
        scene.sync(member)
    report = scene.sync(member)
    assert report.is_ready and report.external_id != first
    assert list(scene.world.balancers) == [report.external_id]


def test_load_balancer_is_not_created_again_in_another_account(scene: Scene) -> None:
    member = replace(scene.new_member(), external_id="lb-elsewhere")
    scene.place = "ap-guangzhou/elsewhere/another"
    with pytest.raises(Misconfigured, match="confirm_place games"):
        scene.sync(member)
    assert scene.world.count("CreateLoadBalancer") == 0


@pytest.mark.parametrize("flaw", ["sold_out", "no_balance"])
def test_lack_of_resources_or_balance_is_a_lasting_error_until_it_ends(
    scene: Scene, flaw: str
) -> None:
    setattr(scene.world, flaw, True)
    with pytest.raises(QuotaExceeded):
        scene.sync(scene.new_member())
    setattr(scene.world, flaw, False)
    assert scene.sync(scene.new_member()).is_ready


def test_quota_of_load_balancers_is_a_named_error(scene: Scene) -> None:
    scene.world.quotas["TOTAL_OPEN_CLB_QUOTA"] = 0
    with pytest.raises(QuotaExceeded, match="TOTAL_OPEN_CLB_QUOTA"):
        scene.sync(scene.new_member())


def test_isolated_load_balancer_is_not_ready(scene: Scene) -> None:
    member = scene.new_member()
    balancer = scene.world.add_balancer({**TAGS, "berth-member": "1"})
    balancer.isolation = 1
    report = scene.sync(member)
    assert not report.is_ready and "arrears" in report.why
    (seen,) = scene.look(replace(member, external_id=balancer.id)).seen
    assert not seen.is_ready


def test_deleted_member_takes_its_listeners_and_its_load_balancer(scene: Scene) -> None:
    member = scene.add_member()
    scene.sync(member, [slot("tcp", 30000, use=tcp("10.0.0.1"))])
    scene.world.log.clear()
    report = scene.sync(replace(member, state="deleting"))
    assert report.is_gone
    assert scene.world.balancers == {}
    writes = [call.action for call in scene.world.log if call.action.startswith("Delete")]
    assert writes == ["DeleteLoadBalancerListeners", "DeleteLoadBalancer"]


def test_load_balancer_with_a_foreign_listener_is_not_deleted(scene: Scene) -> None:
    member = scene.add_member()
    scene.sync(member, [slot("tcp", 30000, use=tcp())])
    theirs = scene.world.add_listener(member.external_id, "HTTPS", 443)
    leaving = replace(member, state="deleting")
    with pytest.raises(ConflictError, match="1 listeners that Berth did not create"):
        scene.sync(leaving)
    assert list(scene.world.balancers[member.external_id].listeners) == [theirs.id]
    scene.world.balancers[member.external_id].listeners.clear()
    assert scene.sync(leaving).is_gone


def test_load_balancer_that_lost_its_tags_is_not_deleted(scene: Scene) -> None:
    member = scene.add_member()
    tags = scene.world.balancers[member.external_id].tags
    tags.pop("berth-pool")
    with pytest.raises(ConflictError, match="berth-pool=games"):
        scene.sync(replace(member, state="deleting"))
    assert member.external_id in scene.world.balancers


def test_refused_deletion_stays_visible_and_is_repeated(scene: Scene) -> None:
    member = replace(scene.add_member(), state="deleting")
    scene.world.faults.append(Fault("DeleteLoadBalancer", "OperationDenied", "delete protection"))
    with pytest.raises(Misconfigured, match="delete protection"):
        scene.sync(member)
    assert scene.sync(member).is_gone


def test_load_balancer_that_vanished_is_not_found(scene: Scene) -> None:
    member = scene.add_member()
    del scene.world.balancers[member.external_id]
    with pytest.raises(NotFoundOutside):
        scene.sync(member, [slot("tcp", 30000, use=tcp())])
    assert scene.look(member).seen == ()
    assert scene.sync(replace(member, state="deleting")).is_gone
