"""Regions of one pool, and regions over all pools that a viewer may see."""

import hashlib
from collections.abc import Callable

from django.template.loader import render_to_string
from django.utils import timezone

from pools.access.permissions import Identity
from pools.lifecycle.selectors import LIVE, list_pools
from pools.models import Pool
from pools.pages.base import find_visible_pool
from project.kernel.live.regions import ANY, OpenedRegion, Subject, region

Context = dict[str, object]


def pool_region(
    name: str,
    template: str,
    context: Callable[[Identity, Pool], Context],
    every: float = 0.5,
    *,
    by_role: bool = False,
    by_reader: bool = False,
) -> None:
    """Register a region whose argument is the name of a pool. Its content depends on the roles of
    the viewer (`by_role`), or on the viewer (`by_reader`).
    """

    def opener(identity: Identity, argument: str) -> OpenedRegion | None:
        pool = find_visible_pool(identity, argument)
        if pool is None:
            return None
        scope = ",".join(sorted(identity.roles_in(pool.pk))) if by_role or by_reader else ""
        scope += f"|{identity.user_id}" if by_reader else ""
        full = f"{name}:{argument}"
        pool_id = pool.pk

        def render() -> str:
            fresh = Pool.objects.get(LIVE, pk=pool_id)
            return render_to_string(
                template, {"pool": fresh, "now": timezone.now(), **context(identity, fresh)}
            )

        # The id is part of the key, because a later pool may have the same name.
        subjects = frozenset({("pool", pool_id)})
        return OpenedRegion(full, f"{full}|{pool_id}|{scope}", subjects, render, every)

    region(name)(opener)


def visible_pools(identity: Identity) -> list[Pool]:
    return list(list_pools(identity.visible_pools()))


def pools_region(
    name: str,
    template: str,
    context: Callable[[Identity, str], Context],
    every: float,
    *,
    scope: Callable[[Identity], object],
    is_valid: Callable[[Identity, str], bool] = lambda identity, argument: not argument,
) -> None:
    """Register a region over all pools that the viewer may see. Viewers share the region if they
    see the same pools and have equal `scope`. `is_valid` checks the argument.
    """

    def opener(identity: Identity, argument: str) -> OpenedRegion | None:
        if not is_valid(identity, argument):
            return None
        pools = identity.visible_pools()
        subjects: frozenset[Subject] = (
            frozenset({ANY}) if pools is None else frozenset(("pool", pool) for pool in pools)
        )
        seen = (None if pools is None else sorted(pools), scope(identity))
        digest = hashlib.sha256(repr(seen).encode()).hexdigest()[:16]
        full = f"{name}:{argument}" if argument else name
        return OpenedRegion(
            full,
            f"{full}|{digest}",
            subjects,
            lambda: render_to_string(template, context(identity, argument)),
            every,
        )

    region(name)(opener)
