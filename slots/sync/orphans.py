"""Outside objects of pools that are gone, left by a late create or a forgotten member. The watcher
no longer looks at such pools, so their objects are removed from time to time for seven days.
"""

import logging
from collections.abc import Callable, Iterable
from datetime import timedelta

from django.db.models.functions import Now

from pools.lifecycle.selectors import snapshot_pool
from pools.models import Pool
from pools.providers.base import PoolSnapshot, kinds_with, provider_class, provider_of
from project.kernel.db.guards import outside_transaction
from project.kernel.outbox.operations import ProviderError
from slots.sync.metrics import STRAYS

logger = logging.getLogger(__name__)

EVERY = 300.0  # seconds
FOR = timedelta(days=7)
MOST = 50  # pools at a time, the latest deletions


def list_deleted_pools() -> list[PoolSnapshot]:
    """Deleted pools with members that Berth created at a provider with a network."""
    kinds = kinds_with(lambda provider: provider.is_owner and bool(provider.queue))
    gone = Pool.objects.filter(
        state="gone", provider__in=kinds, changed_at__gt=Now() - FOR
    ).order_by("-changed_at")[:MOST]
    found = map(snapshot_pool, gone)
    return [pool for pool in found if provider_class(pool.provider).place_of(pool.options)]


@outside_transaction
def delete_orphans(pools: Iterable[PoolSnapshot], is_over: Callable[[], bool]) -> None:
    for pool in pools:
        if is_over():
            return
        try:
            provider = provider_of(pool.provider)
            if strays := provider.look(pool).strays:
                STRAYS.labels(pool.provider).inc(len(strays))
                logger.warning(
                    "objects of the deleted pool %s are removed: %s",
                    pool.name,
                    ", ".join(sorted(strays.values())),
                )
                provider.remove_strays(pool, strays)
        except ProviderError as error:
            logger.info(
                "the objects of the deleted pool %s could not be listed: %s",
                pool.name,
                error,
            )
