"""Opens or closes all slots of a pool after a pause, a freeze or their end.

A pool may have hundreds of thousands of slots. The first few thousand change in the transaction of
the caller; the finalizer changes the rest in short transactions. `pool.unaligned_at` marks a pool
with slots left, so the next finalizer continues after a crash. A slot that is still open meanwhile
gets no claim, because each bind also checks whether the pool is paused.
"""

from datetime import datetime
from itertools import count
from typing import NamedTuple

from django.db import transaction
from django.db.models.functions import Now

from pools.lifecycle.selectors import lock_pool
from pools.models import Member, Pool
from project.kernel.controllers.periodic import chore, run_each
from project.kernel.events.notify import publish
from slots.members import members_sql
from slots.members.store import member_offers_slots

AT_ONCE = 2_000  # slots in one transaction: some ten milliseconds
MEMBERS = 200  # members in one transaction
BATCH = 20  # pools in one run of the chore


class AlignCursor(NamedTuple):
    """Progress through a pool: `unaligned_at` of the change, and the last finished member."""

    since: datetime | None = None
    member: int = 0


def align_pool(pool: Pool) -> None:
    """Open or close the first slots of a pool and mark it if slots are left. Expects the pool to be
    locked. Locks its members, too, because they may be cordoned concurrently.
    """
    at = _align_some(pool, AlignCursor())
    since = None if at is None else Now()
    if since is not None or pool.unaligned_at is not None:
        Pool.objects.filter(pk=pool.pk).update(unaligned_at=since)
        pool.refresh_from_db(fields=["unaligned_at"])


@chore("aligning", every=0.5)
def align_remaining() -> bool:
    """Continue pools that have slots left to open or close."""
    due = list(
        Pool.objects.filter(unaligned_at__isnull=False)
        .order_by("unaligned_at")
        .values_list("pk", flat=True)[:BATCH]
    )
    run_each(due, align_pool_fully)
    return len(due) == BATCH


def align_pool_fully(pool_id: int) -> int:
    """Open or close all slots of a pool; returns the number of transactions. A change of the pool
    between two of them restarts the walk. Concurrent calls are safe.
    """
    at: AlignCursor | None = AlignCursor()
    for number in count():
        with transaction.atomic():
            pool = lock_pool(pool_id)
            if pool.unaligned_at is None:
                return number
            if at is None or at.since != pool.unaligned_at:
                at = AlignCursor(pool.unaligned_at)
            at = _align_some(pool, at)
            if at is None:
                Pool.objects.filter(pk=pool_id).update(unaligned_at=None)
                return number + 1
    raise AssertionError("unreachable")


def _align_some(pool: Pool, at: AlignCursor) -> AlignCursor | None:
    """Open or close the next slots behind the cursor. None: the pool is finished."""
    left = AT_ONCE
    behind = Member.objects.filter(pool=pool, pk__gt=at.member).exclude(state="gone").order_by("id")
    is_opened = False
    finished = 0
    for member in behind.select_for_update(no_key=True)[:MEMBERS]:
        is_willing = member_offers_slots(pool, member)
        changed = len(
            members_sql.open_some(AT_ONCE, member=member.pk)
            if is_willing
            else members_sql.close_some(AT_ONCE, member=member.pk)
        )
        is_opened = is_opened or (is_willing and changed > 0)
        left -= changed
        if left <= 0:
            break  # this member may have slots left
        at = AlignCursor(at.since, member.pk)
        finished += 1
    if is_opened:
        publish("slots")
    return None if left > 0 and finished < MEMBERS else at
