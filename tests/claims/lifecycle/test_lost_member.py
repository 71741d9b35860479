"""A lost member loses its claims; the finalizer cleans slots and deletes old claims."""

from collections.abc import Iterator
from typing import Any

import pytest

from claims.controllers import Finalizer
from claims.lifecycle.chores import (
    _CleanupCursor,
    delete_ended_claims,
    end_claims_of_deleted_pools,
    lose_claims,
)
from claims.lifecycle.lost_member import lose_claim
from claims.lifecycle.pool_deletion import delete_pool
from claims.lifecycle.release import release_claim
from claims.lifecycle.update import record_claim_heartbeat
from claims.models import Claim, Lease
from pools.models import Pool
from project.kernel.models import Event, Operation
from project.kernel.outbox.operations import ProviderError, Throttled, perform_due
from slots.members.liveness import lose_member
from slots.models import Slot
from slots.sync.watcher import observe_pool
from tests.claims.helpers import (
    again,
    ask,
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
from tests.pools.providers.fake_providers import ALL, ShelfProvider, fresh

pytestmark = pytest.mark.usefixtures("tables")


# -- lost members ----------------------------------------------------------------------------------


def test_a_claim_is_lost_with_its_member() -> None:
    make_pool(members=2)
    claim, other = ask(), ask()
    lose_member(member_id=member("m0").pk, reason="no heartbeat for 12 min")
    assert again(claim).state == "bound", "each claim is lost in a transaction of its own"
    lose_claims()
    assert (again(claim).outcome, again(other).state) == ("lost", "bound")
    slot = Slot.objects.get(pk=claim.slots[0].id)
    assert (slot.state, slot.claim_id, slot.last_claim_id) == ("retired", None, claim.id)
    assert Event.objects.get(claim_id=claim.id, verb="lose").reason.startswith(
        "its member was lost"
    )
    assert not lose_claims()


def test_a_lost_plan_is_retried_on_another_member() -> None:
    make_pool("tf", slots=["any"], members=2)
    claim = ask("tf", task="plan")
    lose_member(member_id=member("m0").pk, reason="gone", is_gone=True)
    lose_claims()
    assert again(claim).state == "waiting"
    serve()
    bound = again(claim)
    assert (places(bound)[0][0], bound.generation > claim.generation) == ("m1", True)
    assert sql("SELECT attempts FROM claims_claim") == [(1,)], (
        "a task has succeeded once its plan is in, not when it is bound"
    )
    assert is_sound()


def test_a_lost_claim_with_retry_waits_and_a_locked_workspace_blocks_its_claim() -> None:
    make_pool("tf", slots=["any"], members=2)
    asked = ask("tf", kind="plan", retry=True)
    of_workspace = ask("tf", task="plan_and_apply", workspace="net")
    sql("UPDATE claims_workspace SET locked_at = now(), locked_by = 'ben'")
    for name in ("m0", "m1"):
        lose_member(member_id=member(name).pk, reason="gone")
    lose_claims()
    assert (again(asked).state, again(of_workspace).state) == ("waiting", "blocked")


def test_a_lost_apply_is_not_retried_and_locks_its_workspace() -> None:
    make_pool("tf", slots=["any"], members=2)
    claim = ask("tf", task="plan_and_apply", workspace="net")
    beside = ask("tf", task="plan", workspace="net")
    waiting = ask("tf", task="plan", workspace="net")
    sql("INSERT INTO claims_plan (claim_id, generation, digest) VALUES (%s, 1, 'x')", claim.id)
    sql(
        "UPDATE claims_claim SET step = 'apply', approved_plan_id = (SELECT id "
        "FROM claims_plan) WHERE id = %s",
        claim.id,
    )
    lose_member(member_id=member("m0").pk, reason="gone")
    lose_claims()
    assert again(claim).outcome == "lost"
    assert sql("SELECT lock_reason FROM claims_workspace") == [
        (f"claim {claim.id} was lost while it applied",)
    ]
    assert (again(beside).state, again(waiting).state) == ("bound", "blocked")


def test_a_lost_claim_releases_all_its_slots() -> None:
    make_pool(members=2)
    claim = ask(size=2)
    lose_member(member_id=member("m1").pk, reason="gone")
    assert lose_claim(claim_id=claim.id, member_id=member("m1").pk)
    assert not lose_claim(claim_id=claim.id, member_id=member("m1").pk), "twice is harmless"
    assert sorted(Slot.objects.values_list("state", flat=True)) == ["idle", "retired"]
    assert is_sound()


def test_a_release_before_the_loss_is_seen_wins() -> None:
    make_pool(members=2)
    claim = ask()
    lose_member(member_id=member("m0").pk, reason="gone")
    let_go(claim)
    lose_claims()
    assert (again(claim).outcome, verbs(claim)) == ("released", ["create", "release"])


# -- cleaning outside ------------------------------------------------------------------------------


@pytest.fixture
def shelf(settings: Any) -> Iterator[Pool]:
    """A pool whose provider cleans slots."""
    settings.BERTH_PROVIDERS = ALL
    fresh()
    pool = make_pool("shelf", slots=2, members=["a"], provider="shelf")
    perform_due("shelf")
    observe_pool(pool)
    perform_due("shelf")
    yield pool
    fresh()


def due_now() -> None:
    sql("UPDATE kernel_operation SET due_at = now() WHERE done_at IS NULL")


def test_a_slot_whose_cleaning_fails_stays_draining_and_is_retried(
    shelf: Pool,
) -> None:
    claim = ask("shelf")
    perform_due("shelf")
    ShelfProvider.world.errors = [Throttled("slow down"), ProviderError("no answer")]
    assert let_go(claim).outcome == "released", "the claim ends at once"
    for said in ("slow down", "no answer"):
        perform_due("shelf")
        slot = Slot.objects.get(pk=claim.slots[0].id)
        operation = Operation.objects.get(done_at=None, claim_id=claim.id)
        assert (slot.state, slot.last_claim_id, operation.error) == ("draining", claim.id, said)
        due_now()
    assert ask("shelf", size=2).state == "waiting", "nobody gets it before it is clean"
    perform_due("shelf")
    assert Slot.objects.get(pk=claim.slots[0].id).state == "idle"
    assert serve() == 1


def test_a_late_sync_for_an_old_holder_leaves_the_next_holder_alone(shelf: Pool) -> None:
    """F1: finalizing twice or late leaves the present holder of the slot alone."""
    first = ask("shelf")
    let_go(first)
    perform_due("shelf")
    second = ask("shelf")
    assert second.slots[0].id == first.slots[0].id
    sql("UPDATE kernel_operation SET done_at = NULL, due_at = now()")
    perform_due("shelf")
    assert again(second).state == "bound"
    assert release_claim(claim_id=first.id, generation=first.generation).outcome == "released"
    assert again(second).state == "bound"


def test_a_crash_between_end_and_cleaning_cleans_the_slot_once(shelf: Pool) -> None:
    claim = ask("shelf")
    perform_due("shelf")
    let_go(claim)
    # Taken by a worker that died.
    sql("UPDATE kernel_operation SET attempts = attempts + 1, due_at = now() WHERE done_at IS NULL")
    perform_due("shelf")
    assert Event.objects.filter(verb="clean", slot_id=claim.slots[0].id).count() == 1
    assert Slot.objects.get(pk=claim.slots[0].id).state == "idle"


# -- pools and retention ---------------------------------------------------------------------------


def test_the_finalizer_continues_an_interrupted_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    make_pool(slots=3)
    claims = [ask() for _ in range(5)]
    monkeypatch.setattr("claims.lifecycle.pool_deletion.AT_ONCE", 0)
    delete_pool("lab", cascade=True, reason="moved")
    for claim in claims[:3]:
        assert again(claim).state == "bound"
    monkeypatch.undo()
    assert not end_claims_of_deleted_pools()
    assert [again(claim).outcome for claim in claims] == ["cancelled"] * 5


def test_the_finalizer_ends_a_deleted_pool_and_leaves_other_waiting_claims() -> None:
    make_pool(members=2)
    claim = ask(hold_for="1s")
    waiting = ask("ghost")
    lose_member(member_id=member("m1").pk, reason="gone")
    delete_pool("lab", cascade=True)
    finalizer = Finalizer()
    for _ in range(5):
        finalizer.round.due.clear()
        finalizer.step()
    assert (again(claim).state, Pool.objects.get().state, again(waiting).state) == (
        "ended",
        "gone",
        "waiting",
    )


def test_ended_claims_are_deleted_after_their_retention() -> None:
    make_pool(slots=9)
    keeper = ask(heartbeat_within="1h")
    old = [ask(heartbeat_within="1h") for _ in range(5)]
    for claim in old:
        record_claim_heartbeat(claim_id=claim.id, generation=claim.generation)
        let_go(claim)
    young = ask()
    let_go(young)
    sql(
        "UPDATE claims_claim SET created_at = now() - interval '100 d', changed_at = now() - "
        "interval '91 d' WHERE id <= %s",
        old[-1].id,
    )
    _CleanupCursor.after = 0
    total = 0
    while deleted := delete_ended_claims(90, 2):
        total += deleted
    assert total == 5
    assert set(Claim.objects.values_list("id", flat=True)) == {keeper.id, young.id}
    assert (Lease.objects.count(), held()) == (0, 1)
