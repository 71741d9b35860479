"""What people order a scaler: so many members for a while, hands off, one more now, no freeze
today. Each with a reason, each in the log.

Orders take the pool's lock and wait for it; the same limits hold for them as for the scaler.
"""

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models.functions import Now

from claims.allocation.member_limits import lifted_starts
from claims.models import Lift
from claims.scaling import scaling_sql
from claims.scaling.freeze_lifts import list_freezes, name_starts
from claims.scaling.scaler import apply_freeze, execute_decision, record_decisions
from claims.scaling.snapshot import Subject, read_subjects, read_wanted
from claims.statements import repeat
from pools.models import Pool
from pools.scaling import ScalingDecision, force
from project.kernel.actor import current_actor
from project.kernel.errors import Conflict, FieldError, Invalid, Refused
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from project.kernel.validation import require_future, require_reason

LONGEST_ORDER = timedelta(days=366)
MOST_AT_ONCE = 100
BY_HAND = "The members of pool {} come and go by hand."


def pin_pool(*, pool_id: int, count: int, until: datetime, reason: str) -> Pool:
    """So many members until then, whatever the policy wants. The maximum, a freeze and a pause
    are stronger.
    """
    note = require_reason(reason)
    with transaction.atomic():
        subject, pool = _lock(pool_id)
        check_until(until)
        if isinstance(count, bool) or not 0 <= count <= pool.max_members:
            way_out = (
                "Raise members.max first."
                if count > pool.max_members
                else f"Use one from 0 to {pool.max_members}."
            )
            raise Invalid(
                fields=[
                    FieldError(
                        "count",
                        f"{count} is not between 0 and the most, {pool.max_members}.",
                        way_out,
                    )
                ]
            )
        before = "" if subject.row.pin_count is None else f"pinned to {subject.row.pin_count}"
        data = {"count": count, "until": until}
        change_orders(
            pool,
            "pin",
            before,
            f"pinned to {count}",
            note,
            data,
            pin_count=count,
            pin_until=until,
            pin_reason=note,
        )
    return pool


def unpin_pool(*, pool_id: int, reason: str = "") -> Pool:
    with transaction.atomic():
        _, pool = _lock(pool_id)
        if pool.pin_count is not None:
            before = f"pinned to {pool.pin_count}"
            change_orders(
                pool,
                "unpin",
                before,
                "",
                reason.strip(),
                None,
                pin_count=None,
                pin_until=None,
                pin_reason="",
            )
    return pool


def pause_scaling(*, pool_id: int, until: datetime, reason: str) -> Pool:
    """The scaler leaves the pool alone until then. Slots are handed out as ever."""
    note = require_reason(reason)
    with transaction.atomic():
        _, pool = _lock(pool_id)
        check_until(until)
        before = "paused" if pool.scaling_paused_until else ""
        data = {"until": until}
        change_orders(
            pool,
            "pause_scaling",
            before,
            "paused",
            note,
            data,
            scaling_paused_until=until,
            scaling_pause_reason=note,
        )
    return pool


def resume_scaling(*, pool_id: int, reason: str = "") -> Pool:
    with transaction.atomic():
        _, pool = _lock(pool_id)
        if pool.scaling_paused_until is not None:
            change_orders(
                pool,
                "resume_scaling",
                "paused",
                "",
                reason.strip(),
                None,
                scaling_paused_until=None,
                scaling_pause_reason="",
            )
    return pool


def lift_freeze(*, pool_id: int, reason: str, starts_at: datetime | None = None) -> Pool:
    """Once: until the window that is open now ends, or the one that begins then, open or to
    come. The next one freezes as ever.
    """
    note = require_reason(reason)
    with transaction.atomic():
        subject, pool = _lock(pool_id)
        if starts_at is not None:
            _lift_named(subject, pool, starts_at, note)
            return pool
        if not subject.snapshot.limits.frozen or subject.frozen_until is None:
            raise Conflict(
                f"Pool {pool.name} is not frozen.",
                code="not_frozen",
                way_out="Nothing is to be done.",
            )
        change_orders(
            pool,
            "unfreeze",
            "frozen",
            pool.state,
            note,
            {"until": subject.frozen_until},
            unfrozen_until=subject.frozen_until,
        )
        apply_freeze(read_locked_subject(pool_id))
        pool.refresh_from_db()
    return pool


