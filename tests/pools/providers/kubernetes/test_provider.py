"""Pods as members, over both API servers: deleted, evicted, finished, replaced or lost pods, and
errors of the server.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from pools.providers.base import MemberReport, MemberSnapshot, Seen
from pools.providers.kubernetes import manifests, reconcile
from project.kernel.kubernetes import client
from project.kernel.kubernetes import request as kubernetes_request
from project.kernel.outbox.operations import (
    ConflictError,
    Misconfigured,
    ProviderError,
    QuotaExceeded,
    Throttled,
    Unauthorised,
)
from tests.kubernetes_cluster.namespace import Space
from tests.kubernetes_cluster.plugin import WORLDS
from tests.pools.providers.kubernetes.harness import KubeHarness

OURS = ("pods", "secrets")


class Bench(KubeHarness):
    def sync(self, member: MemberSnapshot) -> MemberReport:
        return self.provider().sync(self.pool(member), member)

    def see(self, member: MemberSnapshot) -> Seen:
        (seen,) = self.provider().look(self.pool(member)).seen
        return seen

    def create(self, number: int = 1, **more: Any) -> str:
        """The name of its pod, which does not run yet."""
        creating = replace(self.member("creating", number), slots=(), **more)
        self.ids[number] = self.sync(creating).external_id
        return self.ids[number].partition("/")[0]

    def run(self, number: int = 1) -> tuple[MemberSnapshot, str]:
        """A member that is ready, and the name of its pod."""
        name = self.create(number)
        self.space.run(name)
        return self.member("ready", number), name

    def ours(self, plural: str = "pods") -> list[str]:
        return [name for name in self.space.names(plural) if name != "theirs"]


@pytest.fixture(params=list(WORLDS))
def bench(request: pytest.FixtureRequest, settings: Any) -> Iterator[Bench]:
    bench = Bench(WORLDS[request.param])
    with bench.world_of_its_own(request, settings):
        yield bench


def refused(call: Callable[[], Any], kind: type[Exception] = ProviderError) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


# -- how it is made --------------------------------------------------------------------------------


def test_pod_has_our_labels_and_its_token_as_a_file(bench: Bench) -> None:
    name = bench.create()
    pod, secret = bench.space.pod(name), bench.space.get(name, "secrets")
    labels = pod["metadata"]["labels"]
    assert labels["app.kubernetes.io/managed-by"] == "berth"
    assert (
        labels["berth.dev/pool"],
        labels["berth.dev/member"],
        labels["berth.dev/incarnation"],
    ) == ("7", "1", "1")
    assert pod["spec"]["restartPolicy"] == "Never"
    assert secret is not None
    assert [owner["uid"] for owner in secret["metadata"]["ownerReferences"]] == [
        pod["metadata"]["uid"]
    ]
    assert "berthm_1_x" not in str(pod)


def test_pod_whose_create_answer_was_lost_is_found_and_not_duplicated(bench: Bench) -> None:
    bench.space.world.refuse("create", 0, plural="pods", is_after=True)
    creating = replace(bench.member("creating"), slots=())
    refused(lambda: bench.sync(creating))
    (name,) = bench.ours()
    uid = bench.space.pod(name)["metadata"]["uid"]
    again = replace(creating, token="")
    assert not bench.provider().needs_token(bench.pool(again), again), "its Secret is there already"
    assert bench.sync(again).external_id == f"{name}/{uid}"
    assert bench.ours() == bench.ours("secrets") == [name]


def test_random_pod_names_would_duplicate_the_pod(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the test above looks for, seen: its eyes are open."""
    numbers = count(1)
    for module in (reconcile, manifests):
        monkeypatch.setattr(module, "pod_name", lambda *_: f"by-chance-{next(numbers)}")
    bench.space.world.refuse("create", 0, plural="pods", is_after=True)
    creating = replace(bench.member("creating"), slots=())
    refused(lambda: bench.sync(creating))
    (first,) = bench.ours()
    # Nor is it known by its labels.
    bench.space.patch("pods", first, {"metadata": {"labels": {"berth.dev/member": "2"}}})
    bench.sync(creating)
    assert len(bench.ours()) == 2


