"""API tokens are shown once, stored as a hash, never stronger than their user, and end when
revoked.
"""

import json
from datetime import timedelta
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from pools.access.permissions import load_identity
from pools.access.tokens import hash_secret, identify_token
from pools.models import Token
from pools.roles.services import create_grant
from project.kernel.models import Event
from tests.api.conftest import Caller, Callers
from tests.api.helpers import make_pool


def test_secret_is_shown_once_and_stored_as_a_hash(caller: Callers) -> None:
    ana = caller("viewer")
    made = ana.post("tokens/", {"name": "ci"})
    secret = made.body["secret"]
    assert (made.status, secret.startswith("berth_"), made.body["prefix"]) == (
        201,
        True,
        secret[:14],
    )
    assert made.headers["Cache-Control"] == "no-store"
    token = Token.objects.get(name="ci")
    assert token.hash == hash_secret(secret)
    kept = json.dumps([list(Token.objects.values()), list(Event.objects.values())], default=str)
    assert secret not in kept
    for path in ("tokens/", f"tokens/{token.pk}/"):
        assert secret not in json.dumps(ana.get(path).body)
    assert Caller(secret).get("me/").body["token"] == {"id": token.pk, "name": "ci"}


def test_revoked_token_ends_at_once_with_an_event(caller: Callers) -> None:
    ana = caller("viewer")
    made = ana.post("tokens/", {"name": "ci"}).body
    ci = Caller(made["secret"])
    assert ci.get("me/").status == 200
    assert ana("DELETE", f"tokens/{made['id']}/?reason=lost").status == 204
    assert ci.get("me/").status == 401
    event = Event.objects.get(verb="revoke_token")
    assert (event.reason, event.data["token_id"]) == ("lost", made["id"])
    assert ana.post("tokens/", {"name": "ci"}).status == 201, "its name may be used again"


def test_last_use_is_written_at_most_once_a_minute(caller: Callers) -> None:
    ana = caller("viewer")
    ana.get("me/")
    first = Token.objects.get().last_used_at
    assert first is not None
    # The clock of the database stands still in this test.
    Token.objects.update(last_used_at=first - timedelta(seconds=50))
    ana.get("me/")
    assert Token.objects.get().last_used_at == first - timedelta(seconds=50)
    Token.objects.update(last_used_at=first - timedelta(minutes=2))
    ana.get("me/")
    assert Token.objects.get().last_used_at == first


def test_limited_token_cannot_create_a_stronger_one(caller: Callers) -> None:
    make_pool("one")
    make_pool("two")
    root = caller("superuser")
    ends = timezone.now() + timedelta(days=1)
    limited = Caller(
        root.post(
            "tokens/",
            {"name": "ci", "roles": ["claimant"], "pools": ["one"], "expires_at": ends.isoformat()},
        ).body["secret"]
    )
    fits = {"roles": ["viewer"], "pools": ["one"], "expires_at": ends.isoformat()}
    for change, field in (
        ({"roles": None}, "roles"),
        ({"roles": ["operator"]}, "roles"),
        ({"pools": None}, "pools"),
        ({"pools": ["one", "two"]}, "pools"),
        ({"expires_at": None}, "expires_at"),
    ):
        answer = limited.post("tokens/", {"name": "more", **fits, **change})
        assert (answer.status, [fault["field"] for fault in answer.body["errors"]]) == (
            400,
            [field],
        ), change
    assert limited.post("tokens/", {"name": "less", **fits}).status == 201
    others = [
        token["id"] for token in root.get("tokens/").body["results"] if token["name"] == "test"
    ]
    assert limited("DELETE", f"tokens/{others[0]}/").status == 403


def test_roles_of_a_token_are_checked_at_each_use(caller: Callers) -> None:
    pool = make_pool("one")
    ana = caller("claimant", pool, roles=["operator"])
    assert ana.get("me/").body["roles"] == {
        "everywhere": [],
        "pools": {"one": ["claimant", "viewer"]},
    }
    user = User.objects.get(username=ana.get("me/").body["username"])
    create_grant(role="admin", user=user, pool=pool)
    assert ana.get("me/").body["roles"]["pools"] == {"one": ["claimant", "operator", "viewer"]}, (
        "no more than its scope"
    )
    identity = load_identity(user.pk)
    assert identity is not None
    assert identity.may("configure", pool.pk)


def test_session_needs_its_csrf_token_for_changes(db: None) -> None:
    user = User.objects.create_user("ana", password="secret enough")
    create_grant(role="admin", user=user)
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    assert client.get("/api/v1/me/").status_code == 200
    for path in ("tokens/", "claims/"):
        refused = client.post(f"/api/v1/{path}", "{}", content_type="application/json")
        assert refused.status_code == 403, path
    client.cookies["csrftoken"] = "a" * 32
    made = client.post(
        "/api/v1/tokens/",
        '{"name": "ci"}',
        content_type="application/json",
        headers={"X-CSRFToken": "a" * 32},
    )
    assert made.status_code == 201


def test_token_command_prints_only_the_secret(db: None) -> None:
    User.objects.create_user("ana")
    pool = make_pool("one")
    out, err = StringIO(), StringIO()
    call_command(
        "token",
        "create",
        "ana",
        "ci",
        "--role",
        "viewer",
        "--pool",
        "one",
        "--days",
        "1",
        stdout=out,
        stderr=err,
    )
    secret = out.getvalue().strip()
    assert secret not in err.getvalue()
    identity = identify_token(secret)
    assert (identity.actor, identity.scope.pools) == ("ana/ci", {pool.pk: "one"})
    out = StringIO()
    call_command("token", "list", "ana", stdout=out)
    assert "ana/ci" in out.getvalue()
    assert secret not in out.getvalue()
    call_command("token", "revoke", str(Token.objects.get().pk), stdout=StringIO())
    with pytest.raises(Exception, match="revoked"):
        identify_token(secret)
    for wrong in (
        ["create", "nobody", "ci"],
        ["create", "ana", "a/b"],
        ["create", "ana", "x", "--pool", "none"],
        ["revoke", "999"],
    ):
        with pytest.raises(CommandError):
            call_command("token", *wrong, stdout=StringIO(), stderr=StringIO())
