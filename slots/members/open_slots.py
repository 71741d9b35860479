"""The slots of a whole pool become open or closed as the pool now is.

A pool may have hundreds of thousands. What is more than a few thousand is left to the finalizer, in
short transactions of their own: the pool says since when (`unaligned_at`), so that a crash in
between is carried on with by whoever comes next. Nobody is bound meanwhile by a slot that is still
open: whatever hands slots over asks whether the pool takes a pause, too. Opening is not waited for
by anybody.
"""

from collections.abc import Iterator
from datetime import datetime
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
MEMBERS = 200  # looked at in one transaction
BATCH = 20  # pools in one step


class AlignCursor(NamedTuple):
    """How far somebody has come: with which wish of the pool, and behind which member."""

    since: datetime | None = None
    member: int = 0


def align_pool(pool: Pool) -> None:
    """In a transaction that has locked the pool. Its members are locked, too: one may
    be cordoned.
    """
    at = _align_some(pool, AlignCursor())
    since = None if at is None else Now()
    if since is not None or pool.unaligned_at is not None:
        Pool.objects.filter(pk=pool.pk).update(unaligned_at=since)
        pool.refresh_from_db(fields=["unaligned_at"])


@chore("aligning", every=0.5)
def align_remaining() -> bool:
    """What a pause, a freeze or its end has left over."""
    due = list(
        Pool.objects.filter(unaligned_at__isnull=False)
        .order_by("unaligned_at")
        .values_list("pk", flat=True)[:BATCH]
    )
    run_each(due, align_pool_fully)
    return len(due) == BATCH


def align_pool_fully(pool_id: int) -> int:
    """Until nothing is left; answers in how many transactions. Whoever changes the pool meanwhile
    has his turn between two of them, and then it begins anew; several at once do no harm."""
    at: AlignCursor | None = AlignCursor()
    for count in _count():
        with transaction.atomic():
            pool = lock_pool(pool_id)
            if pool.unaligned_at is None:
                return count
            if at is None or at.since != pool.unaligned_at:
                at = AlignCursor(pool.unaligned_at)
            at = _align_some(pool, at)
            if at is None:
                Pool.objects.filter(pk=pool_id).update(unaligned_at=None)
                return count + 1
    raise AssertionError("unreachable")


def _count() -> Iterator[int]:
    count = 0
    while True:
        yield count
        count += 1


def _align_some(pool: Pool, at: AlignCursor) -> AlignCursor | None:
    """The next few thousand slots, or members. None: that was all."""
    left = AT_ONCE
    behind = Member.objects.filter(pool=pool, pk__gt=at.member).exclude(state="gone").order_by("id")
    is_opened = False
    looked = 0
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
            break  # this one may have more
        at = AlignCursor(at.since, member.pk)
        looked += 1
    if is_opened:
        publish("slots")
    return None if left > 0 and looked < MEMBERS else at
