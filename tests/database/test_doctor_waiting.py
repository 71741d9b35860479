"""The doctor on waiting claims: I16 every queue is tried, I17 no claim waits beside a suitable
free slot.
"""

from typing import Any

import pytest

from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import ClaimRequest
from claims.lifecycle.release import release_claim
from claims.models import Claim
from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from slots.members.services import cordon_member
from tests.database.doctor_helpers import age, ask, fill, find, is_told, mend, plant, told

pytestmark = pytest.mark.django_db


def test_i16_queue_that_is_not_tried_is_found(pool: Pool) -> None:
    fill()
    waits = ask()
    age("claims_claim", waits.id)
    plant("UPDATE claims_shape SET tried_at = now() - interval '2 minutes'")
    plant("UPDATE claims_claim SET bound_at = now() - interval '2 minutes' WHERE state = 'bound'")
    [(subject, detail)] = told("I16a")
    assert "for lab" in subject
    assert detail == "1 claims wait, last tried 120 s ago"
    mend("I16a")


def test_i16_queue_whose_heads_were_just_bound_is_accepted(pool: Pool) -> None:
    fill()
    age("claims_claim", ask().id)
    plant("UPDATE claims_shape SET tried_at = now() - interval '2 minutes'")
    assert find("I16a") == []


def test_i16_blocked_claim_without_a_blocker_is_found(pool: Pool) -> None:
    first = ask(workspace="prod", task="plan_and_apply")
    second = ask(workspace="prod", task="plan_and_apply")
    assert second.state == "blocked"
    age("claims_claim", second.id)
    assert find("I16b") == []
    plant(
        "UPDATE slots_slot SET state = 'idle', claim_id = NULL, ordinal = NULL WHERE claim_id = %s",
        first.id,
    )
    plant("DELETE FROM claims_claim WHERE id = %s", first.id)
    assert told("I16b") == [(f"claim {second.id}", "blocked without a reason")]
    mend("I16b")
    assert Claim.objects.get(pk=second.id).state == "waiting"


def test_i16_blocked_claim_without_workspace_or_timer_is_found(pool: Pool) -> None:
    fill()
    claim = ask()
    plant(
        "UPDATE claims_claim SET state = 'blocked', changed_at = now() - interval '2 "
        "minutes' WHERE id = %s",
        claim.id,
    )
    assert told("I16b") == [(f"claim {claim.id}", "blocked without a reason")]
    mend("I16b")
    assert Claim.objects.get(pk=claim.id).due_at is not None
    assert is_told(claim.id)


def test_i16_overdue_timer_is_found(pool: Pool) -> None:
    claim = ask(hold_for=60.0)
    age("claims_claim", claim.id, "due_at", 90)
    assert told("I16c") == [(f"claim {claim.id}", "bound, due for 90 s")]


def passed_over(**what: Any) -> Any:
    """A waiting claim whose slots became free without a notification."""
    held = fill()
    claim = ask(**what)
    for each in held:
        release_claim(claim_id=each.id, generation=each.generation)
    age("claims_claim", claim.id)
    plant("UPDATE slots_slot SET changed_at = now() - interval '6 seconds'")
    return claim


@pytest.mark.parametrize("what", [{}, {"size": 3}])
def test_i17_claim_waiting_beside_free_slots_is_found(pool: Pool, what: dict[str, Any]) -> None:
    claim = passed_over(**what)
    size = what.get("size", 1)
    assert told("I17") == [
        (f"claim {claim.id}", f"waits for {size} of pool lab, and 4 have been free for it for 6 s")
    ]
    mend("I17")
    assert Claim.objects.get(pk=claim.id).state == "bound"


@pytest.mark.parametrize("what", [{"size": 5, "kind": "slot"}, {"selector": (("disk", "ssd"),)}])
def test_i17_unsuitable_free_slots_are_no_finding(pool: Pool, what: dict[str, Any]) -> None:
    Pool.objects.update(max_members=9)
    passed_over(**what)
    assert find("I17") == []


def ports(name: str, **what: Any) -> None:
    create_pool(
        {
            "name": name,
            "slots": {"ports": "30000-30003", **what},
            "members": {"max": 1, "list": [f"{name}-m"]},
        }
    )


SEARCHED: dict[str, dict[str, Any]] = {
    "in a row": {"pools": ("eu",), "size": 2, "contiguous": True},
    "on one member": {"pools": ("eu",), "size": 2, "on_one_member": True},
    "several pools": {"pools": ("eu", "us")},
    "the same numbers": {"pools": ("eu", "us"), "size": 2, "same_number": True},
    "TCP and UDP": {"pools": ("apart",), "kind": "tcp_udp"},
}


