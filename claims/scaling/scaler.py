"""The scaler: keeps the number of members of each pool at what its policy wants, within the limits,
and records every decision with its reason.

One transaction locks a chunk of pools, reads their state, decides with the pure policies of
`pools.scaling`, records the decisions and carries them out. Any number of scalers may run: the lock
lets each see all commits of the other scalers, and a scaler that stalled loses its transaction.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TypedDict

from django.db import DatabaseError, transaction
from django.db.models.functions import Now

from claims.scaling import scaling_sql
from claims.scaling.snapshot import Subject, WaitingDemand, read_subjects, read_wanted
from claims.statements import repeat
from pools.config.scaling_spec import build_policy
from pools.config.spec import MemberSpec, PoolSpec
from pools.lifecycle.selectors import get_pool
from pools.models import Member, Pool
from pools.providers.base import own_policies
from pools.scaling import Fixed, Policy, RemovalCandidate, ScalingDecision, decide, decide_roll
from pools.scaling.model import record_inputs
from project.kernel.controllers.periodic import is_unavailable
from project.kernel.errors import BerthError, Conflict
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from slots.members.open_slots import align_pool
from slots.members.restart import rebuild_if_empty
from slots.members.store import add_member_rows, align_slots, delete_if_empty

logger = logging.getLogger(__name__)

# Pools in one transaction: their locks are held for as long as it takes to decide on all of them.
CHUNK = 20
ABSORB = 30.0  # seconds in which a new request counts as met by the last decision
LONGEST_NAME = 63
# Verdicts that get an event when they begin. A decision that is carried out has its own event.
NOTIFIED = ("blocked", "paused", "frozen", "failed")
# The columns of a pool after an order of an operator, by the verb that ends the order.
ENDED_ORDERS: Mapping[str, Mapping[str, object]] = {
    "unpin": {"pin_count": None, "pin_until": None, "pin_reason": ""},
    "resume_scaling": {"scaling_paused_until": None, "scaling_pause_reason": ""},
    "resume_roll": {"roll_paused_until": None, "roll_pause_reason": ""},
}


def list_scaled() -> list[scaling_sql.ScaledPoolsRow]:
    return scaling_sql.scaled_pools()


def scale_pools(
    pool_ids: Sequence[int],
    wanted: WaitingDemand | None = None,
    *,
    started: datetime | None = None,
) -> dict[int, ScalingDecision]:
    """Make and carry out one decision for each of these pools; return the decisions by pool. A
    pool that another process has locked is skipped.

    `started`: when the calling controller started. It removes no member before a full look at the
    provider that began later (O1).
    """
    wanted = read_wanted() if wanted is None else wanted
    found: dict[int, ScalingDecision] = {}
    for start in range(0, len(pool_ids), CHUNK):
        chunk = list(pool_ids[start : start + CHUNK])
        found |= repeat(partial(_scale_chunk, chunk, wanted, started))
    return found


def _scale_chunk(
    pool_ids: list[int], wanted: WaitingDemand, started: datetime | None
) -> dict[int, ScalingDecision]:
    with transaction.atomic():
        rows = scaling_sql.lock_scaled(pools=pool_ids)
        if not rows:
            return {}
        subjects = read_subjects(rows, wanted, started)
        decided = [
            (subject, apply_decision(subject, decide_safely(subject)))
            for subject in subjects
            if subject.spec.scaling is not None
        ]
        for subject in subjects:
            # A pool without scaling is here if it is still frozen or has outdated members.
            if subject.spec.scaling is None:
                apply_freeze(subject)
                decided += roll_manual_pool(subject)
        record_decisions(decided)
    return {subject.id: decision for subject, decision in decided}


def roll_manual_pool(subject: Subject) -> list[tuple[Subject, ScalingDecision]]:
    """Renew the next outdated member of a pool whose members are managed by hand. Returns the
    decision, or an empty list if none can be carried out now.
    """
    snapshot = subject.snapshot
    found = decide_roll(snapshot)
    if found is None or not found.is_done or snapshot.limits.paused or snapshot.limits.frozen:
        return []
    return [(subject, apply_decision(subject, replace(found, inputs=record_inputs(snapshot))))]


def decide_safely(subject: Subject) -> ScalingDecision:
    """The decision of the policy. If the policy raises, the decision is `failed` and changes no
    member.
    """
    try:
        return decide(subject.snapshot, policy_of(subject))
    except Exception as error:  # a custom policy may raise any exception
        if is_unavailable(error):
            raise
        logger.exception("the scaling policy of pool %s failed", subject.row.name)
        reason = f"The policy failed: {type(error).__name__}: {error}"[:400]
        return ScalingDecision(
            0, "failed", "failed", reason, inputs=record_inputs(subject.snapshot)
        )


def policy_of(subject: Subject) -> Policy:
    scaling = subject.spec.scaling
    return (
        Fixed(len(subject.snapshot.there))
        if scaling is None
        else build_policy(scaling, own_policies())
    )


def dry_run(pool_name: str) -> tuple[Subject, ScalingDecision]:
    """The decision of this moment, without a lock and without recording it."""
    pool = get_pool(pool_name)
    rows = scaling_sql.read_scaled(pools=[pool.pk])
    if not rows:
        raise Conflict(
            f"Pool {pool.name} is {pool.state}.",
            way_out="Wait until the pool is active.",
        )
    subject = read_subjects(rows, read_wanted())[0]
    if subject.spec.scaling is None:
        raise not_scaled(pool.name)
    return subject, decide_safely(subject)


def not_scaled(pool_name: str, way_out: str = "Add `scaling` to its configuration.") -> Conflict:
    return Conflict(f"Pool {pool_name} has no scaling.", code="not_scaled", way_out=way_out)


# -- carry out a decision --------------------------------------------------------------------------


def apply_decision(subject: Subject, decision: ScalingDecision) -> ScalingDecision:
    """Carry out a decision under the pool's lock, and end expired orders. A failure rolls back
    only this decision; the result then has the verdict `failed`.
    """
    row = subject.row
    is_quiet = not (
        decision.is_done or row.is_pin_over or row.is_pause_over or row.is_roll_pause_over
    )
    if is_quiet and frozen_until_of(subject) == row.frozen_until:
        return decision  # most of the time
    try:
        with transaction.atomic():
            apply_freeze(subject)
            expire_orders(subject)
            return execute_decision(subject, decision) if decision.is_done else decision
    except (DatabaseError, BerthError) as error:
        if is_unavailable(error):
            raise
        logger.exception("pool %s could not be scaled by %s", subject.row.name, decision.delta)
        reason = f"{decision.reason}, but the change failed: {error}"[:400]
        return replace(
            decision,
            delta=0,
            verdict="failed",
            code="failed",
            reason=reason,
            clears_request=False,
            chosen=(),
            step="",
        )


def execute_decision(subject: Subject, decision: ScalingDecision) -> ScalingDecision:
    """Change the members. The caller's transaction holds the pool's lock and read the state that
    the decision is based on under this lock.
    """
    pool = Pool.objects.get(pk=subject.id)
    before = len(subject.snapshot.there)
    if decision.step == "rebuild":
        return rebuild_member(pool, subject, decision)
    if decision.step == "stop":
        return stop_roll(pool, decision)
    if decision.delta > 0:
        made = add_member_rows(
            pool, subject.spec, name_members(pool, subject.spec, decision.delta), decision.reason
        )
        decision = replace(
            decision, chosen=tuple(RemovalCandidate(m.pk, m.name, "created") for m in made)
        )
    else:
        decision = remove_members(pool, decision)
    if decision.step and decision.delta:
        scaling_sql.set_surge(
            pool=pool.pk, member=decision.chosen[0].id if decision.delta > 0 else None
        )
    if decision.delta:
        if not decision.step:  # a roll does not start the policy's cool-down
            scaling_sql.stamp_scaled(pool=pool.pk, delta=decision.delta)
        data = {"delta": decision.delta, "members": [judged.name for judged in decision.chosen]}
        record(
            "scale",
            pool_id=pool.pk,
            before=str(before),
            after=str(before + decision.delta),
            reason=decision.reason,
            data=data,
        )
        publish("pools", "slots")
    return decision


def rebuild_member(pool: Pool, subject: Subject, decision: ScalingDecision) -> ScalingDecision:
    """Renew an outdated member in place if it is still empty. If a claim was bound meanwhile, the
    member stays as it is and the decision becomes `hold`.
    """
    member = Member.objects.select_for_update(no_key=True).get(pk=decision.chosen[0].id)
    labels = dict(subject.spec.member_labels) if subject.spec.scaling is not None else member.labels
    if rebuild_if_empty(pool, member, decision.reason, labels=labels):
        publish("pools", "slots")
        return decision
    spared = (RemovalCandidate(member.pk, member.name, "taken meanwhile"),)
    reason = f"{decision.reason}, but a claim was bound there meanwhile"
    return replace(
        decision,
        verdict="hold",
        code=f"{decision.code}-taken",
        reason=reason,
        chosen=(),
        spared=spared,
        step="",
    )


def stop_roll(pool: Pool, decision: ScalingDecision) -> ScalingDecision:
    scaling_sql.stop_roll(pool=pool.pk, reason=decision.reason.removeprefix("The roll stops: "))
    record("stop_roll", pool_id=pool.pk, before="rolling", after="stopped", reason=decision.reason)
    publish("pools")
    return decision


def name_members(pool: Pool, spec: PoolSpec, count: int) -> list[MemberSpec]:
    """Names for new members, numbered after the highest known number: logs and events still use
    the names of removed members.
    """
    prefix = f"{pool.name[: LONGEST_NAME - 9]}-"
    last = scaling_sql.last_number(pool=pool.pk, prefix=prefix)
    return [MemberSpec(f"{prefix}{last + i}", spec.member_labels) for i in range(1, count + 1)]


def remove_members(pool: Pool, decision: ScalingDecision) -> ScalingDecision:
    """Remove the chosen members that are still empty after they were closed. A member on which a
    claim was bound meanwhile stays.
    """
    chosen, spared = [], list(decision.spared)
    for judged in decision.chosen:
        member = Member.objects.select_for_update(no_key=True).get(pk=judged.id)
        Member.objects.filter(pk=member.pk).update(note=f"scaled in: {decision.reason}"[:500])
        member.refresh_from_db()
        if delete_if_empty(pool, member) in ("deleting", "gone"):
            chosen.append(judged)
        else:
            Member.objects.filter(pk=member.pk).update(note="")
            align_slots(pool, member)
            spared.insert(0, RemovalCandidate(judged.id, judged.name, "taken meanwhile"))
    if chosen:
        return replace(decision, delta=-len(chosen), chosen=tuple(chosen), spared=tuple(spared))
    reason = f"{decision.reason}, but claims were bound on the idle members meanwhile"
    return replace(
        decision,
        delta=0,
        verdict="hold",
        code=f"{decision.code}-taken",
        reason=reason,
        chosen=(),
        spared=tuple(spared),
    )


def frozen_until_of(subject: Subject) -> datetime | None:
    return subject.frozen_until if subject.snapshot.limits.frozen else None


def apply_freeze(subject: Subject) -> None:
    """Close the pool while a freeze window is open and not lifted, and reopen it afterwards."""
    until = frozen_until_of(subject)
    if until == subject.row.frozen_until:
        return
    pool = Pool.objects.get(pk=subject.id)
    reason = f"frozen: {subject.snapshot.limits.frozen}" if until else ""
    Pool.objects.filter(pk=pool.pk).update(
        frozen_until=until, freeze_reason=reason, changed_at=Now()
    )
    was_frozen = pool.frozen_until is not None
    pool.refresh_from_db()
    if was_frozen != (until is not None):
        before, after = ("frozen", pool.state) if was_frozen else (pool.state, "frozen")
        record(
            "thaw" if was_frozen else "freeze",
            pool_id=pool.pk,
            before=before,
            after=after,
            reason=reason,
            data={"until": until},
        )
        align_pool(pool)
        publish("pools", "slots")


def expire_orders(subject: Subject) -> None:
    """End the pin and the pauses whose time is over."""
    row = subject.row
    for is_over, verb, before in (
        (row.is_pin_over, "unpin", "pinned"),
        (row.is_pause_over, "resume_scaling", "paused"),
        (row.is_roll_pause_over, "resume_roll", "paused"),
    ):
        if is_over:
            Pool.objects.filter(pk=subject.id).update(**ENDED_ORDERS[verb])
            record(verb, pool_id=subject.id, before=before, reason="its time is over")


# -- record decisions ------------------------------------------------------------------------------


def record_decisions(decided: Sequence[tuple[Subject, ScalingDecision]]) -> None:
    """Store decisions. Equal decisions in a row share one row with a counter; a decision that was
    carried out has its own row.
    """
    if not decided:
        return
    last = {
        row.pool: row
        for row in scaling_sql.last_decisions(pools=[subject.id for subject, _ in decided])
    }
    again, new = [], []
    for subject, decision in decided:
        before = last.get(subject.id)
        if before is not None and before.key == decision.key and not decision.is_done:
            again.append((before.id, decision))
        else:
            new.append((subject, decision))
            _notify(subject, decision)
    if again:
        scaling_sql.see_again(ids=[id for id, _ in again], **_columns(d for _, d in again))
    if new:
        pools, deltas = [s.id for s, _ in new], [d.delta for _, d in new]
        scaling_sql.add_decisions(pools=pools, deltas=deltas, **_columns(d for _, d in new))
    if over := [subject.id for subject, decision in decided if decision.clears_request]:
        absorbing = [subject.id for subject, decision in decided if decision.absorbs]
        scaling_sql.end_requests(pools=over, absorbing=absorbing, seconds=ABSORB)


def _notify(subject: Subject, decision: ScalingDecision) -> None:
    if decision.verdict in NOTIFIED:
        count = str(len(subject.snapshot.there))
        record("scale", pool_id=subject.id, before=count, after=count, reason=decision.reason)


class _Columns(TypedDict):
    inputs: list[str]
    reasons: list[str]
    chosen: list[str]
    spared: list[str]


def _columns(decisions: Iterable[ScalingDecision]) -> _Columns:
    found = list(decisions)
    return {
        "inputs": [json.dumps(inputs_of(d)) for d in found],
        "reasons": [d.reason for d in found],
        "chosen": [json.dumps([j._asdict() for j in d.chosen]) for d in found],
        "spared": [json.dumps([j._asdict() for j in d.spared]) for d in found],
    }


def inputs_of(decision: ScalingDecision) -> dict[str, object]:
    """The facts of a decision that have no column of their own."""
    return {
        **decision.inputs,
        "key": decision.key,
        "verdict": decision.verdict,
        "words": decision.words,
        "wanted": decision.wanted,
        "checks": [check._asdict() for check in decision.checks],
        "gauge": None if decision.gauge is None else decision.gauge._asdict(),
        "more_spared": decision.more_spared,
        "step": decision.step,
        "allowed_in": None if decision.allowed_in is None else round(decision.allowed_in, 1),
    }
