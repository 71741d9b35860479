"""A workspace belongs to one pool; another pool uses it only while sharing is allowed."""

from functools import partial
from typing import Any

import pytest
from django.db import transaction

from claims.lifecycle.pool_deletion import delete_pool
from claims.models import Workspace, WorkspaceShare
from claims.workspaces.selectors import find_workspaces, get_workspace, list_workspaces
from claims.workspaces.services import add_workspace, lock_workspace
from claims.workspaces.sharing import share_workspace, unshare_workspace
from pools.models import Pool
from project.kernel.errors import BerthError, Conflict, Invalid, NotFound
from project.kernel.models import Event
from tests.claims.helpers import again, ask, is_sound, let_go, make_pool, sql, ws
from tests.slots.concurrent_actors import Actor, Gate

pytestmark = pytest.mark.usefixtures("tables")


@pytest.fixture(autouse=True)
def pools(tables: None) -> dict[str, Pool]:
    return {name: make_pool(name, slots=["any", "any"], members=2) for name in ("tf", "dns")}


def apply(pool: str, workspace: str = "net", **body: Any) -> Any:
    return ask(pool, task="plan_and_apply", workspace=workspace, **body)


def of(pool: str, name: str = "net") -> Workspace:
    return Workspace.objects.get(pool__name=pool, name=name)


def share(owner: str, other: str, name: str = "net") -> None:
    share_workspace(
        workspace_id=of(owner, name).pk,
        pool_id=Pool.objects.get(name=other).pk,
        reason="one network",
    )


def code_of(work: Any) -> str:
    with pytest.raises(BerthError) as refused:
        work()
    return str(refused.value.code)


def test_the_same_name_in_two_pools_is_two_workspaces() -> None:
    mine, theirs = apply("tf"), apply("dns")
    assert (mine.state, theirs.state) == ("bound", "bound"), "neither waits for the other"
    assert [(w.pool, w.name) for w in list_workspaces()] == [("dns", "net"), ("tf", "net")]
    assert (mine.workspace_pool, again(theirs).workspace_pool) == ("tf", "dns")
    assert apply("tf").state == "blocked", "in its own pool one after the other"
    lock_workspace(workspace_id=of("dns").pk, reason="audit")
    assert ask("dns", task="plan", workspace="net").state == "blocked"
    assert ask("tf", task="plan", workspace="net").state == "bound", (
        "a lock of another pool's workspace does not hold it up"
    )
    assert is_sound()


def test_a_shared_workspace_is_one_for_both_pools() -> None:
    first = apply("tf")
    share("tf", "dns")
    second = apply("dns")
    assert (second.state, second.workspace_pool, second.wait.blockers) == (
        "blocked",
        "tf",
        [first.id],
    )
    assert Workspace.objects.count() == 1
    let_go(first)
    assert again(second).state == "waiting", "the next of both pools"
    events = Event.objects.filter(verb="share").order_by("pool_id")
    assert {event.pool_id for event in events} == set(Pool.objects.values_list("pk", flat=True)), (
        "in the log of both"
    )
    assert {event.reason for event in events} == {"one network"}


def test_after_sharing_ends_the_name_means_a_workspace_of_its_own() -> None:
    apply("tf")
    share("tf", "dns")
    blocked = apply("dns")
    unshare_workspace(
        workspace_id=of("tf").pk, pool_id=Pool.objects.get(name="dns").pk, reason="apart again"
    )
    assert again(blocked).state == "blocked", "what is there goes on to its end"
    own = apply("dns")
    assert (own.state, own.workspace_pool) == ("bound", "dns")
    assert Event.objects.filter(verb="unshare", reason="apart again").count() == 2


def test_a_name_means_one_workspace_in_each_pool() -> None:
    apply("tf")
    apply("dns")
    assert code_of(partial(share, "tf", "dns")) == "name_taken"
    make_pool("third", slots=["any"], members=1)
    share("tf", "third")
    assert code_of(partial(share, "dns", "third")) == "name_taken"
    assert code_of(partial(share, "tf", "third")) == "shared_already"
    assert code_of(partial(share, "tf", "tf")) == "own_workspace"


def test_an_unused_workspace_gives_way_to_a_shared_one() -> None:
    apply("tf")
    ws("net", "dns")
    share("tf", "dns")
    assert apply("dns").workspace_pool == "tf"


