"""Races of claims in real processes on a real PostgreSQL. A docstring says how its test was
seen red.
"""

from typing import Any

import pytest

from claims.allocation.bulk import create_claims
from claims.allocation.claim_view import ClaimView
from claims.allocation.create import create_claim
from claims.lifecycle.cancel import cancel_claim
from claims.lifecycle.chores import check_due_claims
from claims.lifecycle.pool_deletion import delete_pool
from claims.lifecycle.release import release_claim
from claims.lifecycle.update import acknowledge_claim, resize_claim
from claims.models import Claim
from project.kernel.errors import BerthError, Conflict, StaleGeneration
from project.kernel.models import Event
from slots.members.services import add_members, cordon_member
from slots.models import Slot
from tests.claims.helpers import (
    age,
    ask,
    elapse,
    held,
    is_sound,
    make_pool,
    member,
    serve,
    sql,
    wish,
)
from tests.claims.parallel_processes import together

pytestmark = pytest.mark.usefixtures("committed_tables")


def outcome(work: Any) -> Any:
    """What a call answered, or the code of its refusal."""
    try:
        return work()
    except BerthError as error:
        return error.code


def test_eight_processes_create_1000_claims_without_a_double() -> None:
    """0 doubles, 0 lost. Red without SKIP LOCKED in `free` of create_and_bind: two took one slot
    and the second was refused (BR001).
    """
    make_pool(slots=30, members=30)

    def claim(k: int) -> list[tuple[int, str, int | None]]:
        made = [create_claim(wish(key=f"{k}:{i}", owner=f"pod:{k}:{i}")) for i in range(125)]
        return [(c.id, c.state, c.slots[0].id if c.slots else None) for c in made]

    found = [row for rows in together(*[claim] * 8) for row in rows]
    assert len({claim_id for claim_id, _, _ in found}) == 1000
    slots = [slot for _, state, slot in found if state == "bound"]
    assert len(slots) == len(set(slots))
    assert Claim.objects.count() == 1000, "every answer is a claim that is there"
    serve()
    assert (held(), Claim.objects.filter(state="waiting").count()) == (900, 100)
    assert is_sound()


def test_four_allocators_bind_every_claim_that_fits_once() -> None:
    """All at once: no slot is bound twice and no claim that fits is left over. Each lock by
    itself is seen red in tests/database/test_races_without_guard.py: "batch, batch" and "two
    allocators, three slots each".
    """
    make_pool("a", slots=10, members=10)
    make_pool("b", slots=10, members=10)
    for name in ("a", "b"):
        holder = ask(name, size=100)
        for _ in range(60):
            ask(name)
            ask(name, size=2)
        release_claim(claim_id=holder.id, generation=holder.generation)
    for _ in range(4):  # an even number: two of these fill what one of two slots leaves over
        ask(pools=["b", "a"])

    def allocate_all(k: int) -> int:
        return serve()

    # Slots locked by another allocator were skipped; the next turn takes them.
    bound = sum(together(*[allocate_all] * 4)) + serve()
    assert bound == Claim.objects.filter(state="bound").count()
    assert held() == 200
    assert is_sound()


def test_a_claim_is_either_cancelled_or_bound() -> None:
    """Bind or cancel wins, and the loser is told. Red without the state in the UPDATE of
    end_unheld: a bound claim was ended under its slots (23514: it named no generation)."""
    make_pool(slots=100, members=[], most=1)
    claims = [c for c in create_claims([wish() for _ in range(200)]) if isinstance(c, ClaimView)]
    sql("UPDATE pools_pool SET max_members = 9")

    def cancel(k: int) -> list[str]:
        return [outcome(lambda c=c: cancel_claim(claim_id=c.id).outcome) for c in reversed(claims)]  # type: ignore[misc]

    def bind(k: int) -> int:
        add_members(pool_id=claims[0].pool_id or 0, declared=["a"])
        return serve()

    cancelled, bound = together(cancel, bind)
    bound += serve()
    assert cancelled.count("cancelled") + cancelled.count("holds_slots") == 200
    assert cancelled.count("holds_slots") == bound == held()
    assert Claim.objects.filter(outcome="cancelled").count() == cancelled.count("cancelled")
    assert is_sound()


