"""A holder releases a claim by its current generation; an operator by force, with a reason."""

import pytest

from claims.lifecycle.cancel import cancel_claim, force_release
from claims.lifecycle.pool_deletion import delete_pool, finish_deleting
from claims.lifecycle.release import release_claim, release_claims
from claims.lifecycle.update import prioritise_claim, resize_claim
from claims.models import Claim
from pools.models import Pool
from project.kernel.errors import BerthError, Conflict, Invalid, NotFound, Refused, StaleGeneration
from project.kernel.models import Event, Operation
from slots.members.services import finish_leaving
from slots.models import Slot
from tests.claims.helpers import (
    again,
    ask,
    elapse,
    held,
    is_sound,
    let_go,
    make_pool,
    member,
    places,
    serve,
    sql,
    verbs,
)

pytestmark = pytest.mark.usefixtures("tables")


def test_a_release_frees_the_slot_at_once() -> None:
    make_pool()
    claim = ask()
    ended = let_go(claim)
    assert (ended.state, ended.outcome, ended.slots) == ("ended", "released", [])
    assert places(ask()) == places(claim)
    event = Event.objects.get(claim_id=claim.id, verb="release")
    assert (event.before, event.after, event.generation, event.slot_id) == (
        "held",
        "idle",
        claim.generation,
        claim.slots[0].id,
    )


def test_a_repeated_release_is_done_once() -> None:
    make_pool()
    claim = ask()
    let_go(claim)
    other = ask()
    assert let_go(claim).outcome == "released"
    assert again(other).state == "bound"
    assert verbs(claim) == ["create", "release"]


def test_a_release_by_an_old_generation_is_refused_and_recorded() -> None:
    make_pool(members=2)
    claim = ask(size=2)
    smaller = resize_claim(claim_id=claim.id, generation=claim.generation, size=1)
    with pytest.raises(StaleGeneration) as caught:
        let_go(claim)
    assert caught.value.detail == (
        f"Claim {claim.id} is at generation {smaller.generation}, not {claim.generation}."
    )
    assert caught.value.data["generation"] == smaller.generation
    assert again(claim).state == "bound"
    late = Event.objects.get(claim_id=claim.id, verb="late_release")
    assert (late.generation, late.data) == (
        claim.generation,
        {"named": claim.generation, "now": smaller.generation},
    )


def test_a_waiting_claim_is_cancelled_and_cannot_be_released() -> None:
    make_pool()
    ask()
    claim = ask()
    with pytest.raises(Conflict, match="holds no slots"):
        release_claim(claim_id=claim.id, generation=0)
    with pytest.raises(NotFound):
        release_claim(claim_id=404, generation=1)
    assert cancel_claim(claim_id=claim.id, reason="no need").outcome == "cancelled"
    assert cancel_claim(claim_id=claim.id).outcome == "cancelled", "said twice"
    assert Event.objects.get(claim_id=claim.id, verb="cancel").reason == "no need"


def test_a_bound_claim_is_released_and_cannot_be_cancelled() -> None:
    make_pool()
    claim = ask()
    with pytest.raises(Conflict) as caught:
        cancel_claim(claim_id=claim.id)
    assert caught.value.data["generation"] == claim.generation
    let_go(claim)
    with pytest.raises(Conflict, match="has already ended"):
        cancel_claim(claim_id=claim.id)


def test_a_forced_release_requires_a_reason_and_ends_any_claim() -> None:
    make_pool()
    claim, waiting = ask(), ask()
    with pytest.raises(Invalid):
        force_release(claim_id=claim.id, reason=" ")
    assert force_release(claim_id=claim.id, reason="stuck").outcome == "cancelled"
    assert force_release(claim_id=waiting.id, reason="too").outcome == "cancelled"
    assert Event.objects.get(claim_id=claim.id, verb="force_release").reason == "stuck"
    with pytest.raises(Conflict):
        force_release(claim_id=claim.id, reason="again")
    with pytest.raises(Conflict, match="has already ended"):
        let_go(claim)
    assert held() == 0


def test_a_slot_with_cleaning_outside_drains_after_its_release() -> None:
    make_pool(drain={"limit": "2m"})
    sql("UPDATE pools_pool SET queue = 'shelf', revision = revision + 1")
    claim = ask()
    Operation.objects.all().delete()
    assert let_go(claim).state == "ended", "a claim never waits for cleaning"
    slot = Slot.objects.get()
    assert (slot.state, slot.claim_id, slot.last_claim_id) == ("draining", None, claim.id)
    assert sql(
        "SELECT extract(epoch FROM drain_until - changed_at)::int, due_at = drain_until "
        "FROM slots_slot"
    ) == [(120, True)]
    assert list(Operation.objects.values_list("kind", "claim_id")) == [("sync", claim.id)]
    assert ask().state == "waiting"


# -- many at once ----------------------------------------------------------------------------------


