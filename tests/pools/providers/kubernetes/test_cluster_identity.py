"""No member is declared gone because the context leads to another cluster or because labels of
its pod were changed.
"""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from pools.lifecycle.provider_errors import find_error
from pools.lifecycle.selectors import config_of
from pools.lifecycle.services import create_pool, update_pool
from pools.models import Member, Pool
from pools.providers.base import MemberSnapshot, Observation, PoolSnapshot
from pools.providers.kubernetes import listing
from pools.providers.kubernetes.cluster_identity import find_place
from project.kernel.errors import BerthError
from project.kernel.kubernetes import client
from project.kernel.models import Event
from project.kernel.outbox.operations import ConflictError, Misconfigured, perform_due
from slots.members.services import add_members, remove_member
from slots.sync.watcher import Watcher
from tests.kubernetes_cluster.clusters import FakeKube
from tests.kubernetes_cluster.namespace import Space
from tests.pools.providers.kubernetes.harness import KubeHarness
from tests.pools.providers.kubernetes.test_watching import look_again, ready
from tests.slots.helpers import hold


@pytest.fixture
def elsewhere(bench: KubeHarness) -> Iterator[FakeKube]:
    """Another cluster, with an empty namespace of the same name."""
    other = FakeKube()
    try:
        Space(other, bench.space.name).make()
        yield other
    finally:
        other.close()


