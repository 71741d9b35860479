"""Binds one claim that is not simple to its slots, in the transaction of the caller."""

from collections.abc import Sequence
from itertools import accumulate

from django.db import DatabaseError, transaction

from claims import claims_sql, pairs_sql
from claims.allocation.requests.demands import slots_of_parts
from claims.allocation.requests.policy import SlotDemand, WaitingHead
from claims.allocation.requests.pool_facts import PoolFacts
from claims.allocation.search.slot_search import find_slots
from claims.statements import TAKEN, sqlstate
from project.kernel.actor import current_actor
from project.kernel.events.notify import publish

TRIES = 3


def bind_claim(
    claim: int, wanted: SlotDemand, pools: Sequence[PoolFacts], kind: str, *, may_pass: bool = False
) -> bool:
    """Binds all slots of the claim, or none. False: not enough slots are free, another waiting
    claim comes first, or the claim no longer waits. `may_pass`: the claim may pass a larger claim
    within the limit of that claim.

    The locks on slots and claim make a lost race rare. The database then refuses the statement,
    and the search starts again.
    """
    for turn in range(1, TRIES + 1):
        try:
            with transaction.atomic():
                is_bound = bool(_bind(claim, wanted, pools, kind, may_pass=may_pass))
                if not is_bound:  # undo the counts of passed claims, and release the locks
                    transaction.set_rollback(True)
        except DatabaseError as error:
            if sqlstate(error) not in TAKEN or turn == TRIES:
                raise
        else:
            if is_bound:
                notify_bound(pools)
            return is_bound
    return False


def bind_new_claim(
    claim: int, wanted: SlotDemand, pools: Sequence[PoolFacts], kind: str
) -> list[claims_sql.HandOverRow]:
    """Like `bind_claim`, in the transaction that has created the claim, and without a savepoint: a
    claim that passes no other counts nothing, and after a lost race the caller creates the claim
    again. Returns the slots in their order.
    """
    bound = _bind(claim, wanted, pools, kind, may_pass=False)
    if bound:
        notify_bound(pools)
    return bound


def _bind(
    claim: int, wanted: SlotDemand, pools: Sequence[PoolFacts], kind: str, *, may_pass: bool
) -> list[claims_sql.HandOverRow]:
    slots = find_slots(wanted, pools, kind, claim)
    if not slots or not overtake_waiters(claim, slots, may_pass=may_pass):
        return []
    # The number of slots was unknown while a pool was missing.
    if wanted.is_paired:
        pairs_sql.size_claim(claim=claim, size=len(slots))
        if wanted.parts:
            place_parts(claim, wanted, pools)
    return assign_slots(claim, slots)


def place_parts(claim: int, wanted: SlotDemand, pools: Sequence[PoolFacts]) -> None:
    """Writes which slots belong to which part of the claim."""
    counts = slots_of_parts(wanted, pools, [pool.name for pool in pools])
    firsts = [0, *accumulate(counts)][:-1]
    pairs_sql.place_parts(claim=claim, firsts=firsts, counts=counts)


def overtake_waiters(claim: int, slots: Sequence[int], *, may_pass: bool) -> bool:
    """Whether a claim may take these slots although earlier claims wait for them. Counts the slots
    on each claim that it passes.
    """
    counts = _count_overtaken(claim, slots, may_pass=may_pass)
    if not counts:
        return counts is not None
    counted = claims_sql.pass_waiters(claims=list(counts), counts=list(counts.values()))
    return len(counted) == len(counts)  # fewer: another allocator has just changed a passed claim


def is_held_back(claim: int, slots: Sequence[int]) -> bool:
    """Whether a claim must leave these slots to earlier claims."""
    return _count_overtaken(claim, slots, may_pass=True) is None


def _count_overtaken(claim: int, slots: Sequence[int], *, may_pass: bool) -> dict[int, int] | None:
    """The claims that are passed, with the number of slots that each could have used. None: one of
    them may not be passed.
    """
    rows = claims_sql.overtaken(claim=claim, slots=list(slots))
    heads = [(WaitingHead(row.claim, row.size, row.passed, row.waited), row.n) for row in rows]
    if heads and not (
        may_pass and all(head.may_be_passed(len(slots), taken) for head, taken in heads)
    ):
        return None
    return {head.claim: taken for head, taken in heads}


def assign_slots(
    claim: int, slots: Sequence[int], reason: str = ""
) -> list[claims_sql.HandOverRow]:
    """The slots of the claim in their order; none if the claim no longer waits, or a pool is paused
    or frozen.
    """
    return claims_sql.hand_over(
        claim=claim, slots=list(slots), actor=current_actor(), reason=reason
    )


def notify_bound(pools: Sequence[PoolFacts]) -> None:
    publish("events", *(["operations"] if any(pool.queue for pool in pools) else []))
