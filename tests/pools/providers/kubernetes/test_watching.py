"""From the cluster to the rows: pods, errors and unreachable clusters as the watcher records
them.
"""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from claims.scaling.scaler import scale_pools
from pools.lifecycle.preflight import check_outside
from pools.lifecycle.provider_errors import find_error
from pools.lifecycle.selectors import config_of
from pools.lifecycle.services import create_pool, update_pool
from pools.models import Member, Pool
from project.kernel.actor import acting_as
from project.kernel.controllers.runtime import Loop, StopRequest
from project.kernel.errors import Refused
from project.kernel.models import Event, Operation
from project.kernel.outbox.operations import perform_due
from slots.members import members_sql
from slots.members.liveness import record_heartbeat
from slots.members.restart import apply_condition
from slots.models import Slot
from slots.sync.watcher import Watcher
from tests.kubernetes_cluster.namespace import Space
from tests.pools.providers.kubernetes.harness import KubeHarness
from tests.slots.helpers import hold, is_consistent, open_slots
from tests.waiting import load, slack, wait_until

pytestmark = pytest.mark.django_db(transaction=True)
WITHIN = 20.0


@pytest.fixture
def bench(bench: KubeHarness) -> Iterator[KubeHarness]:
    yield bench
    assert is_consistent()


@pytest.fixture
def space(bench: KubeHarness) -> Space:
    return bench.space


def make(bench: KubeHarness, name: str = "lab", **more: Any) -> Pool:
    """A pool with a member that is there, runs, and has said its first word."""
    config = {
        "name": name,
        "provider": {"kind": "kubernetes", **bench.good_options},
        "slots": ["any"],
        "members": {"max": 3, "list": ["a"]},
    }
    return create_pool({**config, **more})


def run_pods(pool: Pool, space: Space) -> list[Member]:
    perform_due("kubernetes")
    members = list(Member.objects.filter(pool=pool, state="creating"))
    for member in members:
        space.run(member.external_id.partition("/")[0])
        record_heartbeat(member_id=member.pk, incarnation=member.incarnation)
    return list(Member.objects.filter(pool=pool))


def ready(
    bench: KubeHarness, watcher: Watcher, name: str = "lab", **more: Any
) -> tuple[Pool, Member]:
    pool = make(bench, name, **more)
    look(watcher)
    (member,) = run_pods(pool, bench.space)
    pool.refresh_from_db()
    assert (pool.state, member.state, open_slots(pool)) == ("active", "ready", 1)
    return pool, member


def look(watcher: Watcher) -> None:
    """Everything that is due, to its end."""
    while watcher.step():
        pass


