"""One idempotency key of one caller makes one claim, however often it is sent."""

from claims.models import Claim
from tests.api.conftest import Callers
from tests.api.helpers import make_pool


def test_ten_creates_with_one_key_make_one_claim(caller: Callers) -> None:
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


def test_the_key_in_the_header_and_in_the_body_are_the_same_key(caller: Callers) -> None:
    pool = make_pool()
    ana = caller("claimant", pool)
    first = ana.post("claims/", {"pool": pool.name, "key": "k"})
    assert (
        ana.post("claims/", {"pool": pool.name}, Idempotency_Key="k").body["id"] == first.body["id"]
    )
    differing = ana.post("claims/", {"pool": pool.name, "key": "a"}, Idempotency_Key="b")
    assert (differing.status, differing.body["errors"][0]["field"]) == (400, "key")


def test_a_key_reused_with_another_body_is_refused(caller: Callers) -> None:
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


def test_keys_of_different_callers_are_independent(caller: Callers) -> None:
    pool = make_pool()
    ids = {
        caller("claimant", pool).post("claims/", {"pool": pool.name, "key": "k"}).body["id"]
        for _ in range(2)
    }
    assert len(ids) == 2


def test_a_replay_of_a_waiting_claim_is_202_and_of_an_ended_claim_shows_its_end(
    caller: Callers,
) -> None:
    pool = make_pool(slots=1)
    ana = caller("claimant", pool)
    held = ana.post("claims/", {"pool": pool.name, "key": "held"}).body
    assert [ana.post("claims/", {"pool": pool.name, "key": "waits"}).status for _ in range(3)] == [
        202
    ] * 3
    ana.post(f"claims/{held['id']}/release/", {"generation": held["generation"]})
    again = ana.post("claims/", {"pool": pool.name, "key": "held"})
    assert (again.status, again.body["id"], again.body["state"]) == (201, held["id"], "ended")


def test_an_idempotency_key_over_its_length_is_refused(caller: Callers) -> None:
    pool = make_pool()
    answer = caller("claimant", pool).post(
        "claims/", {"pool": pool.name}, Idempotency_Key="x" * 121
    )
    assert (answer.status, answer.body["errors"][0]["field"]) == (400, "Idempotency-Key")


def test_a_replay_returns_its_claim_even_if_a_new_one_would_be_refused(caller: Callers) -> None:
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
