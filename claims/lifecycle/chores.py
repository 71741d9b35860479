"""The timed work of the finalizer on claims. Each chore finds due claims by index, locks one claim
at a time, reads it again and acts.

An acknowledgement or heartbeat of a holder takes the same row lock: the first of the two wins, and
the other is rejected.
"""

import json
import logging
from collections.abc import Callable
from functools import partial

from django.db import transaction

from claims import claims_sql
from claims.lifecycle import tasks_sql
from claims.lifecycle.deadline_notices import notify_deadline
from claims.lifecycle.drain import evict_claims
from claims.lifecycle.end_hold import approval_of, end_hold, lock_hold
from claims.lifecycle.lost_member import lose_claim
from claims.lifecycle.policy import (
    PendingApproval,
    TimedClaim,
    check_deadlines,
    check_pending_approval,
)
from claims.lifecycle.pool_deletion import finish_deleting
from claims.lifecycle.release import Ending, after_end, end_unheld, notify_freed, release_slots
from claims.statements import repeat
from claims.workspaces.services import free_workspace
from project.kernel.actor import current_actor
from project.kernel.controllers.periodic import chore, is_unavailable, run_each
from project.kernel.db.after_commit import after_commit
from project.kernel.events.notify import publish
from project.kernel.events.retention import delete_old, retention_rule
from project.kernel.ui.formatting import duration
from slots.members import members_sql
from slots.members.chores import register_pool_use_check

logger = logging.getLogger(__name__)

BATCH = 100
AGAIN = 60.0  # seconds until a claim is checked again after an error


@chore("claims due", every=0.5)
def check_due_claims() -> bool:
    """Check the claims whose deadline, time limit or back-off is due."""
    rows = claims_sql.due_claims(BATCH)
    failed: list[Exception] = []
    for row in rows:
        try:
            repeat(partial(_check_claim, row.id))
        except Exception as error:
            if is_unavailable(error):
                raise
            claims_sql.postpone_claim(claim=row.id, seconds=AGAIN)
            logger.exception("the check of claim %s failed; next try in %.0f s", row.id, AGAIN)
            failed.append(error)
    if failed:
        raise failed[0]
    return len(rows) == BATCH


def _check_claim(claim_id: int) -> None:
    with transaction.atomic():
        row = claims_sql.lock_due_claim(claim=claim_id)
        if row is None:  # locked by another process, or no longer due
            return
        _DUE[row.state](row)


def _check_bound(row: claims_sql.LockDueClaimRow) -> None:
    spec = json.loads(row.spec)
    is_heard = not row.has_task  # an agent sends heartbeats for its member, not for each task
    look = check_deadlines(
        TimedClaim(
            held=row.held or 0.0,
            silent=claims_sql.silence_of(claim=row.id)
            if spec.get("heartbeat") and is_heard
            else None,
            is_acknowledged=row.is_acknowledged,
            acknowledge=spec.get("acknowledge") if is_heard else None,
            heartbeat=spec.get("heartbeat") if is_heard else None,
            hold=spec.get("hold"),
        )
    )
    if not look.outcome:
        claims_sql.postpone_claim(claim=row.id, seconds=look.again)
        return
    ending = Ending(outcome=look.outcome, verb=_VERBS[look.outcome], reason=look.reason)
    if row.has_task or row.step == "apply":
        # A workspace is locked before its claims, so this needs a transaction of its own.
        claims_sql.postpone_claim(claim=row.id, seconds=AGAIN)
        after_commit(end_overdue_task, row.id, row.generation, ending)
    else:
        release_slots(row.id, row.generation, ending)


def end_overdue_task(claim_id: int, generation: int, ending: Ending) -> bool:
    """End a task that reached its time limit. False: its result came first, so the generation
    has changed.
    """

    def end() -> bool:
        with transaction.atomic():
            held = lock_hold(claim_id)
            if held.claim.state != "bound" or held.claim.generation != generation:
                return False
            return bool(end_hold(held, ending, words="was held for too long while it applied"))

    return repeat(end)


def _check_pending(row: claims_sql.LockDueClaimRow) -> None:
    """Apply the deadlines of a plan that waits for an approval: notify, give up its slot, seek a
    slot, expire. The statements compare with the clock of the database again.
    """
    approval = approval_of(row.pool_id)
    is_reserved = row.state == "reserved"
    look = check_pending_approval(
        PendingApproval(
            left=row.left or 0.0,
            waited=row.waited or 0.0,
            notice=approval.notice,
            is_notified=row.is_notified,
            is_reserved=is_reserved,
            is_seeking=row.is_seeking,
            hold=approval.hold,
        )
    )
    if look.action == "expire":
        _expire(row)
    elif look.action == "park":
        why = f"its pool keeps a slot for {duration(approval.hold or 0.0)} at most"
        release_slots(row.id, row.generation, Ending("parked", "", "park", why, is_clean=True))
    elif look.action in ("seek", "stop_seeking"):
        if look.action == "seek":
            tasks_sql.start_seeking(claim=row.id)
        else:
            tasks_sql.stop_seeking(claim=row.id)
        publish("slots")
    elif look.action == "notify":
        notify_deadline(row.id)
    else:
        claims_sql.postpone_claim(claim=row.id, seconds=look.again)


