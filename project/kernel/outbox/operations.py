"""The outbox to the world outside: take, perform, settle.

An operation is written in the transaction of the change that needs it and says "make this equal to
its rows"; so performing it twice, or late, does no harm. Nothing is called while a transaction is
open. Correctness rests on the rows: SKIP LOCKED, a lease in `due_at`, and `attempts` as the fence
that lets only the last taker settle. The advisory lock on a lane saves work and keeps one writer
at a time.
"""

import json
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import InterfaceError, OperationalError, transaction

from project.kernel import metrics
from project.kernel.actor import current_actor
from project.kernel.db.guards import refuse_inside_transaction
from project.kernel.db.locks import LANE, try_lock
from project.kernel.errors import Conflict
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from project.kernel.outbox import outbox_sql
from project.kernel.retry import decide_retry

logger = logging.getLogger(__name__)

LEASE = 60.0  # seconds; renewed while a batch is worked off
BATCH = 20  # operations taken at a time from one lane
LANES = 200  # due operations looked at to find lanes
LONGEST_ERROR = 2000


class ProviderError(Exception):
    """The world outside did not do it. Each type backs off in its own way (`retry.BACKOFF`)."""

    code = "unavailable"

    def __init__(self, message: str = "", *, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(message or type(self).__name__)


class Throttled(ProviderError):
    code = "throttled"


class QuotaExceeded(ProviderError):
    code = "quota"


class Unauthorised(ProviderError):
    code = "unauthorised"


class ConflictError(ProviderError):
    code = "conflict"


class NotFoundOutside(ProviderError):
    """What was to be changed is not there. Where that is what was wanted, the performer takes it
    as success.
    """

    code = "not_found"


class Misconfigured(ProviderError):
    """What we were told cannot be: a person mends it here or outside, and then it works
    by itself.
    """

    code = "misconfigured"
    body: Any = None  # what the provider answered, for whoever can say which field it means


class PermanentError(ProviderError):
    """Trying again cannot help. The operation stays open and visible until a person retries it."""

    code = "permanent"


@dataclass(frozen=True, slots=True)
class AcquiredOperation:
    """An operation in our hands, until its lease runs out."""

    id: int
    queue: str
    lane: str
    kind: str
    pool_id: int | None
    member_id: int | None
    claim_id: int | None
    generation: int | None
    body: Any
    attempt: int


# A performer makes the world equal to the rows and returns, or raises. The batch kind gets all that
# was taken from a lane at once and names those that failed; raising fails them all.
Performer = Callable[[AcquiredOperation], None]
BatchPerformer = Callable[[Sequence[AcquiredOperation]], Mapping[int, Exception] | None]

_performers: dict[str, Performer] = {}
_batch_performers: dict[str, BatchPerformer] = {}


def register_performer(kind: str) -> Callable[[Performer], Performer]:
    def register(performer: Performer) -> Performer:
        _performers[kind] = performer
        return performer

    return register


def register_batch_performer(kind: str) -> Callable[[BatchPerformer], BatchPerformer]:
    def register(performer: BatchPerformer) -> BatchPerformer:
        _batch_performers[kind] = performer
        return performer

    return register


def add_operation(
    *,
    lane: str,
    kind: str,
    queue: str = "default",
    pool_id: int | None = None,
    member_id: int | None = None,
    claim_id: int | None = None,
    generation: int | None = None,
    body: Any = None,
    delay: float = 0.0,
) -> int:
    """In the transaction of the change that needs it. Workers are woken after the commit."""
    text = json.dumps({} if body is None else body, cls=DjangoJSONEncoder)
    found = outbox_sql.add_operation(
        queue=queue,
        lane=lane,
        kind=kind,
        pool=pool_id,
        member=member_id,
        claim=claim_id,
        generation=generation,
        body=text,
        delay=delay,
    )
    publish("operations")
    return int(found)


def list_due_queues(late: float = 0.0) -> list[str]:
    """Queues in which something is due, or has been for `late` seconds."""
    return [row.queue for row in outbox_sql.queues_due(late=late)]


def acquire_operations(
    queue: str, lane: str, limit: int = BATCH, lease: float | None = None
) -> list[AcquiredOperation]:
    """What is due on a lane, oldest first. A short transaction of its own; from here until
    `lease` it is ours alone.
    """
    refuse_inside_transaction("take")
    rows = outbox_sql.take(limit, queue=queue, lane=lane, lease=LEASE if lease is None else lease)
    taken = [
        AcquiredOperation(
            r.id,
            r.queue,
            r.lane,
            r.kind,
            r.pool_id,
            r.member_id,
            r.claim_id,
            r.generation,
            json.loads(r.body),
            r.attempts,
        )
        for r in rows
    ]
    return sorted(taken, key=lambda t: t.id)


def renew_operations(
    taken: Sequence[AcquiredOperation], lease: float | None = None
) -> list[AcquiredOperation]:
    """Hold on to them for longer. Those that somebody else has taken since are left out of
    the answer.
    """
    seconds = LEASE if lease is None else lease
    mine = {
        r.id
        for r in outbox_sql.renew(
            ids=[t.id for t in taken], attempts=[t.attempt for t in taken], lease=seconds
        )
    }
    return [t for t in taken if t.id in mine]


def finish_operation(taken: AcquiredOperation, error: Exception | None = None) -> bool:
    """Write down how it went. False: the lease ran out and somebody else has it; what we did was
    harmless, so nothing is written.
    """
    if error is None:
        return len(finish_operations([taken])) == 1
    code = error.code if isinstance(error, ProviderError) else "unexpected"
    retry_after = error.retry_after if isinstance(error, ProviderError) else None
    decision = decide_retry(code, taken.attempt, random.random(), retry_after)
    text = (str(error) or type(error).__name__).replace("\x00", "")[:LONGEST_ERROR]
    with transaction.atomic():
        is_ours = (
            outbox_sql.settle_failed(
                operation=taken.id,
                attempt=taken.attempt,
                error=text,
                code=code,
                delay=decision.delay,
            )
            is not None
        )
        if is_ours and decision.is_permanent:
            _record("give_up", taken, reason=text)
    if is_ours:
        metrics.OPERATIONS.labels(taken.kind, code).inc()
    return is_ours


def finish_operations(taken: Sequence[AcquiredOperation]) -> list[int]:
    rows = outbox_sql.settle_done(ids=[t.id for t in taken], attempts=[t.attempt for t in taken])
    for t in taken:
        metrics.OPERATIONS.labels(t.kind, "done").inc()
    return [r.id for r in rows]


def perform_due(
    queue: str, limit: int = 500, should_stop: Callable[[], bool] = lambda: False
) -> int:
    """Perform what is due in a queue, lane by lane, and say how many were settled. Call it until it
    answers 0.

    A lane somebody else works on is passed over, and so is one that failed: neither holds
    up another.
    """
    refuse_inside_transaction("perform_due")
    count, seen = 0, list[str]()
    while count < limit and not should_stop():
        lanes = [row.lane for row in outbox_sql.lanes_due(LANES, queue=queue, seen=seen)]
        if not lanes:
            break
        for lane in lanes:
            seen.append(lane)
            with try_lock(LANE, lane) as is_ours:
                while (
                    is_ours
                    and count < limit
                    and not should_stop()
                    and (taken := acquire_operations(queue, lane))
                ):
                    count += _perform_taken(taken, should_stop)
            if count >= limit or should_stop():
                break
    return count


def make_lanes_due(*lanes: str) -> bool:
    """What these lanes wait for may have happened, or what stood in their way is gone: they are
    due now. False: nothing is open there.
    """
    is_any = bool(outbox_sql.hurry(lanes=list(lanes)))
    if is_any:
        publish("operations")
    return is_any


def retry_operation(operation_id: int, reason: str = "") -> None:
    """Make a failed operation due at once, because a person says so."""
    with transaction.atomic():
        row = outbox_sql.retry_operation(operation=operation_id)
        if row is None:
            raise Conflict(
                f"Operation {operation_id} has no error to retry.",
                way_out="Look at the list again: it may be done by now.",
            )
        _record("retry", row, reason=reason)
        publish("operations")


def acknowledge_operation(operation_id: int, reason: str = "") -> None:
    """A person takes note of a permanent error; the doctor no longer names it."""
    with transaction.atomic():
        row = outbox_sql.see_operation(operation=operation_id, actor=current_actor())
        if row is None:
            raise Conflict(
                f"Operation {operation_id} has no permanent error.",
                way_out="Look at the list again: it may be retried by now.",
            )
        _record("see_error", row, reason=reason)


def _perform_taken(taken: list[AcquiredOperation], should_stop: Callable[[], bool]) -> int:
    """One batch of one lane, in the order it was asked for. What is not reached goes back."""
    count, leased_at = 0, time.monotonic()
    groups = [list(group) for _, group in groupby(taken, key=_group_of)]
    while groups:
        if time.monotonic() - leased_at > LEASE / 3:
            mine = {t.id for t in renew_operations([t for group in groups for t in group])}
            groups = [kept for group in groups if (kept := [t for t in group if t.id in mine])]
            leased_at = time.monotonic()
            if not groups:
                break
        group = groups.pop(0)
        errors = _perform(group)
        finish_operations([t for t in group if t.id not in errors])
        for t in group:
            if t.id in errors:
                finish_operation(t, errors[t.id])
        count += len(group)
        pause = max((_pause(error, t) for t in group if (error := errors.get(t.id))), default=0.0)
        if pause or should_stop():
            renew_operations([t for rest in groups for t in rest], lease=pause)
            break
    return count


def _group_of(taken: AcquiredOperation) -> Any:
    return taken.kind if taken.kind in _batch_performers else taken.id


def _perform(group: list[AcquiredOperation]) -> Mapping[int, Exception]:
    """Call the performer, with no transaction open. What failed, by operation."""
    refuse_inside_transaction("a provider call")
    kind = group[0].kind
    try:
        with metrics.OPERATION_SECONDS.labels(kind).time():
            if batch := _batch_performers.get(kind):
                return batch(group) or {}
            if (performer := _performers.get(kind)) is None:
                raise PermanentError(f"Nothing here performs {kind!r}.")
            performer(group[0])
            return {}
    except (OperationalError, InterfaceError):
        # Our own database is away: there is no way to settle now, and the lease runs out by itself.
        raise
    except Exception as error:
        if not isinstance(error, ProviderError):
            logger.exception("operation %s (%s on %s) raised", group[0].id, kind, group[0].lane)
        return {t.id: error for t in group}


def _pause(error: Exception, taken: AcquiredOperation) -> float:
    """How long the rest of the lane waits because of this error; 0: it need not."""
    if not isinstance(error, ProviderError):
        return 0.0
    decision = decide_retry(error.code, taken.attempt, 0.0, error.retry_after)
    return decision.delay if decision.stops_lane else 0.0


def _record(verb: str, row: Any, *, reason: str) -> None:
    record(
        verb,
        pool_id=row.pool_id,
        member_id=row.member_id,
        claim_id=row.claim_id,
        generation=row.generation,
        reason=reason,
        data={"operation": {"lane": row.lane, "kind": row.kind}},
    )
