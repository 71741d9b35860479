"""The fast path of a create: one statement that checks a cached caller again, so that revoked
permissions take effect at once.
"""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection

from claims.allocation.batching import PendingCreate, create_at_once, create_batch
from claims.allocation.requests.claim_request import parse_claim
from claims.allocation.requests.resolve import find_route, forget_routes
from claims.models import Claim
from pools.access import tokens
from pools.access.tokens import create_token, find_cached_token, hash_secret, identify_token
from pools.lifecycle.services import update_pool
from pools.models import Grant, Token
from pools.roles.services import create_grant
from tests.api.conftest import Caller
from tests.api.helpers import make_pool

pytestmark = pytest.mark.django_db


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Hashes of the tokens that were read from the database."""
    tokens._seen.clear()
    forget_routes()
    found: list[str] = []
    ask = tokens._query
    monkeypatch.setattr(tokens, "_query", lambda hashed: found.append(hashed) or ask(hashed))
    return found


@pytest.fixture
def ana(asked: list[str]) -> Caller:
    make_pool("lab", slots=20)
    user = User.objects.create_user("ana")
    create_grant(role="claimant", user=user)
    caller = Caller(create_token(user=user, name="ci")[1])
    assert caller("POST", "claims/", {"pool": "lab"}).status == 201
    assert len(asked) == 1
    asked.clear()
    return caller


def claim(caller: Caller, **body: Any) -> Any:
    return caller("POST", "claims/", {"pool": "lab", **body})


def test_a_repeated_create_skips_the_token_query(ana: Caller, asked: list[str]) -> None:
    answer = claim(ana, owner="pod:1")
    assert answer.status == 201
    assert (answer.body["requested_by"], answer.body["owner"], len(answer.body["slots"])) == (
        "ana",
        "pod:1",
        1,
    )
    assert answer.headers["Location"] == f"/api/v1/claims/{answer.body['id']}/"
    assert asked == []
    assert Claim.objects.count() == 2


def set_sql(text: str) -> Callable[[], Any]:
    def change() -> None:
        with connection.cursor() as cursor:
            cursor.execute(text)

    return change


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (set_sql("UPDATE pools_token SET revoked_at = now()"), 401),
        (set_sql("UPDATE pools_token SET expires_at = now() - interval '1 s'"), 401),
        (set_sql("DELETE FROM pools_token"), 401),
        (set_sql("UPDATE auth_user SET is_active = false"), 401),
        (lambda: Grant.objects.all().delete(), 403),
        (lambda: Grant.objects.update(role="viewer"), 403),
        (lambda: Token.objects.update(scopes={"roles": ["viewer"], "pools": None}), 403),
        (lambda: Token.objects.update(scopes={"roles": None, "pools": [0]}), 403),
    ],
)
def test_a_revoked_permission_is_refused_at_once_despite_the_cache(
    ana: Caller, change: Callable[[], Any], status: int
) -> None:
    """Red without token_told in create_and_bind: each was let in by what was remembered of it."""
    change()
    assert claim(ana).status == status
    assert Claim.objects.count() == 1
    assert claim(ana, unknown=1).status in (400, status), "and nobody learns more than that"


def test_faults_of_a_body_are_shown_only_to_an_authorised_caller(
    ana: Caller, asked: list[str]
) -> None:
    assert claim(ana, size=0).status == 400
    assert len(asked) == 1, "it was made sure of"
    Token.objects.update(expires_at="2001-01-01T00:00:00Z")
    assert claim(ana, size=0).status == 401


def test_a_reused_key_replays_its_claim_or_is_refused(ana: Caller) -> None:
    first, second = (claim(ana, key="k") for _ in range(2))
    assert (first.status, second.status, second.body["id"]) == (201, 201, first.body["id"])
    assert second.headers["Idempotency-Replayed"] == "true"
    assert claim(ana, key="k", owner="x").status == 409
    assert Claim.objects.count() == 2


def test_a_changed_pool_config_applies_to_the_next_claim(ana: Caller) -> None:
    update_pool("lab", {"name": "lab", "slots": 20, "members": {"max": 1}, "lease": {"hold": "1h"}})
    answer = claim(ana)
    assert answer.status == 201
    assert answer.body["expires_at"] is not None


def test_a_grant_by_group_counts_on_the_fast_path(ana: Caller) -> None:
    user, group = User.objects.get(), Group.objects.create(name="team")
    Grant.objects.all().delete()
    create_grant(role="claimant", group=group)
    assert claim(ana).status == 403
    user.groups.add(group)
    assert [claim(ana).status for _ in range(2)] == [201, 201]
    user.groups.clear()
    assert claim(ana).status == 403


def test_an_expired_token_cache_entry_is_queried_again(
    ana: Caller, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "REMEMBERED", 0.0)
    assert claim(ana).status == 201
    assert asked == [hash_secret(ana.secret)]


def test_a_batch_leaves_out_the_create_of_a_revoked_token(ana: Caller) -> None:
    """Seen red without the comparison in create_gathered: both claims were there."""
    ben = User.objects.create_user("ben")
    create_grant(role="claimant", user=ben)
    secret = create_token(user=ben, name="ci")[1]
    identify_token(secret)
    Token.objects.filter(user=ben).update(revoked_at="2001-01-01T00:00:00Z")
    wishes = []
    for who, of in (("ana", ana.secret), ("ben", secret), ("ana", ana.secret)):
        known = find_cached_token(of)
        assert known is not None
        request = parse_claim({"pool": "lab", "owner": who}, requested_by=who)
        wishes.append((request, known[1]))
    batch = [PendingCreate(request, find_route(request), proof) for request, proof in wishes]
    create_batch(batch)
    assert [(each.claim is None, each.error) for each in batch] == [
        (False, None),
        (True, None),
        (False, None),
    ]
    assert sorted(Claim.objects.exclude(owner="").values_list("owner", flat=True)) == ["ana", "ana"]
    assert create_at_once(*wishes[1]) is None
    assert create_at_once(*wishes[0]) is not None
