"""Rolls on real rows, with a provider that makes members from a template."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone

from claims.scaling import roll_orders, scaling_sql
from claims.scaling.scaler import list_scaled, scale_pools
from pools.lifecycle.services import create_pool, update_pool
from pools.models import Decision, Member, Pool
from pools.roles.services import create_grant
from project.kernel.errors import Conflict, Invalid
from project.kernel.models import Event
from project.kernel.outbox.operations import perform_due
from slots.members.restart import restart_member
from slots.members.services import add_members
from slots.models import Slot
from slots.sync.watcher import observe_pool
from tests.claims.scaling.scale_beside_bind import scale_beside_a_bind
from tests.claims.scaling.template_provider import Foundry, MoldProvider
from tests.pools.providers.fake_providers import ALL
from tests.slots.concurrent_actors import Actor, Gate
from tests.slots.helpers import give_back, hold, is_consistent

pytestmark = pytest.mark.django_db(transaction=True)
MOLD = "tests.claims.scaling.template_provider.MoldProvider"


@pytest.fixture(autouse=True)
def _worlds(settings: Any) -> Iterator[None]:
    settings.BERTH_PROVIDERS = (*ALL, MOLD)
    MoldProvider.world = Foundry()
    yield
    assert is_consistent()


def config(
    template: str = "v1",
    *,
    low: int = 2,
    high: int = 3,
    roll: Any = "idle",
    labels: Any = None,
    **more: Any,
) -> dict[str, Any]:
    members = {"min": low, "max": high} | ({"labels": labels} if labels else {})
    provider = {"kind": "mold", "template": template} | more
    scaling = {"policy": "on_demand", "idle_for": "never", "cooldown": {"up": "0s", "down": "0s"}}
    return {
        "name": "lab",
        "provider": provider,
        "slots": 2,
        "members": members,
        "scaling": scaling,
        "roll": roll,
    }


def make(**more: Any) -> Pool:
    pool = create_pool(config(**more))
    observe_pool(pool)
    turn(pool)
    return pool


def turn(pool: Pool) -> str:
    """Makes a decision, performs its operations, and lets a minute pass."""
    scale_pools([pool.pk])
    with connection.cursor() as cursor:
        cursor.execute("UPDATE kernel_operation SET due_at = now() WHERE done_at IS NULL")
    perform_due("mold")
    observe_pool(pool)
    pass_time(pool, 60)
    last = Decision.objects.filter(pool=pool).order_by("-last_at", "-id").first()
    return "" if last is None else str(last.inputs["step"])


def pass_time(pool: Pool, seconds: float) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pools_member SET state_at = state_at - make_interval(secs => %s) "
            "WHERE pool_id = %s",
            [seconds, pool.pk],
        )


def made_from(pool: Pool) -> dict[str, str]:
    there = Member.objects.filter(pool=pool).exclude(state="gone").order_by("id")
    return {m.name: MoldProvider.world.things[m.pk][1] for m in there}


def outdated(pool: Pool) -> list[str]:
    return [
        m.name
        for m in Member.objects.filter(pool=pool)
        .exclude(state="gone")
        .select_related("pool")
        .order_by("id")
        if m.is_outdated
    ]


def test_a_changed_template_replaces_all_members_one_by_one() -> None:
    pool = make()
    assert made_from(pool) == {"lab-1": "v1", "lab-2": "v1"}
    update_pool("lab", config("v2"))
    assert outdated(pool) == ["lab-1", "lab-2"]
    steps, most, least = [], 0, 9
    for _ in range(12):
        steps.append(turn(pool))
        there = Member.objects.filter(pool=pool).exclude(state="gone")
        most, least = max(most, there.count()), min(least, there.filter(state="ready").count())
    assert [step for step in steps if step] == ["surge", "swap", "surge", "swap"]
    assert made_from(pool) == {"lab-3": "v2", "lab-4": "v2"}
    assert (outdated(pool), most, least) == ([], 3, 2), (
        "never more than the most, never fewer ready than the least"
    )
    assert Pool.objects.get(pk=pool.pk).surge_id is None
    assert (
        Event.objects.filter(pool_id=pool.pk, verb="scale", reason__startswith="Roll: ").count()
        == 4
    )


def test_a_pool_at_its_maximum_rebuilds_members_in_place() -> None:
    pool = make(high=2)
    update_pool("lab", config("v2", low=1, high=2))
    steps = [turn(pool) for _ in range(6)]
    assert [step for step in steps if step] == ["rebuild", "rebuild"]
    assert made_from(pool) == {"lab-1": "v2", "lab-2": "v2"}
    assert (
        list(Member.objects.order_by("id").values_list("incarnation", "restarts", "state"))
        == [(2, 0, "ready")] * 2
    )
    assert Slot.objects.filter(is_open=True).count() == 4


def test_a_pool_with_equal_limits_rebuilds_one_member_at_a_time() -> None:
    pool = make(high=2)
    update_pool("lab", config("v2", low=2, high=2))
    claim, slot, generation = hold(pool)
    kept = Slot.objects.get(pk=slot).member.name
    least = 9
    for _ in range(6):
        scale_pools([pool.pk])
        there = Member.objects.filter(pool=pool).exclude(state="gone")
        least = min(least, there.filter(state="ready").count())
        assert there.count() == 2
        turn(pool)
    assert made_from(pool)[kept] == "v1", "in use"
    assert sorted(made_from(pool).values()) == ["v1", "v2"]
    give_back(claim, generation)
    for _ in range(6):
        turn(pool)
    assert [d.inputs["step"] for d in Decision.objects.order_by("id") if d.inputs["step"]] == [
        "rebuild",
        "rebuild",
    ]
    assert (made_from(pool), least) == ({"lab-1": "v2", "lab-2": "v2"}, 1)


def test_a_roll_does_not_touch_members_in_use() -> None:
    pool = make()
    claim, slot, generation = hold(pool)
    second, other, later = hold(pool)
    third = hold(pool)
    assert {Slot.objects.get(pk=s).member.name for s in (slot, other)} == {"lab-1"}
    update_pool("lab", config("v2"))
    for _ in range(4):
        turn(pool)
    assert made_from(pool) == {"lab-1": "v1", "lab-2": "v1"}, "both are in use"
    give_back(*third[::2])
    for _ in range(6):
        turn(pool)
    assert made_from(pool) == {"lab-1": "v1", "lab-3": "v2"}
    give_back(claim, generation)
    give_back(second, later)
    for _ in range(6):
        turn(pool)
    assert sorted(made_from(pool).values()) == ["v2", "v2"]


def test_a_roll_to_a_broken_template_stops_and_replaces_no_member() -> None:
    MoldProvider.world.broken["v2"] = "no such mold"
    pool = make()
    update_pool("lab", config("v2"))
    assert turn(pool) == "surge"
    for _ in range(3):
        turn(pool)
    assert turn(pool) == "", "it waits"
    assert (
        Decision.objects.filter(pool=pool)
        .latest("last_at")
        .reason.endswith("The roll waits for lab-3 to be ready: no such mold")
    )
    pass_time(pool, 900)
    assert turn(pool) == "stop"
    pool.refresh_from_db()
    assert (pool.roll_stopped_at is not None, pool.roll_stop_reason) == (
        True,
        "lab-3 is not ready after 20 min: no such mold",
    )
    turn(pool)
    last = Decision.objects.filter(pool=pool).latest("last_at")
    assert last.reason.endswith(
        "the roll has stopped: lab-3 is not ready after 20 min: no such mold"
    )
    assert made_from(pool) == {"lab-1": "v1", "lab-2": "v1", "lab-3": "v2"}
    assert Event.objects.filter(verb="stop_roll").count() == 1
    update_pool("lab", config("v3"))
    pool.refresh_from_db()
    assert pool.roll_stopped_at is None, "another template is another try"
    for _ in range(14):
        turn(pool)
    assert sorted(made_from(pool).values()) == ["v3", "v3"]


def test_a_stopped_roll_is_continued_by_an_order() -> None:
    MoldProvider.world.broken["v2"] = ""
    pool = make()
    update_pool("lab", config("v2", roll={"policy": "idle", "ready_within": "1m"}))
    for _ in range(4):
        turn(pool)
    assert Pool.objects.get(pk=pool.pk).roll_stopped_at is not None
    MoldProvider.world.broken.clear()
    roll_orders.order_roll(pool_id=pool.pk, reason="the image is there now")
    assert Member.objects.get(name="lab-3").incarnation == 2
    for _ in range(10):
        turn(pool)
    assert sorted(made_from(pool).values()) == ["v2", "v2"]


def test_a_manual_roll_waits_for_an_order_for_each_configuration() -> None:
    pool = make()
    update_pool("lab", config("v2", roll="manual"))
    for _ in range(3):
        assert turn(pool) == ""
    assert (
        Decision.objects.filter(pool=pool)
        .latest("last_at")
        .reason.endswith("2 members are outdated, renewed once an operator orders it")
    )
    roll_orders.order_roll(pool_id=pool.pk, reason="tonight")
    for _ in range(10):
        turn(pool)
    assert sorted(made_from(pool).values()) == ["v2", "v2"]
    update_pool("lab", config("v3", roll="manual"))
    assert turn(pool) == ""
    assert sorted(made_from(pool).values()) == ["v2", "v2"]


def test_a_pause_of_a_roll_ends_by_itself() -> None:
    pool = make()
    update_pool("lab", config("v2"))
    roll_orders.pause_roll(
        pool_id=pool.pk, until=timezone.now() + timedelta(hours=1), reason="ana looks"
    )
    assert turn(pool) == ""
    Pool.objects.filter(pk=pool.pk).update(roll_paused_until=timezone.now() - timedelta(seconds=1))
    assert turn(pool) == "surge"
    assert Pool.objects.get(pk=pool.pk).roll_paused_until is None
    assert Event.objects.filter(verb="resume_roll", reason="its time is over").count() == 1


def test_roll_orders_that_are_not_possible_are_refused() -> None:
    pool = make()
    with pytest.raises(Conflict, match="No member of lab is outdated"):
        roll_orders.order_roll(pool_id=pool.pk, reason="x")
    with pytest.raises(Invalid, match="reason"):
        roll_orders.order_roll(pool_id=pool.pk, reason=" ")
    with pytest.raises(Invalid, match="passed"):
        roll_orders.pause_roll(
            pool_id=pool.pk, until=timezone.now() - timedelta(hours=1), reason="x"
        )
    assert roll_orders.resume_roll(pool_id=pool.pk).roll_paused_until is None


def test_only_changes_of_the_member_template_outdate_members() -> None:
    pool = make(place="here")
    with pytest.raises(Exception, match="place is fixed while 2 members are there"):
        update_pool("lab", config(place="there"))
    update_pool("lab", config(place="here", high=7))
    assert outdated(pool) == []
    update_pool("lab", config(place="here", high=7, labels={"zone": "a"}))
    assert outdated(pool) == ["lab-1", "lab-2"], "labels are given when a member is made"


def test_members_without_a_digest_are_outdated_by_the_next_change() -> None:
    pool = make()
    Member.objects.filter(pool=pool).update(spec_digest="")
    Pool.objects.filter(pk=pool.pk).update(member_digest="")
    assert outdated(pool) == []
    update_pool("lab", config("v2"))
    assert outdated(pool) == ["lab-1", "lab-2"]


def test_a_digest_of_another_release_alone_outdates_no_member() -> None:
    """Red where fingerprints of two releases are compared."""
    pool = make()
    Member.objects.filter(pool=pool).update(spec_digest="of another release")
    Pool.objects.filter(pk=pool.pk).update(member_digest="of another release")
    update_pool("lab", config(high=7))
    assert outdated(pool) == []
    update_pool("lab", config("v2", high=7))
    assert outdated(pool) == ["lab-1", "lab-2"]


def test_manually_managed_members_are_rebuilt_in_place() -> None:
    by_hand = {n: v for n, v in config(low=1).items() if n != "scaling"}
    pool = create_pool(by_hand)
    observe_pool(pool)
    add_members(pool_id=pool.pk, declared=["a", "b"])
    turn(pool)
    turn(pool)
    assert [row.id for row in list_scaled()] == [], "nothing is to be done there"
    update_pool("lab", by_hand | {"provider": {"kind": "mold", "template": "v2"}})
    assert [row.id for row in list_scaled()] == [pool.pk]
    for _ in range(6):
        turn(pool)
    assert made_from(pool) == {"a": "v2", "b": "v2"}
    assert [d.inputs["step"] for d in Decision.objects.order_by("id")] == ["rebuild", "rebuild"]


def test_a_restart_uses_the_present_configuration() -> None:
    pool = make(high=2)
    update_pool("lab", config("v2", low=2, high=2, roll="manual"))
    assert turn(pool) == ""
    restart_member(member_id=Member.objects.get(name="lab-1").pk, reason="now")
    assert turn(pool) == ""
    assert (made_from(pool), outdated(pool)) == ({"lab-1": "v2", "lab-2": "v1"}, ["lab-2"])


def test_roll_dialogs_show_the_affected_members(client: Client) -> None:
    user = User.objects.create_user("olga")
    create_grant(role="operator", user=user)
    client.force_login(user)
    pool = make()
    assert "No member is outdated" in client.get("/pools/lab/scaling/roll/").content.decode()
    update_pool("lab", config("v2", roll="manual"))
    asked = client.get("/pools/lab/scaling/roll/").content.decode()
    assert all(
        word in asked
        for word in (
            "lab-1",
            "lab-2",
            "renewed",
            "2 members are outdated, renewed once an operator orders it",
        )
    )
    for path, more in (
        ("pause-roll", {"for": "1h", "reason": "ana looks"}),
        ("resume-roll", {}),
        ("roll", {"reason": "tonight"}),
    ):
        page = client.get(f"/pools/lab/scaling/{path}/").content.decode()
        found = re.search(r'name="seen" value="(\w+)"', page)
        answer = client.post(
            f"/pools/lab/scaling/{path}/", more | ({"seen": found[1]} if found else {})
        )
        assert answer.status_code == 302, answer.content.decode()[:2000]
    verbs = list(
        Event.objects.filter(pool_id=pool.pk, verb__contains="roll")
        .order_by("id")
        .values_list("verb", "actor")
    )
    assert verbs == [("pause_roll", "olga"), ("resume_roll", "olga"), ("roll", "olga")]
    assert turn(pool) == "surge"


# Beside claims and other scalers ------------------------------------------------------------------


@pytest.mark.parametrize("which", ["swap", "rebuild"])
def test_a_bind_that_is_faster_than_a_roll_keeps_its_member(
    which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make(low=1, high=2 if which == "swap" else 1)
    update_pool(
        "lab", config("v2", low=1 if which == "swap" else 0, high=2 if which == "swap" else 1)
    )
    if which == "swap":
        assert turn(pool) == "surge"
        Member.objects.filter(name="lab-2").update(is_cordoned=True)
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE slots_slot SET is_open = false FROM pools_member m "
                "WHERE m.id = member_id AND m.name = 'lab-2'"
            )
    (claim, slot, generation), decision = scale_beside_a_bind(pool)
    assert (decision.delta, decision.verdict, [j.why for j in decision.spared][:1]) == (
        0,
        "hold",
        ["taken meanwhile"],
    )
    assert Slot.objects.get(pk=slot).member.name == "lab-1"
    assert Member.objects.get(name="lab-1").incarnation == 1
    give_back(claim, generation)


def test_two_scalers_add_one_surge_member(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = make()
    update_pool("lab", config("v2"))
    gate = Gate().before(monkeypatch, "claims.scaling.scaler.add_member_rows")
    first = gate.stops(lambda: scale_pools([pool.pk]))
    assert scale_pools([pool.pk]) == {}
    gate.open()
    assert first.result()[pool.pk].step == "surge"
    assert Member.objects.filter(pool=pool).count() == 3


def test_without_the_lock_a_member_is_rebuilt_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        scaling_sql.statements.texts, "lock_scaled", scaling_sql.statements.texts["read_scaled"]
    )
    pool = make(low=1, high=1)
    update_pool("lab", config("v2", low=0, high=1))
    gate = Gate().before(monkeypatch, "claims.scaling.scaler.rebuild_if_empty")
    first = gate.stops(lambda: scale_pools([pool.pk]))
    second = Actor(lambda: scale_pools([pool.pk])).begin()
    second.until_blocked_or_done()
    gate.open()
    first.result()
    second.result()
    assert Member.objects.get(name="lab-1").incarnation == 3, (
        "both have decided on what they saw, and one after the other did it"
    )
