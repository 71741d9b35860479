"""Resolves a request to its pools, the lanes that serve it, and its queue.

Each process caches the routes it has found. A statement that uses a cached route checks the
revision of the pool and the digest and lanes of the queue, and returns no row for an outdated
route. So a hand-over costs one statement, and an outdated cache does no harm.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from claims import claims_sql, pairs_sql
from claims.allocation.requests.claim_request import MOST_SLOTS, ClaimRequest, shape_digest
from claims.allocation.requests.policy import (
    Offer,
    PoolState,
    Refusal,
    SlotDemand,
    Terms,
    find_refusal,
    longest_run,
)
from pools.config.layout import (
    NO_OWN_SLOTS,
    Layout,
    OwnSlots,
    default_kind,
    kinds,
    lanes_for,
    numbers_for,
    pair_for,
    ports_of,
    step_of,
)
from pools.config.layout_spec import read_own_slots
from pools.config.parsing import Faults
from pools.config.spec import PoolSpec
from pools.lifecycle.selectors import read_stored
from project.kernel.errors import Conflict, Refused, wrong_field

MOST_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class PoolFacts:
    id: int
    name: str
    revision: int
    state: str
    queue: str
    provider: str
    spec: PoolSpec

    def lanes_for(self, kind: str) -> list[str]:
        return lanes_for(self.spec.layout, kind)

    def pair_for(self, kind: str) -> tuple[str, str] | None:
        return pair_for(self.spec.layout, kind)

    def width_of(self, kind: str) -> int:
        """Number of slots that each number takes."""
        return 1 if self.pair_for(kind) is None else 2

    @property
    def step(self) -> int:
        return step_of(self.spec.layout)


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

    @property
    def total(self) -> int:
        """Slots that a claim takes in all pools. A missing pool counts one slot for each number."""
        return self.wanted.size * sum(
            1 if pool is None else pool.width_of(self.kind) for pool in self.pools
        )

    @property
    def is_whole(self) -> bool:
        return all(pool is not None for pool in self.pools)

    @property
    def found(self) -> list[PoolFacts]:
        return [pool for pool in self.pools if pool is not None]


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
    )


def find_pools(names: Iterable[str]) -> dict[str, PoolFacts]:
    """Existing pools by name."""
    return {row.name: _facts_of(row) for row in claims_sql.pools_by_name(names=list(names))}


def find_pools_by_id(ids: Iterable[int]) -> dict[int, PoolFacts]:
    """Pools by id, also deleted ones."""
    return {row.id: _facts_of(row) for row in claims_sql.pools_by_id(pools=list(ids))}


def _facts_of(row: claims_sql.PoolsByNameRow | claims_sql.PoolsByIdRow) -> PoolFacts:
    spec = read_stored(row.name, row.spec)
    return PoolFacts(row.id, row.name, row.revision, row.state, row.queue, row.provider, spec)


def read_pool_row(
    pool_id: int, known: dict[int, claims_sql.PoolStateRow]
) -> claims_sql.PoolStateRow:
    """The facts about a pool that all queues share. Keeps them in `known`."""
    if pool_id not in known:
        row = claims_sql.pool_state(pool=pool_id)
        assert row is not None  # the row of a deleted pool remains
        known[pool_id] = row
    return known[pool_id]


def read_pool_state(
    pool: PoolFacts,
    row: claims_sql.PoolStateRow,
    wanted: SlotDemand,
    kind: str,
    refusal: Refusal | None,
) -> PoolState:
    """The state of a pool for one queue. `row` holds the facts that all queues share."""
    has_labels = is_willing = True
    if wanted.selector:
        labels = claims_sql.label_states(pool=pool.id, labels=json.dumps(dict(wanted.selector)))
        has_labels, is_willing = labels.has_labels, labels.is_labelled_willing
    return PoolState(
        state=row.state,
        is_paused=row.is_paused,
        refusal=refusal.code if refusal else "",
        has_member=row.has_member,
        is_any_willing=row.is_any_willing,
        has_labels=has_labels,
        is_labelled_willing=is_willing,
        is_free=claims_sql.is_any_free(pool=pool.id, lanes=pool.lanes_for(kind)),
    )


def slot_demand_of(size: int, terms: Terms) -> SlotDemand:
    return SlotDemand(
        size=size,
        contiguous=bool(terms.get("contiguous")),
        on_one_member=bool(terms.get("on_one_member")),
        same_number=bool(terms.get("same_number")),
        selector=terms.get("selector", {}),
    )


def offer_of(pool: PoolFacts, kind: str, *, with_members: bool) -> Offer:
    """The capacity of the pool for this kind. `with_members`: counts its present members, since
    their own slots may differ from the pool's layout.
    """
    layout = pool.spec.layout
    kind = kind or default_kind(layout) or ""
    each, run = _room(layout, kind, NO_OWN_SLOTS)
    members = []
    if with_members or pool.spec.max_members == 0:
        for row in claims_sql.own_specs(pool=pool.id):
            own = json.loads(row.spec)
            members += [
                _room(layout, kind, read_own_slots(own, "", layout, Faults()))
                if own
                else (each, run)
            ] * row.count
    return Offer(
        pool=pool.name,
        kind=kind,
        kinds=tuple(kinds(layout)),
        lanes=tuple(pool.lanes_for(kind)),
        each=each,
        run=run,
        max_members=pool.spec.max_members,
        members=tuple(members),
        segment=step_of(layout),
        quota=layout.ports.quota if layout.ports else None,
        span=ports_of(layout),
    )


def slot_demand_in(wanted: SlotDemand, pools: Sequence[PoolFacts | None], kind: str) -> SlotDemand:
    """The demand in these pools. Where TCP and UDP have separate slots, a demand for both takes two
    slots for each number.
    """
    is_paired = any(pool.pair_for(kind) for pool in pools if pool is not None)
    return wanted if is_paired == wanted.is_paired else replace(wanted, is_paired=is_paired)


def kind_in(pools: Sequence[PoolFacts | None], kind: str) -> str:
    """The kind of a claim: as named, or else the only kind of its first pool. Empty while that pool
    does not exist.
    """
    first = pools[0]
    return kind or (default_kind(first.spec.layout) or "" if first is not None else "")


def lanes_in(pools: Sequence[PoolFacts | None], kind: str) -> list[str]:
    return list(
        dict.fromkeys(lane for pool in pools if pool is not None for lane in pool.lanes_for(kind))
    )


def _room(layout: Layout, kind: str, own: OwnSlots) -> tuple[int, int]:
    """The number of slots of a member that serve the kind, and its longest run in one lane."""
    numbers = numbers_for(layout, kind, own).values()
    step = step_of(layout)
    return sum(map(len, numbers)), max((longest_run(each, step) for each in numbers), default=0)


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
    offers = [
        offer_of(pool, kind, with_members=request.size > 1) for pool in pools if pool is not None
    ]
    if refusal := find_refusal(wanted, offers):
        raise Refused(refusal.text, code=refusal.code, way_out=refusal.way_out)
    lanes = lanes_in(pools, kind)
    digest = shape_digest(request.pools, kind, request.size, terms)
    is_simple = request.is_simple and not wanted.is_paired
    shape = _queue_of(digest, request, kind, lanes, terms, is_simple)
    route = Route(shape, digest, kind, lanes, pools, request.pools, wanted, is_simple)
    if route.total > MOST_SLOTS:
        text = f"{request.size} numbers in TCP and UDP take {route.total} slots."
        raise wrong_field("size", text, f"Use {MOST_SLOTS} slots at most in all.")
    return route


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
