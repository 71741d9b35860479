"""Bulk create and bulk release over HTTP: one answer for each item, in request order."""

from typing import Any

from pools.models import Token
from tests.api.conftest import Callers
from tests.api.helpers import make_pool

VARYING = {"id", "generation", "created_at", "bound_at", "slots", "key"}


def without_varying(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in VARYING}


def test_each_bulk_item_is_answered_like_a_single_create_and_in_order(caller: Callers) -> None:
    pool = make_pool(slots=3)
    make_pool("full", slots=1)
    ana = caller("claimant")
    ana.post("claims/", {"pool": "full"})
    items: list[Any] = [
        {"pool": pool.name, "owner": "first"},
        {"pool": pool.name, "size": 0},
        {"pool": "full", "owner": "waits"},
        {"pool": pool.name, "colour": "red"},
        {"pool": pool.name, "owner": "second"},
        7,
        {"pool": pool.name, "kind": "tape"},
        {"pool": "later"},
    ]
    many = ana.post("claims/bulk/", {"claims": items})
    assert many.status == 200, many.body
    assert [item["status"] for item in many.body["results"]] == [
        201,
        400,
        202,
        400,
        201,
        400,
        422,
        202,
    ]
    assert [item["body"].get("owner") for item in many.body["results"]][0:5:2] == [
        "first",
        "waits",
        "second",
    ]
    for item, result in zip(items, many.body["results"], strict=True):
        if result["status"] < 300:
            continue
        alone = ana.post("claims/", item)
        assert (alone.status, alone.body) == (result["status"], result["body"])
    bound = many.body["results"][0]["body"]
    ana.post(
        "claims/bulk-release/", {"claims": [{"id": bound["id"], "generation": bound["generation"]}]}
    )
    alone = ana.post("claims/", items[0])
    assert without_varying(alone.body) == without_varying(bound)
    assert alone.body.keys() == bound.keys()


def test_a_repeated_bulk_create_with_keys_returns_the_same_claims(caller: Callers) -> None:
    pool = make_pool(slots=20)
    ana = caller("claimant", pool)
    body = {"claims": [{"pool": pool.name, "key": f"k{n}"} for n in range(10)]}
    first = ana.post("claims/bulk/", body)
    ids = [item["body"]["id"] for item in first.body["results"]]
    assert len(set(ids)) == 10
    for _ in range(3):
        again = ana.post("claims/bulk/", body)
        assert [item["body"]["id"] for item in again.body["results"]] == ids
        assert {item["status"] for item in again.body["results"]} == {201}


def test_bulk_release_reports_the_outcome_of_each_claim(caller: Callers) -> None:
    pool = make_pool(slots=3)
    ana = caller("claimant", pool)
    made = [
        item["body"]
        for item in ana.post("claims/bulk/", {"claims": [{"pool": pool.name}] * 4}).body["results"]
    ]
    holds: list[Any] = [{"id": claim["id"], "generation": claim["generation"]} for claim in made]
    holds[1]["generation"] += 1000
    holds += [{"id": 10**9, "generation": 1}, {"id": made[0]["id"]}]
    done = ana.post("claims/bulk-release/", {"claims": holds}).body["results"]
    assert [item["status"] for item in done] == [200, 409, 200, 409, 404, 400]
    assert [item["body"].get("code") for item in done] == [
        None,
        "stale_generation",
        None,
        "holds_nothing",
        "not_found",
        "invalid",
    ]
    assert done[0]["body"]["outcome"] == "released"


def test_a_bulk_create_takes_1_to_1000_claims(caller: Callers) -> None:
    pool = make_pool(slots=1200)
    ana = caller("claimant", pool)
    for wrong in (
        {},
        {"claims": []},
        {"claims": [{"pool": pool.name}] * 1001},
        {"claims": "all"},
        {"claim": [{}]},
    ):
        answer = ana.post("claims/bulk/", wrong)
        assert (answer.status, answer.body["code"]) == (400, "invalid"), wrong
    answer = ana.post(
        "claims/bulk/", {"claims": [{"pool": pool.name, "owner": str(n)} for n in range(1000)]}
    )
    assert [item["body"]["owner"] for item in answer.body["results"]] == [
        str(n) for n in range(1000)
    ]
    assert {item["status"] for item in answer.body["results"]} == {201}
    assert len({item["body"]["slots"][0]["id"] for item in answer.body["results"]}) == 1000
    assert Token.objects.count() == 1