def look_again(watcher: Watcher) -> None:
    """Looks again at once, as if no look had failed."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pools_pool SET observed_at = observed_at - interval '1 hour'")
    watcher._not_before.clear()
    look(watcher)


def until(is_so: Callable[[], Any]) -> float:
    """Rows change by another thread: how long it took."""
    start = time.monotonic()
    wait_until(is_so, open_operations, patience=WITHIN)
    return time.monotonic() - start


def open_operations() -> list[tuple[str, str]]:
    return list(Operation.objects.filter(done_at=None).values_list("lane", "error"))


# -- pods ------------------------------------------------------------------------------------------


def test_gone_pod_ends_its_claims_and_is_recreated(bench: KubeHarness, watcher: Watcher) -> None:
    pool, member = ready(bench, watcher)
    hold(pool, lane="any")
    bench.space.delete(member.external_id.partition("/")[0], grace=0)
    look_again(watcher)
    member.refresh_from_db()
    assert (member.state, member.lost_at is not None, member.down_at is not None) == (
        "offline",
        True,
        True,
    )
    assert "is gone" in member.outside
    lost = [row.id for row in members_sql.lost_with_holders(50)]
    assert lost == [member.pk], "no folder is left that could tell what became of it"
    apply_condition(member.pk)
    member.refresh_from_db()
    assert (member.state, member.incarnation, member.outside) == ("creating", 2, "")
    perform_due("kubernetes")
    (name,) = [name for name in bench.space.names() if name != "theirs"]
    assert name.endswith("-2")


def test_evicted_pod_gets_no_new_claims_despite_heartbeats(
    bench: KubeHarness, watcher: Watcher
) -> None:
    pool, member = ready(bench, watcher)
    bench.space.evict(member.external_id.partition("/")[0])
    look_again(watcher)
    record_heartbeat(member_id=member.pk, incarnation=1)
    member.refresh_from_db()
    assert (member.state, member.is_ending, open_slots(pool)) == ("offline", True, 0)
    bench.space.confirm_deletion(member.external_id.partition("/")[0])
    look_again(watcher)
    member.refresh_from_db()
    assert member.is_down_planned, "that is no sign of trouble"
    apply_condition(member.pk)
    member.refresh_from_db()
    assert (member.state, member.is_ending, member.restarts) == ("creating", False, 0)


def test_reason_why_a_pod_waits_is_reported(bench: KubeHarness, watcher: Watcher) -> None:
    pool = make(bench)
    perform_due("kubernetes")
    member = Member.objects.get(pool=pool)
    unschedulable = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available",
    }
    bench.space.set_phase(
        member.external_id.partition("/")[0], "Pending", conditions=[unschedulable]
    )
    look(watcher)
    member.refresh_from_db()
    assert member.outside == "Unschedulable: 0/3 nodes are available"
    assert find_error(pool) is None, "it may come in a moment"
    Member.objects.update(state_at=member.state_at.replace(year=2020))
    trouble = find_error(pool)
    assert trouble is not None
    assert (trouble.code, trouble.detail, trouble.members) == ("waiting", member.outside, 1)


def test_confirmed_deletion_makes_the_delete_operation_due(
    bench: KubeHarness, watcher: Watcher
) -> None:
    pool, member = ready(bench, watcher)
    update_pool(pool.name, {**config_of(pool), "members": {"max": 3, "list": []}})
    perform_due("kubernetes")
    name = member.external_id.partition("/")[0]
    assert "deletionTimestamp" in bench.space.pod(name)["metadata"]
    bench.space.confirm_deletion(name)
    look_again(watcher)
    member.refresh_from_db()
    assert member.state == "deleting"
    assert perform_due("kubernetes") == 1, "it is due now, not when its time has come"
    member.refresh_from_db()
    assert member.state == "gone"


def test_pod_created_after_its_member_was_gone_is_removed(
    bench: KubeHarness, watcher: Watcher
) -> None:
    """Its member has gone meanwhile: no other code looks for its pod."""
    pool, member = ready(bench, watcher)
    name = member.external_id.partition("/")[0]
    late = {**bench.space.pod(name)["metadata"]["labels"], "berth.dev/incarnation": "9"}
    update_pool(pool.name, {**config_of(pool), "members": {"max": 3, "list": []}})
    perform_due("kubernetes")
    bench.space.confirm_deletion(name)
    look_again(watcher)
    perform_due("kubernetes")
    assert Member.objects.get(pk=member.pk).state == "gone"
    bench.space.create_pod("late", labels=late)
    bench.space.create_pod("another", labels={**late, "berth.dev/installation": "another"})
    look_again(watcher)
    bench.space.until(lambda: bench.space.get("late") is None)
    assert {"theirs", "another"} <= set(bench.space.names())


def test_pod_changes_reach_the_rows_at_once(bench: KubeHarness, watcher: Watcher) -> None:
    _, member = ready(bench, watcher)
    stop = StopRequest()
    loop = Loop(watcher, stop)
    loop.thread.start()
    try:
        until(lambda: watcher._followers._running)
        # It has looked once since it began to follow.
        until(lambda: not watcher._changed.ids and not watcher._pending)
        bench.space.finish(member.external_id.partition("/")[0])
        took = until(lambda: Member.objects.filter(pk=member.pk, down_at__isnull=False).exists())
        assert took < 15.0, "the next look by timer is half a minute away"
    finally:
        stop.request()
        loop.wake.set()
        loop.thread.join(WITHIN * load())
        stop.close()
    assert not loop.thread.is_alive()
    assert not [thread.name for thread in threading.enumerate() if thread.name == "follow-pods"]


def test_pool_with_a_change_during_its_pause_is_looked_at_afterwards(
    bench: KubeHarness, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red where one that was paced when pools were listed is forgotten because its pause is over
    a moment later.
    """
    pool, member = ready(bench, watcher)
    look(watcher)
    bench.space.finish(member.external_id.partition("/")[0])
    watcher._rests[pool.pk] = time.monotonic() + 3600
    watcher._changed.add({pool.pk})
    list_due = Watcher._list_due

    def list_and_rest(self: Watcher, *given: Any) -> list[Pool]:
        found = list_due(self, *given)
        self._rests[pool.pk] = 0.0
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Watcher, "_list_due", list_and_rest)
        watcher.step()
    look(watcher)
    assert Member.objects.filter(pk=member.pk, down_at__isnull=False).exists()


