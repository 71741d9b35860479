"""What the finalizer does for claims. Each step finds what is due by index, locks one claim at a
time, looks again, and acts.

Whoever must answer in time (acknowledge, keep) meets the same row lock, so one of the two comes
first and the other is told.
"""

import json
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import transaction

from claims import claims_sql
from claims.allocation import decisions_sql
from claims.allocation.requests.policy import (
    PendingApproval,
    TimedClaim,
    check_deadlines,
    check_pending_approval,
    format_seconds,
)
from claims.lifecycle.deadline_notices import notify_deadline
from claims.lifecycle.drain import evict_claims
from claims.lifecycle.end_hold import approval_of, end_hold, lock_hold
from claims.lifecycle.lost_member import lose_claim
from claims.lifecycle.pool_deletion import finish_deleting
from claims.lifecycle.release import Ending, after_end, end_unheld, notify_freed, release_slots
from claims.statements import repeat
from claims.workspaces.services import free_workspace
from project.kernel.actor import current_actor
from project.kernel.controllers.periodic import chore, is_unavailable, run_each
from project.kernel.db.after_commit import after_commit
from project.kernel.events.notify import publish
from project.kernel.events.retention import delete_old, retention_rule
from slots.members import members_sql
from slots.members.chores import register_pool_use_check
from slots.members.drain import list_overdue

logger = logging.getLogger(__name__)

BATCH = 100
AGAIN = 60.0  # seconds until a claim is looked at once more that could not be dealt with


@chore("claims due", every=0.5)
def check_due_claims() -> bool:
    """Claims whose time has come: to be acknowledged, heard, ended, or tried again."""
    rows = claims_sql.due_claims(BATCH)
    failed: list[Exception] = []
    for row in rows:
        try:
            repeat(partial(_check_claim, row.id))
        except Exception as error:
            if is_unavailable(error):
                raise
            claims_sql.postpone_claim(claim=row.id, seconds=AGAIN)
            logger.exception("claim %s could not be looked at, once more in %.0f s", row.id, AGAIN)
            failed.append(error)
    if failed:
        raise failed[0]
    return len(rows) == BATCH


def _check_claim(claim_id: int) -> None:
    with transaction.atomic():
        row = claims_sql.lock_due_claim(claim=claim_id)
        if row is None:  # somebody else has it, or it is not due any more
            return
        _DUE[row.state](row)


