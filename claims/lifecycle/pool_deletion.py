"""A pool and its claims go together. Here and not in slots/, because only claims know who
waits for it.
"""

from functools import partial

from django.db import transaction

from claims import claims_sql
from claims.allocation.selectors import count_live_claims
from claims.lifecycle.end_hold import end_hold, lock_hold
from claims.lifecycle.release import Ending, end_unheld
from claims.statements import repeat
from pools.lifecycle.selectors import get_pool, get_pool_by_id
from pools.models import Pool
from project.kernel.controllers.periodic import run_each
from project.kernel.errors import Conflict
from slots.members.services import close_pool

AT_ONCE = 200  # claims ended before the call answers; the finalizer ends the rest
CHUNK = 100


def delete_pool(pool_name: str, *, cascade: bool = False, reason: str = "") -> Pool:
    """Refused while claims exist, unless they are to go with it. Then it hands out nothing more,
    its claims are cancelled one by one, each with its event, its members leave as they become
    empty, and it goes with the last of them."""

    def begin() -> int:
        with transaction.atomic():
            pool = get_pool(pool_name)
            # Nobody makes a claim in it from here on: they lock the same row.
            claims_sql.hold_pool(pool=pool.pk)
            live = count_live_claims(pool.pk)
            if live and not cascade and pool.state != "deleting":
                raise Conflict(
                    f"Pool {pool_name} has {live} claim{'s' if live > 1 else ''}.",
                    code="has_claims",
                    way_out=(
                        "Wait until they end, or delete the pool with cascade to cancel them."
                    ),
                    claims=live,
                )
            close_pool(pool_id=pool.pk, reason=reason.strip())
            return pool.pk

    pool_id = repeat(begin)
    finish_deleting(pool_id, most=AT_ONCE)
    return get_pool_by_id(pool_id)


def finish_deleting(pool_id: int, *, most: int = AT_ONCE) -> bool:
    """End the claims of a pool that is being deleted, oldest first, each in a transaction of its
    own. True: there are more.
    """
    pool = get_pool_by_id(pool_id)
    if pool.state not in ("deleting", "gone"):
        return False
    why = f"pool {pool.name} is deleted"
    left = most
    while left > 0:
        rows = claims_sql.live_of_pool(min(CHUNK, left), pool=pool_id)
        run_each([row.id for row in rows], lambda claim_id: repeat(partial(_end, claim_id, why)))
        left -= len(rows)
        if not rows:
            return False
    return True


def _end(claim_id: int, why: str) -> None:
    with transaction.atomic():
        held = lock_hold(claim_id)
        if held.holds:
            ending = Ending(outcome="cancelled", verb="force_release", reason=why)
            end_hold(held, ending, words=f"was released by force while it applied: {why}")
        else:
            end_unheld(claim_id, "cancelled", "cancel", why)
