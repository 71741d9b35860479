"""The same key, the same claim: however often it is sent, and whoever else uses the key."""

from claims.models import Claim
from tests.api.conftest import Callers
from tests.api.helpers import make_pool


def test_ten_times_the_same_key_is_one_claim(caller: Callers) -> None:
    pool = make_pool(slots=5)
    ana = caller("claimant", pool)
    answers = [
        ana.post("claims/", {"pool": pool.name, "owner": "o"}, Idempotency_Key="k 1")
        for _ in range(10)
    ]
    assert {
        (answer.status, answer.body["id"], answer.body["slots"][0]["id"]) for answer in answers
    } == {(201, answers[0].body["id"], answers[0].body["slots"][0]["id"])}
    assert [answer.headers.get("Idempotency-Replayed") for answer in answers] == [None] + [
        "true"
    ] * 9
    assert Claim.objects.count() == 1


def test_header_and_field_are_the_same_key(caller: Callers) -> None:
    pool = make_pool()
    ana = caller("claimant", pool)
    first = ana.post("claims/", {"pool": pool.name, "key": "k"})
    assert (
        ana.post("claims/", {"pool": pool.name}, Idempotency_Key="k").body["id"] == first.body["id"]
    )
    differing = ana.post("claims/", {"pool": pool.name, "key": "a"}, Idempotency_Key="b")
    assert (differing.status, differing.body["errors"][0]["field"]) == (400, "key")


def test_another_body_is_refused_and_changes_nothing(caller: Callers) -> None:
    pool = make_pool()
    ana = caller("claimant", pool)
    first = ana.post("claims/", {"pool": pool.name, "key": "k"})
    other = ana.post("claims/", {"pool": pool.name, "key": "k", "owner": "another"})
    assert (other.status, other.body["code"], other.body["claim"]) == (
        409,
        "key_reused",
        first.body["id"],
    )
    assert Claim.objects.count() == 1


def test_keys_belong_to_who_asks(caller: Callers) -> None:
    pool = make_pool()
    ids = {
        caller("claimant", pool).post("claims/", {"pool": pool.name, "key": "k"}).body["id"]
        for _ in range(2)
    }
    assert len(ids) == 2


def test_one_that_waits_stays_202_and_one_that_has_ended_is_shown_so(caller: Callers) -> None:
    pool = make_pool(slots=1)
    ana = caller("claimant", pool)
    held = ana.post("claims/", {"pool": pool.name, "key": "held"}).body
    assert [ana.post("claims/", {"pool": pool.name, "key": "waits"}).status for _ in range(3)] == [
        202
    ] * 3
    ana.post(f"claims/{held['id']}/release/", {"generation": held["generation"]})
    again = ana.post("claims/", {"pool": pool.name, "key": "held"})
    assert (again.status, again.body["id"], again.body["state"]) == (201, held["id"], "ended")


def test_a_key_that_no_header_can_carry_is_refused(caller: Callers) -> None:
    pool = make_pool()
    answer = caller("claimant", pool).post(
        "claims/", {"pool": pool.name}, Idempotency_Key="x" * 121
    )
    assert (answer.status, answer.body["errors"][0]["field"]) == (400, "Idempotency-Key")


def test_a_repeated_call_gets_its_claim_even_if_it_is_refused_by_now(caller: Callers) -> None:
    root = caller("superuser")
    body = {"pool": "later", "kind": "tape", "key": "k"}
    first = root.post("claims/", body)
    assert first.status == 202
    make_pool("later")
    assert root.post("claims/", body | {"key": "another"}).status == 422
    again = root.post("claims/", body)
    assert (again.status, again.body["id"]) == (202, first.body["id"])
    many = root.post("claims/bulk/", {"claims": [body]})
    assert [(item["status"], item["body"]["id"]) for item in many.body["results"]] == [
        (202, first.body["id"])
    ]
