"""REST for pools: list, create, configure and delete, with counts of slots and waiting claims."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.db import transaction
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from claims.allocation.selectors import QueueCount, count_queues
from claims.lifecycle.api import pool_schemas as shapes
from claims.lifecycle.pool_deletion import delete_pool
from pools.access.permissions import require
from pools.http.endpoint import (
    PAGES,
    REASON,
    Endpoint,
    cut,
    describe,
    in_query,
    page,
    pages_of,
    read_flag,
    read_page,
    read_text,
)
from pools.lifecycle.preflight import refuse_outside
from pools.lifecycle.provider_errors import PoolTrouble, find_troubles
from pools.lifecycle.provider_rights import require_provider
from pools.lifecycle.selectors import config_of, get_pool, list_pools, lock_pool
from pools.lifecycle.services import create_pool, update_pool
from pools.models import Pool
from project.kernel.db.guards import reporting
from project.kernel.errors import Invalid
from project.kernel.http.api_base import check_match, etag_of
from project.kernel.validation import LONGEST_REASON
from slots.members.selectors import PoolCounts, count_pools

TAG = "pools"
ETAG = OpenApiParameter(
    "ETag",
    str,
    OpenApiParameter.HEADER,
    response=[200, 201],
    description="The version of the pool, for If-Match.",
)
IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    required=True,
    description="The ETag that was read. 412 if the pool has changed since.",
)


class PoolList(Endpoint):
    @describe(
        "Pools",
        {200: pages_of(shapes.PoolAnswer)},
        query=[*PAGES, in_query("gone", "Include pools that are gone.", bool)],
        name="list_pools",
        tag=TAG,
    )
    def get(self, request: Request) -> Response:
        """The pools that the caller may read, with counts of slots and waiting claims."""
        limit, after = read_page(request)
        found = list_pools(
            self.identity.visible_pools(), with_gone=bool(read_flag(request, "gone"))
        ).order_by("id")
        if after is not None:
            found = found.filter(pk__gt=after)
        with reporting():
            rows, cursor = cut(list(found[: limit + 1]), limit)
            shown = show_pools(rows)
        return page(request, shown, cursor)

    @describe(
        "Create a pool",
        {201: shapes.PoolDetailAnswer},
        body=shapes.CONFIG_BODY,
        query=[REASON],
        headers=[ETAG],
        problems=(409, 422),
        name="create_pool",
        tag=TAG,
    )
    def post(self, request: Request) -> Response:
        """Creates the pool with the members that its configuration declares. Claims that already
        wait for a pool of this name join its queue.
        """
        require(self.identity, "configure", None)
        config: Any = request.data  # create_pool reports a body that is not an object
        refuse_outside(config)
        pool = create_pool(config, reason=read_text(request, "reason", LONGEST_REASON))
        return answer_pool(pool, status=201, Location=f"{request.path}{pool.name}/")


class PoolDetail(Endpoint):
    @describe("A pool", {200: shapes.PoolDetailAnswer}, headers=[ETAG], name="get_pool", tag=TAG)
    def get(self, request: Request, pool_name: str) -> Response:
        """The state of the pool and its configuration, as a pool file has it."""
        pool = get_pool(pool_name)
        require(self.identity, "read", pool)
        return answer_pool(pool)

    @describe(
        "Configure a pool",
        {200: shapes.PoolDetailAnswer},
        body=shapes.PUT_BODY,
        query=[REASON],
        headers=[IF_MATCH, ETAG],
        problems=(409, 412, 422, 428),
        name="replace_pool",
        tag=TAG,
    )
    def put(self, request: Request, pool_name: str) -> Response:
        """Replaces the whole configuration. Changes that live claims do not allow are rejected,
        each with its field. Members stay, unless the configuration lists different ones.
        """
        return self.change(request, pool_name, lambda config: {"name": pool_name, **config})

    @describe(
        "Change a pool",
        {200: shapes.PoolDetailAnswer},
        body=shapes.PATCH_BODY,
        query=[REASON],
        headers=[IF_MATCH, ETAG],
        problems=(409, 412, 422, 428),
        name="change_pool",
        tag=TAG,
    )
    def patch(self, request: Request, pool_name: str) -> Response:
        """Applies a JSON merge patch to the configuration: missing fields keep their value, null
        removes a field.
        """
        return self.change(
            request,
            pool_name,
            lambda patch: merge(config_of(get_pool(pool_name), with_members=False), patch),
        )

    def change(
        self,
        request: Request,
        pool_name: str,
        make: Callable[[Mapping[str, object]], Mapping[str, object]],
    ) -> Response:
        pool = get_pool(pool_name)
        require(self.identity, "configure", pool)
        if not isinstance(request.data, Mapping):
            raise Invalid(
                "The body is not an object.",
                way_out='Send the configuration as JSON: {"slots": 3}.',
            )
        require_provider(self.identity, pool, make(request.data))  # before a cluster is asked
        refuse_outside(make(request.data))  # asks a cluster: never within the transaction
        with transaction.atomic():
            locked = lock_pool(pool.pk)
            check_match(request, tag_of(locked))
            config = make(request.data)
            require_provider(self.identity, locked, config)
            changed = update_pool(
                pool_name, config, reason=read_text(request, "reason", LONGEST_REASON)
            )
        return answer_pool(changed)

    @describe(
        "Delete a pool",
        {200: shapes.PoolAnswer},
        query=[in_query("cascade", "Cancel the claims of the pool.", bool), REASON],
        problems=(409,),
        name="delete_pool",
        tag=TAG,
    )
    def delete(self, request: Request, pool_name: str) -> Response:
        """Rejected with 409 while the pool has claims, unless `cascade` is set. The pool binds no
        more claims and is gone with its last claim and member.
        """
        pool = get_pool(pool_name)
        require(self.identity, "configure", pool)
        cascade = bool(read_flag(request, "cascade"))
        reason = read_text(request, "reason", LONGEST_REASON)
        if request.headers.get("If-Match"):
            check_match(request, tag_of(pool))
        return Response(show_pools([delete_pool(pool_name, cascade=cascade, reason=reason)])[0])


def tag_of(pool: Pool) -> str:
    return etag_of("pool", pool.pk, pool.revision)


def answer_pool(pool: Pool, status: int = 200, **headers: str) -> Response:
    body = show_pools([pool])[0] | {"config": config_of(pool)}
    return Response(body, status=status, headers={"ETag": tag_of(pool), **headers})


def merge(config: Mapping[str, object], patch: Mapping[str, object]) -> dict[str, object]:
    """Apply a JSON merge patch (RFC 7396)."""
    merged = dict(config)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            before = merged.get(name)
            merged[name] = merge(before if isinstance(before, Mapping) else {}, value)
        else:
            merged[name] = value
    return merged


def show_pools(pools: Iterable[Pool]) -> list[dict[str, object]]:
    rows = list(pools)
    counts = count_pools(pool.pk for pool in rows)
    queues = count_queues()
    troubles = find_troubles(rows)
    return [
        show_pool(pool, counts[pool.pk], queues.get(pool.pk, QueueCount()), troubles.get(pool.pk))
        for pool in rows
    ]


def show_pool(
    pool: Pool, counts: PoolCounts, queue: QueueCount, trouble: PoolTrouble | None
) -> dict[str, object]:
    slots, members = counts.slots, counts.members
    return {
        "id": pool.pk,
        "name": pool.name,
        "group": pool.spec.get("group", ""),
        "description": pool.spec.get("description", ""),
        "provider": pool.provider,
        "state": pool.state,
        "revision": pool.revision,
        "paused_until": pool.paused_until,
        "pause_reason": pool.pause_reason,
        "slots": {
            name: getattr(slots, name)
            for name in ("total", "open", "closed", "held", "reserved", "draining", "retired")
        },
        "members": {
            name: getattr(members, name)
            for name in ("total", "ready", "cordoned", "leaving", "offline", "creating", "deleting")
        },
        "waiting": queue.waiting,
        "blocked": queue.blocked,
        "trouble": None
        if trouble is None
        else {name: getattr(trouble, name) for name in ("code", "detail", "since", "members")},
        "created_at": pool.created_at,
        "changed_at": pool.changed_at,
    }
