"""Delete a pool together with its claims. The code is here because slots/ knows no claims."""

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
    """Start to delete a pool. `Conflict` if it has claims and `cascade` is not set.

    The pool binds no more claims. Its claims are cancelled one by one, each with an event; its
    members are removed as they become empty, and the pool is gone with the last member.
    """

    def begin() -> int:
        with transaction.atomic():
            pool = get_pool(pool_name)
            # New claims lock the same row, so none is created from here on.
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
    """End up to `most` claims of a pool that is being deleted, oldest first, each in its own
    transaction. True: there may be more.
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
