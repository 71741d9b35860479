"""A pause of a pool with many slots closes them in pieces, and no claim is bound from its start."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from claims import claims_sql
from claims.allocation.bulk import create_claims
from claims.allocation.claim_view import ClaimView
from claims.lifecycle.chores import lose_claims
from claims.models import Claim
from pools.models import Pool
from project.kernel.errors import BerthError
from slots.doctor.checks import find_wrongly_open
from slots.members import members_sql, open_slots
from slots.members.liveness import lose_member
from slots.members.open_slots import align_pool_fully, align_remaining
from slots.members.services import cordon_member, pause_pool, resume_pool
from slots.models import Slot
from tests.claims.helpers import again, ask, held, is_sound, make_pool, member, serve, sql, wish
from tests.slots.helpers import is_consistent

pytestmark = pytest.mark.usefixtures("tables")

MEMBERS, EACH = 5, 12


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_slots, "AT_ONCE", 10)
    monkeypatch.setattr(open_slots, "MEMBERS", 2)


def big(**more: Any) -> Pool:
    return make_pool(
        slots=EACH,
        members=[{"name": f"m{i}", "labels": {"row": f"{i}"}} for i in range(MEMBERS)],
        **more,
    )


def pause(pool: Pool) -> Pool:
    return pause_pool(pool_id=pool.pk, until=timezone.now() + timedelta(hours=1), reason="firmware")


def open_now() -> int:
    return Slot.objects.filter(is_open=True).count()


def named() -> str:
    slot = Slot.objects.filter(is_open=True, state="idle").first()
    assert slot is not None
    try:
        return ask(slot=slot.pk).state
    except BerthError as error:
        return error.code


def many() -> str:
    (one,) = create_claims([wish()])
    return one.state if isinstance(one, ClaimView) else one.code


def waits_already() -> str:
    claim = ask()
    serve()
    return again(claim).state


WAYS: dict[str, tuple[Callable[[], str], str]] = {
    "one": (lambda: ask().state, "waiting"),
    "several": (lambda: ask(size=2).state, "waiting"),
    "in a row": (lambda: ask(size=2, contiguous=True).state, "waiting"),
    "with labels": (lambda: ask(selector={"row": "4"}).state, "waiting"),
    "by a bulk call": (many, "waiting"),
    "by the allocator": (waits_already, "waiting"),
    "this very slot": (named, "slot_taken"),
}


GATES = {
    "q.is_willing AND": "",
    f"AND {claims_sql.statements.fragments['_willing']}": "",
    (
        "AND (p.state <> 'active' OR p.paused_until IS NOT NULL OR p.frozen_until IS NOT NULL)"
    ): "AND false",
}


def take_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in list(claims_sql.statements.texts.items()):
        for gate, instead in GATES.items():
            text = text.replace(gate, instead)
        monkeypatch.setitem(claims_sql.statements.texts, name, text)


@pytest.mark.parametrize("way", WAYS)
def test_a_large_pool_binds_no_claim_from_the_start_of_its_pause(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red without the gate in each of the statements that hand slots over."""
    pool = big()
    assert pause(pool).unaligned_at is not None
    assert 0 < open_now() < MEMBERS * EACH
    do, answer = WAYS[way]
    assert do() == answer
    assert held() == 0
    assert all(claim.wait.code == "pool_paused" for claim in waiting())
    sql("UPDATE claims_claim SET state = 'ended', outcome = 'cancelled' WHERE state = 'waiting'")
    take_gates(monkeypatch)
    assert do() == "bound", "the gate is what has kept it out"
    assert is_sound()


def waiting() -> list[Any]:
    return [again(claim, explain=True) for claim in Claim.objects.filter(state="waiting")]  # type: ignore[arg-type]


