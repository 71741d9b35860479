"""Pools as a whole: paused, resumed, reconfigured and closed; and their statistics."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from pools.config.durations import format_duration
from pools.lifecycle.selectors import config_of
from pools.lifecycle.services import check_config, create_pool, update_pool
from pools.models import Member, Pool
from project.kernel.errors import Conflict, Invalid, Refused
from project.kernel.models import Event
from slots.members.chores import end_pauses, end_pools, finish_leaving_members
from slots.members.members_sql import holder_at
from slots.members.selectors import count_pools, get_member_detail
from slots.members.services import (
    close_pool,
    cordon_member,
    pause_pool,
    resume_pool,
    uncordon_member,
)
from slots.models import Slot
from tests.slots.helpers import give_back, hold, is_consistent, open_slots, places

pytestmark = pytest.mark.django_db

CONFIG: dict[str, Any] = {"name": "lab", "slots": 2, "members": {"max": 3, "list": ["a", "b"]}}


@pytest.fixture(autouse=True)
def _stays_consistent() -> Iterator[None]:
    yield
    assert is_consistent()


@pytest.fixture
def pool() -> Pool:
    return create_pool(CONFIG)


def soon(minutes: float = 10) -> datetime:
    return timezone.now() + timedelta(minutes=minutes)


def test_pause_closes_free_slots_and_ends_by_itself(pool: Pool) -> None:
    claim, slot, _ = hold(pool)
    paused = pause_pool(pool_id=pool.pk, until=soon(), reason="firmware")
    assert (paused.pause_reason, paused.state, open_slots(pool)) == ("firmware", "active", 0)
    assert Slot.objects.get(pk=slot).claim_id == claim
    end_pauses()
    assert open_slots(pool) == 0  # not yet
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pools_pool SET paused_until = now()")
    end_pauses()
    assert open_slots(pool) == 3
    pool.refresh_from_db()
    assert (pool.paused_until, pool.pause_reason) == (None, "")
    told = [
        (e.verb, e.before, e.after)
        for e in Event.objects.filter(verb__in=("pause", "resume")).order_by("id")
    ]
    assert told == [("pause", "active", "paused"), ("resume", "paused", "active")]


def test_extended_pause_does_not_end_early(pool: Pool) -> None:
    pause_pool(pool_id=pool.pk, until=soon(), reason="firmware")
    resume_pool(pool_id=pool.pk, only_if_over=True)
    assert open_slots(pool) == 0
    resume_pool(pool_id=pool.pk, reason="done early")
    assert open_slots(pool) == 4


@pytest.mark.parametrize(
    ("until", "words"),
    [
        (datetime(2020, 1, 1, tzinfo=UTC), "has passed"),
        (datetime(2020, 1, 1), "no offset"),
        (datetime(2999, 1, 1, tzinfo=UTC), "more than a year"),
    ],
)
def test_pause_must_end_in_the_future(pool: Pool, until: datetime, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        pause_pool(pool_id=pool.pk, until=until, reason="firmware")


def test_uncordon_in_a_paused_pool_opens_nothing_until_the_pause_ends(pool: Pool) -> None:
    a = Member.objects.get(name="a")
    cordon_member(member_id=a.pk, reason="disk")
    pause_pool(pool_id=pool.pk, until=soon(), reason="firmware")
    uncordon_member(member_id=a.pk)
    assert open_slots(pool) == 0
    resume_pool(pool_id=pool.pk)
    assert open_slots(pool) == 4


def test_slot_count_is_fixed_while_members_exist(pool: Pool) -> None:
    with pytest.raises(Refused) as caught:
        update_pool("lab", {**CONFIG, "slots": 3})
    [fault] = caught.value.fields
    assert (fault.field, caught.value.code) == ("slots", "fixed")
    assert "2 members are there" in fault.message
    assert "Remove the members first" in fault.way_out
    update_pool("lab", {"name": "lab", "slots": 2, "members": {"list": []}})
    pool = update_pool("lab", {"name": "lab", "slots": ["any", "plan"], "members": {"list": ["c"]}})
    assert pool.lanes == ["plan", "any"]
    assert places(Member.objects.get(name="c").pk) == [("any", 0), ("plan", 1)]


def test_each_fixed_part_of_a_port_layout_is_named() -> None:
    layout = {"ports": "30000-30099", "shared": True}
    config = {"name": "net", "slots": layout, "members": {"list": ["x"]}}
    create_pool(config)
    with pytest.raises(Refused) as caught:
        update_pool(
            "net",
            {
                **config,
                "slots": {"ports": "30000-30199", "protocols": ["tcp"], "segment": 2, "quota": 9},
            },
        )
    assert {f.field for f in caught.value.fields} == {
        "slots.ports",
        "slots.shared",
        "slots.protocols",
        "slots.segment",
        "slots.quota",
    }
    update_pool("net", {**config, "slots": {**layout, "foreign": [30000]}})
    assert places(Member.objects.get(name="x").pk)[0] == ("port", 30001)
    update_pool("net", config)
    assert places(Member.objects.get(name="x").pk)[0] == ("port", 30000)


def test_old_revision_is_refused_and_changes_are_recorded(pool: Pool) -> None:
    changed = update_pool(
        "lab", {**CONFIG, "description": "benches"}, revision=1, reason="say more"
    )
    assert changed.revision == 2
    with pytest.raises(Conflict) as caught:
        update_pool("lab", {**CONFIG, "description": "other"}, revision=1)
    assert (caught.value.code, caught.value.data) == ("stale_revision", {"revision": 2})
    event = Event.objects.get(verb="configure")
    assert event.data == {"changes": [{"field": "description", "before": None, "after": "benches"}]}
    assert (event.before, event.after, event.reason) == ("revision 1", "revision 2", "say more")


def test_same_configuration_again_changes_no_row(pool: Pool) -> None:
    events = Event.objects.count()
    assert update_pool("lab", config_of(pool)).revision == 1
    assert update_pool("lab", CONFIG).revision == 1
    assert Event.objects.count() == events


def test_member_list_creates_and_removes_members(pool: Pool) -> None:
    claim, _, generation = hold(pool)
    update_pool(
        "lab",
        {
            **CONFIG,
            "members": {
                "max": 3,
                "list": [{"name": "b", "labels": {"x": "1"}}, {"name": "c", "slots": 1}],
            },
        },
    )
    assert {m.name: (m.state, m.is_leaving) for m in Member.objects.all()} == {
        "a": ("ready", True),
        "b": ("ready", False),
        "c": ("ready", False),
    }
    assert [m["name"] for m in config_of(pool)["members"]["list"]] == ["b", "c"]
    with pytest.raises(Invalid, match="still being removed"):
        update_pool("lab", {**CONFIG, "members": {"max": 3, "list": ["b", "c", "d"]}})
    update_pool(
        "lab", {**CONFIG, "members": {"max": 3, "list": ["a", "b", {"name": "c", "slots": 1}]}}
    )
    assert not Member.objects.get(name="a").is_leaving
    give_back(claim, generation)
    finish_leaving_members()
    assert open_slots(pool) == 5


def test_maximum_may_not_fall_below_the_present_members(pool: Pool) -> None:
    with pytest.raises(Invalid) as caught:
        update_pool("lab", {"name": "lab", "slots": 2, "members": {"max": 1}})
    assert [f.field for f in caught.value.fields] == ["members.max"]


def test_changed_placement_reranks_slots_and_moves_no_claim(pool: Pool) -> None:
    claim, slot, _ = hold(pool)
    update_pool("lab", {**CONFIG, "placement": "spread"})
    assert Slot.objects.get(pk=slot).claim_id == claim
    ranks = Slot.objects.order_by("member__name", "number").values_list("rank", flat=True)
    assert list(ranks) == [0, 1, 0, 1]
    assert hold(pool)[1] == Slot.objects.get(member__name="b", number=0).pk


def test_check_finds_conflicts_with_the_present_state_without_a_change(pool: Pool) -> None:
    events = Event.objects.count()
    faults = check_config({**CONFIG, "slots": 3, "members": {"max": 1}})
    assert {f.field for f in faults} == {"slots", "members.max"}
    assert check_config(CONFIG) == []
    assert Event.objects.count() == events


def test_closed_pool_is_gone_with_its_last_member(pool: Pool) -> None:
    claim, _, generation = hold(pool)
    closed = close_pool(pool_id=pool.pk, reason="moved away")
    assert (closed.state, open_slots(pool)) == ("deleting", 0)
    assert dict(Member.objects.values_list("name", "state")) == {"a": "ready", "b": "gone"}
    with pytest.raises(Conflict):
        update_pool("lab", CONFIG)
    end_pools()
    assert Pool.objects.get().state == "deleting"
    give_back(claim, generation)
    finish_leaving_members()
    end_pools()
    assert Pool.objects.get().state == "gone"
    create_pool(CONFIG)


def test_statistics_cover_many_pools_at_once(pool: Pool) -> None:
    other = create_pool(
        {"name": "net", "slots": ["any", "plan"], "members": {"list": ["x", "y", "z"]}}
    )
    hold(pool)
    cordon_member(member_id=Member.objects.get(name="b").pk, reason="disk")
    hold(other, lane="plan")
    counts = count_pools([pool.pk, other.pk, 999])
    slots = counts[pool.pk].slots
    assert (slots.total, slots.held, slots.open, slots.closed, slots.idle) == (4, 1, 1, 2, 3)
    assert counts[other.pk].slots.by_lane["plan"] == {"held": 1, "open": 2}
    assert (
        counts[pool.pk].members.total,
        counts[pool.pk].members.cordoned,
        counts[pool.pk].members.ready,
    ) == (2, 1, 1)
    assert counts[999].slots.total == 0


def test_member_view_contains_slots_and_holders(pool: Pool, django_assert_num_queries: Any) -> None:
    claim, slot, generation = hold(pool)
    member_id = Member.objects.get(name="a").pk
    with django_assert_num_queries(2):
        seen = get_member_detail(member_id)
        assert [(s.pk == slot, s.state, s.claim_id) for s in seen.slots.all()] == [
            (True, "held", claim),
            (False, "idle", None),
        ]
    before = timezone.now()
    give_back(claim, generation)
    held, free = holder_at(slot=slot, at=before), holder_at(slot=slot, at=timezone.now())
    assert held is not None
    assert (held.claim_id, held.generation) == (claim, generation)
    assert free is not None
    assert free.claim_id is None
    assert holder_at(slot=slot, at=datetime(2020, 1, 1, tzinfo=UTC)) is None


@pytest.mark.parametrize("seconds", [1.0, 60.0, 600.0, 5400.0, 86400.0, 90061.5, 0.25])
def test_database_parses_formatted_durations(seconds: float) -> None:
    """The statements take the limit of a drain from the pool's row."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM %s::interval)::float8", [format_duration(seconds)]
        )
        assert cursor.fetchone()[0] == seconds