def test_a_cordoned_member_gets_no_new_claim() -> None:
    """Once a cordon has answered, the member gets no new claim. The moment in which the cordon
    must wait is played step by step, and was seen red, in tests/slots/members/test_races.py; here
    it is many members under load."""
    make_pool(slots=30, members=4)
    targets = [member(f"m{i}").pk for i in range(4)]

    def claim(k: int) -> None:
        for i in range(60):
            made = create_claim(wish(owner=f"{k}:{i}"))
            if made.state == "bound" and i % 2:
                release_claim(claim_id=made.id, generation=made.generation)

    def cordon(k: int) -> dict[int, list[int]]:
        seen = {}
        for pk in targets[:3]:
            cordon_member(member_id=pk, reason="disk")
            seen[pk] = list(
                Slot.objects.filter(member_id=pk, state="held").values_list("id", flat=True)
            )
        return seen

    seen = together(claim, claim, claim, cordon)[3]
    serve()
    for pk, before in seen.items():
        assert set(
            Slot.objects.filter(member_id=pk, state="held").values_list("id", flat=True)
        ) <= set(before)
        assert not Slot.objects.filter(member_id=pk, is_open=True).exists()
    assert is_sound()


def test_a_release_racing_a_resize_succeeds_or_is_stale() -> None:
    """The previous holder releases while the hold changes: the release is in time or has no
    effect. Red without the generation in give_back: the release of the first holder ended the
    second hold."""
    make_pool(slots=120, members=1)
    claims = [ask(size=2) for _ in range(60)]

    def release(k: int) -> list[str]:
        return [
            outcome(lambda c=c: release_claim(claim_id=c.id, generation=c.generation).outcome)
            for c in claims
        ]  # type: ignore[misc]

    def resize(k: int) -> list[str]:
        calls = [
            lambda c=c: resize_claim(claim_id=c.id, generation=c.generation, size=1).state
            for c in reversed(claims)
        ]  # type: ignore[misc]
        return [outcome(call) for call in calls]

    released, resized = together(release, resize)
    resized = resized[::-1]
    for claim, one, other in zip(claims, released, resized, strict=True):
        now = Claim.objects.get(pk=claim.id)
        if other == "bound":
            assert (one, now.state, now.size) == ("stale_generation", "bound", 1)
        else:
            assert (one, now.state) == ("released", "ended")
    assert is_sound()


def test_a_key_from_eight_processes_makes_one_claim() -> None:
    """One claim, one slot, eight equal answers. Red without ON CONFLICT in create_and_bind
    (23505 to all but one).
    """
    make_pool(slots=50, members=4)

    def claim(k: int) -> list[tuple[int, int]]:
        made = [create_claim(wish(key=f"k{i}")) for i in range(40)]
        return [(c.id, c.slots[0].id) for c in made]

    answers = together(*[claim] * 8)
    assert all(answer == answers[0] for answer in answers)
    assert (
        Claim.objects.count(),
        held(),
        Event.objects.filter(verb="create", claim_id__isnull=False).count(),
    ) == (40, 40, 40)


def test_a_key_in_bulk_and_single_creates_makes_one_claim() -> None:
    """Bulk and single calls with the same keys. Red without ON CONFLICT in create_batch."""
    make_pool(slots=50, members=4)

    def bulk(k: int) -> list[int]:
        return [
            c.id
            for c in create_claims([wish(key=f"k{i}") for i in range(80)])
            if isinstance(c, ClaimView)
        ]

    def single(k: int) -> list[int]:
        return [create_claim(wish(key=f"k{i}")).id for i in reversed(range(80))][::-1]

    answers = together(bulk, bulk, single, single)
    assert all(answer == answers[0] for answer in answers)
    assert (len(answers[0]), Claim.objects.count(), held()) == (80, 80, 80)


def test_a_workspace_has_at_most_one_bound_serial_claim() -> None:
    """Red without FOR NO KEY UPDATE of the workspace and the unique index claim_serial: several
    were under way.
    """
    make_pool("tf", slots=["any"], members=40)
    # New ones would queue up on their names.
    sql("INSERT INTO claims_workspace (name) SELECT 'w' || g FROM generate_series(0, 9) g")

    def claim(k: int) -> list[str]:
        return [
            create_claim(wish("tf", task="plan_and_apply", workspace=f"w{i}")).state
            for i in range(10)
        ]

    states = [state for rows in together(*[claim] * 4) for state in rows]
    assert (states.count("bound"), states.count("blocked")) == (10, 30)
    assert is_sound()