def refreeze_pool(*, pool_id: int, starts_at: datetime, reason: str = "") -> Pool:
    """Takes back that this freeze is lifted, before it begins or while it is open."""
    with transaction.atomic():
        subject, pool = _lock(pool_id)
        freezes = list_freezes(subject.spec.scaling, subject.row.moment)
        is_lifted_now = subject.row.is_unfrozen and any(
            each.start == starts_at <= subject.row.moment for each in freezes
        )
        gone, _ = Lift.objects.filter(
            pool=pool, starts_at=starts_at, ends_at__gt=subject.row.moment
        ).delete()
        if not gone and not is_lifted_now:
            lifted = name_starts(sorted(lifted_starts(pool_id, subject.row.moment)))
            way_out = f"Lifted ahead: {lifted}." if lifted else "None is lifted ahead."
            raise Invalid(
                fields=[
                    FieldError("starts_at", "The freeze that begins then is not lifted.", way_out)
                ]
            )
        columns = {"unfrozen_until": None} if is_lifted_now else {}
        change_orders(
            pool,
            "refreeze",
            "lifted",
            "frozen",
            reason.strip(),
            {"starts_at": starts_at},
            **columns,
        )
        apply_freeze(read_locked_subject(pool_id))
        pool.refresh_from_db()
    return pool


def _lift_named(subject: Subject, pool: Pool, starts_at: datetime, note: str) -> None:
    freezes = list_freezes(subject.spec.scaling, subject.row.moment)
    named = [each for each in freezes if each.start == starts_at]
    if not named:
        to_come = name_starts(each.start for each in freezes)
        way_out = f"To come: {to_come}." if to_come else "It has none in the year to come."
        raise Invalid(
            fields=[FieldError("starts_at", f"No freeze of {pool.name} begins then.", way_out)]
        )
    ends_at = max(each.end for each in named)
    until = (
        pool.unfrozen_until if subject.row.is_unfrozen and starts_at <= subject.row.moment else None
    )
    # One that lasts longer freezes after that.
    is_lifted_now = until is not None and ends_at <= until
    if is_lifted_now or starts_at in lifted_starts(pool.pk, subject.row.moment):
        raise Conflict(
            f"This freeze of {pool.name} is lifted already.",
            code="lifted",
            way_out="Nothing is to be done.",
        )
    # What they were for is in the log.
    Lift.objects.filter(pool=pool, ends_at__lte=subject.row.moment).delete()
    Lift.objects.create(
        pool=pool, starts_at=starts_at, ends_at=ends_at, by=current_actor(), reason=note
    )
    change_orders(
        pool, "lift_ahead", "frozen", "lifted", note, {"starts_at": starts_at, "until": ends_at}
    )
    apply_freeze(read_locked_subject(pool.pk))
    pool.refresh_from_db()


def grow_pool(*, pool_id: int, count: int = 1, reason: str) -> ScalingDecision:
    """So many more, at once (S19). Refused past the maximum and in a freeze, with the numbers."""
    note = require_reason(reason)
    if isinstance(count, bool) or not 1 <= count <= MOST_AT_ONCE:
        raise Invalid(
            fields=[
                FieldError(
                    "count", f"{count} is out of range.", f"Use one from 1 to {MOST_AT_ONCE}."
                )
            ]
        )

    def grow() -> ScalingDecision:
        with transaction.atomic():
            subject, _ = _lock(pool_id)
            decision = force(subject.snapshot, count, note)
            if not decision.delta:
                way_out = (
                    "Lift the freeze first."
                    if decision.code == "frozen"
                    else "Raise members.max first."
                )
                raise Refused(f"{decision.reason}.", code=decision.code, way_out=way_out)
            made = execute_decision(subject, decision)
            record_decisions([(subject, made)])
        return made

    return repeat(grow)


def _lock(pool_id: int) -> tuple[Subject, Pool]:
    subject = read_locked_subject(pool_id)
    if subject.spec.scaling is None:
        way_out = "Add scaling to its configuration, or add and remove members."
        raise Conflict(BY_HAND.format(subject.row.name), code="not_scaled", way_out=way_out)
    return subject, Pool.objects.get(pk=pool_id)


def read_locked_subject(pool_id: int) -> Subject:
    """Under the pool's lock."""
    rows = scaling_sql.wait_for_scaled(pools=[pool_id])
    if not rows:
        raise Conflict(
            "The pool is not active.", way_out="Wait until its provider has been looked at."
        )
    return read_subjects(rows, read_wanted())[0]


def change_orders(
    pool: Pool, verb: str, before: str, after: str, reason: str, data: object, **columns: object
) -> None:
    """And have the scaler look at once: it takes a request for that."""
    Pool.objects.filter(pk=pool.pk).update(changed_at=Now(), scale_requested_at=Now(), **columns)
    pool.refresh_from_db()
    record(verb, pool_id=pool.pk, before=before[:16], after=after[:16], reason=reason, data=data)
    publish("pools")


def check_until(until: datetime) -> None:
    require_future(
        until, LONGEST_ORDER, "a year", "Choose a nearer time, or change the configuration."
    )
