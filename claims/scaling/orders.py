"""Orders of operators to the scaler: pin, pause, grow, lift a freeze. Each order has a reason and
an event.

An order waits for the pool's lock. The limits of the scaler also apply to orders.
"""

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models.functions import Now

from claims.allocation.member_limits import lifted_starts
from claims.models import Lift
from claims.scaling import scaling_sql
from claims.scaling.freeze_lifts import list_freezes, name_starts
from claims.scaling.scaler import (
    ENDED_ORDERS,
    apply_freeze,
    execute_decision,
    not_scaled,
    record_decisions,
)
from claims.scaling.snapshot import Subject, read_subjects, read_wanted
from claims.statements import repeat
from pools.models import Pool
from pools.scaling import ScalingDecision, force
from project.kernel.actor import current_actor
from project.kernel.errors import Conflict, Refused, wrong_field
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from project.kernel.validation import require_future, require_reason

LONGEST_ORDER = timedelta(days=366)
MOST_AT_ONCE = 100


def pin_pool(*, pool_id: int, count: int, until: datetime, reason: str) -> Pool:
    """Keep `count` members until then instead of the policy's number. The maximum, a freeze and a
    pause still apply.
    """
    note = require_reason(reason)
    with transaction.atomic():
        subject, pool = _lock(pool_id)
        check_until(until)
        if isinstance(count, bool) or not 0 <= count <= pool.max_members:
            text = f"{count} is not between 0 and the maximum, {pool.max_members}."
            way_out = "Use a number in this range, or raise members.max first."
            raise wrong_field("count", text, way_out)
        change_orders(
            pool, "pin", describe_pin(subject.row.pin_count), describe_pin(count), note,
            data={"count": count, "until": until},
            pin_count=count, pin_until=until, pin_reason=note,
        )  # fmt: skip
    return pool


def describe_pin(count: int | None) -> str:
    return "" if count is None else f"pinned to {count}"


def unpin_pool(*, pool_id: int, reason: str = "") -> Pool:
    with transaction.atomic():
        _, pool = _lock(pool_id)
        if pool.pin_count is not None:
            end_order(pool, "unpin", describe_pin(pool.pin_count), reason)
    return pool


def pause_scaling(*, pool_id: int, until: datetime, reason: str) -> Pool:
    """Stop the scaler for this pool until then. Claims are still bound to free slots."""
    note = require_reason(reason)
    with transaction.atomic():
        _, pool = _lock(pool_id)
        check_until(until)
        before = "paused" if pool.scaling_paused_until else ""
        change_orders(
            pool, "pause_scaling", before, "paused", note, data={"until": until},
            scaling_paused_until=until, scaling_pause_reason=note,
        )  # fmt: skip
    return pool


def resume_scaling(*, pool_id: int, reason: str = "") -> Pool:
    with transaction.atomic():
        _, pool = _lock(pool_id)
        if pool.scaling_paused_until is not None:
            end_order(pool, "resume_scaling", "paused", reason)
    return pool


def lift_freeze(*, pool_id: int, reason: str, starts_at: datetime | None = None) -> Pool:
    """Lift one freeze window: the open one, or the one that begins at `starts_at`. The next
    window freezes the pool again. `Conflict` if no freeze is open.
    """
    note = require_reason(reason)
    with transaction.atomic():
        subject, pool = _lock(pool_id)
        if starts_at is not None:
            _lift_named(subject, pool, starts_at, note)
        elif not subject.snapshot.limits.frozen or (until := subject.frozen_until) is None:
            raise Conflict(
                f"Pool {pool.name} is not frozen.",
                code="not_frozen",
                way_out="No action is needed.",
            )
        else:
            change_orders(
                pool, "unfreeze", "frozen", pool.state, note, data={"until": until},
                unfrozen_until=until,
            )  # fmt: skip
        apply_freeze(read_locked_subject(pool_id))
        pool.refresh_from_db()
    return pool