@pytest.mark.parametrize("what", SEARCHED.values(), ids=SEARCHED)
def test_i17_slot_search_decides_whether_free_slots_fit(pool: Pool, what: dict[str, Any]) -> None:
    for name in ("eu", "us"):
        ports(name, shared=True)
    ports("apart", protocols=["tcp", "udp"])
    plant("UPDATE slots_slot SET is_open = false WHERE number <> 30001")
    claim = create_claim(ClaimRequest(requested_by="ana", **what))
    age("claims_claim", claim.id)
    names = ", ".join(what["pools"])
    if claim.state == "bound":  # one number is enough: what is left is no second one
        assert find("I17") == []
        claim = create_claim(ClaimRequest(requested_by="ana", **what))
        age("claims_claim", claim.id)
    plant("UPDATE slots_slot SET changed_at = now() - interval '6 seconds'")
    assert find("I17") == [], "what is open does not fit"
    plant(
        "UPDATE slots_slot SET is_open = true WHERE pool_id IN (SELECT id "
        "FROM pools_pool WHERE lanes <> '{slot}')"
    )
    plant("UPDATE slots_slot SET changed_at = now()")
    assert find("I17") == [], "it has just become free"
    plant("UPDATE slots_slot SET changed_at = now() - interval '6 seconds'")
    each = " each" if len(what["pools"]) > 1 else ""
    told_of = (
        f"waits for {what.get('size', 1)} of {names}{each}, and these slots have been free for 6 s"
    )
    assert told("I17") == [(f"claim {claim.id}", told_of)]
    plant("UPDATE pools_pool SET paused_until = now() + interval '1 h'")
    assert find("I17") == [], "its pool takes a pause"
    plant("UPDATE pools_pool SET paused_until = NULL")
    mend("I17")
    assert Claim.objects.get(pk=claim.id).state == "bound"


def test_i17_closed_slots_do_not_count_as_free(pool: Pool) -> None:
    passed_over()
    for member in Member.objects.all():
        cordon_member(member_id=member.pk, reason="disk")
    plant("UPDATE slots_slot SET changed_at = now() - interval '6 seconds'")
    assert find("I17") == []


def test_i17_claim_behind_one_that_may_not_be_passed_is_no_finding(pool: Pool) -> None:
    held = fill()
    large, small = ask(size=4), ask()
    release_claim(claim_id=held[0].id, generation=held[0].generation)
    for claim in (large, small):
        age("claims_claim", claim.id)
    plant("UPDATE slots_slot SET changed_at = now() - interval '6 seconds'")
    assert [f.subject for f in find("I17")] == [f"claim {small.id}"]
    plant("UPDATE claims_claim SET passed = 4 WHERE id = %s", large.id)
    assert find("I17") == [], "as many slots as the large claim needs were taken past it"
    plant(
        "UPDATE claims_claim SET passed = 0, created_at = now() - interval '10 "
        "minutes' WHERE id = %s",
        large.id,
    )
    assert find("I17") == [], "it has waited for too long to be passed"
    plant(
        'UPDATE claims_shape SET wait_reason = \'{"code": "no_room", "passable": true}\' '
        "WHERE size = 4"
    )
    assert [f.subject for f in find("I17")] == [f"claim {small.id}"], (
        "whoever leaves, the large claim is not served"
    )


def test_i17_claim_behind_an_equal_with_other_needs_is_no_finding(pool: Pool) -> None:
    held = fill()
    first, second = ask(size=2, contiguous=True), ask(size=2)
    for claim in (held[0], held[2]):
        release_claim(claim_id=claim.id, generation=claim.generation)
    for claim in (first, second):
        age("claims_claim", claim.id)
    plant("UPDATE slots_slot SET changed_at = now() - interval '6 seconds'")
    assert find("I17") == [], "an equal does not pass"
    plant("UPDATE claims_claim SET rank = 101 WHERE id = %s", first.id)
    assert [f.subject for f in find("I17")] == [f"claim {second.id}"]


def test_i17_slots_kept_for_a_larger_claim_are_no_finding(pool: Pool) -> None:
    held = fill()
    large, small = ask(size=3), ask(size=2, on_one_member=True)
    for claim in held[:2]:
        release_claim(claim_id=claim.id, generation=claim.generation)
    for claim in (large, small):
        age("claims_claim", claim.id)
    plant("UPDATE slots_slot SET changed_at = now() - interval '6 seconds'")
    assert [f.subject for f in find("I17")] == [f"claim {small.id}"]
    plant("UPDATE claims_claim SET passed = 2 WHERE id = %s", large.id)
    assert find("I17") == [], "two more would be past the need of the large claim"
