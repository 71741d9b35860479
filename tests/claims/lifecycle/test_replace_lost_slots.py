"""Lost slots of a claim are replaced while enough are free; an owner gets its last node again."""

from typing import Any

import pytest

from claims.allocation.claim_view import ClaimView
from claims.lifecycle.chores import lose_claims
from project.kernel.errors import StaleGeneration
from project.kernel.models import Event
from slots.members.liveness import lose_member
from slots.models import Slot
from tests.claims.helpers import (
    again,
    ask,
    is_sound,
    let_go,
    make_pool,
    member,
    places,
    serve,
    sql,
)

pytestmark = pytest.mark.usefixtures("tables")


def lose(name: str) -> None:
    lose_member(member_id=member(name).pk, reason="gone")
    lose_claims()


def members_of(claim: ClaimView) -> list[str]:
    return [name for name, _, _ in places(claim)]


def test_lost_slots_are_replaced_and_the_others_are_kept() -> None:
    make_pool(slots=2, members=3)
    claim = ask(size=4)
    kept = [slot.id for slot in claim.slots if slot.member == "m1"]
    lose("m0")
    after = again(claim)
    assert (after.state, members_of(after)) == ("bound", ["m2", "m2", "m1", "m1"])
    assert [slot.id for slot in after.slots[2:]] == kept
    assert after.generation > claim.generation
    assert set(Slot.objects.filter(member=member("m0")).values_list("state", flat=True)) == {
        "retired"
    }
    told = Event.objects.filter(claim_id=claim.id, verb__in=("move", "leave"))
    assert {event.reason for event in told} == {"a member was lost"}
    assert told.count() == 4
    with pytest.raises(StaleGeneration):
        let_go(claim)
    assert let_go(after).outcome == "released"
    assert is_sound()


def test_a_claim_is_lost_when_too_few_slots_are_free() -> None:
    make_pool(slots=2, members=3)
    claim = ask(size=4)
    ask()
    lose("m0")
    assert again(claim).outcome == "lost"
    assert Slot.objects.filter(state="held").count() == 1
    assert is_sound()


@pytest.mark.parametrize("terms", [{"contiguous": True}, {"on_one_member": True}])
def test_a_contiguous_or_one_member_claim_is_lost_with_its_member(terms: dict[str, Any]) -> None:
    make_pool(slots={"ports": "30000-30003", "shared": True}, members=2)
    claim = ask(size=2, **terms)
    lose("m0")
    assert again(claim).outcome == "lost"


def test_a_claim_that_has_lost_all_its_slots_is_lost() -> None:
    make_pool(slots=2, members=2)
    claim = ask(size=2)
    lose("m0")
    assert again(claim).outcome == "lost"


def test_replaced_slots_keep_labels_and_pools() -> None:
    here, there = {"zone": "eu"}, {"zone": "us"}
    listed = [
        {"name": "a", "labels": here},
        {"name": "b", "labels": here},
        {"name": "c", "labels": there},
        {"name": "d", "labels": here},
    ]
    make_pool("one", members=listed, slots=1)
    make_pool(
        "two",
        members=[
            {"name": "x", "labels": here},
            {"name": "y", "labels": here},
            {"name": "z", "labels": here},
        ],
        slots=1,
    )
    claim = ask(pools=["one", "two"], size=2, selector=here)
    assert members_of(claim) == ["a", "x", "b", "y"]
    lose("b")
    assert members_of(again(claim)) == ["a", "x", "d", "y"]
    lose("y")
    assert members_of(again(claim)) == ["a", "x", "d", "z"]
    lose("a")
    assert again(claim).outcome == "lost", "c is free, and in another zone"


def test_an_owner_gets_the_node_that_it_had_last() -> None:
    make_pool(slots="node", members=[{"name": name, "labels": {"gpu": "a"}} for name in "abcd"])
    taken = {
        name: ask(owner=owner, selector={"gpu": "a"})
        for name, owner in zip("abcd", ("w", "x", "y", "y"), strict=True)
    }
    assert {name: members_of(claim)[0] for name, claim in taken.items()} == {
        name: name for name in "abcd"
    }
    for name in "dcba":
        let_go(taken[name])
    assert members_of(ask(owner="y", selector={"gpu": "a"})) == ["d"], (
        "of the two it had, the one that was handed to it last"
    )
    assert members_of(ask(owner="x", by="another", selector={"gpu": "a"})) == ["a"], (
        "somebody else of that name"
    )
    assert members_of(ask(owner="x", selector={"gpu": "a"})) == ["b"]
    assert members_of(ask(owner="new", selector={"gpu": "a"})) == ["c"]
    assert sql("SELECT count(*) FROM slots_slot WHERE state = 'held'") == [(4,)]


def test_an_owner_gets_its_last_node_also_without_a_selector() -> None:
    make_pool(slots="node", members=4)
    taken = [ask(owner=owner) for owner in ("w", "x", "y", "z")]
    assert [members_of(claim) for claim in taken] == [["m0"], ["m1"], ["m2"], ["m3"]]
    for claim in taken:
        let_go(claim)
    assert members_of(ask(owner="y")) == ["m2"]
    assert members_of(ask(owner="x", by="another")) == ["m0"], "another caller's owner x"
    assert members_of(ask(owner="x")) == ["m1"]
    assert members_of(ask(owner="new")) == ["m3"]


def test_a_waiting_owner_gets_its_last_node_also_without_a_selector() -> None:
    early = ask("later", owner="y")
    make_pool("later", slots="node", members=3)
    serve()
    assert members_of(again(early)) == ["m0"], "its queue is older than the pool"
    others = [ask("later", owner=owner) for owner in ("x", "y")]
    waiting = ask("later", owner="x")
    assert waiting.is_waiting
    for claim in (again(early), *others):
        let_go(claim)
    serve()
    assert members_of(again(waiting)) == ["m1"]
    assert is_sound()