def test_failed_pod_creation_succeeds_at_the_next_try(bench: Bench) -> None:
    bench.space.world.refuse("create", 500, plural="pods")
    refused(bench.create)
    assert bench.ours() == []
    assert bench.create() in bench.ours()


def test_new_token_replaces_the_one_in_the_secret(bench: Bench) -> None:
    member, name = bench.run()
    before = bench.space.get(name, "secrets")
    bench.sync(replace(member, token="berthm_1_another"))
    after = bench.space.get(name, "secrets")
    assert before is not None
    assert after is not None
    assert before["metadata"]["uid"] == after["metadata"]["uid"]
    assert before["data"] != after["data"]


def test_next_incarnation_waits_until_the_previous_is_gone(bench: Bench) -> None:
    _, first = bench.run()
    second = replace(
        bench.member("creating"),
        slots=(),
        incarnation=2,
        external_id=bench.ids[1],
        token="berthm_1_y",
    )
    assert bench.sync(second).external_id in ("", bench.ids[1])
    assert bench.ours() == [first]
    assert "deletionTimestamp" in bench.space.pod(first)["metadata"]
    bench.let_go()
    made = bench.sync(second).external_id
    assert bench.ours() == [made.partition("/")[0]] == bench.ours("secrets")
    assert made.partition("/")[0] != first


def test_foreign_pod_under_our_name_is_left_alone(bench: Bench) -> None:
    name = bench.create()
    bench.space.delete(name, grace=0)
    bench.space.delete(name, plural="secrets")
    theirs = bench.space.create_pod(name, labels={"app": "theirs"})
    bench.ids.clear()
    assert name in refused(bench.create, ConflictError)
    assert bench.space.pod(name)["metadata"]["uid"] == theirs["metadata"]["uid"]


# -- what becomes of it ----------------------------------------------------------------------------


def down(bench: Bench, member: MemberSnapshot) -> tuple[MemberReport, Seen]:
    """Look and sync agree that the pod has ended, and its draining slots are clean."""
    report, seen = bench.sync(member), bench.see(member)
    assert report.down
    assert not report.is_gone
    assert (seen.is_down, seen.is_ready, seen.is_planned) == (True, False, report.is_planned)
    assert report.clean == {slot.id for slot in member.slots if slot.state == "draining"}
    return report, seen


def test_externally_deleted_pod_is_down(bench: Bench) -> None:
    member, name = bench.run()
    bench.space.delete(name, grace=0)
    report, _ = down(bench, member)
    assert name in report.down


@pytest.mark.parametrize(("code", "planned"), [(1, False), (0, True)], ids=["failed", "succeeded"])
def test_finished_pod_is_down(bench: Bench, code: int, planned: bool) -> None:
    member, name = bench.run()
    bench.space.finish(name, code)
    assert down(bench, member)[0].is_planned is planned


def test_pod_evicted_by_its_node_is_down_as_planned(
    bench: Bench,
) -> None:
    member, name = bench.run()
    bench.space.press_out(name)
    report, _ = down(bench, member)
    assert report.is_planned
    assert "Evicted" in report.down


def test_evicted_pod_is_not_down_before_its_deletion_is_confirmed(bench: Bench) -> None:
    member, name = bench.run()
    assert bench.space.evict(name) == 201
    seen, report = bench.see(member), bench.sync(member)
    assert (seen.is_ending, seen.is_down, report.down, report.is_gone) == (True, False, "", False)
    assert report.clean == frozenset()
    bench.space.confirm_deletion(name)
    down(bench, member)


def test_deleted_member_is_not_gone_before_the_server_confirms(bench: Bench) -> None:
    _, name = bench.run()
    leaving = bench.member("deleting")
    for _ in range(2):
        report = bench.sync(leaving)
        assert not report.is_gone
        assert not bench.see(leaving).is_down
    assert bench.ours("secrets") == []
    bench.space.confirm_deletion(name)
    assert bench.sync(leaving).is_gone


