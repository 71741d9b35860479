"""Chores of the finalizer for members and pools.

Each chore handles one batch of due rows in short transactions and returns whether more rows may be
due. Several finalizers may run: statements skip locked rows, and every service checks its row again
under its locks.
"""

from collections.abc import Callable

from django.db import transaction
from django.db.models import Exists, OuterRef
from django.db.models.functions import Now

from pools.lifecycle.selectors import LIVE, lock_member, lock_pool, spec_of
from pools.models import Member, Pool
from pools.providers.base import kinds_with
from project.kernel.controllers.periodic import chore, run_each
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from project.kernel.events.retention import retention_rule
from slots.members import members_sql
from slots.members.drain import finish_drain
from slots.members.liveness import lose_member, mark_back_online, take_offline
from slots.members.policy import decide_liveness
from slots.members.restart import apply_condition
from slots.members.services import clean_slot, finish_leaving, resume_pool
from slots.members.store import lane_of, request_sync, seconds_from_now

BATCH = 50
RETRY = 30.0  # seconds until the next attempt for a member after a failed check
SLOTS = 5000  # most slots of gone members that one call deletes
PROBE = 10.0  # seconds between two checks of a draining slot

PoolUseCheck = Callable[[int], bool]  # pool id -> whether the pool is still in use
_pool_use_checks: list[PoolUseCheck] = []


def register_pool_use_check(check: PoolUseCheck) -> PoolUseCheck:
    """Register a check that keeps a deleted pool in use. The finalizer calls it under the pool's
    lock. `claims` registers one, because slots do not know claims.
    """
    _pool_use_checks.append(check)
    return check


@chore("pauses", every=1.0)
def end_pauses() -> bool:
    """Resume pools at the end of their pause."""
    due = list(
        Pool.objects.filter(LIVE, paused_until__lte=Now()).values_list("pk", flat=True)[:BATCH]
    )
    run_each(
        due,
        lambda pool_id: resume_pool(pool_id=pool_id, reason="its time is over", only_if_over=True),
    )
    return len(due) == BATCH


@chore("members", every=1.0)
def check_members() -> bool:
    """Check the heartbeats of members with a due timer."""
    due = members_sql.take_due_members(BATCH, seconds=RETRY)
    run_each([row.id for row in due], apply_liveness)
    return len(due) == BATCH


def apply_liveness(member_id: int) -> None:
    """Decide on one member and change it, under its lock. A heartbeat that arrives meanwhile waits
    for the lock and then brings the offline member back.
    """
    with transaction.atomic():
        pool, member = lock_member(member_id)
        liveness = spec_of(pool).liveness
        verdict = decide_liveness(
            state=member.state,
            is_lost=member.lost_at is not None,
            silent_for=members_sql.seconds_since_heartbeat(member=member_id),
            heartbeat=None if liveness is None else liveness.heartbeat,
            lost=None if liveness is None else liveness.lost,
        )
        if verdict.action == "go_offline":
            take_offline(member_id=member_id, reason=verdict.reason, next_look=verdict.next_look)
        elif verdict.action == "lose":
            lose_member(member_id=member_id, reason=verdict.reason)
        elif verdict.action == "come_back":
            mark_back_online(member_id=member_id, reason="heartbeat")
        else:
            due_at = seconds_from_now(verdict.next_look)
            Member.objects.filter(pk=member_id).update(due_at=due_at)


@chore("restarts", every=1.0)
def restart_unwell() -> bool:
    """Restart unwell members that Berth starts, with growing delays and a limit."""
    providers = kinds_with(lambda provider: provider.has_agents and provider.is_owner)
    run_each([row.id for row in members_sql.to_restart(providers=providers)], apply_condition)
    return False


@chore("leaving", every=1.0)
def finish_leaving_members() -> bool:
    """Remove leaving members that are empty."""
    found = members_sql.empty_leaving(BATCH)
    run_each([row.id for row in found], finish_leaving)
    return len(found) == BATCH


@chore("drains", every=1.0)
def finish_drains() -> bool:
    """End drains of members that are empty."""
    found = members_sql.finishable_drains(BATCH)
    run_each([row.id for row in found], finish_drain)
    return len(found) == BATCH


@chore("draining", every=2.0)
def check_draining_slots() -> bool:
    """Check draining slots with a due timer. The provider checks them again and evicts their
    users past the deadline; without a provider, such a slot counts as clean.
    """
    due = members_sql.take_due_slots(BATCH, seconds=PROBE)
    pools = {pool.pk: pool for pool in Pool.objects.filter(pk__in={row.pool_id for row in due})}
    run_each({row.member_id for row in due if pools[row.pool_id].queue}, _sync_if_idle)
    rest = [row for row in due if not pools[row.pool_id].queue]
    run_each(rest, lambda row: clean_slot(slot_id=row.id, generation=row.generation))
    return len(due) == BATCH


@chore("unsynced", every=10.0)
def retry_syncs() -> bool:
    """Enqueue a sync for members that are created or deleted without an open operation."""
    found = members_sql.unsynced_members(BATCH)
    run_each([row.member_id for row in found], _sync_if_idle)
    return len(found) == BATCH


def _sync_if_idle(member_id: int) -> None:
    with transaction.atomic():
        pool, member = lock_member(member_id)
        if member.state != "gone" and not members_sql.has_operation(
            lane=lane_of(member_id), but=[]
        ):
            request_sync(pool, member)


@chore("deleting", every=1.0)
def end_pools() -> bool:
    """End deleted pools that have no member and no claim left, also no waiting claim."""
    members = Member.objects.filter(LIVE, pool_id=OuterRef("pk"))
    due = list(
        Pool.objects.filter(~Exists(members), state="deleting").values_list("pk", flat=True)[:BATCH]
    )
    run_each(due, finish_deleting_pool)
    return len(due) == BATCH


def finish_deleting_pool(pool_id: int) -> bool:
    with transaction.atomic():
        pool = lock_pool(pool_id)
        if (
            pool.state != "deleting"
            or Member.objects.filter(LIVE, pool=pool).exists()
            or any(is_used(pool_id) for is_used in _pool_use_checks)
        ):
            return False
        Pool.objects.filter(pk=pool.pk).update(state="gone", paused_until=None, changed_at=Now())
        record("gone", pool_id=pool.pk, before="deleting", after="gone")
        publish("pools")
    return True


@retention_rule("gone members", days=7)
def delete_gone_members(days: float, chunk: int) -> int:
    """Delete slots first, in limited numbers, so that a large member needs no large transaction."""
    slots = members_sql.delete_gone_slots(min(chunk, SLOTS), days=days)
    if slots:
        return len(slots)
    return len(members_sql.delete_gone_members(chunk, days=days))
