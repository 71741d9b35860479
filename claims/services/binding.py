"""Handing slots to one claim that is not simple, in the transaction of the caller."""

from collections.abc import Sequence

from django.db import DatabaseError, transaction

from claims.policy import Wanted
from claims.routes import PoolFacts
from claims.services.finding import find_slots
from claims.statements import CLAIMS, PAIRS, TAKEN, sqlstate
from project.kernel.actor import current_actor
from project.kernel.hints import hint

TRIES = 3


def bind_claim(claim: int, wanted: Wanted, pools: Sequence[PoolFacts], kind: str, *, reason: str = "") -> bool:
    """All the slots it asks for or none. False: they are not free together, or the claim does not wait any more.

    The locks of find and the row of the claim make a lost race rare; where it happens the rules refuse the whole statement, and it is
    tried again from the search.
    """
    for turn in range(1, TRIES + 1):
        try:
            with transaction.atomic():
                slots = find_slots(wanted, pools, kind, claim)
                if slots is None:
                    return False
                if wanted.is_paired:  # how many it takes was not known as long as a pool was not there
                    PAIRS.rows("size_claim", claim=claim, size=len(slots))
                is_bound = hand_over(claim, slots, reason)
        except DatabaseError as error:
            if sqlstate(error) not in TAKEN or turn == TRIES:
                raise
        else:
            if is_bound:
                tell_bound(pools)
            return is_bound
    return False


def hand_over(claim: int, slots: Sequence[int], reason: str = "") -> bool:
    return bool(CLAIMS.rows("hand_over", claim=claim, slots=list(slots), actor=current_actor(), reason=reason))


def tell_bound(pools: Sequence[PoolFacts]) -> None:
    hint("events", *(["operations"] if any(pool.queue for pool in pools) else []))