def test_bulk_releases_are_answered_each_and_in_order() -> None:
    make_pool(slots=4)
    a, b, c = ask(), ask(), ask()
    let_go(c)
    answers = release_claims(
        [
            (b.id, b.generation),
            (404, 1),
            (a.id, a.generation - 1),
            (c.id, c.generation),
            (a.id, a.generation),
            (b.id, b.generation),
        ]
    )
    assert [getattr(x, "outcome", None) or type(x).__name__ for x in answers] == [
        "released", "NotFound", "StaleGeneration", "released", "released", "released",
    ]  # fmt: skip
    assert held() == 0
    assert [verbs(x).count("release") for x in (a, b, c)] == [1, 1, 1]
    with pytest.raises(Invalid):
        release_claims([(1, 1)] * 1001)


def test_thirty_claims_of_twenty_slots_are_released_together() -> None:
    make_pool(slots=600)
    claims = [ask(size=20) for _ in range(30)]
    assert all(
        not isinstance(x, BerthError)
        for x in release_claims([(c.id, c.generation) for c in claims])
    )
    assert held() == 0
    assert is_sound()


# -- size and place --------------------------------------------------------------------------------


def test_a_resize_releases_the_last_slots_and_changes_the_generation() -> None:
    make_pool(slots=5)
    claim = ask(size=4)
    smaller = resize_claim(claim_id=claim.id, generation=claim.generation, size=2)
    assert [slot.number for slot in smaller.slots] == [0, 1]
    assert smaller.generation > claim.generation
    assert (smaller.size, ask(size=3).state) == (2, "bound")
    with pytest.raises(Refused, match="cannot grow"):
        resize_claim(claim_id=claim.id, generation=smaller.generation, size=3)
    with pytest.raises(Invalid):
        resize_claim(claim_id=claim.id, generation=smaller.generation, size=0)
    with pytest.raises(StaleGeneration):
        resize_claim(claim_id=claim.id, generation=claim.generation, size=1)
    one = resize_claim(claim_id=claim.id, generation=smaller.generation, size=1)
    shape = Claim.objects.get(pk=claim.id).shape
    assert (shape.size, shape.is_simple) == (1, True), (
        "it stands among its equals if it ever waits again"
    )
    let_go(one)
    assert is_sound()


def test_a_resize_releases_the_same_numbers_in_every_pool() -> None:
    for name in ("eu", "us"):
        make_pool(name, slots={"ports": "30000-30005", "shared": True})
    claim = ask(pools=["eu", "us"], size=3, same_number=True)
    smaller = resize_claim(claim_id=claim.id, generation=claim.generation, size=1)
    assert [(slot.pool, slot.number) for slot in smaller.slots] == [("eu", 30000), ("us", 30000)]


def test_a_higher_priority_moves_a_claim_up_the_queue() -> None:
    make_pool()
    first, a, b = ask(), ask(), ask()
    moved = prioritise_claim(claim_id=b.id, priority=10, reason="release day")
    assert moved.wait is not None
    assert (moved.priority, moved.wait.place) == (10, 1)
    assert Event.objects.get(claim_id=b.id, verb="prioritise").data == {"priority": 10}
    let_go(first)
    serve()
    assert (again(b).state, again(a).state) == ("bound", "waiting")
    with pytest.raises(Conflict, match="only waiting claims can be prioritised"):
        prioritise_claim(claim_id=b.id, priority=1)
    with pytest.raises(Invalid):
        prioritise_claim(claim_id=a.id, priority=100)
    sql("UPDATE claims_claim SET rank = 0 WHERE id = %s", a.id)
    with pytest.raises(Refused, match="approved"):
        prioritise_claim(claim_id=a.id, priority=99)


# -- a pool with its claims ------------------------------------------------------------------------


def test_a_pool_is_not_deleted_while_claims_exist() -> None:
    make_pool("lab")
    make_pool("annex")
    ask("lab")
    waiting = ask(pools=["annex", "lab"])
    with pytest.raises(Conflict, match="has 2 claims"):
        delete_pool("lab")
    assert Pool.objects.get(name="lab").state == "active"
    cancel_claim(claim_id=waiting.id)
    assert delete_pool("annex").state == "deleting"
    with pytest.raises(NotFound):
        delete_pool("nowhere")


def test_a_cascading_deletion_cancels_claims_and_removes_members() -> None:
    make_pool("lab", members=2)
    claims = [ask("lab", size=2), ask("lab"), ask(pools=["lab"], selector={"gpu": "t4"})]
    pool = delete_pool("lab", cascade=True, reason="moved")
    assert [again(claim).outcome for claim in claims] == ["cancelled"] * 3
    assert "pool lab is deleted" in Event.objects.get(claim_id=claims[1].id, verb="cancel").reason
    assert not finish_deleting(pool.pk)
    assert delete_pool("lab").state == "deleting", "said twice"
    for name in ("m0", "m1"):
        finish_leaving(member(name).pk)
        assert member(name).state == "gone"


def test_a_claim_without_limits_does_not_end_by_age() -> None:
    make_pool()
    claim = ask()
    elapse(claim, 10 * 86400)
    assert let_go(claim).outcome == "released"
