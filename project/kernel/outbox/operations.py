"""The outbox of calls to outside systems: acquire, perform, finish.

The transaction of a change also writes the operation that the change needs. An operation says "make
this equal to its rows", so performing it twice or late does no harm. Workers call providers outside
of transactions. Correctness rests on the rows: SKIP LOCKED, a lease in `due_at`, and `attempts` as
the fence that lets only the last worker finish an operation.

A lane is an outside object that takes one write at a time: a member, a mailbox, a load balancer.
The advisory lock on the lane keeps one writer at a time, and a worker that stands still loses it
(`db/locks.py`). A batch performer gets all due operations of its kind on a lane in one call.
"""

import json
import logging
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

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
BATCH = 100  # operations acquired at once from one lane
LANES = 200  # due operations read to find lanes
LONGEST_ERROR = 2000
# Id and attempt of operations that this process had acquired when it lost the database.
_interrupted: list[tuple[int, int]] = []


class ProviderError(Exception):
    """The outside system refused or failed. Each type has its own back-off (`retry.BACKOFF`)."""

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
    """The outside object does not exist. A performer that deletes takes this as success."""

    code = "not_found"


class Misconfigured(ProviderError):
    """The configuration is wrong, here or outside. The operation succeeds once a person has
    corrected it.
    """

    code = "misconfigured"
    # The answer of the provider, which may name the wrong field.
    body: Mapping[str, object] | None = None


class PermanentError(ProviderError):
    """A retry cannot help. The operation stays open and visible until a person retries it."""

    code = "permanent"