def test_pod_on_a_lost_node_is_neither_down_nor_gone(bench: Bench) -> None:
    """Its processes may still run: only its removal from the cluster proves their end."""
    member, name = bench.run()
    bench.space.lose_node(name)
    report, seen = bench.sync(member), bench.see(member)
    assert (report.down, report.is_gone, seen.is_down) == ("", False, False)
    assert not bench.sync(replace(bench.member("deleting"), slots=())).is_gone
    bench.space.confirm_deletion(name)
    assert bench.sync(replace(bench.member("deleting"), slots=())).is_gone


@pytest.mark.parametrize("labels", ["theirs", "ours"])
def test_member_replaced_by_a_foreign_pod_is_down_and_that_pod_stays(
    bench: Bench, labels: str
) -> None:
    member, name = bench.run()
    ours = bench.space.pod(name)["metadata"]["labels"]
    bench.space.delete(name, grace=0)
    stranger = bench.space.create_pod(
        name, labels=ours if labels == "ours" else {"app": "theirs"}, node="n2"
    )
    bench.space.run(name)
    down(bench, member)
    bench.sync(replace(bench.member("deleting"), slots=()))
    there = bench.space.pod(name)["metadata"]
    assert there["uid"] == stranger["metadata"]["uid"]
    assert "deletionTimestamp" not in there


