"""`watch`: a full look at what each pool's provider sees, and the stamp that says when.

Looks over a network are taken in threads, a few at a time for each place, and written down here,
one after the other: a cluster that does not answer holds up its own pools and no others. Followers
tell which pool is worth a look before its time.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import InterfaceError, OperationalError, connection
from django.db.models import F, Q

from pools.lifecycle.selectors import LIVE, spec_of
from pools.models import Member, Pool
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
from project.kernel.outbox.operations import ProviderError
from project.kernel.retry import Backoff, delay_after
from slots.members.liveness import lose_member, mark_back_online, mark_down, take_offline
from slots.members.provider_status import (
    clear_provider_error,
    record_ending,
    record_external_state,
    record_lost,
    record_provider_error,
    sync_member_now,
)
from slots.members.selectors import snapshot_whole
from slots.members.services import activate_pool, record_sync_result
from slots.members.token_rotation import rotate_due
from slots.sync.metrics import STRAYS, timed_call
from slots.sync.orphans import EVERY, delete_orphans, list_deleted_pools
from slots.sync.slot_drift import record_observed_slots
from slots.sync.watch_threads import ChangedPools, ProviderFollowers

logger = logging.getLogger(__name__)

LOOK_EVERY = 30.0  # seconds between two full looks at a pool, unless its provider says otherwise
BACKOFF = Backoff(5.0, 60.0)
ALIGN_EVERY = 5.0  # seconds between two looks at which places are to be followed
PER_PLACE = 4  # looks under way at a place
MOST_ASKED = 32  # looks under way in all
# Seconds at least between two looks at a pool that was told of: many changes come together.
PACE = 0.5
# Times as long as its look took, such a pool is left alone: that of thousands of members is dear.
RESTS = 5
WAIT = 0.5  # seconds for an answer until other pools are looked at again


@dataclass(frozen=True, slots=True)
class PendingObservation:
    """A look that is under way."""

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
        # Monotonic: until when a pool that was told of is left alone.
        self._rests: dict[int, float] = {}
        self._asked: dict[int, PendingObservation] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._told = ChangedPools(self._wake)
        self._unmet: frozenset[int] = frozenset()  # told of, and considered by this step
        self._followers = ProviderFollowers(self._told)
        self._align_at = 0.0
        self._gone_at = 0.0
        self._is_over = threading.Event()

    def step(self) -> bool:
        """Some looks begun and some written down. A provider that does not answer holds up neither
        the others nor anything that is decided without a look."""
        self._follow()
        self._sweep_gone()
        is_any = self._begin()
        return self._finish() or is_any

    def close(self) -> None:
        self._is_over.set()
        self._followers.stop()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _wake(self) -> None:
        if self.wake_up is not None:
            self.wake_up()

    def _follow(self) -> None:
        """Only where it runs for good: who looks once has seen all then."""
        if self.wake_up is not None and time.monotonic() >= self._align_at:
            self._align_at = time.monotonic() + ALIGN_EVERY
            self._followers.align()

    def _begin(self) -> bool:
        """True: something was looked at here."""
        told, self._unmet = self._told.ids, frozenset()
        moment = time.monotonic()
        paced = {pool_id for pool_id in told if self._rests.get(pool_id, 0.0) > moment}
        for pool in self._list_due(told - paced, paced):
            try:
                place = provider_class(pool.provider).place_of(spec_of(pool).options)
            except ProviderError as error:
                self._failed(pool, error)
                return True
            if not place:
                self._look_here(pool)
                return True  # others are looked up again: it may have taken long
            if (
                len(self._asked) < MOST_ASKED
                and Counter(asked.place for asked in self._asked.values())[place] < PER_PLACE
            ):
                self._ask(pool, place)
        # Those of them that were due are begun, or have their turn in the next step. Who was paced
        # then was not looked for: its pause may be over by now, and it is still to come.
        self._unmet = told - paced
        return False

    def _list_due(self, told: frozenset[int], paced: set[int]) -> list[Pool]:
        now = _now()
        waiting = {
            pool_id
            for pool_id, until in self._not_before.items()
            if until > now and pool_id not in told
        }
        due = (
            Pool.objects.filter(LIVE)
            .filter(_is_due(now) | Q(pk__in=told))
            .exclude(pk__in=waiting | paced | set(self._asked))
        )
        return list(due.order_by(F("observed_at").asc(nulls_first=True), "id")[:MOST_ASKED])

    def _look_here(self, pool: Pool) -> None:
        self._told.take(pool.pk)
        with try_lock(CONTROLLER, f"watch:{pool.pk}") as is_ours:
            if not is_ours:
                self._not_before[pool.pk] = _now() + timedelta(seconds=1)
                return
            try:
                observe_pool(pool)
            except (OperationalError, InterfaceError):
                raise  # our own database is away
            except Exception as error:
                self._failed(pool, error)
            else:
                self._worked(pool)

    def _ask(self, pool: Pool, place: str) -> None:
        self._told.take(pool.pk)
        self._rests[pool.pk] = time.monotonic() + PACE
        started = _now()
        before = snapshot_whole(pool)
        self._asked[pool.pk] = PendingObservation(
            pool,
            place,
            before,
            started,
            time.monotonic(),
            self._crew().submit(call_provider, before),
        )

    def _finish(self) -> bool:
        """True: there is more to come."""
        if not self._asked:
            return self._rest()
        wait(
            [asked.answer for asked in self._asked.values()],
            timeout=WAIT,
            return_when=FIRST_COMPLETED,
        )
        for asked in [asked for asked in self._asked.values() if asked.answer.done()]:
            del self._asked[asked.pool.pk]
            self._rests[asked.pool.pk] = max(
                self._rests[asked.pool.pk],
                time.monotonic() + RESTS * (time.monotonic() - asked.begun),
            )
            self._write_down(asked)
        return True

    def _rest(self) -> bool:
        """True: somebody was told of and has to wait for a moment. Who is told of and has gone
        is forgotten.
        """
        for pool_id in self._unmet & self._told.ids:  # not those that were told of since
            self._told.take(pool_id)
        if not self._told.ids or self.wake_up is None:
            return False
        time.sleep(PACE / 5)
        return True

    def _write_down(self, asked: PendingObservation) -> None:
        try:
            record_observation(
                asked.pool, asked.before, asked.answer.result(), asked.started, self._sweep
            )
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:
            self._failed(asked.pool, error)
        else:
            self._worked(asked.pool)

    def _sweep(self, pool: PoolSnapshot, member_ids: Collection[int]) -> None:
        self._crew().submit(remove_strays, pool, frozenset(member_ids))

    def _sweep_gone(self) -> None:
        if time.monotonic() >= self._gone_at:
            self._gone_at = time.monotonic() + EVERY
            if pools := list_deleted_pools():
                self._crew().submit(delete_orphans, pools, self._is_over.is_set)

    def _crew(self) -> ThreadPoolExecutor:
        if self._threads is None:
            # One sweeps.
            self._threads = ThreadPoolExecutor(MOST_ASKED + 1, thread_name_prefix="look")
        return self._threads

    def _failed(self, pool: Pool, error: Exception) -> None:
        count = self._failures[pool.pk] = self._failures.get(pool.pk, 0) + 1
        delay = max(delay_after(count, BACKOFF, 0.5), getattr(error, "retry_after", None) or 0.0)
        self._not_before[pool.pk] = _now() + timedelta(seconds=delay)
        self._told.take(pool.pk)
        is_foreseen = isinstance(error, ProviderError)
        logger.warning(
            "pool %s could not be looked at, next time in %.0f s: %s",
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


def observe_pool(pool: Pool) -> None:
    """Only members of the snapshot are judged, each again under its lock: whoever came meanwhile
    is for the next look.
    """
    started = _now()
    before = snapshot_whole(pool)
    record_observation(pool, before, call_provider(before), started, remove_strays)


def record_observation(
    pool: Pool,
    before: PoolSnapshot,
    look: Observation,
    started: datetime,
    sweep: Callable[[PoolSnapshot, Collection[int]], None],
) -> None:
    """Also one that was long under way, or that another watcher has taken, too: what it says of
    an incarnation stays true.
    """
    apply_observation(pool, before, look)
    record_observed_slots(look, started)
    # What was seen is at least as new as this; a look that was overtaken does not turn the
    # clock back.
    Pool.objects.filter(Q(observed_at=None) | Q(observed_at__lt=started), pk=pool.pk).update(
        observed_at=started
    )
    if look.place != before.place:
        Pool.objects.filter(pk=pool.pk, place=before.place).update(place=look.place)
    activate_pool(pool_id=pool.pk)
    rotate_due(pool)
    # Their numbers are never given again, so they stay what they are. A number that our rows
    # have never known is of a database that knows more than this copy of it: what runs there may
    # be at work.
    strays = set(
        Member.objects.filter(state="gone", pk__in=look.strays).values_list("pk", flat=True)
    )
    if strays:
        STRAYS.labels(pool.provider).inc(len(strays))
        logger.warning(
            "pool %s has things outside of members that are gone, they are removed: %s",
            pool.name,
            sorted(strays),
        )
        sweep(before, strays)


@outside_transaction
def call_provider(pool: PoolSnapshot) -> Observation:
    with timed_call(pool.provider, "look"):
        return provider_of(pool.provider).look(pool)


@outside_transaction
def remove_strays(pool: PoolSnapshot, member_ids: Collection[int]) -> None:
    try:
        provider_of(pool.provider).remove_strays(pool, member_ids)
    except ProviderError as error:
        logger.warning(
            "things of pool %s could not be removed, once more after the next look: %s",
            pool.name,
            error,
        )


def apply_observation(pool: Pool, before: PoolSnapshot, look: Observation) -> None:
    seen = {each.member_id: each for each in look.seen}
    has_heartbeats = spec_of(pool).liveness is not None
    for member in before.members:
        each = seen.get(member.id)
        if each is None:
            _record_missing(member)
        else:
            _record_seen(member, each, has_heartbeats=has_heartbeats)


def _record_missing(member: MemberSnapshot) -> None:
    if member.state == "deleting":
        # Else its operation says so: it may just be making what it then takes away.
        if not sync_member_now(member.id):
            record_sync_result(member_id=member.id, is_gone=True, is_ready=False)
    elif member.state in ("ready", "offline"):
        lose_member(
            member_id=member.id, reason="its provider does not know it any more", is_gone=True
        )


def _record_seen(member: MemberSnapshot, each: Seen, *, has_heartbeats: bool) -> None:
    # What kept it from being made is not known better.
    if each.why != member.outside and (each.why or member.state != "creating"):
        record_external_state(
            member_id=member.id, incarnation=member.incarnation, state=member.state, why=each.why
        )
    if each.is_down:
        say_down = record_lost if each.is_lost else mark_down
        say_down(
            member_id=member.id,
            incarnation=member.incarnation,
            reason=each.why,
            is_planned=each.is_planned,
        )
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


def _now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        found: datetime = cursor.fetchone()[0]
    return found
