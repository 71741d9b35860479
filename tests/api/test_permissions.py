"""Permissions of every API endpoint: without a token, with invalid tokens, and for each role."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import ClaimRequest
from pools.access.permissions import ADMIN, APPROVER, CLAIMANT, OPERATOR, ROLES, VIEWER
from pools.access.tokens import create_token, revoke_token
from pools.lifecycle.selectors import get_pool
from pools.models import Token
from pools.roles.services import create_grant
from project.kernel.http.api_base import etag_of
from slots.models import Slot
from tests.api.conftest import Answer, Caller
from tests.api.helpers import make_pool
from tests.api.world import World

MAY = {
    VIEWER: set(ROLES),
    CLAIMANT: {CLAIMANT, OPERATOR, ADMIN},
    OPERATOR: {OPERATOR, ADMIN},
    APPROVER: {APPROVER},
    ADMIN: {ADMIN},
}
ANYBODY = "anybody"  # any known caller; the roles decide on the content
EVERYWHERE = "everywhere"  # the role in all pools
AGENT = "agent"  # the token of a member, which has no role
SOMEWHERE = "somewhere"  # a claimant of any pool
AGENT_TASK = "agent/tasks/<id:claim_id>/<id:generation>/"


@dataclass(frozen=True)
class Row:
    role: str
    body: Any = None  # a value, or what makes it from the world
    where: str = "here"
    headers: Callable[[World], dict[str, str]] = field(default=lambda world: {})
    path: Callable[[World], str] | None = None
    also: frozenset[str] = frozenset()  # further roles that may
    # The body names the pool: the refusal repeats that name, whether there is such a pool or not.
    is_named: bool = False


def if_match(world: World) -> dict[str, str]:
    pool = get_pool(world.pool.name)
    return {"If-Match": etag_of("pool", pool.pk, pool.revision)}


def soon() -> str:
    return (timezone.now() + timedelta(hours=1)).isoformat()


def named(world: World) -> Any:
    return {"generation": world.generation}


def on_waiting(action: str) -> Callable[[World], str]:
    return lambda world: f"claims/{world.waiting}/{action}/"


def on_pending(action: str) -> Callable[[World], str]:
    return lambda world: f"claims/{world.pending}/{action}/"


WHY = {"reason": "a test"}
DIGEST = {"digest": "0a" * 32}
CONFIG = {"slots": 2, "members": {"max": 20}}
ROWS = {
    "GET me/": Row(ANYBODY),
    "GET tokens/": Row(ANYBODY),
    "POST tokens/": Row(ANYBODY, {"name": "another"}),
    "GET tokens/<id:token_id>/": Row("owner"),
    "DELETE tokens/<id:token_id>/": Row("owner"),
    "GET grants/": Row(ANYBODY),
    "POST grants/": Row(ADMIN, {"role": "viewer", "user": "holder", "pool": "one"}),
    "DELETE grants/<id:grant_id>/": Row(ADMIN),
    "GET pools/": Row(ANYBODY),
    "POST pools/": Row(ADMIN, {"name": "new-one", "slots": 1}, EVERYWHERE),
    "GET pools/<name:pool_name>/": Row(VIEWER),
    "PUT pools/<name:pool_name>/": Row(ADMIN, CONFIG, headers=if_match),
    "PATCH pools/<name:pool_name>/": Row(ADMIN, {"description": "another"}, headers=if_match),
    "DELETE pools/<name:pool_name>/": Row(
        ADMIN, path=lambda world: f"pools/{world.pool.name}/?cascade=true"
    ),
    "GET pools/<name:pool_name>/secrets/": Row(ADMIN),
    "PUT pools/<name:pool_name>/secrets/<variable:secret_name>/": Row(ADMIN, {"value": "a word"}),
    "DELETE pools/<name:pool_name>/secrets/<variable:secret_name>/": Row(ADMIN),
    "POST pools/<name:pool_name>/pause/": Row(
        OPERATOR, lambda world: {"until": (timezone.now() + timedelta(hours=1)).isoformat(), **WHY}
    ),
    "POST pools/<name:pool_name>/resume/": Row(OPERATOR),
    "GET pools/<name:pool_name>/scaling/": Row(VIEWER),
    "POST pools/<name:pool_name>/scaling/pin/": Row(
        OPERATOR, lambda world: {"count": 1, "until": soon(), **WHY}
    ),
    "POST pools/<name:pool_name>/scaling/unpin/": Row(OPERATOR),
    "POST pools/<name:pool_name>/scaling/pause/": Row(
        OPERATOR, lambda world: {"until": soon(), **WHY}
    ),
    "POST pools/<name:pool_name>/scaling/resume/": Row(OPERATOR),
    "POST pools/<name:pool_name>/scaling/grow/": Row(OPERATOR, WHY),
    "POST pools/<name:pool_name>/scaling/unfreeze/": Row(OPERATOR, WHY),
    "POST pools/<name:pool_name>/scaling/refreeze/": Row(
        OPERATOR, lambda world: {"starts_at": soon(), **WHY}
    ),
    "POST pools/<name:pool_name>/scaling/replay/": Row(VIEWER, {"days": 1}),
    "GET scaling/": Row(ANYBODY),
    "GET scaling/freezes/": Row(ANYBODY),
    "POST pools/<name:pool_name>/scaling/roll/": Row(OPERATOR, WHY),
    "POST pools/<name:pool_name>/scaling/pause-roll/": Row(
        OPERATOR, lambda world: {"until": soon(), **WHY}
    ),
    "POST pools/<name:pool_name>/scaling/resume-roll/": Row(OPERATOR),
    "GET pools/<name:pool_name>/members/": Row(VIEWER),
    "POST pools/<name:pool_name>/members/": Row(ADMIN, {"name": "b"}),
    "GET pools/<name:pool_name>/drift/": Row(VIEWER),
    "POST pools/<name:pool_name>/sweep/": Row(OPERATOR, {}),
    "POST pools/<name:pool_name>/strays/<id:stray_id>/adopt/": Row(OPERATOR, WHY),
    "POST pools/<name:pool_name>/strays/<id:stray_id>/delete/": Row(
        OPERATOR, {"confirm": "load balancer lb-1", **WHY}
    ),
    "POST pools/<name:pool_name>/strays/<id:stray_id>/keep/": Row(OPERATOR, {}),
    "POST slots/<id:slot_id>/repair/": Row(OPERATOR, WHY),
    "POST slots/<id:slot_id>/quarantine/": Row(OPERATOR, WHY),
    "POST slots/<id:slot_id>/end-quarantine/": Row(OPERATOR, {}),
    "GET members/<id:member_id>/": Row(VIEWER),
    "PATCH members/<id:member_id>/": Row(ADMIN, {"labels": {"region": "eu"}}),
    "DELETE members/<id:member_id>/": Row(
        OPERATOR, path=lambda world: f"members/{world.member}/?reason=test"
    ),
    "POST members/<id:member_id>/cordon/": Row(OPERATOR, WHY),
    "POST members/<id:member_id>/uncordon/": Row(OPERATOR, {}),
    "POST members/<id:member_id>/keep/": Row(OPERATOR, {}),
    "GET members/<id:member_id>/drain/": Row(VIEWER),
    "POST members/<id:member_id>/drain/": Row(OPERATOR, WHY),
    "POST members/<id:member_id>/undrain/": Row(OPERATOR, {}),
    "GET members/<id:member_id>/evacuate/": Row(VIEWER),
    "POST members/<id:member_id>/evacuate/": Row(OPERATOR, WHY),
    "POST members/<id:member_id>/undo-evacuation/": Row(OPERATOR, {}),
    "POST members/<id:member_id>/return-claim/": Row(OPERATOR, {**WHY, "claim_id": 1}),
    "POST pools/<name:pool_name>/drain/": Row(OPERATOR, {**WHY, "members": ["a"]}),
    "POST members/<id:member_id>/heartbeat/": Row(OPERATOR, {"incarnation": 1}),
    "POST members/<id:member_id>/token/": Row(ADMIN, {}),
    "POST members/<id:member_id>/rotate-token/": Row(ADMIN, WHY),
    "POST members/<id:member_id>/restart/": Row(OPERATOR, WHY),
    "GET slots/": Row(ANYBODY),
    "GET slots/<id:slot_id>/held-by/": Row(VIEWER),
    "GET claims/": Row(ANYBODY),
    "POST claims/": Row(CLAIMANT, {"pool": "one"}, is_named=True),
    "POST claims/bulk/": Row(ANYBODY, {"claims": [{"pool": "one"}]}),
    "POST claims/bulk-release/": Row(
        ANYBODY, lambda world: {"claims": [{"id": world.claim, **named(world)}]}
    ),
    "GET claims/<id:claim_id>/": Row(VIEWER),
    "POST claims/<id:claim_id>/release/": Row(OPERATOR, named),
    "POST claims/<id:claim_id>/cancel/": Row(OPERATOR, {}, path=on_waiting("cancel")),
    "POST claims/<id:claim_id>/prioritise/": Row(
        OPERATOR, {"priority": 5}, path=on_waiting("prioritise")
    ),
    "POST claims/<id:claim_id>/resize/": Row(OPERATOR, lambda world: {"size": 1, **named(world)}),
    "POST claims/<id:claim_id>/acknowledge/": Row(OPERATOR, named),
    "POST claims/<id:claim_id>/keep/": Row(OPERATOR, named),
    "PUT claims/<id:claim_id>/backend/": Row(OPERATOR, lambda world: {"ip": None, **named(world)}),
    "POST claims/<id:claim_id>/force-release/": Row(OPERATOR, WHY),
    "GET agent/orders/": Row(AGENT),
    "POST agent/hello/": Row(AGENT, {"boot": "b"}),
    "POST agent/heartbeat/": Row(AGENT, {}),
    "POST agent/stopped/": Row(AGENT, {"slots": []}),
    "POST agent/goodbye/": Row(AGENT, {}),
    f"GET {AGENT_TASK}": Row(AGENT),
    f"POST {AGENT_TASK}started/": Row(AGENT, {"boot": "b"}),
    f"POST {AGENT_TASK}interrupted/": Row(AGENT, {"why": "cancelled", "wait_s": 60.0}),
    f"POST {AGENT_TASK}log/": Row(AGENT, {"seq": 0, "text": "x"}),
    f"PUT {AGENT_TASK}plan/": Row(AGENT),
    f"GET {AGENT_TASK}plan/": Row(AGENT),
    f"PUT {AGENT_TASK}plan-json/": Row(AGENT, {}),
    f"PUT {AGENT_TASK}state/": Row(AGENT),
    f"GET {AGENT_TASK}source/": Row(AGENT),
    f"POST {AGENT_TASK}result/": Row(AGENT, {"outcome": "failed"}),
    "GET claims/<id:claim_id>/runs/": Row(VIEWER),
    "GET claims/<id:claim_id>/runs/<id:generation>/log/": Row(VIEWER),
    "GET claims/<id:claim_id>/runs/<id:generation>/state/": Row(APPROVER),
    "POST claims/<id:claim_id>/runs/<id:generation>/state/discard/": Row(
        OPERATOR, WHY, also=frozenset({APPROVER})
    ),
    "POST claims/<id:claim_id>/approve/": Row(APPROVER, DIGEST, path=on_pending("approve")),
    "POST claims/<id:claim_id>/reject/": Row(
        APPROVER, DIGEST | {"comment": "a test"}, path=on_pending("reject")
    ),
    "POST claims/<id:claim_id>/extend/": Row(
        APPROVER, WHY | {"for": "1h"}, path=on_pending("extend")
    ),
    "POST claims/<id:claim_id>/plan-again/": Row(OPERATOR, WHY, path=on_pending("plan-again")),
    "POST claims/<id:claim_id>/move/": Row(OPERATOR, WHY, path=on_pending("move")),
    "GET claims/<id:claim_id>/plan/": Row(VIEWER, path=on_pending("plan")),
    "GET claims/<id:claim_id>/plan/json/": Row(VIEWER, path=on_pending("plan/json")),
    "GET claims/<id:claim_id>/plan/file/": Row(APPROVER, path=on_pending("plan/file")),
    "GET approvals/": Row(ANYBODY),
    "POST approvals/bulk/": Row(
        ANYBODY, lambda world: {"decisions": [DIGEST | {"claim": world.pending, "approve": True}]}
    ),
    "POST workspaces/<workspace:workspace>/settle/": Row(
        OPERATOR, WHY | {"what": "applied"}, also=frozenset({APPROVER})
    ),
    "GET workspaces/<workspace:workspace>/runs/": Row(VIEWER),
    "POST sources/": Row(SOMEWHERE),
    "GET events/": Row(ANYBODY),
    "GET workspaces/": Row(ANYBODY),
    "GET workspaces/<workspace:workspace>/": Row(VIEWER),
    "POST workspaces/<workspace:workspace>/pools/": Row(
        "operator of both",
        WHY | {"pool": "two"},
        path=lambda world: "workspaces/one/team/net/pools/",
    ),
    "DELETE workspaces/<workspace:workspace>/pools/<name:pool_name>/": Row(
        "operator of either", path=lambda world: "workspaces/one/shared/pools/two/?reason=test"
    ),
    "POST workspaces/<workspace:workspace>/lock/": Row(OPERATOR, {"reason": "again"}),
    "POST workspaces/<workspace:workspace>/unlock/": Row(OPERATOR, {}),
}


def list_endpoints() -> Iterator[str]:
    """Every method of every address under /api/v1/."""

    def walk(patterns: list[Any], prefix: str) -> Iterator[str]:
        for pattern in patterns:
            route = prefix + str(pattern.pattern)
            if isinstance(pattern, URLResolver):
                yield from walk(pattern.url_patterns, route)
            elif isinstance(pattern, URLPattern) and route.startswith("api/v1/"):
                view: Any = pattern.callback
                for method in ("get", "post", "put", "patch", "delete"):
                    if hasattr(view.cls, method):
                        yield f"{method.upper()} {route.removeprefix('api/v1/')}"

    yield from walk(get_resolver().url_patterns, "")


ENDPOINTS = sorted(list_endpoints())


def call(world: World, endpoint: str, caller: Caller) -> Answer:
    """The answer to the call, whose changes are rolled back."""
    method, _, route = endpoint.partition(" ")
    row = ROWS[endpoint]
    with transaction.atomic():
        path = world.fill(route) if row.path is None else row.path(world)
        body = row.body(world) if callable(row.body) else row.body
        answer = caller(method, path, body, **row.headers(world))
        transaction.set_rollback(True)
    return answer


def a_caller(name: str, **limits: Any) -> tuple[User, Caller]:
    user = User.objects.create_user(name)
    return user, Caller(create_token(user=user, name="test", **limits)[1])


def test_every_endpoint_has_a_row_in_the_table_of_permissions() -> None:
    assert sorted(ROWS) == ENDPOINTS


def test_a_missing_or_invalid_token_gets_401(world: World) -> None:
    user, revoked = a_caller("ana")
    create_grant(role="admin", user=user)
    revoke_token(Token.objects.get(user=user).pk)
    expired = Caller(
        create_token(user=user, name="expired", expires_at=timezone.now() + timedelta(hours=1))[1]
    )
    Token.objects.filter(name="expired").update(expires_at=timezone.now() - timedelta(hours=1))
    idle, inactive = a_caller("ben")
    User.objects.filter(pk=idle.pk).update(is_active=False)
    callers = {
        "none": Caller(),
        "wrong": Caller("berth_" + "x" * 43),
        "other": Caller("abc"),
        "revoked": revoked,
        "expired": expired,
    }
    for endpoint in ENDPOINTS:
        for name, caller in (callers | {"inactive": inactive}).items():
            answer = call(world, endpoint, caller)
            assert answer.status == 401, (endpoint, name, answer.body)
            assert answer.headers["WWW-Authenticate"].startswith("Bearer"), (endpoint, name)
            assert answer.body["way_out"], (endpoint, name)
            assert answer.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_each_role_gets_exactly_its_permissions(endpoint: str, world: World) -> None:
    row = ROWS[endpoint]
    for role in ["", *ROLES, "superuser"]:
        for where in ("here", "elsewhere", "everywhere") if role in ROLES else ("everywhere",):
            user, caller = a_caller(f"{role or 'nobody'}-{where}")
            if role == "superuser":
                User.objects.filter(pk=user.pk).update(is_superuser=True)
            elif role:
                create_grant(
                    role=role,
                    user=user,
                    pool={"here": world.pool, "elsewhere": world.other}.get(where),
                )
            answer = call(world, endpoint, caller)
            check(endpoint, row, role, where, answer)


def check(endpoint: str, row: Row, role: str, where: str, answer: Answer) -> None:
    case = (endpoint, role, where, answer.status, answer.body)
    if row.role == ANYBODY:
        assert answer.status in (200, 201), case
        return
    if row.role == AGENT:
        assert answer.status == 401, case
        return
    if row.role == SOMEWHERE:  # and what they send is no archive
        assert answer.status == (415 if role == "superuser" or role in MAY[CLAIMANT] else 403), case
        return
    # Only the owner and admins of all pools see the row.
    if row.role == "owner":
        expected = (
            (200, 204)
            if role == "superuser" or (role == ADMIN and where == "everywhere")
            else (404,)
        )
        assert answer.status in expected, case
        return
    if row.role in ("operator of both", "operator of either"):
        may = (role == "superuser" or role in MAY[OPERATOR]) and (
            where == "everywhere" or row.role == "operator of either"
        )
        assert answer.status in ((200, 409) if may else (403, 404)), case
        return
    reaches = where == "everywhere" or (where == "here" and row.where == "here")
    if role == "superuser":
        # A superuser counts as an admin of every pool.
        reaches, role = True, ADMIN
    if reaches and role in MAY[row.role] | row.also:
        assert answer.status < 400 or answer.status == 409, case
    elif row.where == "here" and not row.is_named and (not role or where == "elsewhere"):
        # Callers without a role get the 404 of a missing row.
        assert answer.status == 404, case
        assert "role" not in answer.body and "pool" not in answer.body, case
    else:
        assert answer.status == 403, case
        assert answer.body["role"] == row.role, case
        assert row.role in answer.body["detail"], case
        if row.where == "here":
            assert (
                "the pool one" in answer.body["detail"]
                or endpoint == "DELETE grants/<id:grant_id>/"
            ), case


def test_a_token_cannot_exceed_its_own_limits(world: World) -> None:
    """A superuser's token with the role viewer only, or limited to another pool."""
    for name, limits in {"roles": {"roles": ["viewer"]}, "pools": {"pools": [world.other]}}.items():
        user, caller = a_caller(f"ana-{name}", **limits)
        User.objects.filter(pk=user.pk).update(is_superuser=True)
        create_grant(role=APPROVER, user=user)
        for endpoint, row in ROWS.items():
            if row.role in (ANYBODY, "owner", AGENT, SOMEWHERE) or "operator of" in row.role:
                continue
            answer = call(world, endpoint, caller)
            if name == "roles" and row.role == VIEWER:
                # The pool is not scaled.
                assert answer.status in (200, 409), (endpoint, name, answer.body)
            elif row.where == "here" and not row.is_named and name == "pools":
                assert answer.status == 404, (endpoint, name, answer.body)
            else:
                assert answer.status == 403, (endpoint, name, answer.body)
                assert "limited" in answer.body["detail"], (endpoint, name, answer.body)


