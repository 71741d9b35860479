"""Workspace pages: addresses, enabled buttons, and sharing with another pool."""

import pytest

from claims.lifecycle.cancel import cancel_claim
from claims.models import Workspace, WorkspaceShare
from claims.tasks.approvals.services import approve_plan
from claims.workspaces.services import add_workspace
from claims.workspaces.sharing import share_workspace
from tests.claims.tasks.approvals.helpers import decider
from tests.claims.tasks.plans.helpers import begin, digest_of, make_task_pool, planned
from tests.dashboard.helpers import chief, make_pool, person
from tests.dashboard.plain_browser import DIALOG, browser_of, get, off, post

pytestmark = pytest.mark.django_db


def test_an_old_address_redirects_to_the_workspace_or_to_a_choice() -> None:
    tf, dns = make_pool("tf"), make_pool("dns")
    client = browser_of(chief())
    for pool, name in ((tf, "net/prod"), (tf, "net"), (dns, "net")):
        add_workspace(pool_id=pool.pk, name=name)
    assert (
        client.get("/workspaces/net/prod/?before=7")["Location"]
        == "/workspaces/tf/net/prod/?before=7"
    )
    assert "net/prod" in get(client, "/workspaces/tf/net/prod/")
    choice = get(client, "/workspaces/net/")
    assert 'href="/workspaces/tf/net/"' in choice and 'href="/workspaces/dns/net/"' in choice
    one = browser_of(person("vera", "viewer", pool=dns))
    assert one.get("/workspaces/net/")["Location"] == "/workspaces/dns/net/"
    get(one, "/workspaces/tf/net/", 404)
    listed = get(one, "/workspaces/")
    assert "/workspaces/dns/net/" in listed and "/workspaces/tf/" not in listed


def test_a_lost_apply_is_settled_by_page_with_a_role_in_its_pool() -> None:
    pool, other = make_task_pool(), make_pool("other")
    claim = planned()
    approve_plan(claim_id=claim.id, digest=digest_of(claim), by=decider("olaf"))
    begin(claim)
    cancel_claim(claim_id=claim.id)
    path = "/workspace/settle/tf/network/"
    for name, role, where, status in (
        ("vera", "viewer", pool, 403), ("otto", "operator", other, 404),
        ("cleo", "claimant", pool, 403), ("ada", "approver", pool, 200),
        ("olga", "operator", pool, 200),
    ):  # fmt: skip
        get(
            browser_of(person(name, role, pool=where)),
            path,
            status,
            **({} if status == 404 else DIALOG if status == 200 else {}),
        )
    client = browser_of(person("abe", "approver", pool=pool))
    assert off(get(client, "/workspaces/tf/network/"), "Record outcome…") is None
    assert post(client, path, what="not_applied", reason="looked").status_code == 204
    assert Workspace.objects.get(name="network").locked_at is None


def test_a_workspace_is_shared_by_an_operator_of_both_pools() -> None:
    tf, dns = make_pool("tf"), make_pool("dns")
    net = add_workspace(pool_id=tf.pk, name="net")
    both = browser_of(chief())
    question = get(both, "/workspace/share/tf/net/", **DIALOG)
    assert "dns" in question and "one apply at a time in both pools together" in question
    assert "Operators of tf keep control of its lock" in question
    assert post(both, "/workspace/share/tf/net/", pool="dns", reason="").status_code == 422
    assert (
        post(both, "/workspace/share/tf/net/", pool="dns", reason="one network").status_code == 204
    )
    assert "Shared with dns" in get(both, "/workspaces/tf/net/")
    ours = browser_of(person("tom", "operator", pool=tf))
    assert "dns" not in get(ours, "/workspaces/tf/net/").replace("dns-", ""), (
        "a pool that the reader may not see"
    )
    assert "You are an operator in no pool other than" in get(
        ours, "/workspace/share/tf/net/", **DIALOG
    )
    theirs = browser_of(person("dan", "operator", pool=dns))
    text = get(theirs, "/workspaces/tf/net/")
    assert (off(text, "Lock…"), off(text, "End…")) == ("This needs the role operator.", None)
    assert post(theirs, "/workspace/unshare/tf/net/?pool=dns", reason="apart").status_code == 204
    assert not WorkspaceShare.objects.filter(workspace_id=net).exists()
    get(theirs, "/workspaces/tf/net/", 404)


def test_an_undecided_use_is_shown_until_an_operator_of_both_decides() -> None:
    tf, dns, third = make_pool("tf"), make_pool("dns"), make_pool("third")
    net = add_workspace(pool_id=tf.pk, name="net")
    for pool in (dns, third):
        WorkspaceShare.objects.create(workspace_id=net, pool=pool)
    theirs, both = browser_of(person("dan", "operator", pool=dns)), browser_of(chief())
    text = get(theirs, "/workspaces/tf/net/")
    assert "dns used this workspace, too" in text
    assert off(text, "Allow…") == "This needs the role operator in both pools."
    assert (
        post(both, "/workspace/share/tf/net/?pool=dns", pool="dns", reason="yes").status_code == 204
    )
    assert post(both, "/workspace/unshare/tf/net/?pool=third", reason="no").status_code == 204
    shares = WorkspaceShare.objects.filter(workspace_id=net)
    assert [(share.pool_id, share.allowed_by, share.reason) for share in shares] == [
        (dns.pk, "ana", "yes")
    ]


def test_a_viewer_cannot_share_or_lock_a_workspace_by_post() -> None:
    tf, dns = make_pool("tf"), make_pool("dns")
    net = add_workspace(pool_id=tf.pk, name="net")
    share_workspace(workspace_id=net, pool_id=dns.pk, reason="x")
    client = browser_of(person("vera", "viewer"))
    for path in (
        "/workspace/share/tf/net/",
        "/workspace/unshare/tf/net/?pool=dns",
        "/workspace/lock/tf/net/",
        "/workspace/unlock/tf/net/",
    ):
        assert client.post(path, {"reason": "x", "pool": "dns"}).status_code == 403, path
