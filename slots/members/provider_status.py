"""Stores what providers report about pools and members.

Each function is one short transaction or one guarded update. A report about an old incarnation
changes no row.
"""

from collections.abc import Sequence

from django.db import transaction
from django.db.models.functions import Now

from pools.lifecycle.selectors import lock_member
from pools.models import Member, Pool
from pools.providers.base import MemberSnapshot
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from project.kernel.outbox.operations import ProviderError, make_lanes_due
from slots.members import members_sql
from slots.members.liveness import lose_member, lost_after, mark_down, take_offline
from slots.members.store import end_member, lane_of

MAX_REASON_LENGTH = 300
LONGEST_ERROR = 2000


def record_external_state(
    *,
    member_id: int,
    incarnation: int,
    state: str,
    why: str,
    external_id: str = "",
    addresses: Sequence[str] = (),
) -> bool:
    """Store what a member waits for, its external id and its addresses, as far as they are known.
    False: no change, or an old incarnation.

    `state` is the state at the time of the report: a member that became ready meanwhile no longer
    waits.
    """
    why = why[:MAX_REASON_LENGTH]
    mine = Member.objects.filter(pk=member_id, incarnation=incarnation)
    is_news = bool(mine.filter(state=state).exclude(outside=why).update(outside=why))
    if external_id:
        is_news |= bool(mine.exclude(external_id=external_id).update(external_id=external_id))
    if addresses:
        known = list(addresses)
        is_news |= bool(mine.exclude(addresses=known).update(addresses=known))
    if is_news:
        publish("pools")
    return is_news


def record_ending(*, member_id: int, incarnation: int, reason: str) -> None:
    """Take a member offline that is being terminated outside of Berth. Heartbeats of its agent do
    not bring it back while its tasks end.
    """
    if not Member.objects.filter(
        pk=member_id, incarnation=incarnation, is_ending=False, state__in=("ready", "offline")
    ).exists():
        return
    with transaction.atomic():
        pool, member = lock_member(member_id)
        if (
            member.incarnation != incarnation
            or member.is_ending
            or member.state not in ("ready", "offline")
        ):
            return
        Member.objects.filter(pk=member_id).update(is_ending=True)
        take_offline(member_id=member_id, reason=reason, next_look=lost_after(pool))


def record_down(member: MemberSnapshot, reason: str, *, is_lost: bool, is_planned: bool) -> None:
    """Record that no process of a member runs; with `is_lost`, its files are gone, too."""
    record_it = record_lost if is_lost else mark_down
    record_it(
        member_id=member.id, incarnation=member.incarnation, reason=reason, is_planned=is_planned
    )


def record_lost(*, member_id: int, incarnation: int, reason: str, is_planned: bool = False) -> None:
    """Record that a member is down and its files are gone. Its claims are lost now, because the
    next incarnation cannot report their end.
    """
    with transaction.atomic():
        _, member = lock_member(member_id)
        is_first = (
            member.incarnation == incarnation
            and member.down_at is None
            and member.state in ("creating", "ready", "offline")
        )
        mark_down(
            member_id=member_id,
            incarnation=incarnation,
            reason=reason,
            is_planned=is_planned or member.is_ending,
        )
        if is_first and any(
            row.state in ("held", "reserved") for row in members_sql.lock_slots(member=member_id)
        ):
            lose_member(member_id=member_id, reason=reason)


def record_failure(member: MemberSnapshot, error: ProviderError) -> None:
    """Store why the provider could not sync a member, with one event for each new reason."""
    why = f"{error}"[:MAX_REASON_LENGTH]
    mine = Member.objects.filter(pk=member.id, incarnation=member.incarnation).exclude(outside=why)
    with transaction.atomic():
        if why == member.outside or not mine.update(outside=why):
            return
        if Member.objects.filter(pk=member.id, pool__provider_error_since=None).exists():
            record(
                "sync_fails",
                member_id=member.id,
                pool_id=Member.objects.values_list("pool_id", flat=True).get(pk=member.id),
                reason=why,
            )
        publish("pools")


def sync_member_now(member_id: int) -> bool:
    """Make the open operation of a member due now, because the outside may have changed."""
    return make_lanes_due(lane_of(member_id))


def forget_member(*, member_id: int, reason: str) -> bool:
    """End a member that an operator confirms as gone, because its provider cannot. False: the
    member is not being removed.
    """
    with transaction.atomic():
        _, member = lock_member(member_id)
        if member.state != "deleting":
            return False
        end_member(member, reason)
    return True


def confirm_place(*, pool_id: int, reason: str) -> bool:
    """Clear the stored place of a pool: an operator confirms that the provider sees the right
    place, though it has no objects of the pool. False: no place is stored.
    """
    with transaction.atomic():
        if not Pool.objects.filter(pk=pool_id).exclude(place="").update(place=""):
            return False
        record("confirm_place", pool_id=pool_id, reason=reason)
        publish("pools")
    return True


def record_provider_error(pool: Pool, error: ProviderError) -> None:
    """Store that the last look at a pool failed. A pool keeps one error and the time of its first
    failure.
    """
    text = (str(error) or type(error).__name__).replace("\x00", "")[:LONGEST_ERROR]
    mine = Pool.objects.filter(pk=pool.pk)
    with transaction.atomic():
        if mine.filter(provider_error_since=None).update(
            provider_error=text, provider_error_code=error.code, provider_error_since=Now()
        ):
            record("provider_fails", pool_id=pool.pk, reason=text)
            publish("pools")
            return
    mine.exclude(provider_error=text, provider_error_code=error.code).update(
        provider_error=text, provider_error_code=error.code
    )


def clear_provider_error(pool: Pool) -> None:
    """Store that a look succeeded after an error, and make the pool's operations due now."""
    with transaction.atomic():
        known = Pool.objects.filter(pk=pool.pk, provider_error_since__isnull=False)
        if not known.update(provider_error="", provider_error_code="", provider_error_since=None):
            return
        record("provider_works", pool_id=pool.pk)
        members = (
            Member.objects.filter(pool=pool).exclude(state="gone").values_list("pk", flat=True)
        )
        make_lanes_due(*map(lane_of, members))
        publish("pools", "operations")