class _Known:
    """The revisions of the pools whose waiting plans were made due."""

    revisions: dict[int, int] = {}


@chore("pools of plans", every=0.5)
def apply_pool_changes() -> bool:
    """Make waiting plans due when the configuration of their pool changes, and all of them once
    after a start, so that changed approval rules also apply to them.
    """
    found = {row.id: row.revision for row in tasks_sql.revisions()}
    changed = [pool for pool, revision in found.items() if _Known.revisions.get(pool) != revision]
    if changed:
        tasks_sql.make_plans_due(pools=changed)
    _Known.revisions = found
    return False


def _expire(row: claims_sql.LockDueClaimRow) -> None:
    if row.state == "parked":
        end_unheld(row.id, "expired", "expire", "not approved or rejected in time")
        return
    rows = claims_sql.expire(claim=row.id)
    notify_freed(rows)
    after_end(rows)


def _check_blocked(row: claims_sql.LockDueClaimRow) -> None:
    """Requeue a claim at the end of its back-off. For a claim of a workspace this happens after
    the commit, because the workspace must be locked first.
    """
    if row.workspace_id is None:
        claims_sql.free_after_back_off(claim=row.id, actor=current_actor())
        publish("claims", "events")
    else:
        claims_sql.postpone_claim(claim=row.id, seconds=None)
        after_commit(free_workspace, row.workspace_id)


def _clear_timer(row: claims_sql.LockDueClaimRow) -> None:
    claims_sql.postpone_claim(claim=row.id, seconds=None)


_DUE: dict[str, Callable[[claims_sql.LockDueClaimRow], None]] = {
    "bound": _check_bound,
    "reserved": _check_pending,
    "parked": _check_pending,
    "blocked": _check_blocked,
    "waiting": _clear_timer,
    "ended": _clear_timer,
}
_VERBS = {
    "unacknowledged": "unacknowledged",
    "silent": "silent",
    "expired": "expire",
    "lost": "lose",
}


@chore("workspaces", every=2.0)
def free_workspaces() -> bool:
    """Unblock claims whose workspace is free: the process that had to unblock them died."""
    rows = claims_sql.workspaces_to_free(BATCH)
    run_each([row.id for row in rows], free_workspace)
    return len(rows) == BATCH


@chore("lost claims", every=0.5)
def lose_claims() -> bool:
    """Handle the claims on lost members, each in its own transaction. Claims that were bound a
    moment ago are handled later.
    """
    members = [row.id for row in members_sql.lost_with_holders(BATCH)]
    found = [
        (row.id, member_id)
        for member_id in members
        for row in claims_sql.claims_on_member(member=member_id)
    ]
    done: list[bool] = []
    run_each(found, lambda pair: done.append(lose_claim(claim_id=pair[0], member_id=pair[1])))
    return len(members) == BATCH and any(done)


@chore("drains over", every=0.5)
def evict_overdue() -> bool:
    """Evict the claims on members whose drain deadline has passed, each in its own transaction."""
    members = members_sql.overdue_with_holders(BATCH)
    run_each([row.id for row in members], evict_claims)
    return len(members) == BATCH


@chore("claims of deleted pools", every=1.0)
def end_claims_of_deleted_pools() -> bool:
    more: list[bool] = []
    run_each(
        [row.id for row in claims_sql.pools_deleting()],
        lambda pool_id: more.append(finish_deleting(pool_id)),
    )
    return any(more)


@register_pool_use_check
def has_claims(pool_id: int) -> bool:
    """Whether a pool has live claims. A waiting claim holds no member, so the last member may be
    gone long before the last claim.
    """
    return bool(claims_sql.live_of_pool(1, pool=pool_id))


@chore("retention", every=60.0)
def delete_expired() -> bool:
    return delete_old() > 0


class _CleanupCursor:
    """The id up to which ended claims were checked; 0 restarts the walk."""

    after = 0


@retention_rule("ended claims", days=90)
def delete_ended_claims(days: float, chunk: int) -> int:
    """Delete up to `chunk` logs or claims that ended more than `days` days ago; returns how many.

    Claims end in another order than they were created, so the walk by id continues behind claims
    that live long.
    """
    while True:
        before = _CleanupCursor.after
        rows = claims_sql.old_claims(chunk, after=_CleanupCursor.after, days=days)
        old = [row.id for row in rows if row.is_old]
        _CleanupCursor.after = rows[-1].id if len(rows) == chunk and rows[-1].is_past else 0
        if old and (logs := len(claims_sql.delete_logs(chunk, claims=old))) == chunk:
            _CleanupCursor.after = before  # the next call deletes the rest of their logs
            return logs
        if old:
            return len(claims_sql.delete_claims(claims=old))
        if _CleanupCursor.after == 0:
            return 0
