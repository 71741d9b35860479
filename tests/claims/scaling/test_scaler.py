"""The scaler on real rows, with a provider that makes members outside."""

import json
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from threading import Event as Gate
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from claims.allocation.scale_request import request_scaling
from claims.controllers import Scaler
from claims.scaling.scaler import dry_run, scale_pools
from pools.lifecycle.selectors import config_of, get_pool
from pools.lifecycle.services import create_pool, update_pool
from pools.models import Decision, Member, Pool
from pools.pages.forms import preserve_unshown
from pools.providers.base import Observation, PoolSnapshot
from pools.scaling import ScalingPace, ScalingTarget, Snapshot
from project.kernel.errors import Conflict, Invalid
from project.kernel.models import Event, Operation
from project.kernel.outbox.operations import ProviderError, perform_due
from slots.doctor.checks import find_too_many
from slots.members.services import cordon_member, edit_member, pause_pool
from slots.models import Slot
from slots.sync.watcher import LOOK_EVERY, Watcher, observe_pool
from tests.claims.helpers import again, ask, let_go, make_pool, serve
from tests.pools.providers.fake_providers import ALL, CraneProvider, fresh
from tests.slots.helpers import is_consistent, open_slots

pytestmark = pytest.mark.django_db(transaction=True)
QUICK = {"up": "0s", "down": "0s"}


@pytest.fixture(autouse=True)
def _worlds(settings: Any) -> Iterator[None]:
    settings.BERTH_PROVIDERS = ALL
    fresh()
    yield
    assert is_consistent()


def config(
    name: str = "lab", *, low: int = 0, high: int = 4, slots: Any = 2, **scaling: Any
) -> dict[str, Any]:
    policy = {"policy": "on_demand", "cooldown": QUICK} | scaling
    return {
        "name": name,
        "provider": "crane",
        "slots": slots,
        "members": {"min": low, "max": high},
        "scaling": policy,
    }


def make(name: str = "lab", **more: Any) -> Pool:
    pool = create_pool(config(name, **more))
    observe_pool(pool)
    pool.refresh_from_db()
    assert pool.state == "active"
    return pool


def scale(pool: Pool) -> Decision:
    """Makes a decision and performs its operations; the stored decision."""
    scale_pools([pool.pk])
    work()
    observe_pool(pool)
    pool.refresh_from_db()
    return Decision.objects.filter(pool=pool).order_by("-last_at", "-id")[0]


def work() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE kernel_operation SET due_at = now() WHERE done_at IS NULL")
    perform_due("crane")


def names(pool: Pool) -> list[str]:
    return list(
        Member.objects.filter(pool=pool)
        .exclude(state="gone")
        .order_by("id")
        .values_list("name", flat=True)
    )