def test_a_claim_over_several_pools_uses_the_workspace_of_its_first() -> None:
    assert (
        code_of(lambda: ask(pools=["tf", "dns"], workspace="net", kind="plan"))
        == "workspace_not_shared"
    )
    ws("net", "tf")
    share("tf", "dns")
    claim = ask(pools=["tf", "dns"], workspace="net", kind="plan")
    assert (claim.state, again(claim).workspace_pool) == ("bound", "tf")
    other_way = ask(pools=["dns", "tf"], workspace="net", kind="plan")
    assert again(other_way).workspace_pool == "tf", "in the pool dns the name means the shared one"


def test_a_workspace_requires_an_existing_pool() -> None:
    with pytest.raises(Invalid) as refused:
        ask("nowhere", task="plan_and_apply", workspace="net")
    assert [(e.field, "nowhere does not exist" in e.message) for e in refused.value.fields] == [
        ("workspace", True)
    ]
    with pytest.raises(Invalid):
        ask(pools=["tf", "nowhere"], workspace="net", kind="plan")


def test_a_new_pool_of_the_same_name_takes_over_workspaces_and_locks() -> None:
    lock_workspace(workspace_id=ws("net", "tf"), reason="the state is broken")
    delete_pool("tf", cascade=True, reason="moved")
    sql("UPDATE pools_pool SET state = 'gone' WHERE name = 'tf'")  # its members have left
    fresh = make_pool("tf", slots=["any"], members=1)
    claim = apply("tf")
    assert (claim.state, Workspace.objects.count(), of("tf").pool_id) == ("blocked", 1, fresh.pk)


def test_claims_on_an_undecided_workspace_are_refused_until_the_decision() -> None:
    apply("tf")
    dns = Pool.objects.get(name="dns")
    WorkspaceShare.objects.create(workspace=of("tf"), pool=dns)
    with pytest.raises(Conflict) as refused:
        apply("dns")
    assert (refused.value.code, "tf" in refused.value.detail) == ("workspace_undecided", False)
    assert code_of(lambda: add_workspace(pool_id=dns.pk, name="net")) == "workspace_undecided"
    share("tf", "dns")
    assert apply("dns").workspace_pool == "tf"
    make_pool("third", slots=["any"], members=1)
    third = Pool.objects.get(name="third")
    WorkspaceShare.objects.create(workspace=of("tf"), pool=third)
    unshare_workspace(workspace_id=of("tf").pk, pool_id=third.pk, reason="another network")
    assert apply("third").workspace_pool == "third"


def test_sharing_and_unsharing_require_a_reason_and_existing_rows() -> None:
    net, dns = ws("net", "tf"), Pool.objects.get(name="dns")
    for work in (share_workspace, unshare_workspace):
        with pytest.raises(Invalid):
            work(workspace_id=net, pool_id=dns.pk, reason=" ")
        with pytest.raises(NotFound):
            work(workspace_id=net + 99, pool_id=dns.pk, reason="x")
        with pytest.raises(NotFound):
            work(workspace_id=net, pool_id=dns.pk + 99, reason="x")
    with pytest.raises(NotFound):
        unshare_workspace(workspace_id=net, pool_id=dns.pk, reason="x")


def test_an_address_names_the_pool_first_and_finds_old_ones_by_name() -> None:
    ws("net", "tf")
    ws("net", "dns")
    ws("tf/net", "dns")
    assert [view.path for view in find_workspaces("tf/net")] == ["tf/net", "dns/tf/net"]
    assert [view.path for view in find_workspaces("net")] == ["dns/net", "tf/net"]
    assert find_workspaces("nowhere/net") == []
    assert get_workspace(ws("net", "tf")).path == "tf/net"


@pytest.mark.parametrize("order", ["the share leads", "the claim leads"])
@pytest.mark.usefixtures("committed_tables")
def test_a_claim_racing_a_share_uses_the_shared_workspace_or_prevents_it(order: str) -> None:
    ws("net", "tf")
    gate = Gate()

    def sharing() -> str:
        try:
            share("tf", "dns")
        except Conflict as error:
            return str(error.code)
        return "shared"

    def claiming() -> str:
        return str(apply("dns").workspace_pool)

    def lead(work: Any) -> Any:
        def inner() -> str:
            with transaction.atomic():
                answer = str(work())
                gate.stop_here()
            return answer

        return inner

    first, second = (sharing, claiming) if order == "the share leads" else (claiming, sharing)
    leader = gate.stops(lead(first))
    follower = Actor(second).begin()
    follower.until_blocked_or_done()
    gate.open()
    answers = (leader.result(), follower.result())
    assert answers == (("shared", "tf") if order == "the share leads" else ("dns", "name_taken"))
