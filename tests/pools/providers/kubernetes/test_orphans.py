"""Leftover pods are removed, and no pod that may be at work is deleted on incomplete knowledge."""

from dataclasses import replace

import pytest
from django.db import connection

from pools.lifecycle.selectors import config_of
from pools.lifecycle.services import update_pool
from pools.models import Member, Pool
from pools.providers.kubernetes import reconcile
from project.kernel.outbox.operations import ConflictError, perform_due
from slots.doctor.checks import find_differences_outside
from slots.members.chores import finish_deleting_pool
from slots.members.provider_status import forget_member
from slots.sync.strays import read_strays
from slots.sync.watcher import Watcher
from tests.pools.providers.kubernetes.harness import KubeHarness
from tests.pools.providers.kubernetes.test_watching import look, look_again, ready


def is_going(bench: KubeHarness, name: str) -> bool:
    return "deletionTimestamp" in bench.space.pod(name)["metadata"]


def end_pool(pool: Pool, member: Member) -> None:
    """The cluster is unreachable, so a person declares the member gone."""
    update_pool(pool.name, {**config_of(pool), "members": {"max": 3, "list": []}})
    assert forget_member(member_id=member.pk, reason="the cluster is gone")
    Pool.objects.filter(pk=pool.pk).update(state="deleting")
    assert finish_deleting_pool(pool.pk)


@pytest.mark.django_db(transaction=True)
def test_leftover_pods_of_a_gone_pool_are_removed(bench: KubeHarness, watcher: Watcher) -> None:
    pool, member = ready(bench, watcher)
    end_pool(pool, member)
    name = member.external_id.partition("/")[0]
    assert not is_going(bench, name)
    another = Watcher()
    try:
        look(another)
        bench.space.until(lambda: is_going(bench, name))
        bench.space.until(lambda: name not in bench.space.names("secrets"))
        assert "theirs" in bench.space.names()
    finally:
        another.close()


@pytest.mark.django_db(transaction=True)
def test_pool_of_declared_pods_may_change_its_member_list(
    bench: KubeHarness, watcher: Watcher
) -> None:
    """What a pod is called outside is not said by the configuration, and is no change of it."""
    pool, member = ready(bench, watcher)
    update_pool(pool.name, {**config_of(pool), "members": {"max": 3, "list": ["a", "b"]}})
    assert [m.name for m in Member.objects.filter(pool=pool).order_by("name")] == ["a", "b"]
    assert Member.objects.get(pk=member.pk).external_id == member.external_id != ""


@pytest.mark.django_db(transaction=True)
def test_pool_gone_for_a_week_is_no_longer_watched(bench: KubeHarness, watcher: Watcher) -> None:
    pool, member = ready(bench, watcher)
    end_pool(pool, member)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pools_pool SET changed_at = changed_at - interval '8 days'")
    another = Watcher()
    look(another)
    assert another._threads is None
    another.close()
    assert not is_going(bench, member.external_id.partition("/")[0])


@pytest.mark.django_db(transaction=True)
def test_pod_of_an_unknown_member_is_left_alone(bench: KubeHarness, watcher: Watcher) -> None:
    """The database is an old copy: the member was made after it was taken."""
    pool, member = ready(bench, watcher)
    mine = bench.space.pod(member.external_id.partition("/")[0])["metadata"]["labels"]
    unknown, forgotten = (
        {**mine, "berth.dev/member": "987654"},
        {**mine, "berth.dev/member": str(gone_member(pool))},
    )
    for name, labels in (("unknown", unknown), ("forgotten", forgotten)):
        bench.space.create_pod(name, labels=labels, node="n1")
        bench.space.run(name)
    found = {each.subject: each for each in find_differences_outside()}
    assert set(found) == {"pod unknown of pool lab", "pod forgotten of pool lab"}
    assert found["pod unknown of pool lab"].fix is None, "a newer copy of the rows may know it"
    look_again(watcher)
    bench.space.until(lambda: is_going(bench, "forgotten"))
    assert not is_going(bench, "unknown")
    pool.refresh_from_db()
    assert [stray.name for stray in read_strays(pool)] == ["pod forgotten", "pod unknown"]
    bench.space.delete("unknown", grace=0)
    bench.space.delete("forgotten", grace=0)
    look_again(watcher)
    pool.refresh_from_db()
    assert pool.strays == [] == list(find_differences_outside())


@pytest.mark.django_db(transaction=True)
def test_pod_of_a_gone_member_is_found_and_removed_by_the_doctor(
    bench: KubeHarness, watcher: Watcher
) -> None:
    pool, member = ready(bench, watcher)
    mine = bench.space.pod(member.external_id.partition("/")[0])["metadata"]["labels"]
    labels = {**mine, "berth.dev/member": str(gone_member(pool))}
    bench.space.create_pod("forgotten", labels=labels, node="n1")
    bench.space.run("forgotten")
    (found,) = find_differences_outside()
    assert (found.subject, found.detail) == (
        "pod forgotten of pool lab",
        "exists outside, and its member is gone",
    )
    assert found.fix is not None
    found.fix()
    assert is_going(bench, "forgotten")


def gone_member(pool: Pool) -> int:
    update_pool(pool.name, {**config_of(pool), "members": {"max": 3, "list": ["a", "b"]}})
    member = Member.objects.get(pool=pool, name="b")
    update_pool(pool.name, {**config_of(pool), "members": {"max": 3, "list": ["a"]}})
    perform_due("kubernetes")
    forget_member(member_id=member.pk, reason="its pod is on a lost node")
    return member.pk


def test_pod_known_by_uid_is_no_stray_whatever_its_member_label(bench: KubeHarness) -> None:
    member = bench.there()
    name = member.external_id.partition("/")[0]
    bench.space.patch("pods", name, {"metadata": {"labels": {"berth.dev/member": "99"}}})
    pool = bench.pool(member)
    assert bench.provider().look(pool).strays == {}
    bench.provider().remove_strays(pool, [99])
    assert not is_going(bench, name)
    assert bench.provider().look(bench.pool()).strays == {99: f"pod {name}"}, (
        "nobody knows it by its uid: then its label counts"
    )


def test_resumed_worker_does_not_delete_the_pod_of_a_later_incarnation(
    bench: KubeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that took its snapshot, lost its lock while it stood still, and goes on."""
    later = replace(bench.member("creating"), slots=(), incarnation=2)
    made = bench.provider().sync(bench.pool(later), later).external_id.partition("/")[0]
    bench.space.run(made)
    frozen = replace(bench.member("creating"), slots=(), external_id="")
    with pytest.raises(ConflictError, match="later incarnation"):
        bench.provider().sync(bench.pool(frozen), frozen)
    assert not is_going(bench, made)
    monkeypatch.setattr(reconcile, "is_newer", lambda *_: False)
    bench.provider().sync(bench.pool(frozen), frozen)
    assert is_going(bench, made), "its eyes are open"


def test_finished_pod_of_a_later_incarnation_is_removed(bench: KubeHarness) -> None:
    later = replace(bench.member("creating"), slots=(), incarnation=2)
    made = bench.provider().sync(bench.pool(later), later).external_id.partition("/")[0]
    bench.space.run(made)
    bench.space.finish(made, 3)
    frozen = replace(bench.member("creating"), slots=(), external_id="")
    bench.provider().sync(bench.pool(frozen), frozen)
    assert made not in bench.space.names() or is_going(bench, made)