def old(pool: Pool, seconds: float) -> None:
    """Moves the pool and its idle slots into the past."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE slots_slot SET changed_at = changed_at - make_interval(secs => %s) "
            "WHERE pool_id = %s",
            [seconds, pool.pk],
        )
        cursor.execute(
            """UPDATE pools_pool SET scaled_up_at = scaled_up_at - make_interval(secs => %(s)s),
               scaled_down_at = scaled_down_at - make_interval(secs => %(s)s) WHERE id = %(p)s""",
            {"s": seconds, "p": pool.pk},
        )
        cursor.execute(
            "UPDATE pools_member SET state_at = state_at - make_interval(secs => %s) "
            "WHERE pool_id = %s",
            [seconds, pool.pk],
        )


# Growing ------------------------------------------------------------------------------------------


def test_a_waiting_claim_gets_a_new_member_and_ends_the_request() -> None:
    pool = make()
    claim = ask()
    assert claim.is_waiting
    serve()
    pool.refresh_from_db()
    assert pool.scale_requested_at is not None
    scale_pools([pool.pk])
    pool.refresh_from_db()
    assert (names(pool), pool.scale_requested_at is not None, pool.scaled_up_at is not None) == (
        ["lab-1"],
        True,
        True,
    )
    work()
    serve()
    assert again(claim).slots[0].member == "lab-1"
    decision = scale(pool)
    assert (decision.delta, pool.scale_requested_at, pool.absorb_until is not None) == (
        0,
        None,
        True,
    )


def test_the_next_request_after_a_scale_up_is_absorbed_once() -> None:
    pool = make()
    ask()
    serve()
    scale(pool)
    serve()
    scale(pool)
    request_scaling([pool.pk])
    pool.refresh_from_db()
    assert (pool.scale_requested_at, pool.absorb_until) == (None, None)
    request_scaling([pool.pk])
    pool.refresh_from_db()
    assert pool.scale_requested_at is not None


def test_an_unused_absorb_mark_expires() -> None:
    pool = make()
    Pool.objects.filter(pk=pool.pk).update(absorb_until=timezone.now() - timedelta(seconds=1))
    request_scaling([pool.pk])
    pool.refresh_from_db()
    assert pool.scale_requested_at is not None


def test_a_claim_of_sixty_slots_is_served_by_two_members_of_fifty() -> None:
    pool = make(slots=50)
    claim = ask(size=60)
    for _ in range(4):
        serve()
        scale(pool)
    serve()
    assert len(again(claim).slots) == 60
    assert len(names(pool)) == 2


def test_waiting_claims_add_one_member_a_cycle_up_to_the_maximum() -> None:
    pool = make(high=3)
    for _ in range(9):
        ask()
    serve()
    for there in (1, 2, 3):
        assert scale(pool).delta == 1
        assert len(names(pool)) == there
    decision = scale(pool)
    assert (decision.delta, decision.inputs["words"]) == (0, "+2 blocked"), (
        "nine slots wanted, six there, two on each"
    )
    assert (len(names(pool)), pool.scale_requested_at) == (3, None)


def test_raising_the_maximum_continues_scaling_up() -> None:
    pool = make(high=1)
    for _ in range(4):
        ask()
    serve()
    scale(pool)
    serve()
    assert scale(pool).inputs["verdict"] == "blocked"
    update_pool("lab", config(high=2))
    assert scale(pool).delta == 1


def test_lowering_the_maximum_removes_idle_members_and_keeps_busy_ones() -> None:
    pool = make(low=4)
    scale(pool)
    claim = ask()
    update_pool("lab", config(high=1))
    assert scale(pool).delta == -3
    assert names(pool) == [again(claim).slots[0].member]


def test_names_of_removed_members_are_not_used_again() -> None:
    pool = make(low=2)
    scale(pool)
    update_pool("lab", config(high=4))
    old(pool, 700)
    for _ in range(2):
        scale(pool)
    assert names(pool) == []
    update_pool("lab", config(low=1))
    scale(pool)
    assert names(pool) == ["lab-3"]


def test_a_failed_create_keeps_its_member_and_makes_no_second_one() -> None:
    pool = make()
    ask()
    serve()
    CraneProvider.world.errors = [ProviderError("no quota")]
    scale(pool)
    for _ in range(3):
        assert scale_pools([pool.pk])[pool.pk].delta == 0
    pool.refresh_from_db()
    assert len(names(pool)) == 1
    work()
    assert CraneProvider.world.made == 1
    assert open_slots(pool) == 2


# Shrinking ----------------------------------------------------------------------------------------


def fixed(count: int) -> Pool:
    """A pool on demand with this number of members, all idle for long."""
    pool = make(low=count)
    scale(pool)
    update_pool("lab", config(high=8))
    old(pool, 700)
    pool.refresh_from_db()
    return pool


def test_idle_members_are_removed_one_by_one_newest_first() -> None:
    pool = fixed(3)
    decision = scale(pool)
    assert (decision.delta, [c["name"] for c in decision.chosen], names(pool)) == (
        -1,
        ["lab-3"],
        ["lab-1", "lab-2"],
    )
    assert CraneProvider.world.things.keys() == {
        f"lab/{m}" for m in Member.objects.exclude(state="gone").values_list("pk", flat=True)
    }
    assert Event.objects.filter(verb="scale", pool_id=pool.pk).order_by("-id")[0].data[
        "members"
    ] == ["lab-3"]


def test_a_member_with_a_held_or_draining_slot_is_not_removed() -> None:
    pool = fixed(3)
    held, drains = ask(), ask()
    let_go(drains)
    old(pool, 700)
    for _ in range(4):
        scale_pools([pool.pk])
    assert again(held).slots[0].member in names(pool)
    assert (
        Slot.objects.filter(member__state__in=("deleting", "gone"))
        .exclude(state__in=("idle", "retired"))
        .count()
        == 0
    )


def test_no_member_is_removed_without_a_recent_observation() -> None:
    pool = fixed(2)
    Pool.objects.filter(pk=pool.pk).update(observed_at=timezone.now() - timedelta(seconds=61))
    decision = scale_pools([pool.pk])[pool.pk]
    assert (decision.delta, "the provider was last checked " in decision.reason) == (0, True)
    Pool.objects.filter(pk=pool.pk).update(observed_at=None)
    assert scale_pools([pool.pk])[pool.pk].delta == 0


def test_a_controller_removes_no_member_before_a_look_that_began_after_its_start() -> None:
    pool = fixed(2)
    looked_at = Pool.objects.get(pk=pool.pk).observed_at
    scaler = Scaler()
    scaler.step()
    decision = Decision.objects.filter(pool=pool).order_by("-id")[0]
    assert (decision.delta, names(pool)) == (0, ["lab-1", "lab-2"])
    assert decision.reason.endswith(", before this controller started")
    assert Pool.objects.get(pk=pool.pk).observed_at == looked_at
    observe_pool(pool)
    scaler.round_due = 0.0
    scaler.step()
    assert Member.objects.get(name="lab-2").state == "deleting"


def test_a_look_that_began_before_the_controller_started_removes_no_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The watcher records when a look began, although the look ends after the scaler's start."""
    pool, gate, crane_look = fixed(2), Gate(), CraneProvider.look
    Pool.objects.filter(pk=pool.pk).update(observed_at=None)

    def look(self: CraneProvider, before: PoolSnapshot) -> Observation:
        assert gate.wait(60)
        return crane_look(self, before)

    monkeypatch.setattr(CraneProvider, "look", look)
    monkeypatch.setattr(CraneProvider, "place_of", lambda options: "yard")
    watcher, scaler = Watcher(), Scaler()
    with monkeypatch.context() as patch:
        patch.setattr("slots.sync.watcher.WAIT", 0.0)
        assert watcher.step(), "the look runs"
    scaler.step()
    gate.set()
    finish_looks(watcher)
    scaler.round_due = 0.0
    scaler.step()
    decision = Decision.objects.filter(pool=pool).order_by("-id")[0]
    assert (decision.delta, names(pool)) == (0, ["lab-1", "lab-2"])
    assert decision.reason.endswith(", before this controller started")
    Pool.objects.filter(pk=pool.pk).update(
        observed_at=timezone.now() - timedelta(seconds=LOOK_EVERY)
    )
    finish_looks(watcher)
    scaler.round_due = 0.0
    scaler.step()
    watcher.close()
    assert Member.objects.get(name="lab-2").state == "deleting"


