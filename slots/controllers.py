"""`watch`: a full look at what each pool's provider sees, and the stamp that says when."""

import logging
from datetime import datetime, timedelta

from django.db import InterfaceError, OperationalError, connection
from django.db.models import F, Q

from pools.models import Pool
from pools.providers.base import Look, PoolSnapshot, known_providers, provider_of
from pools.selectors import LIVE, spec_of
from project.kernel.guards import outside_transaction
from project.kernel.locks import CONTROLLER, try_lock
from project.kernel.operations import ProviderError
from project.kernel.policy import Backoff, delay_after
from project.kernel.runtime import Controller
from slots.selectors import snapshot_whole
from slots.services import activate_pool, bring_back, lose_member, note_down, settle_member, take_offline

logger = logging.getLogger(__name__)

LOOK_EVERY = 30.0  # seconds between two full looks at a pool, unless its provider says otherwise
BACKOFF = Backoff(5.0, 300.0)


class Watcher(Controller):
    name = "watch"
    topics = ("pools",)
    resync = 5.0

    def __init__(self) -> None:
        self._failures: dict[int, int] = {}
        self._not_before: dict[int, datetime] = {}

    def step(self) -> bool:
        """One pool. A provider that does not answer holds up neither the others nor anything that is decided without a look."""
        now = _now()
        waiting = [pool_id for pool_id, moment in self._not_before.items() if moment > now]
        due = Pool.objects.filter(LIVE & _is_due(now)).exclude(pk__in=waiting).order_by(F("observed_at").asc(nulls_first=True), "id")
        pool = due.first()
        if pool is None:
            return False
        with try_lock(CONTROLLER, f"watch:{pool.pk}") as is_ours:
            if is_ours:
                self._look(pool)
            else:
                self._not_before[pool.pk] = now + timedelta(seconds=1)
        return True

    def _look(self, pool: Pool) -> None:
        try:
            look_at_pool(pool)
        except (OperationalError, InterfaceError):
            raise  # our own database is away
        except Exception as error:
            count = self._failures[pool.pk] = self._failures.get(pool.pk, 0) + 1
            delay = delay_after(count, BACKOFF, 0.5)
            self._not_before[pool.pk] = _now() + timedelta(seconds=delay)
            is_foreseen = isinstance(error, ProviderError)
            logger.warning("pool %s could not be looked at, next time in %.0f s: %s", pool.name, delay, error, exc_info=not is_foreseen)
        else:
            self._failures.pop(pool.pk, None)
            self._not_before.pop(pool.pk, None)


def _is_due(now: datetime) -> Q:
    found = Q(observed_at=None) | Q(observed_at__lte=now - timedelta(seconds=LOOK_EVERY))
    for kind, provider in known_providers().items():
        if provider.look_every < LOOK_EVERY:
            found |= Q(provider=kind, observed_at__lte=now - timedelta(seconds=provider.look_every))
    return found


def look_at_pool(pool: Pool) -> None:
    """Only members of the snapshot are judged, each again under its lock: whoever came meanwhile is for the next look."""
    started = _now()
    before = snapshot_whole(pool)
    apply_look(pool, before, ask_provider(before))
    Pool.objects.filter(pk=pool.pk).update(observed_at=started)  # what was seen is at least as new as this
    activate_pool(pool_id=pool.pk)


@outside_transaction
def ask_provider(pool: PoolSnapshot) -> Look:
    return provider_of(pool.provider).look(pool)


def apply_look(pool: Pool, before: PoolSnapshot, look: Look) -> None:
    seen = {each.member_id: each for each in look.seen}
    has_heartbeats = spec_of(pool).liveness is not None
    for member in before.members:
        each = seen.get(member.id)
        if each is None:
            if member.state == "deleting":
                settle_member(member_id=member.id, is_gone=True, is_ready=False)
            elif member.state in ("ready", "offline"):
                lose_member(member_id=member.id, reason="its provider does not know it any more", is_gone=True)
        elif each.is_down:
            note_down(member_id=member.id, incarnation=member.incarnation, reason=each.why, is_planned=each.is_planned)
        elif not each.is_ready and member.state == "ready":
            take_offline(member_id=member.id, reason=each.why or "its provider says it is not ready")
        elif each.is_ready and member.state == "creating":
            settle_member(member_id=member.id, is_gone=False, is_ready=True, external_id=each.external_id)
        elif each.is_ready and member.state == "offline" and not has_heartbeats:
            bring_back(member_id=member.id, reason="seen again")


def _now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        found: datetime = cursor.fetchone()[0]
    return found