def test_bulk_checks_the_permission_of_each_item(world: World) -> None:
    user, caller = a_caller("ana")
    create_grant(role="claimant", user=user, pool=world.other)
    made = caller.post(
        "claims/bulk/",
        {
            "claims": [
                {"pool": "one"},
                {"pool": "two"},
                {"pools": ["one", "two"]},
                {"pool": "three"},
            ]
        },
    )
    assert [item["status"] for item in made.body["results"]] == [403, 201, 403, 403]
    assert [item["body"].get("pool") for item in made.body["results"]] == [
        "one",
        "two",
        "one",
        "three",
    ]
    mine = made.body["results"][1]["body"]
    released = caller.post(
        "claims/bulk-release/",
        {
            "claims": [
                {"id": world.claim, **named(world)},
                {"id": mine["id"], "generation": mine["generation"]},
            ]
        },
    )
    assert [item["status"] for item in released.body["results"]] == [404, 200]


def test_a_claimant_releases_its_own_claim_without_force(world: World) -> None:
    user, caller = a_caller("ana")
    create_grant(role="claimant", user=user, pool=world.other)
    made = caller.post("claims/", {"pool": "two"}).body
    path = f"claims/{made['id']}"
    assert caller.post(f"{path}/force-release/", WHY).status == 403
    assert caller.post(f"{path}/release/", {"generation": made["generation"]}).status == 200