def finish_looks(watcher: Watcher) -> None:
    while watcher.step():
        pass


def test_the_member_with_the_lowest_deletion_cost_is_removed_first() -> None:
    pool = fixed(3)
    for name, cost in (("lab-1", -1), ("lab-3", 5)):
        edit_member(member_id=Member.objects.get(name=name).pk, deletion_cost=cost)
    assert [c["name"] for c in scale(pool).chosen] == ["lab-1"]
    old(pool, 700)
    assert [c["name"] for c in scale(pool).chosen] == ["lab-2"]


def test_cordoned_members_are_no_capacity_and_unknown_labels_are_hopeless() -> None:
    pool = fixed(2)
    for name in names(pool):
        cordon_member(member_id=Member.objects.get(pool=pool, name=name).pk, reason="look")
    ask()
    serve()
    assert scale_pools([pool.pk])[pool.pk].delta == 1, "cordoned ones are no capacity"
    ask(pool="lab", selector={"gpu": "yes"})
    serve()
    assert dry_run("lab")[1].inputs["hopeless"] == 1


def test_blocked_claims_add_no_demand() -> None:
    pool = create_pool({**config(slots=["any"]), "name": "lab"})
    observe_pool(pool)
    for _ in range(3):
        ask(task="plan_and_apply", workspace="net")
    serve()
    decision = scale(pool)
    assert (decision.delta, decision.inputs["waiting"], decision.inputs["blocked"]) == (1, 1, 2)
    serve()
    assert scale(pool).delta == 0