def test_an_acknowledged_claim_is_not_ended_by_the_finalizer() -> None:
    """A holder whose acknowledgement is accepted keeps its claim: the finalizer looks again under
    the lock that an acknowledgement needs. Step by step, and red without that lock: "acknowledge,
    finalize" in tests/database/test_races_without_guard.py."""
    make_pool(slots=120, members=1)
    claims = [ask(acknowledge_within="30s") for _ in range(80)]
    for claim in claims:
        elapse(claim, 29.9)

    def acknowledge(k: int) -> list[str]:
        calls = [
            lambda c=c: acknowledge_claim(claim_id=c.id, generation=c.generation).state
            for c in claims
        ]  # type: ignore[misc]
        return [outcome(call) for call in calls]

    def finalize(k: int) -> None:
        while Claim.objects.filter(state="bound", acknowledged_at=None).exists():
            check_due_claims()

    told = together(acknowledge, finalize, finalize)[0]
    for claim, answer in zip(claims, told, strict=True):
        now = Claim.objects.get(pk=claim.id)
        assert (now.state == "bound") is (answer == "bound"), (answer, now.state)
    assert is_sound()


def test_a_deleted_pool_has_no_claim_from_a_racing_create() -> None:
    """No claim is left in a pool that has been deleted. Red without FOR KEY SHARE of the pool in
    create_and_bind: the claim was there, the pool had found none."""
    for name in ("p0", "p1", "p2", "p3"):
        make_pool(name, slots=10)

    def claim(k: int) -> None:
        for i in range(60):
            made = outcome(lambda i=i: create_claim(wish(f"p{i % 4}")))  # type: ignore[misc]
            if isinstance(made, ClaimView) and made.state == "bound":
                outcome(
                    lambda made=made: release_claim(claim_id=made.id, generation=made.generation)
                )  # type: ignore[misc]

    def delete(k: int) -> None:
        for name in ("p0", "p1", "p2", "p3"):
            while True:
                try:
                    delete_pool(name)
                    break
                except Conflict:
                    continue

    together(claim, claim, delete)
    assert sql(
        "SELECT count(*) FROM claims_claim c JOIN pools_pool p ON p.id = c.pool_id "
        "WHERE p.state = 'deleting' AND c.state <> 'ended'"
    ) == [(0,)]


def test_a_strict_claim_is_served_under_constant_new_claims() -> None:
    """A claim for four slots together is served although small claims come and go all the time.
    Red with is_strict always false: it starved."""
    make_pool(slots=4, members=1)
    first = [ask() for _ in range(4)]
    big = ask(size=4)
    age(big, 601)
    serve()

    def churn(k: int) -> int:
        mine = [first[k * 2], first[k * 2 + 1]]
        for i in range(40):
            if mine:
                gone = mine.pop()
                outcome(
                    lambda gone=gone: release_claim(claim_id=gone.id, generation=gone.generation)
                )  # type: ignore[misc]
            made = create_claim(wish(owner=f"{k}:{i}"))
            if made.state == "bound":
                mine.append(made)
            serve()
        return len(mine)

    together(churn, churn)
    serve()
    assert Claim.objects.get(pk=big.id).state == "bound"


def test_generations_never_repeat() -> None:
    """All callers draw from one sequence. Red with `generation + 1`: two claims had the same."""
    make_pool(slots=20, members=5)

    def churn(k: int) -> list[int]:
        seen = []
        for _ in range(40):
            claim = create_claim(wish())
            seen.append(claim.generation)
            release_claim(claim_id=claim.id, generation=claim.generation)
        return seen

    drawn = [generation for rows in together(churn, churn, churn) for generation in rows]
    assert len(drawn) == len(set(drawn))
    with pytest.raises(StaleGeneration):
        resize_claim(claim_id=Claim.objects.earliest("id").pk, generation=max(drawn) + 1, size=1)
