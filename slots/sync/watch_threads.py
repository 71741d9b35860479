"""Followers of outside changes: one thread for each place that has pools."""

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable

from pools.lifecycle.selectors import LIVE, snapshot_pool, spec_of
from pools.models import Pool
from pools.providers.base import Follower, Provider, kinds_with, provider_of

logger = logging.getLogger(__name__)


class ChangedPools:
    """Ids of pools with outside changes. Followers add pools, the watcher takes them."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._ids: set[int] = set()

    def add(self, ids: Iterable[int]) -> None:
        with self._lock:
            self._ids.update(ids)
        self._wake()

    def take(self, pool_id: int) -> None:
        """Call it before the look, so that a change during the look causes the next look."""
        with self._lock:
            self._ids.discard(pool_id)

    @property
    def ids(self) -> frozenset[int]:
        with self._lock:
            return frozenset(self._ids)


class ProviderFollowers:
    def __init__(self, changed: ChangedPools) -> None:
        self._changed = changed
        self._running: dict[Hashable, Follower] = {}
        self._pools: dict[Hashable, frozenset[int]] = {}

    def align(self) -> None:
        """Start a follower for each key that a pool has, and stop the other followers."""
        pools: dict[Hashable, list[Pool]] = defaultdict(list)
        for pool in Pool.objects.filter(LIVE, provider__in=kinds_with(_follows)):
            key = provider_of(pool.provider).follow_key(spec_of(pool).options)
            if key is not None:
                pools[pool.provider, key].append(pool)
        self._pools = {key: frozenset(pool.pk for pool in found) for key, found in pools.items()}
        for key in set(self._running) - set(pools):
            self._running.pop(key).stop()
        for key in set(pools) - set(self._running):
            first = pools[key][0]
            follower = provider_of(first.provider).follow(snapshot_pool(first), self._notifier(key))
            self._running[key] = follower
            follower.start()

    def stop(self) -> None:
        """Stop all followers in parallel: each may wait for a place that does not answer."""
        ending = [
            threading.Thread(target=follower.stop, daemon=True)
            for follower in self._running.values()
        ]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join()
        self._running.clear()

    def _notifier(self, key: Hashable) -> Callable[[int | None], None]:
        def notify(pool_id: int | None) -> None:
            mine = self._pools.get(key, frozenset())
            if pool_id is None:
                self._changed.add(mine)
            elif pool_id in mine:
                self._changed.add((pool_id,))

        return notify


def _follows(provider: type[Provider]) -> bool:
    return provider.follow is not Provider.follow
