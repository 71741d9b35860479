"""The holder of an evacuated claim goes on to name the generation that it knows. A hold that has
ended stays ended for it.
"""

from collections.abc import Callable

import pytest

from claims.allocation.claim_view import ClaimView
from claims.lifecycle.chores import delete_ended_claims
from claims.lifecycle.drain import evict_claims, force_drain
from claims.lifecycle.release import release_claim, release_claims
from claims.lifecycle.update import acknowledge_claim, record_claim_heartbeat, resize_claim
from claims.ports.backends import BackendRequest, set_backend
from claims.ports.evacuation.mover import undo_evacuation
from project.kernel.errors import BerthError, Conflict, StaleGeneration
from project.kernel.models import Event
from slots.models import Departure
from tests.api.conftest import Callers
from tests.claims.helpers import again, ask, is_sound, member, serve, sql
from tests.claims.ports.evacuation.helpers import claim_routed, evacuate, members_of, step
from tests.claims.ports.quay import QuayProvider, make_quay, work

pytestmark = pytest.mark.usefixtures("committed_tables")
OTHER = BackendRequest("10.0.0.9", port=8080)

Call = Callable[[ClaimView], ClaimView]


def route(claim: ClaimView) -> ClaimView:
    return set_backend(claim_id=claim.id, generation=claim.generation, backend=OTHER)


def beat(claim: ClaimView) -> ClaimView:
    return record_claim_heartbeat(claim_id=claim.id, generation=claim.generation)


def acknowledge(claim: ClaimView) -> ClaimView:
    return acknowledge_claim(claim_id=claim.id, generation=claim.generation)


def release(claim: ClaimView) -> ClaimView:
    return release_claim(claim_id=claim.id, generation=claim.generation)


def move(claim: ClaimView, name: str = "lb0") -> ClaimView:
    """The claim, moved off the member."""
    assert step(evacuate(name)) == "moved"
    moved = again(claim)
    assert moved.generation > claim.generation
    return moved


@pytest.mark.parametrize("call", [route, beat, acknowledge, release])
def test_call_with_the_former_generation_acts_for_the_moved_claim(call: Call) -> None:
    make_quay(members=2)
    claim = claim_routed(heartbeat_within="1h", acknowledge_within="1h")
    moved = move(claim)
    answer = call(claim)
    assert (answer.id, answer.generation) == (claim.id, moved.generation), "the answer names it"
    assert (answer.state == "ended") is (call is release)
    assert is_sound() and not Event.objects.filter(verb__startswith="late_").exists()


def test_backend_of_the_holder_reaches_the_new_listener() -> None:
    make_quay(members=2)
    claim = claim_routed()
    move(claim)
    route(claim)
    work()
    (use,) = [use for place, use in QuayProvider.world.listeners.items() if place[2] == 30000][-1:]
    assert use.target is not None and use.target.ip == "10.0.0.9"


def test_generation_before_several_moves_is_still_the_holders() -> None:
    make_quay(members=3)
    claim = claim_routed()
    moved = move(claim)
    undo_evacuation(member_id=Departure.objects.get().member_id)
    assert members_of(claim) == ["lb0"], "the moving claim went back"
    work()
    last = move(claim)
    assert beat(claim).generation == beat(moved).generation == last.generation
    assert release(claim).outcome == "released"


def test_repeated_release_gets_the_same_answer() -> None:
    make_quay(members=2)
    claim = claim_routed()
    move(claim)
    first = release(claim)
    assert release(claim) == first


def test_releases_of_several_claims_may_name_former_generations() -> None:
    make_quay(members=2)
    first, second = claim_routed(), claim_routed(ip="10.0.0.8")
    move(first)
    named = [(first.id, first.generation), (second.id, second.generation)]
    answers = release_claims(named)
    assert [isinstance(each, BerthError) for each in answers] == [False, False]
    assert {again(each).outcome for each in (first, second)} == {"released"}


def test_shrunk_claim_has_another_generation_for_its_holder() -> None:
    """The holder has ordered that itself and knows the answer."""
    make_quay(members=2)
    claim = claim_routed(ports=None, kind="tcp", size=2)
    move(claim)
    shrunk = resize_claim(claim_id=claim.id, generation=claim.generation, size=1)
    assert shrunk.size == 1
    with pytest.raises(StaleGeneration):
        release(claim)


def test_later_hold_of_the_same_claim_is_not_the_former_holders() -> None:
    """The claim lost its ports and got others: another program may hold them."""
    make_quay(members=3)
    claim = claim_routed(retry=True)
    moved = move(claim)
    force_drain(member_id=member("lb1").pk, reason="sold")
    evict_claims(member("lb1").pk)
    serve()
    later = again(claim)
    assert later.state == "bound" and later.generation > moved.generation
    for each in (claim, moved):
        for call in (route, beat, release):
            with pytest.raises(StaleGeneration, match=f"not {each.generation}"):
                call(each)
    assert again(claim) == later and is_sound()


def test_generation_of_another_claim_opens_no_claim() -> None:
    make_quay(members=2)
    first, second = claim_routed(), claim_routed(ip="10.0.0.8")
    move(first)
    with pytest.raises(StaleGeneration):
        release_claim(claim_id=second.id, generation=first.generation)


def test_ended_hold_is_named_as_ended() -> None:
    make_quay(members=2)
    claim = claim_routed()
    move(claim)
    sql("UPDATE claims_claim SET due_at = now()")
    release(again(claim))
    with pytest.raises(Conflict, match="has already ended") as caught:
        route(claim)
    assert not isinstance(caught.value, StaleGeneration)


def test_program_that_knows_the_former_generation_only_sees_no_409(caller: Callers) -> None:
    make_quay(members=2)
    claim = claim_routed()
    moved = move(claim)
    holder, body = caller("operator"), {"generation": claim.generation}
    backend = {**body, "ip": "10.0.0.9", "port": 80}
    answer = holder("PUT", f"claims/{claim.id}/backend/", backend)
    assert (answer.status, answer.body["generation"]) == (200, moved.generation)
    assert answer.body["ports"][0]["member"] == "lb1"
    assert holder.post(f"claims/{claim.id}/keep/", body).status == 200
    assert holder.post(f"claims/{claim.id}/release/", body).body["outcome"] == "released"


def test_deleted_claims_leave_no_departure() -> None:
    make_quay(members=2)
    claim = claim_routed()
    move(claim)
    release(claim)
    assert ask("lb", kind="tcp").state == "bound"
    sql("UPDATE claims_claim SET created_at = now() - interval '9 d'")
    sql("UPDATE claims_claim SET changed_at = created_at")
    delete_ended_claims(1.0, 100)
    assert not Departure.objects.exists()
