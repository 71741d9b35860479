"""Orders of operators about outdated members: renew now, pause and resume the rolling renewal.
Each order has a reason and an event.
"""

from datetime import datetime

from django.db import transaction

from claims.scaling.orders import change_orders, check_until, end_order, read_locked_subject
from claims.scaling.scaler import ENDED_ORDERS
from pools.lifecycle.selectors import spec_of
from pools.models import Member, Pool
from project.kernel.errors import Conflict
from project.kernel.validation import require_reason
from slots.members.restart import rebuild_if_empty


def order_roll(*, pool_id: int, reason: str) -> Pool:
    """Renew outdated members once they are idle, also if the configuration says `manual`. Ends a
    pause and a stop of the roll. After a stop, new members that are not ready are rebuilt.
    `Conflict` if no member is outdated.
    """
    note = require_reason(reason)
    with transaction.atomic():
        subject = read_locked_subject(pool_id)
        pool = Pool.objects.get(pk=pool_id)
        outdated = sum(
            m.is_outdated and m.is_owned and not m.is_going for m in subject.snapshot.members
        )
        if not outdated and subject.snapshot.extra is None and pool.roll_stopped_at is None:
            raise Conflict(
                f"No member of {pool.name} is outdated.",
                code="not_outdated",
                way_out="No action is needed.",
            )
        was_stopped = pool.roll_stopped_at is not None
        before = "stopped" if was_stopped else "paused" if pool.roll_paused_until else ""
        change_orders(
            pool, "roll", before, "rolling", note, data={"outdated": outdated},
            roll_ordered=pool.member_digest, roll_stopped_at=None, roll_stop_reason="",
            **ENDED_ORDERS["resume_roll"],
        )  # fmt: skip
        if was_stopped:
            _rebuild_broken(pool, note)
    return pool


def _rebuild_broken(pool: Pool, reason: str) -> None:
    labels = spec_of(pool).member_labels
    broken = Member.objects.select_for_update(no_key=True).filter(
        pool=pool, is_owned=True, state__in=("creating", "offline")
    )
    for member in broken.filter(spec_digest=pool.member_digest).order_by("id"):
        rebuild_if_empty(pool, member, reason, labels=labels or member.labels)


def pause_roll(*, pool_id: int, until: datetime, reason: str) -> Pool:
    """Renew no member until then. Members are still created and removed as demand changes."""
    note = require_reason(reason)
    with transaction.atomic():
        read_locked_subject(pool_id)
        check_until(until)
        pool = Pool.objects.get(pk=pool_id)
        before = "paused" if pool.roll_paused_until else ""
        change_orders(
            pool, "pause_roll", before, "paused", note, data={"until": until},
            roll_paused_until=until, roll_pause_reason=note,
        )  # fmt: skip
    return pool


def resume_roll(*, pool_id: int, reason: str = "") -> Pool:
    with transaction.atomic():
        read_locked_subject(pool_id)
        pool = Pool.objects.get(pk=pool_id)
        if pool.roll_paused_until is not None:
            end_order(pool, "resume_roll", "paused", reason)
    return pool