def _check_bound(row: Any) -> None:
    spec = json.loads(row.spec)
    is_heard = not row.has_task  # an agent answers for its member, not for each of its tasks
    look = check_deadlines(
        TimedClaim(
            held=row.held,
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
        # Its workspace may have to be locked, and that lock comes before the claim's: in a
        # transaction of its own, after this one.
        claims_sql.postpone_claim(claim=row.id, seconds=AGAIN)
        after_commit(end_overdue_task, row.id, row.generation, ending)
    else:
        release_slots(row.id, row.generation, ending)


def end_overdue_task(claim_id: int, generation: int, ending: Ending) -> bool:
    """It was held for too long. A result that came meanwhile counts: then the
    generation is over.
    """

    def end() -> bool:
        with transaction.atomic():
            held = lock_hold(claim_id)
            if held.claim.state != "bound" or held.claim.generation != generation:
                return False
            return bool(end_hold(held, ending, words="was held for too long while it applied"))

    return repeat(end)


def _check_pending(row: Any) -> None:
    """A plan that waits for a person: told of its deadline, parked once its slot has waited enough,
    ended. By the clock of the database, which the statements ask again."""
    approval = approval_of(row.pool_id)
    is_reserved = row.state == "reserved"
    look = check_pending_approval(
        PendingApproval(
            left=row.left,
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
        why = f"its pool keeps a slot for {format_seconds(approval.hold or 0.0)} at most"
        release_slots(row.id, row.generation, Ending("parked", "", "park", why, is_clean=True))
    elif look.action in ("seek", "stop_seeking"):
        (
            decisions_sql.start_seeking(claim=row.id)
            if look.action == "seek"
            else decisions_sql.stop_seeking(claim=row.id)
        )
        publish("slots")
    elif look.action == "notify":
        notify_deadline(row.id)
    else:
        claims_sql.postpone_claim(claim=row.id, seconds=look.again)


class _Known:
    """Revisions of the pools whose waiting plans were looked at."""

    revisions: dict[int, int] = {}


@chore("pools of plans", every=0.5)
def apply_pool_changes() -> bool:
    """What a pool says now of plans that wait reaches those that wait already: they are due. So
    is everything once after a start.
    """
    found = {row.id: row.revision for row in decisions_sql.revisions()}
    changed = [pool for pool, revision in found.items() if _Known.revisions.get(pool) != revision]
    if changed:
        decisions_sql.look_again(pools=changed)
    _Known.revisions = found
    return False


def _expire(row: Any) -> None:
    if row.state == "parked":
        end_unheld(row.id, "expired", "expire", "nobody decided in time")
        return
    rows = claims_sql.expire(claim=row.id)
    notify_freed(rows)
    after_end(rows)


def _check_blocked(row: Any) -> None:
    """Its back-off is over. One of a workspace goes by the workspace's own rules, which need its
    lock first.
    """
    if row.workspace_id is None:
        claims_sql.free_after_back_off(claim=row.id, actor=current_actor())
        publish("claims", "events")
    else:
        claims_sql.postpone_claim(claim=row.id, seconds=None)
        after_commit(free_workspace, row.workspace_id)


def _check_waiting(row: Any) -> None:
    claims_sql.postpone_claim(claim=row.id, seconds=None)  # a line needs no timer


_DUE: dict[str, Callable[[Any], None]] = {
    "bound": _check_bound,
    "reserved": _check_pending,
    "parked": _check_pending,
    "blocked": _check_blocked,
    "waiting": _check_waiting,
    "ended": _check_waiting,
}
_VERBS = {
    "unacknowledged": "unacknowledged",
    "silent": "silent",
    "expired": "expire",
    "lost": "lose",
}


@chore("workspaces", every=2.0)
def free_workspaces() -> bool:
    """Workspaces in which somebody is blocked by nothing: the process that was to free him died
    in between.
    """
    rows = claims_sql.workspaces_to_free(BATCH)
    run_each([row.id for row in rows], free_workspace)
    return len(rows) == BATCH


@chore("lost claims", every=0.5)
def lose_claims() -> bool:
    """Claims on members that are lost, each in a transaction of its own."""
    members = [row.id for row in members_sql.lost_with_holders(BATCH)]
    found = [
        (row.id, member_id)
        for member_id in members
        for row in claims_sql.claims_on_member(member=member_id)
    ]
    run_each(found, lambda pair: lose_claim(claim_id=pair[0], member_id=pair[1]))
    return len(members) == BATCH


@chore("drains over", every=0.5)
def evict_overdue() -> bool:
    """Claims on members whose drain is past its deadline, each in a transaction of its own."""
    members = list_overdue(BATCH)
    run_each(members, evict_claims)
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
    """One that waits holds no member, so the last member may go long before the last claim."""
    return bool(claims_sql.live_of_pool(1, pool=pool_id))


@chore("retention", every=60.0)
def delete_expired() -> bool:
    return delete_old() > 0


class _CleanupCursor:
    """Where the clean-up has come to, by id. It starts anew once it meets claims that are young."""

    after = 0


@retention_rule("ended claims", days=90)
def delete_ended_claims(days: float, chunk: int) -> int:
    """Claims end in another order than they are made, so the walk goes on behind those that
    live long.
    """
    while True:
        before = _CleanupCursor.after
        rows = claims_sql.old_claims(chunk, after=_CleanupCursor.after, days=days)
        old = [row.id for row in rows if row.is_old]
        _CleanupCursor.after = rows[-1].id if len(rows) == chunk and rows[-1].is_past else 0
        if old and (logs := len(claims_sql.delete_logs(chunk, claims=old))) == chunk:
            _CleanupCursor.after = before  # they are met again, with the rest of their logs
            return logs
        if old:
            return len(claims_sql.delete_claims(claims=old))
        if _CleanupCursor.after == 0:
            return 0