def test_the_finalizer_closes_the_remaining_slots_in_pieces() -> None:
    pool = big()
    pause(pool)
    assert align_pool_fully(pool.pk) > 2
    pool.refresh_from_db()
    assert (pool.unaligned_at, open_now(), is_consistent()) == (None, 0, True)
    assert align_pool_fully(pool.pk) == 0, "nothing is left"


def test_resuming_a_large_pool_opens_its_slots_and_serves_waiting_claims() -> None:
    pool = big()
    pause(pool)
    align_remaining()
    claims = [ask() for _ in range(20)]
    resume_pool(pool_id=pool.pk)
    assert 0 < open_now() < MEMBERS * EACH
    assert serve() == open_now() > 0
    align_remaining()
    serve()
    assert {again(claim).state for claim in claims} == {"bound"}
    assert is_consistent()


def test_a_resume_during_the_pause_reopens_what_was_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two pieces a person resumes the pool and cordons a member: what was closed opens
    again, and that member stays closed.
    """
    pool = big()
    pause(pool)
    piece = open_slots._align_some
    turns: list[int] = []

    def interrupted(*given: Any) -> Any:
        turns.append(1)
        if len(turns) == 3:
            Pool.objects.filter(pk=pool.pk).update(paused_until=None, unaligned_at=timezone.now())
        return piece(*given)

    monkeypatch.setattr(open_slots, "_align_some", interrupted)
    align_pool_fully(pool.pk)
    cordon_member(member_id=member("m1").pk, reason="disk")
    assert (open_now(), is_consistent()) == ((MEMBERS - 1) * EACH, True)


def test_a_crash_between_two_pieces_is_found_and_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = big()
    pause(pool)
    piece = open_slots._align_some
    turns: list[int] = []

    def crash(*given: Any) -> Any:
        turns.append(1)
        if len(turns) == 3:
            raise KeyboardInterrupt
        return piece(*given)

    monkeypatch.setattr(open_slots, "_align_some", crash)
    with pytest.raises(KeyboardInterrupt):
        align_pool_fully(pool.pk)
    assert 0 < open_now() < MEMBERS * EACH
    assert list(find_wrongly_open()) == [], "it is being done"
    sql("UPDATE pools_pool SET unaligned_at = now() - interval '2 min'")
    found = list(find_wrongly_open())
    assert found, "nobody does it"
    for finding in found:
        assert finding.fix is not None
        finding.fix()
    assert is_consistent()
    align_remaining()
    pool.refresh_from_db()
    assert pool.unaligned_at is None


def test_a_small_pool_is_closed_in_the_transaction_of_its_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_slots, "AT_ONCE", 2_000)
    monkeypatch.setattr(open_slots, "MEMBERS", 200)
    pool = big()
    assert (pause(pool).unaligned_at, open_now()) == (None, 0)


def test_the_statements_close_and_open_at_most_as_many_slots_as_they_are_given() -> None:
    big()
    one = member("m0").pk
    assert len(members_sql.close_some(EACH - 3, member=one)) == EACH - 3
    assert open_now() == MEMBERS * EACH - (EACH - 3)
    assert len(members_sql.close_some(EACH, member=one)) == 3
    assert len(members_sql.open_some(5, member=one)) == 5
    assert open_now() == (MEMBERS - 1) * EACH + 5


def test_lost_slots_are_not_replaced_from_a_pausing_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though many of its slots are open still: as in a small pool, where all are closed."""
    pool = big()
    claim, other = ask(selector={"row": "0"}, size=2), ask(size=EACH)
    assert {slot.member for slot in other.slots} == {"m0", "m1"}
    pause(pool)
    assert open_now() > 0
    lose_member(member_id=member("m1").pk, reason="gone")
    with monkeypatch.context() as patched:
        take_gates(patched)
        with transaction.atomic():
            lose_claims()
            assert again(other).state == "bound", "the gate is what keeps it out"
            transaction.set_rollback(True)
    lose_claims()
    assert (again(other).outcome, again(claim).state) == ("lost", "bound")
    assert is_sound()