def test_a_grant_to_a_group_applies_to_its_members(world: World) -> None:
    user, caller = a_caller("ana")
    assert caller.get("pools/one/").status == 404
    group = user.groups.create(name="team")
    create_grant(role="viewer", group=group, pool=world.pool)
    assert caller.get("pools/one/").status == 200
    user.groups.clear()
    assert caller.get("pools/one/").status == 404


def test_lists_show_only_what_the_caller_may_see(world: World) -> None:
    user, caller = a_caller("ana")
    for path in ("pools/", "claims/", "slots/", "events/"):
        assert caller.get(path).body["results"] == [], path
    create_grant(role="viewer", user=user, pool=world.other)
    assert [pool["name"] for pool in caller.get("pools/").body["results"]] == ["two"]
    assert {slot["pool"] for slot in caller.get("slots/").body["results"]} == {"two"}
    assert caller.get("claims/").body["results"] == []
    assert {event["pool"] for event in caller.get("events/").body["results"]} == {"two"}
    assert caller.get("claims/?pool=one").status == 404
    assert Slot.objects.filter(pool=world.pool).exists()


def test_a_claim_over_several_pools_is_seen_with_the_role_in_each(world: World) -> None:
    make_pool("three")
    make_pool("four")
    both = create_claim(ClaimRequest(pools=("three", "four"), kind="slot", requested_by="holder"))
    user, caller = a_caller("ana")
    create_grant(role="viewer", user=user, pool=get_pool("three"))
    answer = caller.get(f"claims/{both.id}/")
    assert (answer.status, "role" in answer.body, "pool" in answer.body) == (404, False, False)
    assert [claim["id"] for claim in caller.get("claims/").body["results"]] == []
    create_grant(role="viewer", user=user, pool=get_pool("four"))
    assert caller.get(f"claims/{both.id}/").status == 200
    assert [claim["id"] for claim in caller.get("claims/").body["results"]] == [both.id]
