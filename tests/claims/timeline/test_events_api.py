"""The event log over HTTP: backwards by page, as of a moment, and forwards from a position."""

from datetime import datetime, timedelta

import pytest

from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import ClaimRequest
from claims.lifecycle.release import release_claim
from tests.api.conftest import Caller, Callers
from tests.api.helpers import make_pool


@pytest.fixture
def root(transactional_db: None, caller: Callers) -> Caller:
    """Committed: what is not, has no place in the log yet."""
    return caller("superuser")


def test_events_are_paged_backwards_and_followed_forwards(root: Caller) -> None:
    make_pool("one", slots=3)
    start = root.get("events/").body["position"]
    claims = [
        create_claim(ClaimRequest(pools=("one",), kind="slot", requested_by="ana"))
        for _ in range(3)
    ]
    for claim in claims:
        release_claim(claim_id=claim.id, generation=claim.generation)
    everything = root.get("events/?pool=one&limit=500").body["results"]
    assert [event["id"] for event in everything] == sorted(
        (event["id"] for event in everything), reverse=True
    )

    paged, path = [], "events/?pool=one&limit=2"
    while path:
        page = root.get(path).body
        paged += page["results"]
        path = (page["next"] or "").partition("/api/v1/")[2]
    assert paged == everything

    followed, path, position = [], f"events/?after={start}&limit=2", start
    while path:
        page = root.get(path).body
        followed += page["results"]
        position, path = page["position"], (page["next"] or "").partition("/api/v1/")[2]
    assert [event["verb"] for event in followed if event["claim_id"]] == ["create"] * 3 + [
        "release"
    ] * 3
    assert root.get(f"events/?after={position}").body["results"] == []
    assert {event["member"] for event in followed if event["verb"] == "release"} == {"a"}


def test_the_log_and_the_slot_name_the_holder_at_a_moment(root: Caller) -> None:
    make_pool("one", slots=1)
    first = create_claim(ClaimRequest(pools=("one",), kind="slot", requested_by="ana"))
    release_claim(claim_id=first.id, generation=first.generation)
    second = create_claim(ClaimRequest(pools=("one",), kind="slot", requested_by="ben"))
    slot = second.slots[0].id
    log = root.get(f"events/?slot={slot}").body["results"]
    bound = next(
        event for event in log if event["claim_id"] == first.id and event["verb"] != "release"
    )
    moment = (
        (datetime.fromisoformat(bound["at"]) + timedelta(microseconds=1))
        .isoformat()
        .replace("+", "%2B")
    )
    assert (
        root.get(f"events/?slot={slot}&as_of={moment}").body["results"][0]["claim_id"] == first.id
    )
    held = root.get(f"slots/{slot}/held-by/?at={moment}").body
    assert (held["is_known"], held["claim_id"], held["generation"]) == (
        True,
        first.id,
        first.generation,
    )
    assert root.get(f"slots/{slot}/held-by/").body["claim_id"] == second.id
    assert root.get(f"slots/{slot}/held-by/?at=2001-01-01T00:00:00Z").body["is_known"] is False


def test_invalid_positions_and_limits_are_refused(root: Caller) -> None:
    for query in ("after=7", "after=a.b", "after=1.1&cursor=4", "cursor=x", "limit=0", "limit=501"):
        assert root.get(f"events/?{query}").status == 400, query
