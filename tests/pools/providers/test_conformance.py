"""The conformance suite: what every provider promises. A new provider is done when it passes."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection

from pools.config.parsing import Faults
from pools.providers.base import known_providers
from project.kernel.outbox.operations import NotFoundOutside, ProviderError
from tests.pools.providers.harness import Harness, list_harnesses, no_descriptors

HARNESSES = list_harnesses()


def only(is_meant: Callable[[Harness], bool]) -> pytest.MarkDecorator:
    """Where a world has what the promise is about."""
    return pytest.mark.parametrize(
        "outside", [name for name in sorted(HARNESSES) if is_meant(HARNESSES[name])], indirect=True
    )


@pytest.fixture(params=sorted(HARNESSES))
def outside(request: pytest.FixtureRequest, settings: Any) -> Iterator[Harness]:
    """Without a database: a provider that asked for one would fail here."""
    harness = HARNESSES[request.param]
    with harness.world_of_its_own(request, settings):
        yield harness
    assert not connection.in_atomic_block


def draining(member: object) -> set[int]:
    return {slot.id for slot in member.slots if slot.state == "draining"}  # type: ignore[attr-defined]


def test_every_shipped_provider_has_a_harness() -> None:
    assert set(known_providers()) <= set(HARNESSES)


def test_rights_of_all_options_are_reviewed(outside: Harness) -> None:
    provider = outside.provider()
    assert set(provider.option_fields) == set(outside.options)
    assert set(provider.free_options) == set(outside.free_options)


def test_provider_options_round_trip(outside: Harness) -> None:
    faults = Faults()
    once = outside.provider().read_options(outside.good_options, "provider", faults)
    assert outside.provider().read_options(once, "provider", faults) == once
    assert faults.found == []


def test_unknown_option_is_refused_by_name(outside: Harness) -> None:
    faults = Faults()
    outside.provider().read_options({**outside.good_options, "colour": "red"}, "provider", faults)
    assert [f.field for f in faults.found] == ["provider.colour"]


def test_only_empty_draining_slots_are_confirmed_clean(outside: Harness) -> None:
    member = outside.there()
    report = outside.provider().sync(outside.pool(member), member)
    assert report.clean == (draining(member) if outside.cleans else set())
    assert not report.is_gone


def test_second_sync_changes_nothing(outside: Harness) -> None:
    member = outside.there()
    first = outside.provider().sync(outside.pool(member), member)
    before = outside.outside()
    assert outside.provider().sync(outside.pool(member), member) == first
    assert outside.outside() == before


@only(lambda harness: harness.has_sessions)
def test_slot_in_use_is_not_confirmed_before_its_deadline(outside: Harness) -> None:
    assert outside.world is not None
    member = outside.there()
    outside.world.sessions |= draining(member)
    assert outside.provider().sync(outside.pool(member), member).clean == frozenset()
    late = outside.member("ready", is_overdue=True)
    assert outside.provider().sync(outside.pool(late), late).clean == draining(late)


@only(lambda harness: bool(harness.failures))
def test_failure_is_raised_and_the_next_sync_succeeds(outside: Harness) -> None:
    member = outside.there()
    for error in outside.failures:
        outside.fail_next(error)
        with pytest.raises(type(error)):
            outside.provider().sync(outside.pool(member), member)
    report = outside.provider().sync(outside.pool(member), member)
    assert report.clean == (draining(member) if outside.cleans else set())
    assert report.is_ready


@only(lambda harness: not harness.failures)
@pytest.mark.parametrize("state", ["creating", "ready", "deleting"])
def test_provider_without_failures_makes_no_call_outside(outside: Harness, state: str) -> None:
    """A call to a file, a process or a network needs a free file descriptor."""
    provider, member = outside.provider(), outside.member(state)
    pool = outside.pool(member)
    with no_descriptors():
        with pytest.raises(OSError, match="Too many open files"):
            os.pipe()
        found = provider.sync(pool, member), provider.look(pool)
    assert found == (provider.sync(pool, member), provider.look(pool))


def test_deletion_of_a_member_can_be_repeated(outside: Harness) -> None:
    outside.there()
    leaving = outside.member("deleting")
    with suppress(NotFoundOutside):
        outside.provider().sync(outside.pool(leaving), leaving)
    outside.let_go()
    for _ in range(2):
        # The same, said in another way: the caller takes it as success.
        with suppress(NotFoundOutside):
            assert outside.provider().sync(outside.pool(leaving), leaving).is_gone
    assert (
        all(seen.is_down for seen in outside.provider().look(outside.pool(leaving)).seen)
        or not outside.makes_things
    )


@only(lambda harness: harness.makes_things and bool(harness.failures))
def test_member_of_a_timed_out_create_is_found_and_not_duplicated(outside: Harness) -> None:
    creating = outside.member("creating")
    outside.fail_next(ProviderError("timed out"), after=True)
    with pytest.raises(ProviderError):
        outside.provider().sync(outside.pool(creating), creating)
    report = outside.provider().sync(outside.pool(creating), creating)
    assert report.is_ready is not outside.provider().has_agents
    assert report.external_id
    assert outside.count_made() == 1
    assert (
        outside.provider()
        .look(outside.pool(replace(creating, external_id=report.external_id)))
        .seen
    )


def test_look_sees_exactly_the_members_of_its_snapshot(
    outside: Harness,
) -> None:
    members = [outside.there(1), outside.there(2)]
    look = outside.provider().look(outside.pool(*members))
    assert {s.member_id for s in look.seen} == {1, 2}
    assert all(s.is_ready for s in look.seen)
    assert {s.member_id for s in outside.provider().look(outside.pool(members[0])).seen} == {1}


@only(lambda harness: harness.provider.has_agents)  # type: ignore[attr-defined]
def test_agent_becomes_ready_by_its_heartbeat_not_by_its_provider(outside: Harness) -> None:
    creating = outside.member("creating")
    for _ in range(2):
        assert not outside.provider().sync(outside.pool(creating), creating).is_ready
        assert not [
            seen for seen in outside.provider().look(outside.pool(creating)).seen if seen.is_ready
        ]


@only(lambda harness: bool(harness.failures))
def test_failed_look_raises_instead_of_reporting_no_members(outside: Harness) -> None:
    member = outside.there()
    outside.fail_next(ProviderError("no answer"))
    with pytest.raises(ProviderError):
        outside.provider().look(outside.pool(member))


@only(lambda harness: bool(harness.failures))
def test_foreign_objects_are_left_alone(outside: Harness) -> None:
    before = outside.foreign()
    assert before
    outside.there()
    leaving = outside.member("deleting")
    outside.provider().sync(outside.pool(leaving), leaving)
    assert outside.foreign() == before


@only(lambda harness: harness.sees_slots)
def test_look_reports_the_slots_that_a_sync_made_with_their_attributes(outside: Harness) -> None:
    member = outside.there()
    report = outside.provider().sync(outside.pool(member), member)
    (seen,) = outside.provider().look(outside.pool(replace(member, slots=()))).seen
    assert report.slots is not None
    assert seen.slots is not None
    assert set(map(str, report.slots)) == set(map(str, seen.slots))
    held = {(slot.lane, slot.number) for slot in member.slots if slot.state in ("held", "reserved")}
    assert {(slot.lane, slot.number) for slot in seen.slots} == held
    assert all(slot.attributes and not slot.is_foreign for slot in seen.slots)


@only(lambda harness: harness.sees_slots)
def test_foreign_object_in_the_place_of_a_slot_is_reported_and_left_alone(
    outside: Harness,
) -> None:
    member = outside.there()
    taken = next(slot for slot in member.slots if slot.state == "held")
    outside.put_foreign(member, taken)
    for slots in (
        outside.provider().sync(outside.pool(member), member).slots,
        outside.provider().look(outside.pool(member)).seen[0].slots,
    ):
        assert slots is not None
        (found,) = [
            slot for slot in slots if (slot.lane, slot.number) == (taken.lane, taken.number)
        ]
        assert found.is_foreign


@only(lambda harness: not harness.sees_slots)
def test_provider_that_sees_no_slots_says_so(outside: Harness) -> None:
    member = outside.there()
    assert outside.provider().sync(outside.pool(member), member).slots is None
    assert {seen.slots for seen in outside.provider().look(outside.pool(member)).seen} == {None}