def lead_to(other: FakeKube, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_KUBECONFIG", str(other.kubeconfig))


def asked(bench: KubeHarness, pool: PoolSnapshot) -> Observation:
    return bench.provider().look(pool)


def placed(bench: KubeHarness, *members: MemberSnapshot) -> PoolSnapshot:
    """A pool whose place is known, as after a look."""
    pool = bench.pool(*members)
    return replace(pool, place=asked(bench, pool).place)


# -- another place ---------------------------------------------------------------------------------


def test_context_leading_to_another_cluster_loses_no_member(
    bench: KubeHarness, elsewhere: FakeKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [bench.there(number) for number in (1, 2)]
    pool = placed(bench, *members)
    lead_to(elsewhere, monkeypatch)
    leaving = replace(members[0], state="deleting", slots=())
    creating = replace(members[0], state="creating", slots=(), incarnation=2, token="berthm_1_y")
    with pytest.raises(Misconfigured, match="confirm_place lab"):
        asked(bench, pool)
    for member in (members[0], leaving, creating):
        with pytest.raises(Misconfigured, match="leads to another place"):
            bench.provider().sync(pool, member)
    with pytest.raises(Misconfigured, match="leads to another place"):
        bench.provider().needs_token(pool, creating)
    assert elsewhere.must("GET", f"/api/v1/namespaces/{bench.space.name}/pods")["items"] == []
    monkeypatch.undo()
    client.forget()
    monkeypatch.setenv("BERTH_KUBECONFIG", str(bench.space.world.kubeconfig))
    assert [each.is_ready for each in asked(bench, pool).seen] == [True, True]


def test_without_the_stored_place_all_members_would_be_lost(
    bench: KubeHarness, elsewhere: FakeKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the test above looks for, seen: its eyes are open."""
    pool = placed(bench, bench.there())
    lead_to(elsewhere, monkeypatch)
    assert [each.is_lost for each in asked(bench, replace(pool, place="")).seen] == [True]


def test_pool_without_pods_may_change_its_cluster(
    bench: KubeHarness, elsewhere: FakeKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = placed(bench)
    lead_to(elsewhere, monkeypatch)
    assert asked(bench, pool).place not in ("", pool.place)


class Somewhere:
    """An API server as far as a place is concerned."""

    def __init__(self, namespace: str, uid: str, server: str) -> None:
        self.namespace, self.server, self.place, self._uid = (
            namespace,
            server,
            f"namespace {namespace} of context prod",
            uid,
        )

    def check_namespace(self) -> str:
        return self._uid


@pytest.mark.parametrize(
    ("there", "is_taken"),
    [
        (("ci", "u1", "s1"), True),
        (("ci", "u2", "s1"), True),
        (("ci", "u1", "s2"), True),
        (("ci", "u2", "s2"), False),
        (("ci", "", "s2"), False),
        (("default", "u3", "s1"), False),
    ],
    ids=[
        "the-same",
        "namespace-made-anew",
        "server-has-another-address",
        "another-cluster",
        "may-not-ask",
        "another-namespace",
    ],
)
@pytest.mark.parametrize("is_seen", [False, True], ids=["none-is-there", "one-is-there"])
def test_place_is_rejected_unless_taken_or_the_pods_are_seen(
    there: tuple[str, str, str], is_taken: bool, is_seen: bool
) -> None:
    made = MemberSnapshot(1, "a", "ready", external_id="lab-a/7")
    pool = PoolSnapshot(7, "lab", "kubernetes", members=(made,), place="ci/u1/s1")
    pods = [{"metadata": {"name": "lab-a", "uid": "7"}}] if is_seen else []
    if is_taken or is_seen:
        assert find_place(Somewhere(*there), pool, pods).split("/")[::2] == [there[0], there[2]]
    else:
        with pytest.raises(Misconfigured, match="leads to another place"):
            find_place(Somewhere(*there), pool, pods)


@pytest.mark.django_db(transaction=True)
def test_pool_reports_another_place_until_confirmed_or_led_back(
    bench: KubeHarness, elsewhere: FakeKube, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, member = ready(bench, watcher)
    hold(pool, lane="any")
    look_again(watcher)
    lead_to(elsewhere, monkeypatch)
    look_again(watcher)
    member.refresh_from_db()
    pool.refresh_from_db()
    assert (member.state, member.lost_at, member.down_at) == ("ready", None, None)
    assert "leads to another place" in pool.provider_error
    assert find_error(pool) is not None
    monkeypatch.setenv("BERTH_KUBECONFIG", str(bench.space.world.kubeconfig))
    look_again(watcher)
    pool.refresh_from_db()
    assert pool.provider_error == ""
    lead_to(elsewhere, monkeypatch)
    look_again(watcher)
    assert Member.objects.get(pk=member.pk).lost_at is None
    call_command("confirm_place", "lab", "--reason", "the old cluster burned down")
    look_again(watcher)
    assert Member.objects.get(pk=member.pk).lost_at is not None
    assert Event.objects.get(verb="confirm_place").reason == "the old cluster burned down"
    assert Pool.objects.get(pk=pool.pk).provider_error == ""


@pytest.mark.django_db(transaction=True)
def test_empty_pool_moves_by_configuration_without_confirmation(
    bench: KubeHarness, watcher: Watcher
) -> None:
    """A new pool has no members; the first member need not wait for a look."""
    config: dict[str, Any] = {
        "name": "lab",
        "provider": {"kind": "kubernetes", **bench.good_options},
        "slots": ["any"],
        "members": {"max": 3},
    }
    pool = create_pool(config)
    look_again(watcher)
    assert Pool.objects.get(pk=pool.pk).place
    other = Space(bench.space.world).make()
    try:
        add_members(pool_id=pool.pk, declared=["a"])
        with pytest.raises(BerthError):
            update_pool(
                "lab",
                {**config_of(pool), "provider": {**config["provider"], "namespace": other.name}},
            )
        assert Pool.objects.get(pk=pool.pk).place
        member = Member.objects.get(pool=pool)
        remove_member(member_id=member.pk, reason="it moves")
        perform_due("kubernetes")
        assert Member.objects.get(pk=member.pk).state == "gone"
        update_pool(
            "lab", {**config_of(pool), "provider": {**config["provider"], "namespace": other.name}}
        )
        assert Pool.objects.get(pk=pool.pk).place == ""
        add_members(pool_id=pool.pk, declared=["b"])
        perform_due("kubernetes")
        assert len(other.names()) == 1
    finally:
        other.remove()


@pytest.mark.django_db(transaction=True)
def test_unknown_place_or_pool_cannot_be_confirmed(bench: KubeHarness, watcher: Watcher) -> None:
    ready(bench, watcher)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pools_pool SET place = ''")
    for name in ("lab", "other"):
        with pytest.raises(CommandError):
            call_command("confirm_place", name, "--reason", "why not")


# -- other labels ----------------------------------------------------------------------------------

CHANGES = {
    "none": {"berth.dev/installation": None, "berth.dev/member": None},
    "another-member": {"berth.dev/member": "99"},
    "another-incarnation": {"berth.dev/incarnation": "9"},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_pod_with_changed_labels_still_counts_as_its_member(
    bench: KubeHarness, change: dict[str, str | None]
) -> None:
    member = bench.there()
    name = member.external_id.partition("/")[0]
    bench.space.patch("pods", name, {"metadata": {"labels": change}})
    seen, report = (
        asked(bench, bench.pool(member)).seen[0],
        bench.provider().sync(bench.pool(member), member),
    )
    assert (seen.is_ready, seen.is_lost, report.down, report.clean) == (
        True,
        False,
        "",
        frozenset(),
    )
    assert seen.why == report.why
    assert ("labels" in seen.why) is ("berth.dev/member" in change)


def test_pod_without_berth_labels_is_neither_deleted_nor_gone(bench: KubeHarness) -> None:
    member = bench.there()
    name = member.external_id.partition("/")[0]
    bench.space.patch("pods", name, {"metadata": {"labels": CHANGES["none"]}})
    leaving = replace(member, state="deleting", slots=())
    with pytest.raises(ConflictError, match="restore those of Berth"):
        bench.provider().sync(bench.pool(leaving), leaving)
    assert "deletionTimestamp" not in bench.space.pod(name)["metadata"]
    assert len(asked(bench, bench.pool(leaving)).seen) == 1
    bench.space.delete(name, grace=0)
    assert bench.provider().sync(bench.pool(leaving), leaving).is_gone


def test_relabelled_pod_would_be_lost_if_labels_alone_counted(
    bench: KubeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "complete", lambda _api, mine, *_: mine)
    member = bench.there()
    bench.space.patch(
        "pods", member.external_id.partition("/")[0], {"metadata": {"labels": CHANGES["none"]}}
    )
    assert asked(bench, bench.pool(member)).seen[0].is_lost


def test_answer_that_is_no_pod_list_is_an_error(
    bench: KubeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server at the address, such as a sign-in portal, may answer 200 to each call."""
    member = bench.there()
    monkeypatch.setattr(
        client, "parse", lambda _response: {"metadata": {"uid": str(uuid.UUID(int=1))}}
    )
    with pytest.raises(Misconfigured, match="no list of pods"):
        asked(bench, bench.pool(member))
