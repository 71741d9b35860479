"""The controller `watch`: full looks at the outside of pools, and the time of the last look.

Looks over a network run in threads, a few at a time for each place, and the controller records
their results one after the other. A cluster that does not answer delays only its own pools.
Followers name the pools that changed outside, for an early look.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import InterfaceError, OperationalError
from django.db.models import F, Q

from pools.lifecycle.selectors import LIVE, spec_of
from pools.models import Pool
from pools.providers.base import (
    MemberSnapshot,
    Observation,
    PoolSnapshot,
    Seen,
    known_providers,
    provider_class,
    provider_of,
)
from project.kernel.controllers.runtime import Controller
from project.kernel.db.guards import outside_transaction
from project.kernel.db.locks import CONTROLLER, try_lock
from project.kernel.models import Operation
from project.kernel.outbox.operations import ProviderError
from project.kernel.retry import Backoff, delay_after
from project.kernel.validation import moment
from slots.members.liveness import lose_member, mark_back_online, take_offline
from slots.members.provider_status import (
    clear_provider_error,
    record_down,
    record_ending,
    record_external_state,
    record_provider_error,
    sync_member_now,
)
from slots.members.selectors import snapshot_whole
from slots.members.services import activate_pool, record_sync_result
from slots.members.store import lane_of
from slots.members.token_rotation import rotate_due
from slots.sync.automatic_repairs import remove_withheld, repair_found, settle_strays
from slots.sync.metrics import STRAYS, timed_call
from slots.sync.orphans import EVERY, delete_orphans, list_deleted_pools
from slots.sync.slot_drift import record_observed_slots
from slots.sync.stray_orders import end_orders, list_ordered, record_stray_error
from slots.sync.strays import read_strays, record_strays, sort_strays
from slots.sync.watch_threads import ChangedPools, ProviderFollowers

logger = logging.getLogger(__name__)

LOOK_EVERY = 30.0  # seconds between two full looks at a pool, if its provider names no other
BACKOFF = Backoff(5.0, 60.0)
ALIGN_EVERY = 5.0  # seconds between two updates of the followers
PER_PLACE = 4  # concurrent looks at a place
MOST_LOOKS = 32  # concurrent looks in all
PACE = 0.5  # seconds at least between two early looks at a pool: changes come in groups
# The pause after an early look, as a multiple of its duration: looks at large pools are slow.
RESTS = 5
WAIT = 0.5  # seconds to wait for results before other looks begin


@dataclass(frozen=True, slots=True)
class PendingObservation:
    """A look that runs in a thread."""

    pool: Pool
    place: str
    before: PoolSnapshot
    started: datetime
    begun: float  # monotonic
    answer: Future[Observation]


class Watcher(Controller):
    name = "watch"
    topics = ("pools",)
    resync = 5.0

    def __init__(self) -> None:
        self._failures: dict[int, int] = {}
        self._not_before: dict[int, datetime] = {}
        self._rests: dict[int, float] = {}  # monotonic: no early look before
        self._pending: dict[int, PendingObservation] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._changed = ChangedPools(self._wake)
        self._considered: frozenset[int] = frozenset()  # changed pools of this step
        self._followers = ProviderFollowers(self._changed)
        self._align_at = 0.0
        self._gone_at = 0.0
        self._is_over = threading.Event()

    def step(self) -> bool:
        """Begin some looks and record some results. A provider that does not answer delays no other
        provider.
        """
        self._follow()
        self._sweep_gone()
        has_looked = self._begin()
        return self._finish() or has_looked

    def close(self) -> None:
        self._is_over.set()
        self._followers.stop()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _wake(self) -> None:
        if self.wake_up is not None:
            self.wake_up()

    def _follow(self) -> None:
        """Followers only serve a watcher that keeps running, not a single step."""
        if self.wake_up is not None and time.monotonic() >= self._align_at:
            self._align_at = time.monotonic() + ALIGN_EVERY
            self._followers.align()

    def _begin(self) -> bool:
        """True: a look ran in this thread."""
        changed, self._considered = self._changed.ids, frozenset()
        paced = {pool_id for pool_id in changed if self._rests.get(pool_id, 0.0) > time.monotonic()}
        for pool in self._list_due(changed - paced, paced):
            try:
                place = provider_class(pool.provider).place_of(spec_of(pool).options)
            except ProviderError as error:
                self._failed(pool, error)
                return True
            if not place:
                self._look_now(pool)
                return True  # the look may have taken long, so the next step selects again
            if (
                len(self._pending) < MOST_LOOKS
                and Counter(pending.place for pending in self._pending.values())[place] < PER_PLACE
            ):
                self._begin_look(pool, place)
        # These pools have a look or get one in the next step. Paced pools were not selected, and
        # their pause may be over by now.
        self._considered = changed - paced
        return False

    def _list_due(self, changed: frozenset[int], paced: set[int]) -> list[Pool]:
        now = moment()
        waiting = {
            pool_id
            for pool_id, until in self._not_before.items()
            if until > now and pool_id not in changed
        }
        due = (
            Pool.objects.filter(LIVE)
            .filter(_is_due(now) | Q(pk__in=changed))
            .exclude(pk__in=waiting | paced | set(self._pending))
        )
        return list(due.order_by(F("observed_at").asc(nulls_first=True), "id")[:MOST_LOOKS])

    def _look_now(self, pool: Pool) -> None:
        self._changed.take(pool.pk)
        with try_lock(CONTROLLER, f"watch:{pool.pk}") as is_ours:
            if not is_ours:
                self._not_before[pool.pk] = moment() + timedelta(seconds=1)
                return
            try:
                observe_pool(pool, self._sweep)
            except (OperationalError, InterfaceError):
                raise  # Berth's own database is away
            except Exception as error:
                self._failed(pool, error)
            else:
                self._worked(pool)

    def _begin_look(self, pool: Pool, place: str) -> None:
        self._changed.take(pool.pk)
        self._rests[pool.pk] = time.monotonic() + PACE
        started = moment()
        before = snapshot_whole(pool)
        self._pending[pool.pk] = PendingObservation(
            pool,
            place,
            before,
            started,
            time.monotonic(),
            self._executor().submit(call_provider, before),
        )

    def _finish(self) -> bool:
        """True: looks are still running, or changed pools wait."""
        if not self._pending:
            return self._rest()
        wait(
            [pending.answer for pending in self._pending.values()],
            timeout=WAIT,
            return_when=FIRST_COMPLETED,
        )
        for pending in [pending for pending in self._pending.values() if pending.answer.done()]:
            del self._pending[pending.pool.pk]
            self._rests[pending.pool.pk] = max(
                self._rests[pending.pool.pk],
                time.monotonic() + RESTS * (time.monotonic() - pending.begun),
            )
            self._record(pending)
        return True

    def _rest(self) -> bool:
        """True: a changed pool waits for its early look. A changed pool that is gone is dropped."""
        for pool_id in self._considered & self._changed.ids:  # without the changes since then
            self._changed.take(pool_id)
        if not self._changed.ids or self.wake_up is None:
            return False
        time.sleep(PACE / 5)
        return True

    def _record(self, pending: PendingObservation) -> None:
        try:
            record_observation(
                pending.pool, pending.before, pending.answer.result(), pending.started, self._sweep
            )
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:
            self._failed(pending.pool, error)
        else:
            self._worked(pending.pool)

    def _sweep(self, pool: PoolSnapshot, member_ids: Collection[int]) -> None:
        self._executor().submit(remove_strays, pool, frozenset(member_ids))

    def _sweep_gone(self) -> None:
        if time.monotonic() >= self._gone_at:
            self._gone_at = time.monotonic() + EVERY
            if pools := list_deleted_pools():
                self._executor().submit(delete_orphans, pools, self._is_over.is_set)

    def _executor(self) -> ThreadPoolExecutor:
        if self._threads is None:
            # One more thread removes strays and orphans.
            self._threads = ThreadPoolExecutor(MOST_LOOKS + 1, thread_name_prefix="look")
        return self._threads

    def _failed(self, pool: Pool, error: Exception) -> None:
        count = self._failures[pool.pk] = self._failures.get(pool.pk, 0) + 1
        delay = max(delay_after(count, BACKOFF, 0.5), getattr(error, "retry_after", None) or 0.0)
        self._not_before[pool.pk] = moment() + timedelta(seconds=delay)
        self._changed.take(pool.pk)
        is_foreseen = isinstance(error, ProviderError)
        logger.warning(
            "the look at pool %s failed, the next look is in %.0f s: %s",
            pool.name,
            delay,
            error,
            exc_info=not is_foreseen,
        )
        record_provider_error(
            pool,
            error
            if isinstance(error, ProviderError)
            else ProviderError(f"{type(error).__name__}: {error}"),
        )

    def _worked(self, pool: Pool) -> None:
        if self._failures.pop(pool.pk, None) or pool.provider_error_since is not None:
            clear_provider_error(pool)
        self._not_before.pop(pool.pk, None)


def _is_due(now: datetime) -> Q:
    found = Q(observed_at=None) | Q(observed_at__lte=now - timedelta(seconds=LOOK_EVERY))
    for kind, provider in known_providers().items():
        if provider.look_every < LOOK_EVERY:
            found |= Q(provider=kind, observed_at__lte=now - timedelta(seconds=provider.look_every))
    return found


@outside_transaction
def call_provider(pool: PoolSnapshot) -> Observation:
    with timed_call(pool.provider, "look"):
        return provider_of(pool.provider).look(pool)


@outside_transaction
def _call_remove(pool: PoolSnapshot, member_ids: Collection[int]) -> None:
    provider_of(pool.provider).remove_strays(pool, member_ids)


def remove_strays(pool: PoolSnapshot, member_ids: Collection[int]) -> None:
    try:
        _call_remove(pool, member_ids)
    except ProviderError as error:
        logger.warning(
            "outside objects of pool %s could not be removed, next try after the next look: %s",
            pool.name,
            error,
        )
        record_stray_error(pool.id, member_ids, str(error))


Sweep = Callable[[PoolSnapshot, Collection[int]], None]


def observe_pool(pool: Pool, sweep: Sweep = remove_strays) -> None:
    """Look at a pool now. Only members of the snapshot are judged, each again under its lock; later
    members wait for the next look. `sweep` removes objects of gone members.
    """
    started = moment()
    before = snapshot_whole(pool)
    record_observation(pool, before, call_provider(before), started, sweep)


def record_observation(
    pool: Pool,
    before: PoolSnapshot,
    look: Observation,
    started: datetime,
    sweep: Sweep,
) -> None:
    """A slow look, and a second look by another watcher, do no harm: the facts name the incarnation
    of the member.
    """
    apply_observation(pool, before, look)
    new_drift = record_observed_slots(before, look, started)
    # The look is at least as new as its start. A look that was overtaken does not move the time
    # back.
    Pool.objects.filter(Q(observed_at=None) | Q(observed_at__lt=started), pk=pool.pk).update(
        observed_at=started
    )
    if look.place != before.place:
        Pool.objects.filter(pk=pool.pk, place=before.place).update(place=look.place)
    activate_pool(pool_id=pool.pk)
    rotate_due(pool)
    gone, unknown = sort_strays(look.strays)
    known = {stray.name for stray in read_strays(pool)}
    record_strays(pool, gone=gone, unknown=unknown, started=started)
    repair_found(pool.pk, new_drift)
    remove_withheld(new_drift)
    settle_strays(pool)
    end_orders(pool, look.strays.keys(), started)
    if new := sorted(set(gone.values()) - known):
        STRAYS.labels(pool.provider).inc(len(new))
        logger.warning(
            "pool %s has outside objects of gone members, Berth removes them: %s",
            pool.name,
            ", ".join(new),
        )
    if due := gone.keys() | list_ordered(pool, unknown):
        sweep(before, due)


def apply_observation(pool: Pool, before: PoolSnapshot, look: Observation) -> None:
    seen = {each.member_id: each for each in look.seen}
    has_heartbeats = spec_of(pool).liveness is not None
    failing = _list_failing(before.members)
    for member in before.members:
        if (each := seen.get(member.id)) is None:
            _record_missing(member)
        else:
            _record_seen(
                member, each, has_heartbeats=has_heartbeats, is_failing=member.id in failing
            )


def _list_failing(members: Iterable[MemberSnapshot]) -> set[int]:
    """Members with a reason and a failed last sync. A sync stores the next reason."""
    lanes = {lane_of(member.id): member.id for member in members if member.outside}
    if not lanes:
        return set()
    failed = Operation.objects.filter(lane__in=lanes, done_at=None).exclude(error="")
    return {lanes[lane] for lane in failed.values_list("lane", flat=True)}


def _record_missing(member: MemberSnapshot) -> None:
    if member.state == "deleting":
        # An open operation confirms the deletion instead: it may still be creating the object.
        if not sync_member_now(member.id):
            record_sync_result(member_id=member.id, is_gone=True, is_ready=False)
    elif member.state in ("ready", "offline"):
        lose_member(member_id=member.id, reason="it is missing at its provider", is_gone=True)


def _record_seen(
    member: MemberSnapshot, each: Seen, *, has_heartbeats: bool, is_failing: bool
) -> None:
    # An empty reason is no news of a member that is being created, or after a failed sync.
    is_waiting = member.state == "creating" or is_failing
    is_told = each.why != member.outside and (each.why or not is_waiting)
    if is_told or each.addresses:
        record_external_state(
            member_id=member.id,
            incarnation=member.incarnation,
            state=member.state,
            why=each.why if is_told else member.outside,
            addresses=each.addresses,
        )
    if each.is_down:
        record_down(member, each.why, is_lost=each.is_lost, is_planned=each.is_planned)
    elif each.is_ending:
        record_ending(member_id=member.id, incarnation=member.incarnation, reason=each.why)
    elif not each.is_ready and member.state == "ready":
        take_offline(member_id=member.id, reason=each.why or "its provider says it is not ready")
    elif each.is_ready and member.state == "creating":
        record_sync_result(
            member_id=member.id, is_gone=False, is_ready=True, external_id=each.external_id
        )
    elif each.is_ready and member.state == "offline" and not has_heartbeats:
        mark_back_online(member_id=member.id, reason="seen again")