# -- errors ----------------------------------------------------------------------------------------


def test_unreachable_cluster_is_logged_once_loses_no_member_and_recovers(
    bench: KubeHarness, watcher: Watcher
) -> None:
    pool, member = ready(bench, watcher)
    world = bench.space.world
    world.kill()
    for _ in range(3):
        look_again(watcher)
    pool.refresh_from_db()
    assert pool.provider_error_code == "unavailable"
    first = pool.provider_error_since
    trouble = find_error(pool)
    assert trouble is not None
    assert (trouble.since, "not reachable" in trouble.detail, trouble.members) == (first, True, 0)
    member.refresh_from_db()
    assert member.state == "ready"
    world.start()
    bench.space.until(lambda: world.ask("GET", "/version")[0] == 200)
    watcher._not_before.clear()
    deadline = time.monotonic() + WITHIN * load()
    while Pool.objects.get().provider_error_since is not None and time.monotonic() < deadline:
        look_again(watcher)  # the breaker lets one through now and then
    pool.refresh_from_db()
    assert (pool.provider_error, find_error(pool)) == ("", None)
    verbs = list(
        Event.objects.filter(verb__startswith="provider_")
        .order_by("id")
        .values_list("verb", flat=True)
    )
    assert verbs == ["provider_fails", "provider_works"], (
        "an event for each outage, not for each try"
    )


def test_failed_operation_is_retried_once_the_cluster_answers(
    bench: KubeHarness, watcher: Watcher
) -> None:
    pool = make(bench, provider={"kind": "kubernetes", **bench.good_options, "context": "stranger"})
    perform_due("kubernetes")
    look(watcher)
    (operation,) = Operation.objects.filter(done_at=None)
    assert operation.error_code == "unauthorised"
    Operation.objects.update(due_at=operation.due_at.replace(year=2100))
    world = bench.space.world
    text = world.kubeconfig.read_text()
    world.kubeconfig.write_text(
        text.replace(
            '"cluster": "admin", "user": "stranger"', '"cluster": "admin", "user": "admin"'
        )
    )
    try:
        look_again(watcher)
        assert perform_due("kubernetes") == 1
    finally:
        world.write_kubeconfig()
    assert Member.objects.get(pool=pool).external_id


def test_refused_template_is_reported_on_the_pool_until_fixed(
    bench: KubeHarness, watcher: Watcher
) -> None:
    bad = {
        "image": "a:1",
        "grace": 3600,
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}},
    }
    pool = make(bench, provider={"kind": "kubernetes", **bench.good_options, "template": bad})
    bench.space.world.refuse(
        "create", 422, plural="pods", message="spec.containers[0].image: we do not like it"
    )
    perform_due("kubernetes")
    look(watcher)
    member, trouble = Member.objects.get(pool=pool), find_error(pool)
    assert "we do not like it" in member.outside
    assert trouble is not None
    assert (trouble.code, "Correct provider.template" in trouble.detail, trouble.members) == (
        "misconfigured",
        True,
        1,
    )
    Operation.objects.filter(done_at=None).update(due_at=member.created_at)
    perform_due("kubernetes")
    look_again(watcher)
    member.refresh_from_db()
    assert (find_error(pool), "like it" in member.outside) == (None, False)
    assert Event.objects.filter(verb="sync_fails").count() == 1


def test_hanging_cluster_delays_no_other_pool(bench: KubeHarness, watcher: Watcher) -> None:
    pool, _ = ready(bench, watcher)
    other = make(
        bench, "other", provider={"kind": "kubernetes", **bench.good_options, "context": "admin"}
    )
    look(watcher)
    Pool.objects.update(observed_at=None)
    bench.space.world.hang("list", times=50)
    took = until(lambda: watcher.step() and Pool.objects.get(pk=other.pk).observed_at is not None)
    assert took < 4.0 * slack(), "the call for the other pool fails after ten seconds"
    assert Pool.objects.get(pk=pool.pk).observed_at is None
    bench.space.world.heal()
    bench.space.world.cut()


