"""Liveness (P12): a silent member goes offline, is lost after a longer silence, and returns with
a heartbeat.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from pools.lifecycle.services import create_pool, update_pool
from pools.models import Heartbeat, Member, Pool
from project.kernel.errors import Conflict, Invalid, NotFound, StaleGeneration
from project.kernel.models import Event
from slots.members import members_sql
from slots.members.chores import check_members
from slots.members.liveness import lose_member, record_heartbeat
from slots.members.policy import LivenessDecision, decide_liveness
from slots.members.services import finish_leaving, remove_member
from slots.models import Slot
from tests.slots.helpers import give_back, hold, is_consistent, open_slots

pytestmark = pytest.mark.django_db

CONFIG: dict[str, Any] = {
    "name": "lab",
    "slots": 2,
    "members": {"list": ["a", "b"]},
    "liveness": {"heartbeat": "2m", "lost": "10m"},
}


@pytest.fixture(autouse=True)
def _stays_consistent() -> Iterator[None]:
    yield
    assert is_consistent()


@pytest.fixture
def pool() -> Pool:
    return create_pool(CONFIG)


@pytest.mark.parametrize(
    ("state", "is_lost", "silent_for", "lost", "verdict"),
    [
        ("ready", False, 10.0, 600.0, LivenessDecision("stay", 110.0)),
        ("ready", False, 119.9, 600.0, LivenessDecision("stay", pytest.approx(0.1))),
        (
            "ready",
            False,
            120.0,
            600.0,
            LivenessDecision("go_offline", 600.0, "no heartbeat for 2 min"),
        ),
        (
            "ready",
            False,
            None,
            600.0,
            LivenessDecision("go_offline", 600.0, "no heartbeat for 2 min"),
        ),
        (
            "ready",
            False,
            500.0,
            None,
            LivenessDecision("go_offline", None, "no heartbeat for 2 min"),
        ),
        ("offline", False, 720.0, 600.0, LivenessDecision("lose", None, "offline for 10 min")),
        ("offline", False, 720.0, None, LivenessDecision("stay", None)),
        ("offline", True, 9999.0, 600.0, LivenessDecision("stay", None)),
        ("offline", False, 3.0, 600.0, LivenessDecision("come_back", 120.0)),
        ("offline", True, 3.0, 600.0, LivenessDecision("come_back", 120.0)),
        ("deleting", False, 9999.0, 600.0, LivenessDecision("stay", None)),
        ("creating", False, None, 600.0, LivenessDecision("stay", None)),
    ],
)
def test_liveness_decisions_by_silence_and_state(
    state: str,
    is_lost: bool,
    silent_for: float | None,
    lost: float | None,
    verdict: LivenessDecision,
) -> None:
    assert (
        decide_liveness(
            state=state, is_lost=is_lost, silent_for=silent_for, heartbeat=120.0, lost=lost
        )
        == verdict
    )


def test_member_without_liveness_settings_never_goes_offline() -> None:
    assert (
        decide_liveness(
            state="ready", is_lost=False, silent_for=9999.0, heartbeat=None, lost=None
        ).action
        == "stay"
    )


def pass_time(seconds: float) -> None:
    """Moves all timers into the past, because the clock is the database's."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pools_member SET due_at = due_at - make_interval(secs => %s)", [seconds]
        )
        cursor.execute("UPDATE pools_heartbeat SET at = at - make_interval(secs => %s)", [seconds])


def states() -> dict[str, str]:
    return dict(Member.objects.values_list("name", "state"))


def test_silent_member_goes_offline_and_keeps_its_claims(pool: Pool) -> None:
    a = Member.objects.get(name="a")
    claim, slot, _ = hold(pool)
    pass_time(60)
    heard = record_heartbeat(member_id=a.pk, incarnation=1, load={"cpu": 0.5})
    assert (heard.state, heard.next_within) == ("ready", 120.0)
    check_members()
    assert states() == {"a": "ready", "b": "ready"}
    pass_time(61)
    check_members()
    assert states() == {"a": "ready", "b": "offline"}
    assert open_slots(pool) == 1
    pass_time(60)
    check_members()
    assert states() == {"a": "offline", "b": "offline"}
    assert Slot.objects.get(pk=slot).claim_id == claim  # claims are kept
    event = Event.objects.filter(verb="offline").latest("id")
    assert (event.member_id, event.before, event.after, event.reason) == (
        a.pk,
        "ready",
        "offline",
        "no heartbeat for 2 min",
    )