def test_pod_replaced_between_look_and_delete_is_not_deleted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The uid goes along with the delete: without it the stranger would die."""
    _, name = bench.run()
    delete = client.Api.delete_pod

    def replaced_first(api: Any, pod: Any, grace: int | None = None) -> None:
        bench.space.delete(name, grace=0)
        bench.space.create_pod(name, labels={"app": "theirs"}, node="n2")
        delete(api, pod, grace)

    monkeypatch.setattr(client.Api, "delete_pod", replaced_first)
    assert bench.sync(replace(bench.member("deleting"), slots=())).is_gone
    assert "deletionTimestamp" not in bench.space.pod(name)["metadata"]


def test_delete_without_the_uid_would_delete_the_foreign_pod(bench: Bench) -> None:
    """As above, with the precondition taken out."""
    _, name = bench.run()
    uid = bench.space.pod(name)["metadata"]["uid"]
    bench.space.delete(name, grace=0)
    bench.space.create_pod(name, labels={"app": "theirs"}, node="n2")
    assert bench.space.delete(name, uid=uid) == 409
    assert bench.space.delete(name) == 200
    assert "deletionTimestamp" in bench.space.pod(name)["metadata"]


def test_foreign_objects_and_other_installations_are_left_alone(bench: Bench) -> None:
    bench.run(1)
    pod = bench.space.pod(bench.create(2))
    labels = {**pod["metadata"]["labels"], "berth.dev/installation": "another"}
    bench.space.create_pod("another", labels=labels)
    before = [
        bench.space.pod(name)["metadata"]["resourceVersion"] for name in ("theirs", "another")
    ]
    for number in (1, 2):
        bench.sync(replace(bench.member("deleting", number), slots=()))
    bench.let_go()
    assert [
        bench.space.pod(name)["metadata"]["resourceVersion"] for name in ("theirs", "another")
    ] == before


# -- errors: one clear word each, and healed by itself ---------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (429, Throttled),
        (500, ProviderError),
        (503, ProviderError),
        (504, ProviderError),
        (401, Unauthorised),
        (0, ProviderError),
    ],
)
def test_error_answer_has_its_type_and_the_next_look_recovers(
    bench: Bench, status: int, kind: type[Exception]
) -> None:
    member, _ = bench.run()
    bench.space.world.refuse("*", status, times=2, retry_after=3 if status == 429 else None)
    with pytest.raises(kind) as caught:
        bench.see(member)
    if status == 429:
        assert caught.value.retry_after == 3  # type: ignore[attr-defined]
    bench.space.world.heal()
    assert bench.see(member).is_ready


def test_exhausted_quota_is_reported(bench: Bench) -> None:
    words = (
        "pods is forbidden: exceeded quota: small, requested: pods=1, used: pods=3, limited: pods=3"
    )
    bench.space.world.refuse("create", 403, plural="pods", message=words)
    assert "quota" in refused(bench.create, QuotaExceeded)
    assert bench.create()


def test_silent_server_times_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    member, _ = bench.run()
    monkeypatch.setattr(kubernetes_request, "READ", 0.5)
    bench.space.world.hang("list", times=2)
    assert "does not answer" in refused(lambda: bench.see(member))
    bench.space.world.heal()
    bench.space.world.cut()
    client.forget()
    assert bench.see(member).is_ready


def test_unreachable_server_makes_no_member_gone(bench: Bench) -> None:
    member, _ = bench.run()
    bench.space.world.kill()
    assert "not reachable" in refused(lambda: bench.see(member))
    refused(lambda: bench.sync(member))
    bench.space.world.start()
    client.forget()
    assert bench.see(member).is_ready


def test_refused_template_is_reported_and_recovers(bench: Bench) -> None:
    good = bench.good_options
    bench.good_options = {
        **good,
        "template": {
            **good["template"],
            "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
        },
    }
    said = refused(bench.create, Misconfigured)
    assert "must be less than or equal to cpu limit" in said
    assert bench.ours() == []
    bench.good_options = good
    assert bench.create()


def test_unknown_context_is_reported_with_the_known_ones(bench: Bench) -> None:
    bench.good_options = {**bench.good_options, "context": "prod"}
    said = refused(bench.create, Misconfigured)
    assert "no context prod" in said
    assert "admin, gated, limited" in said


def test_unreachable_server_is_reported_with_its_address(bench: Bench) -> None:
    bench.good_options = {**bench.good_options, "context": "nowhere"}
    assert "http://127.0.0.1:" in refused(bench.create)


def test_rejected_credentials_are_reported_until_the_file_is_fixed(bench: Bench) -> None:
    bench.good_options = {**bench.good_options, "context": "stranger"}
    assert "credentials" in refused(bench.create, Unauthorised)
    world = bench.space.world
    whole = world.kubeconfig.read_text()
    world.kubeconfig.write_text(
        whole.replace(
            '"cluster": "admin", "user": "stranger"', '"cluster": "admin", "user": "admin"'
        )
    )
    try:
        assert bench.create()
    finally:
        world.write_kubeconfig()


RULES = (
    {
        "apiGroups": [""],
        "resources": ["pods"],
        "verbs": ["get", "list", "watch", "create", "delete"],
    },
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "create", "patch", "delete"]},
)


def test_least_rights_are_enough_for_the_provider(bench: Bench) -> None:
    bench.space.grant("limited", *RULES)
    bench.good_options = {**bench.good_options, "context": "limited"}
    bench.space.until(
        lambda: bench.space.world.ask("GET", f"{bench.space.path}/pods", user="limited")[0] == 200
    )
    member, name = bench.run()
    assert bench.see(member).is_ready
    bench.sync(replace(member, token="berthm_1_another"))
    assert not bench.sync(bench.member("deleting")).is_gone
    bench.space.confirm_deletion(name)
    assert bench.sync(bench.member("deleting")).is_gone


@pytest.mark.parametrize("missing", OURS)
def test_missing_right_is_named_and_recovers(bench: Bench, missing: str) -> None:
    bench.space.grant("limited", *(rule for rule in RULES if rule["resources"] != [missing]))
    bench.good_options = {**bench.good_options, "context": "limited"}
    said = refused(bench.create, Unauthorised)
    assert missing in said
    assert bench.space.name in said
    bench.space.grant("limited", *RULES)
    bench.space.until(
        lambda: (
            bench.space.world.ask("GET", f"{bench.space.path}/{missing}/none", user="limited")[0]
            == 404
        )
    )
    assert bench.create()


def test_missing_namespace_is_reported_loses_no_member_and_recovers(bench: Bench) -> None:
    member, _ = bench.run()
    name = bench.space.name
    bench.space.end()
    assert "being deleted" in refused(lambda: bench.create(2), Misconfigured)
    bench.space.remove()
    for call in (lambda: bench.see(member), lambda: bench.create(3)):
        assert "Create the namespace" in refused(call, Misconfigured)
    Space(bench.space.world, name).make()
    assert bench.create(4)