def test_person_can_forget_a_member_whose_deletion_is_unconfirmed(
    bench: KubeHarness, watcher: Watcher
) -> None:
    """The cluster was switched off for good, so the pool could not be deleted."""
    pool, member = ready(bench, watcher)
    with pytest.raises(CommandError, match="Remove it first"):
        call_command("forget_member", "lab/a", reason="the cluster is gone")
    update_pool(pool.name, {**config_of(pool), "members": {"max": 3, "list": []}})
    call_command("forget_member", "lab/a", reason="the cluster is gone")
    member.refresh_from_db()
    assert member.state == "gone"
    assert Event.objects.get(verb="gone", member_id=member.pk).reason == "the cluster is gone"
    perform_due("kubernetes")
    look_again(watcher)
    name = member.external_id.partition("/")[0]
    # It was there after all.
    bench.space.until(lambda: "deletionTimestamp" in bench.space.pod(name)["metadata"])


def test_partial_list_counts_as_no_look(bench: KubeHarness, watcher: Watcher) -> None:
    _, member = ready(bench, watcher)
    bench.space.world.refuse("list", 410, times=20)
    look_again(watcher)
    member.refresh_from_db()
    assert member.state == "ready"
    assert "expires" in Pool.objects.get().provider_error


# -- scale-in --------------------------------------------------------------------------------------


def test_scale_in_waits_for_the_first_full_look_after_a_restart(
    bench: KubeHarness, watcher: Watcher
) -> None:
    """The stamp is in the database: a watcher that has just started and gets no answer
    gives none.
    """
    scaling: dict[str, Any] = {"policy": "fixed", "size": 2, "cooldown": {"up": "0s", "down": "0s"}}
    more: dict[str, Any] = {"members": {"min": 0, "max": 3}, "scaling": scaling}
    pool = make(bench, **more)
    look(watcher)
    with acting_as("scale"):
        for _ in range(2):
            scale_pools([pool.pk])
    assert len(run_pods(pool, bench.space)) == 2
    watcher.close()
    update_pool(pool.name, {**config_of(pool), "scaling": {**scaling, "size": 0}})
    with connection.cursor() as cursor:  # no watcher ran for an hour
        cursor.execute("UPDATE pools_pool SET observed_at = observed_at - interval '1 hour'")
        cursor.execute(
            "UPDATE pools_member SET created_at = now() - interval '1 hour', state_at = now() - "
            "interval '1 hour'"
        )
        cursor.execute("UPDATE slots_slot SET changed_at = now() - interval '1 hour'")
    bench.space.world.kill()
    again = Watcher()
    look(again)
    decision = scale_pools([pool.pk])[pool.pk]
    assert (decision.delta, "the provider was last checked" in decision.reason) == (0, True)
    assert not Member.objects.exclude(state="ready").exists()
    bench.space.world.start()
    deadline = time.monotonic() + WITHIN * load()
    while Pool.objects.get().provider_error_since is not None and time.monotonic() < deadline:
        again._not_before.clear()
        look(again)
    again.close()
    assert scale_pools([pool.pk])[pool.pk].delta < 0
    assert Slot.objects.filter(state="held").count() == 0


# -- before it is taken ----------------------------------------------------------------------------


def test_preflight_asks_the_cluster_about_changed_fields_only(
    bench: KubeHarness, watcher: Watcher
) -> None:
    pool = make(bench)
    config = config_of(pool)
    bench.space.world.kill()
    try:
        assert check_outside({**config, "description": "another"}) == []
    finally:
        bench.space.world.start()
        bench.space.until(lambda: bench.space.world.ask("GET", "/version")[0] == 200)
    missing = {
        **config,
        "name": "other",
        "provider": {**config["provider"], "namespace": "t-nobody-made-it"},
    }
    assert [e.field for e in check_outside(missing)] == ["provider.namespace"]
    assert [
        e.field
        for e in check_outside({**missing, "provider": {**config["provider"], "context": "prod"}})
    ] == ["provider.context"]


def test_namespace_is_fixed_while_members_exist_and_the_template_is_not(
    bench: KubeHarness,
) -> None:
    pool = make(bench)
    config = config_of(pool)
    with pytest.raises(Refused) as caught:
        update_pool(
            pool.name, {**config, "provider": {**config["provider"], "namespace": "elsewhere"}}
        )
    assert [e.field for e in caught.value.fields] == ["provider.namespace"]
    update_pool(
        pool.name, {**config, "provider": {**config["provider"], "template": {"image": "agent:2"}}}
    )
    assert Pool.objects.get().spec["provider"]["template"]["image"] == "agent:2"
