"""Restarts of members: automatic, by an operator, and to renew an outdated member.

A restart creates a new incarnation and invalidates the tokens of the old one. Claims stay as they
are until the agent of the new incarnation reports their end.
"""

from collections.abc import Mapping

from django.db import transaction
from django.db.models.functions import Now

from pools.lifecycle.selectors import lock_member
from pools.models import Member, Pool
from pools.providers.base import provider_class
from project.kernel.errors import Conflict
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from slots.members import members_sql
from slots.members.liveness import lose_member, lost_after
from slots.members.policy import STAY, RestartCondition, RestartVerdict, decide_restart
from slots.members.store import align_slots, change_member, refuse_unsaved, request_sync


def apply_condition(member_id: int) -> RestartVerdict:
    """Decide on one member and change it, under its lock. A first heartbeat that arrives meanwhile
    waits for the lock and is then refused as an old incarnation.
    """
    if _decide(member_id, 0.0) == STAY:
        return STAY  # the usual case, without a lock
    with transaction.atomic():
        pool, member = lock_member(member_id)
        if member.is_leaving or pool.state == "deleting":
            return STAY
        verdict = _decide(member_id, lost_after(pool))
        if verdict.action == "restart":
            _start_again(
                pool, member, verdict.reason, restarts=member.restarts + verdict.is_counted
            )
        elif verdict.action == "give_up":
            change_member(
                member,
                "give_up",
                before=member.state,
                after=member.state,
                reason=verdict.reason,
                data={"restarts": member.restarts},
                gave_up_at=Now(),
            )
            publish("pools")
        elif verdict.action == "lose":
            lose_member(member_id=member_id, reason=verdict.reason)
        elif verdict.action == "forget":
            Member.objects.filter(pk=member_id).update(restarts=0, gave_up_at=None)
    return verdict


def restart_member(*, member_id: int, reason: str) -> Member:
    """Restart a member by order of an operator. Refused while a task may run there, because a
    restart would end it.
    """
    with transaction.atomic():
        pool, member = lock_member(member_id)
        if not provider_class(pool.provider).is_owner:
            raise Conflict(
                f"Berth does not start the agent of {member.name}.",
                code="not_ours",
                way_out="Restart the agent on its own machine.",
            )
        if member.state in ("deleting", "gone") or member.is_leaving:
            raise Conflict(
                f"Member {member.name} is being removed.",
                way_out="Keep it first, or add it again once it is removed.",
            )
        busy = [
            row.claim_id
            for row in members_sql.lock_slots(member=member_id)
            if row.state in ("held", "draining")
        ]
        if busy and member.down_at is None:
            running = (
                f"A task may be running on {member.name}: {'claims' if len(busy) > 1 else 'claim'} "
                f"{', '.join(map(str, busy[:5]))}."
            )
            raise Conflict(
                running, code="in_use", way_out="Cordon it and wait until they end, or cancel them."
            )
        if member.down_at is None:
            refuse_unsaved(member)
        _start_again(pool, member, reason, restarts=0)
    return member


def rebuild_if_empty(pool: Pool, member: Member, reason: str, *, labels: Mapping[str, str]) -> bool:
    """Restart an outdated member with the current configuration of its pool. Both are locked.
    False: the member is not empty and stays as it is. Its slots are closed before the check, so a
    concurrent claim either keeps the member or finds no open slot.
    """
    if member.state not in ("creating", "ready", "offline") or member.is_leaving:
        return False
    members_sql.close_member(member=member.pk)
    if not members_sql.is_member_empty(member=member.pk):
        align_slots(pool, member)
        return False
    Member.objects.filter(pk=member.pk).update(labels=dict(labels), lost_at=None)
    _start_again(pool, member, reason, restarts=0)
    return True


def _decide(member_id: int, lost_after: float | None) -> RestartVerdict:
    row = members_sql.restart_condition(member=member_id)
    if row is None:
        return STAY
    return decide_restart(RestartCondition(*row), lost_after)


def _start_again(pool: Pool, member: Member, reason: str, *, restarts: int) -> None:
    """Start a new incarnation; both rows are locked. A lost member stays lost until its claims have
    ended (slots/members/liveness.py).
    """
    before = member.state
    incarnation = member.incarnation + 1
    Member.objects.filter(pk=member.pk).update(
        state="creating", state_at=Now(), changed_at=Now(), due_at=None, incarnation=incarnation,
        spec_digest=pool.member_digest, restarts=restarts, down_at=None, is_down_planned=False,
        gave_up_at=None, outside="", is_ending=False,
    )  # fmt: skip
    member.refresh_from_db()
    record(
        "restart",
        pool_id=pool.pk, member_id=member.pk, before=before, after="creating", reason=reason,
        data={"incarnation": incarnation, "restarts": restarts},
    )  # fmt: skip
    align_slots(pool, member)
    request_sync(pool, member)
    publish("pools")
