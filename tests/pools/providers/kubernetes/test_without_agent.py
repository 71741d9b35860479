"""A Kubernetes pool with `agent: false`: its pods run no Berth agent, and their readiness makes
members ready.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from claims.models import Claim
from pools.config.spec import PoolSpec, read_pool
from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from pools.providers.base import MemberSnapshot, PoolSnapshot, has_agents, option_readers
from pools.providers.kubernetes.manifests import pod_manifest
from project.kernel.errors import Conflict, Invalid
from project.kernel.models import Event
from project.kernel.outbox.operations import perform_due
from slots.api.agents import make_token
from slots.members.liveness import record_heartbeat
from slots.members.restart import restart_member
from slots.members.services import remove_member
from slots.models import Slot
from slots.sync.watcher import observe_pool
from tests.claims.helpers import again, ask, let_go
from tests.kubernetes_cluster.clusters import Thing
from tests.pools.providers.kubernetes.harness import KubeHarness
from tests.slots.helpers import is_consistent

IMAGE = "registry.example/game:1"


def read(agent: object = False, **more: Any) -> tuple[PoolSpec | None, list[tuple[str, str]]]:
    options = {"kind": "kubernetes", "template": {"image": IMAGE}, "agent": agent}
    spec, faults = read_pool(
        {"name": "lab", "provider": options, "slots": 2, **more}, option_readers()
    )
    return spec, [(fault.field, fault.message) for fault in faults]


def test_pods_run_an_agent_unless_the_pool_says_otherwise() -> None:
    for agent, expected in ((None, True), (True, True), (False, False)):
        spec, faults = read(agent, slots=["any"] if expected else 2)
        assert spec is not None, faults
        assert has_agents(spec) is expected
        assert ("agent" in spec.options) is not expected, "the default is not written out"
        assert (spec.liveness is not None) is expected, "only agents send heartbeats"


def test_agent_option_is_true_or_false() -> None:
    _, faults = read("no")
    assert [field for field, _ in faults] == ["provider.agent"]


@pytest.mark.parametrize("slots", [["any"], ["plan"], ["any", "plan", "plan"]], ids=str)
def test_task_slots_without_an_agent_are_refused_at_their_field(slots: list[str]) -> None:
    spec, faults = read(slots=slots)
    assert spec is None
    assert [field for field, _ in faults] == ["slots"]
    assert "provider.agent: false" in faults[0][1]


def test_grace_needs_no_time_for_an_apply_without_an_agent() -> None:
    options = {"kind": "kubernetes", "template": {"image": IMAGE, "grace": 5}}
    for agent, fields in ((True, ["provider.template.grace"]), (False, [])):
        config = {"name": "lab", "provider": {**options, "agent": agent}}
        _, faults = read_pool({**config, "slots": ["any"] if agent else 1}, option_readers())
        assert [fault.field for fault in faults] == fields


@pytest.mark.parametrize("user", [0, 10002])
def test_pod_without_an_agent_runs_its_image_as_it_is(user: int) -> None:
    options = {"agent": False, "template": {"image": IMAGE, "user": user}}
    pool = PoolSnapshot(7, "lab", "kubernetes", options, installation="b1")
    pod = pod_manifest(pool, MemberSnapshot(5, "m1", "creating"), "games", "")
    (container,) = pod["spec"]["containers"]
    assert "command" not in container
    assert container["env"] == [{"name": "HOME", "value": "/state"}]
    assert {each["name"] for each in pod["spec"]["volumes"]} == {"state", "tmp"}
    assert {each["name"] for each in container["volumeMounts"]} == {"state", "tmp"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


# -- over an API server ----------------------------------------------------------------------------


@pytest.fixture
def pool(bench: KubeHarness) -> Iterator[Pool]:
    bench.good_options = {k: v for k, v in bench.good_options.items() if k != "url"}
    provider = {"kind": "kubernetes", **bench.good_options, "agent": False}
    yield create_pool({"name": "lab", "provider": provider, "slots": 2, "members": {"list": ["a"]}})
    assert is_consistent()


def start(pool: Pool, bench: KubeHarness) -> Member:
    """The only member of the pool, whose pod was created and does not run yet."""
    observe_pool(pool)
    perform_due("kubernetes")
    member = Member.objects.get(pool=pool)
    assert member.state == "creating"
    return member


def set_ready(bench: KubeHarness, member: Member, *, is_ready: bool) -> None:
    name = member.external_id.partition("/")[0]
    bench.space.run(name)
    if not is_ready:
        condition = {"type": "Ready", "status": "False", "reason": "ContainersNotReady"}
        bench.space.set_phase(name, "Running", conditions=[condition])


def observe(pool: Pool, member: Member) -> str:
    observe_pool(Pool.objects.get(pk=pool.pk))
    member.refresh_from_db()
    return member.state


@pytest.mark.django_db(transaction=True)
def test_member_without_an_agent_is_ready_while_its_pod_is_ready(
    pool: Pool, bench: KubeHarness
) -> None:
    member = start(pool, bench)
    set_ready(bench, member, is_ready=False)
    assert observe(pool, member) == "creating"
    assert member.outside == "its pod runs and is not ready"
    record_heartbeat(member_id=member.pk, incarnation=member.incarnation)
    assert observe(pool, member) == "creating", "a heartbeat proves no readiness here"
    set_ready(bench, member, is_ready=True)
    assert observe(pool, member) == "ready"
    set_ready(bench, member, is_ready=False)
    assert observe(pool, member) == "offline"
    set_ready(bench, member, is_ready=True)
    assert observe(pool, member) == "ready"


@pytest.mark.django_db(transaction=True)
def test_pod_without_an_agent_gets_no_token(pool: Pool, bench: KubeHarness) -> None:
    member = start(pool, bench)
    pods: list[Thing] = [p for p in bench.space.pods() if p["metadata"]["name"] != "theirs"]
    assert [p["metadata"]["name"] for p in pods] == [member.external_id.partition("/")[0]]
    assert bench.space.names("secrets") == ["theirs"]
    assert member.token_hash == ""
    assert not Event.objects.filter(verb="issue_token").exists()
    with pytest.raises(Conflict, match="neither agents nor heartbeats"):
        make_token(Member.objects.select_related("pool").get(pk=member.pk))


@pytest.mark.django_db(transaction=True)
def test_claims_bind_to_a_member_without_an_agent_and_free_its_slots_again(
    pool: Pool, bench: KubeHarness
) -> None:
    member = start(pool, bench)
    set_ready(bench, member, is_ready=True)
    assert observe(pool, member) == "ready"
    claim = ask()
    assert claim.state == "bound"
    let_go(claim)
    perform_due("kubernetes")
    assert again(claim).state == "ended"
    assert set(Slot.objects.values_list("state", flat=True)) == {"idle"}


@pytest.mark.django_db(transaction=True)
def test_claim_of_a_task_is_refused_where_no_agent_runs(pool: Pool, bench: KubeHarness) -> None:
    start(pool, bench)
    with pytest.raises(Invalid) as caught:
        ask(run={"executor": "command", "commands": {"plan": "true"}})
    assert [fault.field for fault in caught.value.fields] == ["task"]
    assert not Claim.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_ended_pod_without_an_agent_is_replaced(pool: Pool, bench: KubeHarness) -> None:
    member = start(pool, bench)
    set_ready(bench, member, is_ready=True)
    assert observe(pool, member) == "ready"
    before = member.external_id
    bench.space.finish(before.partition("/")[0])
    assert observe(pool, member) == "offline"
    restart_member(member_id=member.pk, reason="test")
    perform_due("kubernetes")
    bench.let_go()
    perform_due("kubernetes")
    member.refresh_from_db()
    assert member.incarnation == 2
    set_ready(bench, member, is_ready=True)
    assert observe(pool, member) == "ready"
    assert bench.space.names("secrets") == ["theirs"]


@pytest.mark.django_db(transaction=True)
def test_removed_member_without_an_agent_leaves_neither_pod_nor_secret(
    pool: Pool, bench: KubeHarness
) -> None:
    member = start(pool, bench)
    set_ready(bench, member, is_ready=True)
    assert observe(pool, member) == "ready"
    remove_member(member_id=member.pk, reason="test")
    perform_due("kubernetes")
    bench.let_go()
    assert observe(pool, member) == "deleting"
    perform_due("kubernetes")
    member.refresh_from_db()
    assert member.state == "gone"
    assert bench.space.names() == bench.space.names("secrets") == ["theirs"]


@pytest.mark.django_db(transaction=True)
def test_berth_needs_no_right_to_secrets_where_no_agent_runs(
    pool: Pool, bench: KubeHarness
) -> None:
    bench.space.world.refuse("*", 403, plural="secrets", times=50)
    member = start(pool, bench)
    set_ready(bench, member, is_ready=True)
    assert observe(pool, member) == "ready"