# Orders and windows -------------------------------------------------------------------------------


def test_a_freeze_closes_the_pool_and_removes_idle_members_until_it_ends() -> None:
    pool = fixed(3)
    claim = ask()
    clock = timezone.now()
    window = {
        "from": f"{clock - timedelta(hours=1):%H:%M}",
        "to": f"{clock + timedelta(hours=1):%H:%M}",
        "name": "release",
    }
    update_pool("lab", config(freeze=[window]))
    decision = scale(pool)
    assert (decision.delta, names(pool)) == (-2, [again(claim).slots[0].member])
    assert (open_slots(pool), pool.frozen_until is not None) == (0, True)
    waits = ask()
    assert waits.is_waiting
    assert scale(pool).inputs["verdict"] == "frozen"
    serve()
    told = again(waits, explain=True).wait
    assert told is not None and "release" in told.text
    update_pool("lab", config())
    scale(pool)
    serve()
    assert (pool.frozen_until, again(waits).is_waiting) == (None, False)
    assert list(
        Event.objects.filter(verb__in=("freeze", "thaw"))
        .order_by("id")
        .values_list("verb", flat=True)
    ) == ["freeze", "thaw"]


def test_a_frozen_pool_that_is_no_longer_scaled_is_thawed() -> None:
    pool = make(low=1)
    scale(pool)
    Pool.objects.filter(pk=pool.pk).update(frozen_until=timezone.now() + timedelta(hours=1))
    update_pool("lab", {k: v for k, v in config().items() if k != "scaling"})
    Scaler().step()
    pool.refresh_from_db()
    assert pool.frozen_until is None


def test_a_schedule_replaces_the_limits() -> None:
    pool = make(low=0, high=4, schedule=[{"from": "00:00", "to": "24:00", "min": 2, "max": 3}])
    decision = scale(pool)
    assert (decision.delta, decision.inputs["min"], decision.inputs["max"]) == (2, 2, 3)


def test_a_paused_pool_is_not_scaled() -> None:
    pool = make(low=2)
    pause_pool(pool_id=pool.pk, until=timezone.now() + timedelta(hours=1), reason="firmware")
    decision = scale(pool)
    assert (decision.delta, decision.reason) == (
        0,
        "Paused: firmware. No member is created or removed",
    )


# Decisions ----------------------------------------------------------------------------------------


def test_equal_consecutive_decisions_are_counted_in_one_row() -> None:
    pool = make(low=1)
    assert [scale(pool).delta for _ in range(4)] == [1, 0, 0, 0]
    rows = list(Decision.objects.filter(pool=pool).order_by("id"))
    assert [(d.delta, d.seen_again) for d in rows] == [(1, 0), (0, 2)]
    assert rows[0].inputs["checks"] and rows[0].chosen[0]["name"] == "lab-1"


def test_a_dry_run_changes_nothing() -> None:
    pool = make(low=2)
    before = Event.objects.count(), Operation.objects.count()
    _, decision = dry_run("lab")
    assert (decision.delta, names(pool), Decision.objects.count()) == (2, [], 0)
    assert (Event.objects.count(), Operation.objects.count()) == before
    out = StringIO()
    call_command("scale", dry_run="lab", stdout=out)
    assert out.getvalue().startswith("+2: The minimum is 2 members, and no member exists")
    out = StringIO()
    call_command("scale", dry_run="lab", json=True, stdout=out)
    assert json.loads(out.getvalue())["delta"] == 2
    make_pool("still")
    with pytest.raises(CommandError, match="has no scaling"):
        call_command("scale", dry_run="still", stdout=out)