def test_offline_member_returns_with_the_next_heartbeat(pool: Pool) -> None:
    pass_time(121)
    check_members()
    a = Member.objects.get(name="a")
    assert record_heartbeat(member_id=a.pk).state == "ready"
    assert open_slots(pool) == 2
    pass_time(60)
    check_members()
    assert states() == {"a": "ready", "b": "offline"}


def test_member_offline_for_long_is_lost_and_listed_with_its_claims(pool: Pool) -> None:
    a = Member.objects.get(name="a")
    claim, slot, generation = hold(pool)
    pass_time(121)
    check_members()
    pass_time(601)
    check_members()
    a.refresh_from_db()
    assert a.lost_at is not None
    lost = [row.id for row in members_sql.lost_with_holders(50)]
    assert lost == [a.pk]  # b is lost, too, but has no holder
    assert Slot.objects.get(pk=slot).state == "held"
    assert set(Slot.objects.exclude(pk=slot).values_list("state", flat=True)) == {"retired"}
    # Its claims are lost first: until then no heartbeat brings it back.
    assert record_heartbeat(member_id=a.pk).state == "offline"
    give_back(claim, generation, lost_member=a.pk)
    assert members_sql.lost_with_holders(50) == []
    assert record_heartbeat(member_id=a.pk).state == "ready"
    a.refresh_from_db()
    assert a.lost_at is None
    assert open_slots(pool) == 2


def test_members_are_never_lost_where_lost_is_never() -> None:
    create_pool(CONFIG | {"name": "lab2", "liveness": {"heartbeat": "2m", "lost": "never"}})
    pass_time(121)
    check_members()
    pass_time(1_000_000)
    check_members()
    assert states() == {"a": "offline", "b": "offline"}
    assert not Member.objects.exclude(lost_at=None).exists()


def test_heartbeat_of_an_earlier_incarnation_is_ignored(pool: Pool) -> None:
    a = Member.objects.get(name="a")
    Member.objects.filter(pk=a.pk).update(incarnation=3)
    with pytest.raises(StaleGeneration) as caught:
        record_heartbeat(member_id=a.pk, incarnation=2)
    assert caught.value.data["incarnation"] == 3
    assert not Heartbeat.objects.exists()
    with pytest.raises(NotFound):
        record_heartbeat(member_id=a.pk + 1000)
    with pytest.raises(Invalid):
        record_heartbeat(member_id=a.pk, load={"x": "y" * 5000})
    remove_member(member_id=a.pk, reason="sold")
    with pytest.raises(Conflict):
        record_heartbeat(member_id=a.pk)


def test_member_gone_outside_leaves_once_its_claims_are_lost(pool: Pool) -> None:
    a = Member.objects.get(name="a")
    claim, _, generation = hold(pool)
    lose_member(member_id=a.pk, reason="not found", is_gone=True)
    a.refresh_from_db()
    assert (a.state, a.is_leaving) == ("offline", True)
    give_back(claim, generation, lost_member=a.pk)
    assert finish_leaving(a.pk)
    a.refresh_from_db()
    assert a.state == "gone"


def test_enabling_liveness_starts_the_clock_and_disabling_it_restores() -> None:
    plain = {k: v for k, v in CONFIG.items() if k != "liveness"}
    pool = create_pool(plain)
    record_heartbeat(member_id=Member.objects.get(name="a").pk)
    pass_time(5000)
    update_pool("lab", {**plain, "liveness": {"heartbeat": "1m"}})
    check_members()
    assert states() == {"a": "ready", "b": "ready"}
    pass_time(61)
    check_members()
    assert states() == {"a": "offline", "b": "offline"}
    update_pool("lab", plain)
    assert states() == {"a": "ready", "b": "ready"}
    assert open_slots(pool) == 4
