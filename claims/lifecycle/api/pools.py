"""REST for pools: list, create, configure and delete, with counts of slots and waiting claims."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from django.db import transaction
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from claims import claims_sql
from claims.allocation.selectors import count_queues
from claims.lifecycle.api import pool_schemas
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
    show,
)
from pools.lifecycle.forecasts import describe_forecast, forecast_pool
from pools.lifecycle.preflight import refuse_outside
from pools.lifecycle.provider_errors import PoolError, find_errors
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
describe_configure = partial(
    describe,
    answers={200: pool_schemas.PoolDetailAnswer},
    query=[REASON],
    headers=[IF_MATCH, ETAG],
    problems=(409, 412, 422, 428),
    tag=TAG,
)


class PoolList(Endpoint):
    @describe(
        "Pools",
        {200: pages_of(pool_schemas.PoolAnswer)},
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
        {201: pool_schemas.PoolDetailAnswer},
        body=pool_schemas.CONFIG_BODY,
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
    @describe(
        "A pool", {200: pool_schemas.PoolDetailAnswer}, headers=[ETAG], name="get_pool", tag=TAG
    )
    def get(self, request: Request, pool_name: str) -> Response:
        """The state of the pool and its configuration, as a pool file has it."""
        pool = get_pool(pool_name)
        require(self.identity, "read", pool)
        return answer_pool(pool)

    @describe_configure("Configure a pool", body=pool_schemas.PUT_BODY, name="replace_pool")
    def put(self, request: Request, pool_name: str) -> Response:
        """Replaces the whole configuration. Changes that live claims do not allow are rejected,
        each with its field. Members stay, unless the configuration lists different ones.
        """
        return self.change(request, pool_name, lambda config: {"name": pool_name, **config})

    @describe_configure("Change a pool", body=pool_schemas.PATCH_BODY, name="change_pool")
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
        {200: pool_schemas.PoolAnswer},
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
    counts = count_pools([pool.pk])[pool.pk]
    body = show_pool(pool, counts, count_queues().get(pool.pk), find_errors([pool]).get(pool.pk))
    used = counts.slots.held + counts.slots.reserved
    forecast = forecast_pool(pool.pk, used=used, slots=counts.slots.total)
    text = describe_forecast(forecast, "slot").text
    body |= {
        "config": config_of(pool),
        "forecast": show(pool_schemas.ForecastAnswer, forecast, text=text),
    }
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
    troubles = find_errors(rows)
    return [
        show_pool(pool, counts[pool.pk], queues.get(pool.pk), troubles.get(pool.pk))
        for pool in rows
    ]


def show_pool(
    pool: Pool,
    counts: PoolCounts,
    queue: claims_sql.CountQueuesRow | None,
    trouble: PoolError | None,
) -> dict[str, object]:
    return show(
        pool_schemas.PoolAnswer,
        pool,
        group=pool.spec.get("group", ""),
        description=pool.spec.get("description", ""),
        slots=show(pool_schemas.SlotCountsAnswer, counts.slots),
        members=show(pool_schemas.MemberCountsAnswer, counts.members),
        waiting=queue.waiting if queue else 0,
        blocked=queue.blocked if queue else 0,
        trouble=trouble and show(pool_schemas.TroubleAnswer, trouble),
    )
