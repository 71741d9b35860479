"""What every provider of port pools promises, beside the suite for all providers.

A harness with `has_ports` gives its members ports in place of plain slots, the first of them in
the state held. Each world starts with objects that are not Berth's.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from pools.providers.base import MemberReport, MemberSnapshot, PortTarget, PortUse, SeenSlot
from tests.pools.providers.harness import Harness, list_harnesses
from tests.waiting import wait_until

HARNESSES = {name: each for name, each in list_harnesses().items() if each.has_ports}
HELD = 1  # index of the held slot of a harness's member
Change = Callable[[PortUse], PortUse | None]


@pytest.fixture(params=sorted(HARNESSES))
def outside(request: pytest.FixtureRequest, settings: Any) -> Iterator[Harness]:
    harness = HARNESSES[request.param]
    with harness.world_of_its_own(request, settings):
        yield harness


def sync(outside: Harness, member: MemberSnapshot) -> MemberReport:
    return outside.provider().sync(outside.pool(member), member)


def change_slot(member: MemberSnapshot, index: int = HELD, **changes: Any) -> MemberSnapshot:
    slots = list(member.slots)
    slots[index] = replace(slots[index], **changes)
    return replace(member, slots=tuple(slots))


def change_use(member: MemberSnapshot, **changes: Any) -> MemberSnapshot:
    use = member.slots[HELD].use
    assert use is not None
    return change_slot(member, use=replace(use, **changes))


def seen_in(report: MemberReport, member: MemberSnapshot) -> SeenSlot | None:
    """What is in the place of the held slot."""
    assert report.slots is not None
    slot = member.slots[HELD]
    found = [each for each in report.slots if (each.lane, each.number) == (slot.lane, slot.number)]
    return found[0] if found else None


def own_slots(report: MemberReport) -> list[SeenSlot]:
    return [each for each in report.slots or () if not each.is_foreign]


def must_see(report: MemberReport, member: MemberSnapshot) -> SeenSlot:
    found = seen_in(report, member)
    assert found is not None
    return found


def test_held_port_has_a_listener_with_its_protocol_and_target(outside: Harness) -> None:
    member = outside.there()
    use = member.slots[HELD].use
    assert use is not None
    assert use.target is not None
    report = sync(outside, member)
    seen = must_see(report, member)
    assert seen.attributes["protocol"] == use.protocol
    assert seen.attributes["target"] == f"{use.target.ip}:{use.target.port}"
    assert seen.attributes["id"]
    assert "problem" not in seen.attributes
    look = outside.provider().look(outside.pool(member))
    known = [report.addresses, *(each.addresses for each in look.seen)]
    assert any(known), "the ports are reached under an address"


def test_another_target_replaces_the_old_one_and_the_listener_stays(outside: Harness) -> None:
    member = outside.there()
    before = must_see(sync(outside, member), member)
    use = member.slots[HELD].use
    assert use is not None
    assert use.target is not None
    moved = change_use(member, target=PortTarget(use.target.ip, use.target.port + 1))
    sync(outside, moved)
    after = must_see(sync(outside, moved), moved)
    assert after.attributes["id"] == before.attributes["id"]
    assert after.attributes["target"] == f"{use.target.ip}:{use.target.port + 1}"


def test_no_target_leaves_the_listener_without_targets(outside: Harness) -> None:
    member = outside.there()
    before = must_see(sync(outside, member), member)
    disabled = change_use(member, target=None)
    after = must_see(sync(outside, disabled), disabled)
    assert after.attributes["id"] == before.attributes["id"]
    assert "target" not in after.attributes


def test_listener_of_an_unknown_use_stays_and_none_is_created(outside: Harness) -> None:
    member = outside.there()
    unknown = change_slot(member, use=None)
    assert seen_in(sync(outside, unknown), unknown) is None
    before = must_see(sync(outside, member), member)
    assert must_see(sync(outside, unknown), unknown) == before


def test_draining_port_is_clean_once_its_listener_is_gone(outside: Harness) -> None:
    member = outside.there()
    sync(outside, member)
    leaving = change_slot(member, state="draining", use=None, claim_id=None)
    report = sync(outside, leaving)
    assert leaving.slots[HELD].id in report.clean
    assert seen_in(report, leaving) is None


def test_listener_of_an_idle_port_is_removed(outside: Harness) -> None:
    """A late worker created it after the port was free again."""
    member = outside.there()
    sync(outside, member)
    idle = change_slot(member, state="idle", use=None, claim_id=None)
    assert seen_in(sync(outside, idle), idle) is None


def test_foreign_listener_at_a_held_port_is_not_replaced(outside: Harness) -> None:
    member = outside.there()
    outside.put_foreign(member, member.slots[HELD])
    before = outside.foreign()
    assert must_see(sync(outside, member), member).is_foreign
    leaving = change_slot(member, state="draining", use=None, claim_id=None)
    assert leaving.slots[HELD].id in sync(outside, leaving).clean, "it has no object of Berth"
    assert outside.foreign() == before


def test_port_that_cannot_be_served_names_its_problem_and_the_others_are_served(
    outside: Harness,
) -> None:
    member = outside.there()
    broken = change_use(member, protocol="tcp_ssl", certificate="")
    report = sync(outside, broken)
    assert must_see(report, broken).attributes["problem"]
    assert report.slots is not None
    served = [each for each in report.slots if "problem" not in each.attributes]
    assert served, "the reserved port has its listener"


def test_look_finds_the_objects_of_a_gone_member_and_they_can_be_removed(
    outside: Harness,
) -> None:
    kept, gone = outside.there(1), outside.there(2)
    provider = outside.provider()
    for member in (kept, gone):
        sync(outside, member)
    pool = outside.pool(kept)
    assert set(provider.look(pool).strays) == {gone.id}
    foreign = outside.foreign()
    provider.remove_strays(pool, {gone.id})
    wait_until(lambda: not provider.look(pool).strays)
    look = provider.look(pool)
    assert {seen.member_id for seen in look.seen} == {kept.id}
    assert outside.foreign() == foreign
    assert must_see(sync(outside, kept), kept).attributes["target"], "the other member is served"


def test_stray_is_taken_over_by_a_new_member_of_its_id(outside: Harness) -> None:
    kept, lost = outside.there(1), outside.there(2)
    provider = outside.provider()
    for member in (kept, lost):
        sync(outside, member)
    pool = outside.pool(kept)
    before = {seen.external_id for seen in provider.look(outside.pool(kept, lost)).seen}
    (stray,) = provider.look(pool).strays.items()
    name = provider.name_adopted(pool.name, stray[1], stray[0])
    assert name is not None
    empty = tuple(replace(slot, state="idle", use=None, claim_id=None) for slot in lost.slots)
    adopted = replace(lost, name=name, state="creating", external_id="", slots=empty)
    for _ in range(3):  # a provider may need several calls
        report = sync(outside, adopted)
    assert report.is_ready
    look = provider.look(outside.pool(kept, replace(adopted, external_id=report.external_id)))
    assert {seen.external_id for seen in look.seen} == before, "nothing was created"
    assert look.strays == {}


def test_part_of_a_load_balancer_is_not_adopted(outside: Harness) -> None:
    provider, pool = outside.provider(), outside.pool(outside.member("ready", 1))
    assert provider.name_adopted(pool.name, "listener 30001 on lb-1", 5) is None


def test_deletion_of_a_pools_member_leaves_another_pools_objects(outside: Harness) -> None:
    member = outside.there()
    sync(outside, member)
    other_pool = replace(outside.pool(), name="other", id=8)
    creating = replace(outside.member("creating", 2), slots=())
    provider = outside.provider()
    made = provider.sync(replace(other_pool, members=(creating,)), creating)
    theirs = replace(outside.member("ready", 2), external_id=made.external_id)
    before = own_slots(provider.sync(replace(other_pool, members=(theirs,)), theirs))
    assert before
    leaving = outside.member("deleting")
    assert provider.sync(outside.pool(leaving), leaving).is_gone
    after = own_slots(provider.sync(replace(other_pool, members=(theirs,)), theirs))
    assert after == before
