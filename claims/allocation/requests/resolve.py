"""Resolves a request to its pools, the lanes that serve it, and its queue.

Each process caches the routes it has found. A statement that uses a cached route checks the
revision of the pool and the digest and lanes of the queue, and returns no row for an outdated
route. So a hand-over costs one statement, and an outdated cache does no harm.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from claims import claims_sql, pairs_sql
from claims.allocation.requests.certificates import require_certificates
from claims.allocation.requests.claim_request import MOST_SLOTS, ClaimRequest, shape_digest
from claims.allocation.requests.demands import (
    PoolDemand,
    is_simple_demand,
    joint_refusal_in,
    kind_in,
    lane_runs_in,
    lanes_in,
    refusal_in,
    slot_demand_in,
    slot_demand_of,
    slots_of_parts,
    split_demand,
)
from claims.allocation.requests.policy import SlotDemand, Terms
from claims.allocation.requests.pool_facts import OfferCache, PoolFacts, find_pools
from pools.config.parsing import Faults
from project.kernel.errors import Conflict, FieldError, Refused, wrong_field

MOST_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Route:
    """The queue of a request, and its pools in the order of the request. None: no pool has this
    name yet.
    """

    shape: int
    digest: bytes
    kind: str
    lanes: list[str]  # of all its pools; empty while none of them exists
    pools: tuple[PoolFacts | None, ...]
    names: tuple[str, ...]
    wanted: SlotDemand
    is_simple: bool  # one slot of one pool, no terms: served in batches
    # Slots that a claim takes in all pools. A missing pool counts one slot for each number.
    total: int
    # The lane of each number, as runs, if any free slot of these lanes of one pool serves.
    lane_runs: Sequence[tuple[str, int]]

    @property
    def is_whole(self) -> bool:
        return all(pool is not None for pool in self.pools)

    @property
    def found(self) -> list[PoolFacts]:
        return [pool for pool in self.pools if pool is not None]

    @property
    def widths(self) -> Sequence[int]:
        """The slots of each number in all pools."""
        if self.wanted.parts:
            return slots_of_parts(self.wanted, self.pools, self.names)
        return [self.total // self.wanted.size] * self.wanted.size


_routes: dict[tuple[object, ...], Route] = {}


def forget_routes() -> None:
    _routes.clear()


def find_route(request: ClaimRequest, *, fresh: bool = False) -> Route:
    """The route of a request. Raises a `BerthError` for a request that no pool could ever serve.
    `fresh`: ignores the cached route, because a statement has found it outdated.
    """
    key = _key_of(request)
    if not fresh and (known := _routes.get(key)) is not None:
        return known
    route = _find_route(request)
    if len(_routes) >= MOST_REMEMBERED:
        _routes.clear()
    if route.is_whole:
        _routes[key] = route
    else:
        _routes.pop(key, None)
    return route


def find_cached_route(request: ClaimRequest) -> Route | None:
    """The cached route, if there is one. Needs no database."""
    return _routes.get(_key_of(request))


def _key_of(request: ClaimRequest) -> tuple[object, ...]:
    if request.is_simple:
        return request.pools[0], request.kind
    return (
        request.pools,
        request.kind,
        request.size,
        request.contiguous,
        request.on_one_member,
        request.same_number,
        request.selector,
        request.parts if request.has_several_parts else (),
    )


def _find_route(request: ClaimRequest) -> Route:
    known = find_pools(request.pools)
    pools = tuple(known.get(name) for name in request.pools)
    for pool in known.values():
        if pool.state == "deleting":
            way_out = (
                "Name another pool, or wait until it is gone: a claim may wait for a new "
                "one of this name."
            )
            raise Conflict(
                f"Pool {pool.name} is being deleted.", code="pool_deleting", way_out=way_out
            )
    terms = request.terms
    kind = kind_in(pools, request.kind)
    wanted = slot_demand_in(slot_demand_of(request.size, terms), pools, kind)
    _refuse_hopeless(request, wanted, pools, kind)
    lanes = lanes_in(pools, kind, wanted.parts)
    digest = shape_digest(request.pools, kind, request.size, terms)
    is_simple = is_simple_demand(wanted, request.pools, lanes)
    shape = _queue_of(digest, request, kind, lanes, terms, is_simple)
    if wanted.parts:
        total = sum(slots_of_parts(wanted, pools, request.pools))
    else:
        total = wanted.size * sum(1 if pool is None else pool.width_of(kind) for pool in pools)
    route = Route(
        shape, digest, kind, lanes, pools, request.pools, wanted, is_simple, total,
        lane_runs_in(wanted, pools, kind),
    )  # fmt: skip
    if route.total > MOST_SLOTS:
        text = f"{request.size} numbers in TCP and UDP take {route.total} slots."
        raise wrong_field("size", text, f"Use {MOST_SLOTS} slots at most in all.")
    return route


def _refuse_hopeless(
    request: ClaimRequest, wanted: SlotDemand, pools: Sequence[PoolFacts | None], kind: str
) -> None:
    """Raises `Refused` for a request that these pools could never serve. The error of a part names
    its field.
    """
    offers = OfferCache()
    known = dict(zip(request.pools, pools, strict=True))
    if not request.parts:
        demand = PoolDemand(wanted, tuple(pools), request.pools, kind)
        if refusal := refusal_in(demand, offers, with_members=request.size > 1):
            fault = FieldError(refusal.field, refusal.text, refusal.way_out)
            raise Refused(refusal.text, code=refusal.code, way_out=refusal.way_out, fields=[fault])
        require_certificates(kind, request.pools, known)
        return
    codes, faults = list[str](), Faults()
    for part in request.parts:
        of = tuple(known[name] for name in part.pools)
        alone = SlotDemand(part.size, same_number=part.same_number, selector=wanted.selector)
        demand = PoolDemand(slot_demand_in(alone, of, part.kind), of, part.pools, part.kind)
        if refusal := refusal_in(demand, offers, with_members=part.size > 1):
            codes.append(refusal.code)
            faults.add(part.where, refusal.text, refusal.way_out)
    if faults.found:
        first = faults.found[0]
        raise Refused(first.message, code=codes[0], way_out=first.way_out, fields=faults.found)
    if refusal := joint_refusal_in(split_demand(wanted, pools, request.pools, kind), offers):
        raise Refused(refusal.text, code=refusal.code, way_out=refusal.way_out)


def _queue_of(
    digest: bytes,
    request: ClaimRequest,
    kind: str,
    lanes: list[str],
    terms: Terms,
    is_simple: bool,
) -> int:
    """The id of the queue. Creates a missing queue, and updates its lanes after a change of the
    pool's layout.
    """
    while (row := claims_sql.shape_by_digest(digest=digest)) is None:
        made = claims_sql.add_shape(
            digest=digest,
            pools=list(request.pools),
            kind=kind,
            lanes=lanes,
            size=request.size,
            terms=json.dumps(terms),
            is_simple=is_simple,
        )
        if made is not None:
            return made
        # Another transaction has created the queue and committed, so the next read finds it,
        # unless the clean-up of unused queues deletes it in between.
    if row.lanes != lanes and lanes:
        claims_sql.mend_shape(shape=row.id, lanes=lanes)
        pairs_sql.mark_simple(shape=row.id, is_simple=is_simple)
    return row.id
