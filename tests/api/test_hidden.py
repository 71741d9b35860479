"""An object that the caller may not read is answered like an object that does not exist."""

import re
from typing import Any

import pytest

from tests.api.conftest import Callers
from tests.api.world import World

pytestmark = pytest.mark.django_db

ABSENT = 987_654_321
CALLS = {
    "a claim": ("GET", "claims/{}/", "claim", None),
    "a claim to cancel": ("POST", "claims/{}/cancel/", "waiting", {}),
    "a plan to approve": ("POST", "claims/{}/approve/", "pending", {"digest": "0a" * 32}),
    "a plan": ("GET", "claims/{}/plan/", "pending", None),
    "a backend": ("PUT", "claims/{}/backend/", "claim", {"ip": None, "generation": 1}),
    "a member": ("GET", "members/{}/", "member", None),
    "a member to cordon": ("POST", "members/{}/cordon/", "member", {"reason": "x"}),
    "a holder of a slot": ("GET", "slots/{}/held-by/", "slot", None),
    "a slot to claim": ("POST", "claims/", "slot", {"slot": None, "kind": "slot"}),
    "a grant": ("DELETE", "grants/{}/", "grant", None),
}


def answer_to(caller: Any, name: str, number: int) -> tuple[int, dict[str, Any]]:
    method, path, _, body = CALLS[name]
    body = {**body, "slot": number} if body and "slot" in body else body
    answer = caller(method, path.format(number), body)
    return answer.status, {
        key: re.sub(rf"\b{number}\b", "N", str(value))
        for key, value in answer.body.items()
        if key not in ("instance", "status")
    }


@pytest.mark.parametrize("name", CALLS)
def test_a_hidden_object_is_answered_like_an_absent_object(
    name: str, world: World, caller: Callers
) -> None:
    stranger, elsewhere = caller(""), caller("admin", world.other)
    for each in (stranger, elsewhere):
        hidden, absent = (
            answer_to(each, name, number) for number in (getattr(world, CALLS[name][2]), ABSENT)
        )
        assert hidden == absent
        assert hidden[0] == 404


@pytest.mark.parametrize(
    "path",
    [
        "pools/{}/",
        "pools/{}/members/",
        "slots/?pool={}",
        "claims/?pool={}",
        "events/?pool={}",
        "pools/{}/scaling/",
    ],
)
def test_a_hidden_pool_is_answered_like_an_absent_pool(
    path: str, world: World, caller: Callers
) -> None:
    stranger = caller("")
    hidden, absent = (stranger.get(path.format(name)) for name in (world.pool.name, "nowhere"))
    said = [
        {key: str(value).replace(name, "N") for key, value in one.body.items()}
        for one, name in ((hidden, "one"), (absent, "nowhere"))
    ]
    assert (hidden.status, absent.status) == (404, 404)
    assert said[0] == said[1]


def test_bulk_calls_answer_hidden_claims_like_absent_claims(world: World, caller: Callers) -> None:
    body = {
        "claims": [
            {"id": number, "generation": world.generation} for number in (world.claim, ABSENT)
        ]
    }
    items = caller("").post("claims/bulk-release/", body).body["results"]
    assert [(item["status"], item["body"]["code"]) for item in items] == [
        (404, "not_found"),
        (404, "not_found"),
    ]
    assert "pool" not in items[0]["body"] and "role" not in items[0]["body"]
