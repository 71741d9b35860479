"""Heartbeats, and members that go offline, are lost or come back.

Each function is one short transaction. A heartbeat is one write to a narrow table.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from django.db import transaction
from django.db.models.functions import Now

from pools.config.durations import parse_duration
from pools.lifecycle.selectors import lock_member, member_spec_of, spec_of
from pools.models import Member, Pool
from pools.providers.base import has_agents
from project.kernel.actor import current_actor
from project.kernel.errors import Conflict, NotFound, StaleGeneration, wrong_field
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from slots.members import members_sql
from slots.members.store import (
    align_slots,
    change_member,
    heartbeat_limit,
    lose_unsaved_states,
    make_slots,
    mark_leaving,
    move_member,
    seconds_from_now,
)

LARGEST_LOAD = 4000  # characters of what a heartbeat may carry


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    member_id: int
    state: str
    incarnation: int
    next_within: float | None  # seconds; None: the pool expects no heartbeats


def record_heartbeat(
    *, member_id: int, incarnation: int | None = None, load: Mapping[str, object] | None = None
) -> HeartbeatAnswer:
    """Record a heartbeat and bring a member back that was offline. Without `incarnation`, the
    current one is meant.
    """
    text = None if load is None else json.dumps(dict(load))
    if text is not None and len(text) > LARGEST_LOAD:
        raise wrong_field(
            "load",
            f"load has {len(text)} characters of JSON.",
            f"Send at most {LARGEST_LOAD}.",
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
    """Bring an offline member back online. Returns the member's state."""
    with transaction.atomic():
        pool, member = lock_member(member_id)
        if member.state == "offline" and not member.is_ending:
            _open(pool, member, "online", reason)
        return member.state


def mark_ready(*, member_id: int, incarnation: int) -> str:
    """Make a member ready at the first heartbeat of its agent. Members without an agent become
    ready when their provider confirms them.
    """
    with transaction.atomic():
        pool, member = lock_member(member_id)
        if (
            member.state == "creating"
            and member.incarnation == incarnation
            and has_agents(spec_of(pool))
        ):
            _open(pool, member, "ready", "its agent has connected")
        return member.state


def _open(pool: Pool, member: Member, verb: str, reason: str) -> None:
    """Make the member ready and offer its slots. A lost member stays offline until the finalizer
    has ended all claims on it, because their slots must not be offered before.
    """
    rows = members_sql.lock_slots(member=member.pk)
    if member.lost_at is not None and any(row.state in ("held", "reserved") for row in rows):
        return
    spec = spec_of(pool)
    due_at = heartbeat_limit(spec)
    move_member(
        member, "ready", verb, reason=reason, lost_at=None, down_at=None, due_at=due_at, outside=""
    )
    make_slots(pool, member, spec, member_spec_of(member, spec.layout), reason)
    publish("slots")


def mark_down(*, member_id: int, incarnation: int, reason: str, is_planned: bool = False) -> None:
    """Record that no process of this incarnation runs any more. The member keeps its claims: the
    agent of the next incarnation reports their end.
    """
    if not Member.objects.filter(
        pk=member_id,
        incarnation=incarnation,
        down_at=None,
        state__in=("creating", "ready", "offline"),
    ).exists():
        return  # known; this check saves the lock
    with transaction.atomic():
        pool, member = lock_member(member_id)
        if (
            member.incarnation != incarnation
            or member.down_at is not None
            or member.state in ("deleting", "gone")
        ):
            return
        Member.objects.filter(pk=member.pk).update(down_at=Now(), is_down_planned=is_planned)
        if member.state == "ready":
            take_offline(member_id=member_id, reason=reason, next_look=lost_after(pool))
            return
        record(
            "down",
            pool_id=pool.pk,
            member_id=member.pk,
            before=member.state,
            after=member.state,
            reason=reason,
        )
        publish("pools")


def take_offline(*, member_id: int, reason: str, next_look: float | None = None) -> None:
    """Take a ready member offline. It gets no new claims and keeps those it has."""
    with transaction.atomic():
        pool, member = lock_member(member_id)
        if member.state == "ready":
            due_at = seconds_from_now(next_look)
            move_member(member, "offline", "offline", reason=reason, due_at=due_at)
            align_slots(pool, member)
            publish("pools")


def lost_after(pool: Pool) -> float | None:
    """Seconds after which an offline member is lost. None: never."""
    liveness = spec_of(pool).liveness
    return None if liveness is None else liveness.lost


def lose_member(*, member_id: int, reason: str, is_gone: bool = False) -> None:
    """Mark a member as lost and retire its free slots. The finalizer then ends each of its claims.

    A member that is gone outside (`is_gone`) is removed; any other lost member may come back.
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
            way_out="Stop this agent: a newer incarnation has replaced it.",
            incarnation=member.incarnation,
        )
    return Conflict(
        f"Member {member.name} is {member.state}.",
        code="gone",
        way_out="Stop this agent: its member is no longer part of the pool.",
    )
