"""One claim over HTTP: created, read and released."""

from tests.api.conftest import Callers
from tests.api.helpers import make_pool


def test_a_claim_is_created_read_and_released(caller: Callers) -> None:
    pool = make_pool("env-test", slots=1)
    ana = caller("claimant", pool)
    made = ana.post("claims/", {"pool": "env-test", "owner": "branch:login"})
    assert made.status == 201, made.body
    assert made.body["state"] == "bound"
    assert made.headers["Location"] == f"/api/v1/claims/{made.body['id']}/"
    assert [slot["member"] for slot in made.body["slots"]] == ["a"]
    assert ana.get(f"claims/{made.body['id']}/").body == made.body

    second = ana.post("claims/", {"pool": "env-test"})
    assert second.status == 202, second.body
    assert (second.body["state"], second.body["wait"]["code"], second.body["wait"]["place"]) == (
        "waiting",
        "full",
        1,
    )

    released = ana.post(
        f"claims/{made.body['id']}/release/", {"generation": made.body["generation"]}
    )
    assert (released.status, released.body["state"], released.body["outcome"]) == (
        200,
        "ended",
        "released",
    )
    assert (
        ana.post(
            f"claims/{made.body['id']}/release/", {"generation": made.body["generation"]}
        ).status
        == 200
    ), "said twice, done once"
