"""The API of workspaces: addresses with and without the pool, and the roles that decide."""

import pytest

from claims.models import Workspace
from claims.workspaces.services import add_workspace, lock_workspace
from claims.workspaces.sharing import share_workspace
from pools.models import Pool
from project.kernel.models import Event
from tests.api.conftest import Callers
from tests.api.helpers import make_pool

pytestmark = pytest.mark.django_db


@pytest.fixture
def pools() -> dict[str, int]:
    found = {name: make_pool(name).pk for name in ("tf", "dns")}
    for pool, name in (("tf", "net"), ("dns", "net"), ("tf", "net/prod"), ("dns", "zone")):
        add_workspace(pool_id=found[pool], name=name)
    return found


def pool_of(pools: dict[str, int], name: str) -> Workspace:
    return Workspace.objects.get(pool_id=pools[name], name="net")


def test_an_address_without_the_pool_works_while_it_is_unambiguous(
    caller: Callers, pools: dict[str, int]
) -> None:
    reader = caller("viewer")
    assert reader.get("workspaces/tf/net/").body["pool"] == "tf"
    assert reader.get("workspaces/tf/net/prod/").body["name"] == "net/prod"
    assert reader.get("workspaces/net/prod/").body["pool"] == "tf", "as before workspaces had pools"
    several = reader.get("workspaces/net/")
    assert (several.status, several.body["code"], several.body["choices"]) == (
        409,
        "ambiguous_workspace",
        ["dns/net", "tf/net"],
    )
    assert reader.get("workspaces/tf/nothing/").status == 404


def test_a_reader_of_one_pool_sees_only_workspaces_of_that_pool(
    caller: Callers, pools: dict[str, int]
) -> None:
    reader = caller("viewer", Pool.objects.get(name="tf"))
    assert [(w["pool"], w["name"]) for w in reader.get("workspaces/").body["results"]] == [
        ("tf", "net"),
        ("tf", "net/prod"),
    ]
    assert reader.get("workspaces/net/").body["pool"] == "tf", (
        "the other one is not there for this caller"
    )
    for path in ("workspaces/dns/net/", "workspaces/zone/", "workspaces/dns/zone/runs/"):
        hidden, missing = (
            reader.get(path),
            reader.get(path.replace("zone", "nothing").replace("dns/net", "dns/nothing")),
        )
        assert (
            (hidden.status, hidden.body["code"])
            == (missing.status, missing.body["code"])
            == (404, "not_found")
        )


def test_a_workspace_is_locked_and_settled_by_roles_in_its_pool(
    caller: Callers, pools: dict[str, int]
) -> None:
    theirs = caller("operator", Pool.objects.get(name="dns"))
    ours, approver = (
        caller(role, Pool.objects.get(name="tf")) for role in ("operator", "approver")
    )
    share_workspace(workspace_id=pool_of(pools, "tf").pk, pool_id=make_pool("third").pk, reason="x")
    third = caller("operator", Pool.objects.get(name="third"))
    lock = "workspaces/tf/net/lock/"
    assert theirs.post(lock, {"reason": "x"}).status == 404
    refused = third.post(lock, {"reason": "x"})
    assert (refused.status, third.get("workspaces/tf/net/").status) == (403, 200), (
        "its pool uses it: seen, and no more"
    )
    assert ours.post(lock, {"reason": "audit"}).body["is_locked"] is True
    assert (
        ours.post("workspaces/tf/brand-new/lock/", {"reason": "before the first claim"}).body[
            "pool"
        ]
        == "tf"
    )
    assert ours.post("workspaces/tf/net/unlock/", {}).body["is_locked"] is False
    settle = {"what": "applied", "reason": "looked"}
    assert approver.post("workspaces/tf/net/settle/", settle).body["code"] == "nothing_lost", (
        "let in"
    )
    assert third.post("workspaces/tf/net/settle/", settle).status == 403
    assert theirs.post("workspaces/tf/net/settle/", settle).status == 404
    assert Event.objects.get(verb="lock", data__workspace="net").pool_id == pools["tf"]


def test_a_change_by_an_ambiguous_address_means_the_named_pool(
    caller: Callers, pools: dict[str, int]
) -> None:
    """`dns/zone` of pool tf is an old name that begins with a pool's."""
    old = add_workspace(pool_id=pools["tf"], name="dns/zone2")
    everywhere = caller("operator")
    assert everywhere.get("workspaces/dns/zone2/").body["pool"] == "tf"
    assert everywhere.post("workspaces/dns/zone2/lock/", {"reason": "x"}).body["pool"] == "dns"
    assert Workspace.objects.get(pk=old).locked_at is None


def test_an_operator_of_both_pools_shares_and_one_of_either_ends_it(
    caller: Callers, pools: dict[str, int]
) -> None:
    third = make_pool("third")
    ours, theirs, both = (
        caller("operator", Pool.objects.get(name="tf")),
        caller("operator", third),
        caller("operator"),
    )
    path, body = "workspaces/tf/net/pools/", {"pool": "third", "reason": "one network"}
    assert ours.post(path, body).status == 404, "the other pool is not there for this caller"
    assert theirs.post(path, body).status == 404
    assert both.post(path, {"pool": "third"}).status == 400
    answer = both.post(path, body)
    assert [(s["pool"], s["is_allowed"], s["reason"]) for s in answer.body["shared_with"]] == [
        ("third", True, "one network")
    ]
    assert both.post(path, body).body["code"] == "shared_already"
    assert ours.get("workspaces/tf/net/").body["shared_with"] == [], (
        "it does not say of pools that the caller may not see"
    )
    assert theirs("DELETE", f"{path}third/").status == 400, "a reason is needed"
    assert theirs("DELETE", f"{path}third/?reason=apart").body["shared_with"] == []
    assert theirs("DELETE", f"{path}third/?reason=apart").status == 404
    assert [event.actor.partition("/")[2] for event in Event.objects.filter(verb="unshare")] == [
        "test",
        "test",
    ]


def test_an_old_address_without_a_pool_can_be_locked_when_unambiguous(
    caller: Callers, pools: dict[str, int]
) -> None:
    everywhere = caller("operator")
    assert everywhere.post("workspaces/zone/lock/", {"reason": "x"}).body["pool"] == "dns"
    assert (
        everywhere.post("workspaces/net/lock/", {"reason": "x"}).body["code"]
        == "ambiguous_workspace"
    )
    assert everywhere.post("workspaces/nothing/lock/", {"reason": "x"}).status == 404
    lock_workspace(workspace_id=pool_of(pools, "tf").pk, reason="x")
