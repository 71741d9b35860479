"""Races of an evacuation, with the first side stopped before its commit. A docstring says how its
test was seen red.
"""

from types import ModuleType
from typing import Any

import pytest

from claims.allocation.claim_view import ClaimView
from claims.lifecycle.release import release_claim
from claims.ports.evacuation import evacuation_sql, hand_over, mover
from claims.ports.evacuation.mover import step_evacuation, undo_evacuation
from claims.ports.evacuation.returns import return_claim
from project.kernel.errors import Conflict
from slots.members.services import clean_slot, remove_member
from slots.models import Evacuation, Slot
from tests.claims.helpers import again, ask, is_sound, member
from tests.claims.ports.evacuation.helpers import (
    claim_routed,
    evacuate,
    members_of,
    states_of,
    step,
)
from tests.claims.ports.quay import make_quay, work
from tests.claims.tasks.approvals.test_races import take_away
from tests.slots.concurrent_actors import in_order

pytestmark = pytest.mark.usefixtures("committed_tables")


def two_claims() -> tuple[ClaimView, ClaimView, int]:
    make_quay(members=2)
    first, second = claim_routed(), claim_routed(ip="10.0.0.8")
    return first, second, evacuate("lb0")


def count_moved(*claims: ClaimView) -> int:
    return sum(members_of(claim) == ["lb1"] for claim in claims)


def race_of_movers() -> tuple[list[Any], int]:
    first, second, found = two_claims()
    outcomes = in_order(lambda: step_evacuation(found), lambda: step_evacuation(found))
    assert is_sound()
    return list(outcomes), count_moved(first, second)


def test_two_movers_move_one_claim() -> None:
    assert race_of_movers() == (["moved", "nothing"], 1)
    row = Evacuation.objects.get()
    assert Slot.objects.get(state="draining").last_claim_id == row.claim_id


def test_without_its_lock_the_evacuation_loses_sight_of_a_claim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The test above, red: without the lock both move a claim, or the second fails."""
    lock = "FOR NO KEY UPDATE OF e SKIP LOCKED"
    take_away((("lock_due", lock, ""),), (evacuation_sql.statements,), monkeypatch)
    outcomes, moved = race_of_movers()
    assert (outcomes, moved) != (["moved", "nothing"], 1)


def test_a_release_that_waits_for_the_move_releases_the_new_ports() -> None:
    """Red without the departure that leads from the named generation to the new one."""
    first, _, found = two_claims()
    release = lambda: release_claim(claim_id=first.id, generation=first.generation)  # noqa: E731
    outcomes = in_order(lambda: step_evacuation(found), release)
    assert outcomes[0] == "moved"
    assert (again(first).state, again(first).outcome) == ("ended", "released")
    assert states_of("lb1") == {"idle", "draining"} and is_sound()


def test_a_move_that_waits_for_the_release_moves_nothing() -> None:
    """Red without the lock of the claim and the check after it: the move then names an old
    generation, and the statement itself refuses it.
    """
    first, second, found = two_claims()
    release = lambda: release_claim(claim_id=first.id, generation=first.generation)  # noqa: E731
    outcomes = in_order(release, lambda: step_evacuation(found))
    assert outcomes[1] == "waits"
    assert again(first).state == "ended" and is_sound()
    assert step(found) == "moved"
    assert members_of(second) == ["lb1"]


def test_an_undo_that_waits_for_the_move_takes_the_claim_back() -> None:
    first, second, found = two_claims()
    in_order(lambda: step_evacuation(found), lambda: undo_evacuation(member_id=found))
    assert count_moved(first, second) == 0
    assert not Evacuation.objects.exists() and is_sound()


def test_a_move_during_the_undo_moves_nothing() -> None:
    first, second, found = two_claims()
    outcomes = in_order(lambda: undo_evacuation(member_id=found), lambda: step_evacuation(found))
    assert outcomes[1] == "nothing"
    assert count_moved(first, second) == 0 and is_sound()


def test_a_target_that_another_claim_takes_is_left_to_it() -> None:
    first, second, found = two_claims()
    outcomes = in_order(lambda: ask("lb", kind="tcp"), lambda: step_evacuation(found))
    assert outcomes[1] in ("moved", "waits")
    assert members_of(outcomes[0]) == ["lb1"]
    while step(found) not in ("moved", "waits"):
        pass
    assert is_sound() and count_moved(first, second) <= 1


def test_a_member_that_leaves_meanwhile_keeps_its_serving_slots() -> None:
    """The slots that a moving claim has left are not clean: the member stays until they are."""
    first, _, found = two_claims()
    step(found)
    remove_member(member_id=found, reason="sold")
    assert member("lb0").state == "ready"
    work()
    assert step(found) == "arrived"
    assert members_of(first) == ["lb1"]


@pytest.mark.parametrize(
    ("module", "place"), [(hand_over, "_record_addresses"), (mover, "_notify")]
)
def test_a_mover_that_dies_in_its_step_leaves_all_or_nothing(
    module: ModuleType, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the hand-over, and at the end of the step: the transaction takes both back."""
    first, second, found = two_claims()

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(module, place, die)
        with pytest.raises(KeyboardInterrupt):
            step(found)
    assert count_moved(first, second) == 0 and is_sound()
    assert Evacuation.objects.get().claim_id is None
    assert step(found) == "moved"
    assert count_moved(first, second) == 1 and is_sound()


def arrived() -> tuple[ClaimView, int, Slot]:
    """A claim that has arrived, the evacuated member, and the port that it has left."""
    make_quay(members=2)
    claim = claim_routed()
    left = Slot.objects.get(claim_id=claim.id)
    found = evacuate("lb0")
    step(found)
    work()
    assert step(found) == "arrived"
    return claim, found, left


def race_of_return_after_clean(claim: ClaimView, found: int, left: Slot) -> Any:
    """The provider has just reported that the former port is clean."""
    clean = lambda: clean_slot(slot_id=left.pk, generation=left.generation)  # noqa: E731
    back = lambda: return_claim(member_id=found, claim_id=claim.id, reason="x")  # noqa: E731
    return in_order(clean, back)[1]


def test_a_return_that_waits_for_the_end_of_the_drain_is_refused() -> None:
    claim, found, left = arrived()
    refusal = race_of_return_after_clean(claim, found, left)
    assert isinstance(refusal, Conflict) and refusal.code == "ports_gone"
    assert members_of(claim) == ["lb1"] and is_sound()


def test_without_the_lock_of_the_former_ports_the_return_takes_a_clean_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The test above, red: the return does not see that the drain has ended."""
    claim, found, left = arrived()
    statements = evacuation_sql.statements
    take_away((("lock_left", "FOR NO KEY UPDATE OF s", ""),), (statements,), monkeypatch)
    refusal = race_of_return_after_clean(claim, found, left)
    assert getattr(refusal, "code", "") != "ports_gone"


def test_a_drain_that_ends_during_the_return_cleans_nothing() -> None:
    claim, found, left = arrived()
    clean = lambda: clean_slot(slot_id=left.pk, generation=left.generation)  # noqa: E731
    in_order(lambda: return_claim(member_id=found, claim_id=claim.id, reason="x"), clean)
    assert members_of(claim) == ["lb0"] and is_sound()
