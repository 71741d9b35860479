"""A full look: all pages, strays, and the proof that a load balancer is gone."""

from dataclasses import replace

import pytest

from pools.providers.tencent.client import BALANCERS_PER_PAGE
from pools.providers.tencent.provider import TencentProvider
from project.kernel.outbox.operations import Misconfigured
from tests.pools.providers.tencent.clb_world import Fault
from tests.pools.providers.tencent.harness import forget_all
from tests.pools.providers.tencent.scene import Scene, seen_at, slot, tcp

TAGS = {"berth-installation": "b1", "berth-pool": "games"}


def test_look_reads_every_page_and_few_calls(scene: Scene) -> None:
    count = BALANCERS_PER_PAGE + 5
    members = [replace(scene.new_member(number), state="ready") for number in range(1, count + 1)]
    members = [
        replace(
            member,
            external_id=scene.world.add_balancer({**TAGS, "berth-member": str(member.id)}).id,
        )
        for member in members
    ]
    seen = scene.look(*members).seen
    assert {each.member_id for each in seen} == {member.id for member in members}
    pages = [call for call in scene.world.log if call.action == "DescribeLoadBalancers"]
    assert [call.parameters["Offset"] for call in pages] == [0, BALANCERS_PER_PAGE]
    assert scene.world.count("DescribeTargetHealth") == 4
    assert scene.world.count("DescribeTargets") == 0


def test_look_sees_targets_health_and_foreign_listeners(scene: Scene) -> None:
    member = scene.add_member()
    scene.sync(member, [slot("tcp", 30000, use=tcp("10.0.0.1"))])
    scene.world.add_listener(member.external_id, "UDP", 53)
    (seen,) = scene.look(member).seen
    assert seen.is_ready and seen.external_id == member.external_id
    own = seen_at(seen.slots, "tcp", 30000)
    assert own.attributes["target"] == "10.0.0.1:80"
    assert own.attributes["health"] == "unchecked"
    assert seen_at(seen.slots, "udp", 53).is_foreign


def test_member_whose_creation_lost_its_answer_is_seen_by_its_tags(scene: Scene) -> None:
    member = scene.new_member()
    balancer = scene.world.add_balancer({**TAGS, "berth-member": "1"})
    (seen,) = scene.look(member).seen
    assert seen.external_id == balancer.id


def test_second_load_balancer_of_a_member_is_named(scene: Scene) -> None:
    member = scene.add_member()
    double = scene.world.add_balancer({**TAGS, "berth-member": "1"})
    (seen,) = scene.look(member).seen
    assert seen.external_id == member.external_id
    assert double.id in seen.why


def test_owned_load_balancer_without_tags_is_still_seen_by_its_id(scene: Scene) -> None:
    member = scene.add_member()
    scene.world.balancers[member.external_id].tags.clear()
    (seen,) = scene.look(member).seen
    assert seen.external_id == member.external_id


def test_load_balancer_of_another_pool_or_installation_is_no_stray(scene: Scene) -> None:
    scene.world.add_balancer({**TAGS, "berth-pool": "other", "berth-member": "9"})
    scene.world.add_balancer({**TAGS, "berth-installation": "b2", "berth-member": "9"})
    assert scene.look().strays == {}
    before = scene.world.state()
    scene.remove_strays([9])
    assert scene.world.state() == before


def test_stray_load_balancer_is_taken_over_by_a_new_member_of_its_id(scene: Scene) -> None:
    stray = scene.world.add_balancer({**TAGS, "berth-member": "9"})
    ((number, text),) = scene.look().strays.items()
    assert TencentProvider.name_adopted("games", text, number) == "adopted-9"
    report = scene.sync(scene.new_member(9), [])
    assert report.external_id == stray.id
    assert scene.world.count("CreateLoadBalancer") == 0
    assert TencentProvider.name_adopted("games", "listener lbl-1 on lb-1", 9) is None


def test_stray_with_a_foreign_listener_stays(scene: Scene) -> None:
    stray = scene.world.add_balancer({**TAGS, "berth-member": "9"})
    empty = scene.world.add_balancer({**TAGS, "berth-member": "8"})
    scene.world.add_listener(stray.id, "TCP", 80)
    with pytest.raises(Exception, match="did not create"):
        scene.remove_strays([9, 8])
    assert stray.id in scene.world.balancers
    assert empty.id not in scene.world.balancers, "the other stray goes all the same"


def test_listener_of_a_gone_member_on_a_load_balancer_of_the_user_is_a_stray(
    scene: Scene,
) -> None:
    balancer = scene.world.add_balancer()
    gone = scene.use_existing(balancer, 5)
    scene.sync(gone, [slot("tcp", 30000, use=tcp())])
    member = scene.use_existing(balancer, 6)
    assert set(scene.look(member).strays) == {5}
    scene.remove_strays([5], member)
    assert balancer.listeners == {}


def test_look_at_another_account_calls_no_load_balancer_gone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = scene.add_member()
    scene.place = scene.look(member).place
    scene.world.secrets["AKIDother"] = "other"
    monkeypatch.setenv("TENCENTCLOUD_SECRET_ID", "AKIDother")
    monkeypatch.setenv("TENCENTCLOUD_SECRET_KEY", "other")
    forget_all()
    hidden = scene.world.balancers.copy()
    scene.world.balancers.clear()
    with pytest.raises(Misconfigured, match="confirm_place games"):
        scene.look(member)
    with pytest.raises(Misconfigured, match="confirm_place games"):
        scene.sync(replace(member, state="deleting"))
    scene.world.balancers.update(hidden)
    assert scene.look(member).place != scene.place, "a new key of the same account"


def use_another_account(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers get credentials that show no load balancer of before."""
    scene.world.secrets["AKIDother"] = "other"
    monkeypatch.setenv("TENCENTCLOUD_SECRET_ID", "AKIDother")
    monkeypatch.setenv("TENCENTCLOUD_SECRET_KEY", "other")
    forget_all()
    scene.world.balancers.clear()


def test_look_at_another_account_that_has_one_member_calls_no_other_gone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = scene.add_member(1)
    place = scene.look(old).place
    use_another_account(scene, monkeypatch)
    new = scene.add_member(2)
    scene.place = place
    with pytest.raises(Misconfigured, match="confirm_place games"):
        scene.look(old, new)


def test_other_credentials_create_no_load_balancer(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.place = scene.look(scene.add_member(1)).place
    use_another_account(scene, monkeypatch)
    with pytest.raises(Misconfigured, match="confirm_place games"):
        scene.sync(scene.new_member(2))
    assert scene.world.balancers == {}


def test_load_balancer_deleted_during_a_look_is_gone(scene: Scene) -> None:
    members = [scene.add_member(1), scene.add_member(2)]
    scene.world.faults.append(
        Fault(
            "DescribeListeners",
            None,
            run=lambda: scene.world.balancers.pop(members[0].external_id) and None,
        )
    )
    assert [each.member_id for each in scene.look(*members).seen] == [2]


def test_member_with_precreated_listeners_is_not_ready_by_a_look(scene: Scene) -> None:
    scene.is_precreated = True
    scene.world.add_balancer({**TAGS, "berth-member": "1"})
    (seen,) = scene.look(scene.new_member()).seen
    assert not seen.is_ready