class Postponed(Exception):
    """Not performed, and no failure: a call budget is exhausted. The operation is due again after
    `seconds`, and the rest of its lane with it.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"postponed by {seconds:.3g} s")


@dataclass(frozen=True, slots=True)
class AcquiredOperation:
    """An operation that this worker holds until its lease ends."""

    id: int
    queue: str
    lane: str
    kind: str
    pool_id: int | None
    member_id: int | None
    claim_id: int | None
    generation: int | None
    body: Mapping[str, object]
    attempt: int


# A performer makes the outside equal to the rows, or raises. A batch performer gets all acquired
# operations of its kind on a lane and returns the errors by operation; raising fails all of them.
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
    body: Mapping[str, object] | None = None,
    delay: float = 0.0,
) -> int:
    """Call it in the transaction of the change; the commit wakes the workers. Returns the id."""
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
    """Queues with operations that are due, or have been due for `late` seconds."""
    return [row.queue for row in outbox_sql.queues_due(late=late)]


def acquire_operations(
    queue: str, lane: str, limit: int = BATCH, lease: float | None = None
) -> list[AcquiredOperation]:
    """Acquire the due operations of a lane, oldest first, in a short transaction of its own. No
    other worker gets them until the lease ends.
    """
    refuse_inside_transaction("acquire_operations")
    rows = outbox_sql.take(limit, queue=queue, lane=lane, lease=LEASE if lease is None else lease)
    return [
        AcquiredOperation(*row[:-2], json.loads(row.body), row.attempts) for row in sorted(rows)
    ]


def renew_operations(
    taken: Sequence[AcquiredOperation], lease: float | None = None
) -> list[AcquiredOperation]:
    """Extend the lease. Returns the operations that no other worker has acquired since."""
    seconds = LEASE if lease is None else lease
    mine = {
        r.id
        for r in outbox_sql.renew(
            ids=[t.id for t in taken], attempts=[t.attempt for t in taken], lease=seconds
        )
    }
    return [t for t in taken if t.id in mine]


def finish_operation(taken: AcquiredOperation, error: Exception | None = None) -> bool:
    """Record success or the error. False: no record, because the lease ended and another worker
    holds the operation.
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
    """Perform due operations of a queue, lane by lane. Returns how many were finished; the caller
    repeats until that is 0.

    A lane of another worker is skipped, and so is the rest of a failed lane: neither delays other
    lanes.
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
                    try:
                        count += _perform_taken(taken, should_stop)
                    except (OperationalError, InterfaceError):
                        _interrupted.extend((t.id, t.attempt) for t in taken)
                        raise
            if count >= limit or should_stop():
                break
    return count


def release_interrupted() -> int:
    """Make the operations due that this process held when it lost the database. They would wait
    for the end of their lease. Finished operations stay as they are. Operations that another worker
    has acquired since are added again, because this process may have called the provider later than
    that worker. Returns how many became due.
    """
    held = list(_interrupted)
    if not held:
        return 0
    ids, attempts = [number for number, _ in held], [attempt for _, attempt in held]
    with transaction.atomic():
        rows = outbox_sql.renew(ids=ids, attempts=attempts, lease=0.0)
        rows += outbox_sql.repeat_overtaken(ids=ids, attempts=attempts)
    del _interrupted[: len(held)]
    if rows:
        publish("operations")
    return len(rows)


def release_abandoned(queues: Collection[str]) -> int:
    """Make the operations due whose worker has died: no session holds the lock of their lane. They
    would wait for the end of their lease. Returns how many became due.

    It is called as a worker starts, because it also makes operations due that were put off.
    """
    count = 0
    for row in outbox_sql.leased_lanes(queues=list(queues)):
        with try_lock(LANE, row.lane) as is_ours:
            if is_ours:
                count += len(outbox_sql.end_leases(lane=row.lane))
    if count:
        publish("operations")
    return count


def make_lanes_due(*lanes: str) -> bool:
    """Make the open operations of these lanes due now: an obstacle may be gone. False: the lanes
    have no open operation.
    """
    is_any = bool(outbox_sql.make_lanes_due(lanes=list(lanes)))
    if is_any:
        publish("operations")
    return is_any


def retry_operation(operation_id: int, reason: str = "") -> None:
    """Make a failed operation due now, on the order of a person. Raises Conflict if the operation
    has no error.
    """
    with transaction.atomic():
        row = outbox_sql.retry_operation(operation=operation_id)
        if row is None:
            raise Conflict(
                f"Operation {operation_id} has no error to retry.",
                way_out="Reload the list: the operation may be done.",
            )
        _record("retry", row, reason=reason)
        publish("operations")


def acknowledge_operation(operation_id: int, reason: str = "") -> None:
    """Record that a person has seen a permanent error, which the doctor then no longer reports.
    Raises Conflict if the operation has no permanent error.
    """
    with transaction.atomic():
        row = outbox_sql.see_operation(operation=operation_id, actor=current_actor())
        if row is None:
            raise Conflict(
                f"Operation {operation_id} has no permanent error.",
                way_out="Reload the list: a person may have retried the operation.",
            )
        _record("see_error", row, reason=reason)


def _perform_taken(taken: list[AcquiredOperation], should_stop: Callable[[], bool]) -> int:
    """Perform acquired operations of one lane in their order; release those that are not reached.
    Returns how many were finished.
    """
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
        pause = 0.0
        for t in group:
            error = errors.get(t.id)
            if isinstance(error, Postponed):
                renew_operations([t], lease=error.seconds)
            elif error is not None:
                finish_operation(t, error)
            pause = max(pause, _pause(error, t))
        count += sum(not isinstance(errors.get(t.id), Postponed) for t in group)
        if pause or should_stop():
            renew_operations([t for rest in groups for t in rest], lease=pause)
            break
    return count


def _group_of(taken: AcquiredOperation) -> str | int:
    return taken.kind if taken.kind in _batch_performers else taken.id


def _perform(group: list[AcquiredOperation]) -> Mapping[int, Exception]:
    """Call the performer, outside of transactions. Returns the errors by operation."""
    refuse_inside_transaction("a provider call")
    kind = group[0].kind
    try:
        with metrics.OPERATION_SECONDS.labels(kind).time():
            if batch := _batch_performers.get(kind):
                return batch(group) or {}
            if (performer := _performers.get(kind)) is None:
                raise PermanentError(f"This worker has no performer for operations of {kind!r}.")
            performer(group[0])
            return {}
    except (OperationalError, InterfaceError):
        # Berth's own database is away. The operation stays open until `release_interrupted`, or
        # until its lease ends.
        raise
    except Exception as error:
        if not isinstance(error, ProviderError | Postponed):
            logger.exception("operation %s (%s on %s) raised", group[0].id, kind, group[0].lane)
        return {t.id: error for t in group}


def _pause(error: Exception | None, taken: AcquiredOperation) -> float:
    """How many seconds the rest of the lane waits because of this error."""
    if isinstance(error, Postponed):
        return error.seconds
    if not isinstance(error, ProviderError):
        return 0.0
    decision = decide_retry(error.code, taken.attempt, 0.0, error.retry_after)
    return decision.delay if decision.stops_lane else 0.0


def _record(
    verb: str, row: AcquiredOperation | outbox_sql.RetryOperationRow, *, reason: str
) -> None:
    record(
        verb,
        pool_id=row.pool_id,
        member_id=row.member_id,
        claim_id=row.claim_id,
        generation=row.generation,
        reason=reason,
        data={"operation": {"lane": row.lane, "kind": row.kind}},
    )
