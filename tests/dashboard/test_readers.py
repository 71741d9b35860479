"""Each reader sees only what its role allows, also where rendered regions are shared."""

from importlib import import_module

import pytest
from django.contrib.auth.models import User
from django.test import Client

from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import parse_claim
from pools.access.permissions import Identity, load_identity
from pools.lifecycle.services import create_pool
from pools.models import Pool, Token
from pools.roles.services import create_grant
from project.kernel.live.regions import open_region

import_module("project.urls")  # registers the regions

pytestmark = pytest.mark.django_db


def make(name: str) -> Pool:
    return create_pool({"name": name, "slots": 1, "members": {"list": [f"{name}-1"]}})


def reader(role: str, pool: Pool) -> User:
    user = User.objects.create_user(f"{role}-{pool.name}", password=None)
    create_grant(role=role, user=user, pool=pool)
    return user


def identity_of(user: User) -> Identity:
    found = load_identity(user.pk)
    assert found is not None
    return found


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_a_viewer_shares_no_frame_of_events_with_an_admin() -> None:
    lab = make("lab")
    admin, viewer = identity_of(reader("admin", lab)), identity_of(reader("viewer", lab))
    theirs, mine = open_region(admin, "pool.events:lab"), open_region(viewer, "pool.events:lab")
    assert theirs is not None
    assert mine is not None
    assert theirs.key != mine.key
    assert theirs.render is not None
    assert mine.render is not None
    assert theirs.render() != mine.render(), "grants are for admins"


def test_a_claim_over_several_pools_is_listed_only_for_readers_of_all_of_them() -> None:
    lab, annex = make("lab"), make("annex")
    claim = create_claim(
        parse_claim({"pools": ["lab", "annex"], "owner": "job:77"}, requested_by="ana")
    )
    user = reader("viewer", lab)
    before = open_region(identity_of(user), "claims:q=owner%3Ajob%3A77")
    assert before is not None
    assert before.render is not None
    assert f"/claims/{claim.id}/" not in before.render()
    create_grant(role="viewer", user=user, pool=annex)
    after = open_region(identity_of(user), "claims:q=owner%3Ajob%3A77")
    assert after is not None
    assert after.render is not None
    assert f"/claims/{claim.id}/" in after.render()


def test_a_token_for_an_unknown_pool_is_refused() -> None:
    lab = make("lab")
    client = signed_in(reader("claimant", lab))
    answer = client.post(
        "/tokens/", {"name": "ci", "role": "claimant", "pool": str(lab.pk + 1), "lasts": "90"}
    )
    assert (answer.status_code, Token.objects.count()) == (422, 0)
    assert (
        client.post(
            "/tokens/", {"name": "ci", "role": "claimant", "pool": str(lab.pk), "lasts": "90"}
        ).status_code
        == 200
    )
    assert Token.objects.get().scopes == {"roles": ["claimant"], "pools": [lab.pk]}


def test_a_unicode_digit_in_a_query_is_ignored() -> None:
    lab = make("lab")
    client = signed_in(reader("viewer", lab))
    assert client.get("/claims/?before=²").status_code == 200
    assert client.get("/events/?before=²").status_code == 200
    assert open_region(identity_of(User.objects.get()), "member:²") is None