def test_a_failing_policy_decides_nothing_and_says_so(settings: Any) -> None:
    settings.BERTH_SCALING_POLICIES = ["tests.claims.scaling.test_scaler.Moody"]
    pool = make(policy="moody", mood="bad")
    decision = scale(pool)
    assert (decision.delta, decision.reason) == (0, "The policy failed: ValueError: bad mood")
    update_pool("lab", config(policy="moody", mood="good"))
    assert scale(pool).delta == 1, "its pace is one at a time, as nothing else is said"
    with pytest.raises(Invalid, match="mood"):
        update_pool("lab", config(policy="moody"))
    settings.BERTH_SCALING_POLICIES = []
    assert scale(pool).inputs["verdict"] == "failed", "its class was taken out of the settings"


class Moody:
    """A policy of an installation."""

    kind = "moody"

    def __init__(self, mood: str, pace: ScalingPace) -> None:
        self.mood, self.pace = mood, pace

    @classmethod
    def read_options(cls, options: Any, where: str, faults: Any) -> dict[str, Any]:
        if "mood" not in options:
            faults.add(f"{where}.mood", "Which mood?")
        return dict(options)

    def find_target(self, s: Snapshot) -> ScalingTarget:
        if self.mood == "bad":
            raise ValueError("bad mood")
        return ScalingTarget(2, "mood", "in the mood")


class Steady:
    """A policy from before `find_target` had its name."""

    kind = "steady"

    def __init__(self, pace: ScalingPace) -> None:
        self.pace = pace

    @classmethod
    def read_options(cls, options: Any, where: str, faults: Any) -> dict[str, Any]:
        return dict(options)

    def wish(self, s: Snapshot) -> ScalingTarget:
        return ScalingTarget(2, "steady", "always two")


def test_a_custom_policy_may_still_call_its_method_wish(settings: Any) -> None:
    settings.BERTH_SCALING_POLICIES = ["tests.claims.scaling.test_scaler.Steady"]
    decision = scale(make(policy="steady"))
    assert (decision.delta, decision.reason) == (1, "Always two")


def test_only_a_pool_whose_provider_creates_members_may_scale() -> None:
    with pytest.raises(Invalid) as refused:
        create_pool({"name": "still", "slots": 1, "scaling": {"policy": "warm"}})
    assert [f.field for f in refused.value.fields] == ["scaling"]
    assert "declare members" in refused.value.fields[0].way_out
    with pytest.raises(Invalid, match="declared one by one"):
        create_pool({**config(), "members": {"list": ["a"]}})
    make_pool("still")
    with pytest.raises(Conflict, match="has no scaling"):
        dry_run("still")


def test_the_scaler_visits_requesting_pools_before_the_next_round() -> None:
    pools = [make(f"lab{i}", low=1) for i in range(3)]
    scaler = Scaler()
    while scaler.step():
        pass
    assert Member.objects.count() == 3
    work()
    Pool.objects.filter(pk=pools[2].pk).update(scale_requested_at=timezone.now(), min_members=2)
    Pool.objects.filter(pk=pools[1].pk).update(min_members=2)
    assert not scaler.step()
    assert [Member.objects.filter(pool=pool).count() for pool in pools] == [1, 1, 2], (
        "the round is not due yet"
    )


def test_the_doctor_reports_only_members_created_above_the_maximum() -> None:
    pool = make(low=3)
    scale(pool)
    claims = [ask() for _ in range(6)]
    update_pool("lab", config(high=1))
    scale(pool)
    assert len(names(pool)) == 3 and not any(claim.is_waiting for claim in claims)
    assert list(find_too_many()) == []
    Member.objects.filter(pool=pool).update(created_at=timezone.now() + timedelta(seconds=1))
    assert [finding.subject for finding in find_too_many()] == ["pool lab"]


def test_the_pool_form_keeps_scaling_fields_that_it_does_not_show() -> None:
    make(low=1, policy="warm", max_idle=2)
    before = config_of(get_pool("lab"))
    assert before["scaling"]["max_idle"] == 2
    assert "list" not in before["members"], "members that follow demand are not declared"
    assert preserve_unshown({"name": "lab"}, before)["scaling"] == before["scaling"]
