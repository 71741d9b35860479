"""Members that are heard, silent, lost and back. Each function is one short transaction; a
heartbeat is a single narrow write.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from pools.config.durations import parse_duration
from pools.lifecycle.selectors import lock_member, member_spec_of, spec_of
from pools.models import Member, Pool
from pools.providers.base import has_agents
from project.kernel.actor import current_actor
from project.kernel.errors import Conflict, FieldError, Invalid, NotFound, StaleGeneration
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from slots.members import members_sql
from slots.members.store import (
    align_slots,
    change_member,
    lose_unsaved_states,
    make_slots,
    mark_leaving,
    move_member,
    seconds_from_now,
)

LARGEST_LOAD = 4000  # characters of what a heartbeat may carry


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The answer to a heartbeat."""

    member_id: int
    state: str
    incarnation: int
    next_within: float | None  # seconds; None: nobody waits for the next one


def record_heartbeat(
    *, member_id: int, incarnation: int | None = None, load: Mapping[str, Any] | None = None
) -> HeartbeatAnswer:
    """A member is alive. One write into a narrow table, except for one that comes back. No
    incarnation: the present one is meant.
    """
    text = None if load is None else json.dumps(dict(load))
    if text is not None and len(text) > LARGEST_LOAD:
        raise Invalid(
            fields=[
                FieldError(
                    "load", f"{len(text)} characters are too many.", f"Send {LARGEST_LOAD} at most."
                )
            ]
        )
    row = members_sql.store_heartbeat(member=member_id, incarnation=incarnation, load=text)
    if row is None:
        raise _heartbeat_refused(member_id, incarnation)
    state = row.state
    if state == "offline":
        state = mark_back_online(member_id=member_id, reason="heartbeat")
    elif state == "creating" and incarnation is not None:
        state = mark_ready(member_id=member_id, incarnation=incarnation)
    return HeartbeatAnswer(
        member_id, state, row.incarnation, None if row.every is None else parse_duration(row.every)
    )


def mark_back_online(*, member_id: int, reason: str = "") -> str:
    """It was offline and is heard or seen again."""
    with transaction.atomic():
        pool, member = lock_member(member_id)
        if member.state == "offline" and not member.is_ending:
            _open(pool, member, "online", reason)
        return member.state


def mark_ready(*, member_id: int, incarnation: int) -> str:
    """The first word of an agent: its member was wished for, now it is there. What is no agent
    becomes ready by its provider's word.
    """
    with transaction.atomic():
        pool, member = lock_member(member_id)
        if (
            member.state == "creating"
            and member.incarnation == incarnation
            and has_agents(spec_of(pool))
        ):
            _open(pool, member, "ready", "its agent is here")
        return member.state


def _open(pool: Pool, member: Member, verb: str, reason: str) -> None:
    """One whose claims are being lost stays away until they all are: their slots are not given to
    it back while the finalizer takes them."""
    rows = members_sql.lock_slots(member=member.pk)
    if member.lost_at is not None and any(row.state in ("held", "reserved") for row in rows):
        return
    spec = spec_of(pool)
    due_at = None if spec.liveness is None else seconds_from_now(spec.liveness.heartbeat)
    move_member(
        member, "ready", verb, reason=reason, lost_at=None, down_at=None, due_at=due_at, outside=""
    )
    make_slots(pool, member, spec, member_spec_of(member, spec.layout), reason)
    publish("slots")


def mark_down(*, member_id: int, incarnation: int, reason: str, is_planned: bool = False) -> str:
    """Its provider knows that nothing of this incarnation runs. It keeps its claims: whoever is
    started next says what became of them.
    """
    if not Member.objects.filter(
        pk=member_id,
        incarnation=incarnation,
        down_at=None,
        state__in=("creating", "ready", "offline"),
    ).exists():
        return ""  # known already: looked at often, locked once
    with transaction.atomic():
        pool, member = lock_member(member_id)
        if (
            member.incarnation != incarnation
            or member.down_at is not None
            or member.state in ("deleting", "gone")
        ):
            return member.state
        Member.objects.filter(pk=member.pk).update(down_at=Now(), is_down_planned=is_planned)
        if member.state == "ready":
            liveness = spec_of(pool).liveness
            take_offline(
                member_id=member_id,
                reason=reason,
                next_look=None if liveness is None else liveness.lost,
            )
            return "offline"
        record(
            "down",
            pool_id=pool.pk,
            member_id=member.pk,
            before=member.state,
            after=member.state,
            reason=reason,
        )
        publish("pools")
        return member.state


def take_offline(*, member_id: int, reason: str, next_look: float | None = None) -> str:
    """Silent, or said to be not ready: it gets nothing new and keeps its claims."""
    with transaction.atomic():
        pool, member = lock_member(member_id)
        if member.state != "ready":
            return member.state
        due_at = None if next_look is None else seconds_from_now(next_look)
        move_member(member, "offline", "offline", reason=reason, due_at=due_at)
        align_slots(pool, member)
        publish("pools")
        return member.state


def lose_member(*, member_id: int, reason: str, is_gone: bool = False) -> None:
    """Silent for too long, or known to be gone: what is free here is withdrawn now, each claim here
    is lost next, by the finalizer.

    One that is gone outside leaves for good; one that was only silent may be heard again.
    """
    with transaction.atomic():
        pool, member = lock_member(member_id)
        if member.state in ("deleting", "gone") or (member.lost_at is not None and not is_gone):
            return
        if member.state == "ready":
            move_member(member, "offline", "offline", reason=reason)
        if member.lost_at is None:
            change_member(
                member,
                "lose",
                before=member.state,
                after="lost",
                reason=reason,
                lost_at=Now(),
                due_at=None,
            )
        align_slots(pool, member)
        free = [
            row.id
            for row in members_sql.lock_slots(member=member.pk)
            if row.state in ("idle", "draining")
        ]
        members_sql.retire_slots(slots=free, actor=current_actor(), reason=reason)
        if is_gone:
            lose_unsaved_states(member, reason)
            mark_leaving(pool, member, reason)
        publish("pools", "claims")


def _heartbeat_refused(member_id: int, incarnation: int | None) -> Exception:
    member = Member.objects.filter(pk=member_id).first()
    if member is None:
        return NotFound(
            f"There is no member {member_id}.", way_out="Look at the members of the pool."
        )
    if incarnation is not None and member.incarnation != incarnation:
        return StaleGeneration(
            f"Member {member.name} is at incarnation {member.incarnation}, not {incarnation}.",
            code="stale_incarnation",
            way_out="Whoever beats was replaced: stop, or sign in anew.",
            incarnation=member.incarnation,
        )
    return Conflict(
        f"Member {member.name} is {member.state}.",
        code="gone",
        way_out="Stop: it is no longer part of the pool.",
    )