def refreeze_pool(*, pool_id: int, starts_at: datetime, reason: str = "") -> Pool:
    """Undo the lift of a freeze window, before it begins or while it is open."""
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
            way_out = f"Lifted freezes begin at: {lifted}." if lifted else "No freeze is lifted."
            raise wrong_field("starts_at", "No lifted freeze begins then.", way_out)
        columns = {"unfrozen_until": None} if is_lifted_now else {}
        data = {"starts_at": starts_at}
        change_orders(pool, "refreeze", "lifted", "frozen", reason.strip(), data=data, **columns)
        apply_freeze(read_locked_subject(pool_id))
        pool.refresh_from_db()
    return pool


def _lift_named(subject: Subject, pool: Pool, starts_at: datetime, note: str) -> None:
    freezes = list_freezes(subject.spec.scaling, subject.row.moment)
    named = [each for each in freezes if each.start == starts_at]
    if not named:
        to_come = name_starts(each.start for each in freezes)
        way_out = f"Use one of: {to_come}." if to_come else "No freeze begins within a year."
        raise wrong_field("starts_at", f"No freeze of {pool.name} begins then.", way_out)
    ends_at = max(each.end for each in named)
    until = (
        pool.unfrozen_until if subject.row.is_unfrozen and starts_at <= subject.row.moment else None
    )
    # A window that ends after `until` freezes the pool again.
    is_lifted_now = until is not None and ends_at <= until
    if is_lifted_now or starts_at in lifted_starts(pool.pk, subject.row.moment):
        raise Conflict(
            f"This freeze of {pool.name} is lifted already.",
            code="lifted",
            way_out="No action is needed.",
        )
    # Events keep the history of past lifts.
    Lift.objects.filter(pool=pool, ends_at__lte=subject.row.moment).delete()
    Lift.objects.create(
        pool=pool, starts_at=starts_at, ends_at=ends_at, by=current_actor(), reason=note
    )
    data = {"starts_at": starts_at, "until": ends_at}
    change_orders(pool, "lift_ahead", "frozen", "lifted", note, data=data)


def grow_pool(*, pool_id: int, count: int = 1, reason: str) -> ScalingDecision:
    """Create `count` members at once. `Refused` above the maximum and during a freeze."""
    note = require_reason(reason)
    if isinstance(count, bool) or not 1 <= count <= MOST_AT_ONCE:
        raise wrong_field(
            "count", f"{count} is out of range.", f"Use one from 1 to {MOST_AT_ONCE}."
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
        raise not_scaled(
            subject.row.name, "Add `scaling` to its configuration, or add and remove members."
        )
    return subject, Pool.objects.get(pk=pool_id)


def read_locked_subject(pool_id: int) -> Subject:
    """Lock a pool and read its state."""
    rows = scaling_sql.wait_for_scaled(pools=[pool_id])
    if not rows:
        raise Conflict(
            "The pool is not active.", way_out="Wait until its provider has been checked."
        )
    return read_subjects(rows, read_wanted())[0]


def end_order(pool: Pool, verb: str, before: str, reason: str) -> None:
    change_orders(pool, verb, before, "", reason.strip(), **ENDED_ORDERS[verb])


def change_orders(
    pool: Pool,
    verb: str,
    before: str,
    after: str,
    reason: str,
    *,
    data: object = None,
    **columns: object,
) -> None:
    """Set the columns of an order, record it, and request an immediate decision of the scaler."""
    Pool.objects.filter(pk=pool.pk).update(changed_at=Now(), scale_requested_at=Now(), **columns)
    pool.refresh_from_db()
    record(verb, pool_id=pool.pk, before=before[:16], after=after[:16], reason=reason, data=data)
    publish("pools")


def check_until(until: datetime) -> None:
    require_future(
        until, LONGEST_ORDER, "a year", "Choose a nearer time, or change the configuration."
    )
