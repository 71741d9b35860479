"""Where a request goes: its pools, the lanes that serve it, and the line it stands in.

Each process remembers what it found; the statements that use it check it (revision of the pool,
digest and lanes of the line) and answer with no row when it is old. So a hand-over costs one
statement, and a memory is never trusted.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from claims import claims_sql, pairs_sql
from claims.allocation.requests.claim_request import MOST_SLOTS, ClaimRequest, shape_digest
from claims.allocation.requests.policy import Offer, SlotDemand, find_refusal, longest_run
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
from project.kernel.errors import Conflict, FieldError, Invalid, Refused

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
        """Slots that a number takes."""
        return 1 if self.pair_for(kind) is None else 2

    @property
    def step(self) -> int:
        return step_of(self.spec.layout)


@dataclass(frozen=True, slots=True)
class Route:
    """Of a line. `pools` stands in the order asked for; None: there is none of that name yet."""

    shape: int
    digest: bytes
    kind: str
    lanes: list[str]  # of all its pools; empty as long as none is there
    pools: tuple[PoolFacts | None, ...]
    names: tuple[str, ...]
    wanted: SlotDemand
    is_simple: bool  # one slot of one pool, no terms: served in batches

    @property
    def total(self) -> int:
        """Slots that it takes in all its pools; of one that is not there yet, the least."""
        return self.wanted.size * sum(
            1 if pool is None else pool.width_of(self.kind) for pool in self.pools
        )

    @property
    def is_whole(self) -> bool:
        return all(pool is not None for pool in self.pools)

    @property
    def found(self) -> list[PoolFacts]:
        return [pool for pool in self.pools if pool is not None]


_routes: dict[Any, Route] = {}


def forget_routes() -> None:
    _routes.clear()


def find_route(request: ClaimRequest, *, fresh: bool = False) -> Route:
    """Refuses what could never be served. `fresh`: what is remembered was wrong."""
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
    """As it was found before, all its pools there; nothing is asked."""
    return _routes.get(_key_of(request))


def _key_of(request: ClaimRequest) -> Any:
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
    """Those that are not gone, by name."""
    rows = claims_sql.pools_by_name(names=list(names))
    return {
        r.name: PoolFacts(
            r.id, r.name, r.revision, r.state, r.queue, r.provider, read_stored(r.name, r.spec)
        )
        for r in rows
    }


def slot_demand_of(size: int, terms: dict[str, Any]) -> SlotDemand:
    return SlotDemand(
        size=size,
        contiguous=bool(terms.get("contiguous")),
        on_one_member=bool(terms.get("on_one_member")),
        same_number=bool(terms.get("same_number")),
        selector=terms.get("selector", {}),
    )


def offer_of(pool: PoolFacts, kind: str, *, with_members: bool) -> Offer:
    """What the pool could give to this kind. Its members count only where their own slots make
    a difference.
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
    """The same as these pools take it: where TCP and UDP are separate, what asks for both takes
    two slots a number.
    """
    is_paired = any(pool.pair_for(kind) for pool in pools if pool is not None)
    return wanted if is_paired == wanted.is_paired else replace(wanted, is_paired=is_paired)


def kind_in(pools: Sequence[PoolFacts | None], kind: str) -> str:
    """A claim that names no kind has the only one of its first pool; empty: that is not
    known yet.
    """
    first = pools[0]
    return kind or (default_kind(first.spec.layout) or "" if first is not None else "")


def lanes_in(pools: Sequence[PoolFacts | None], kind: str) -> list[str]:
    return list(
        dict.fromkeys(lane for pool in pools if pool is not None for lane in pool.lanes_for(kind))
    )


def _room(layout: Layout, kind: str, own: OwnSlots) -> tuple[int, int]:
    """What a member has that serves the kind, and its longest run in one lane."""
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
        raise Invalid(fields=[FieldError("size", text, f"Use {MOST_SLOTS} slots at most in all.")])
    return route


def _queue_of(
    digest: bytes,
    request: ClaimRequest,
    kind: str,
    lanes: list[str],
    terms: dict[str, Any],
    is_simple: bool,
) -> int:
    """The id of the line, made if it is new, mended if its pool has another layout by now."""
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
            return int(made)
        # Whoever made it has committed, or we would have waited. Gone again: the clean-up of unused
        # lines was between.
    if row.lanes != lanes and lanes:
        claims_sql.mend_shape(shape=row.id, lanes=lanes)
        pairs_sql.mark_simple(shape=row.id, is_simple=is_simple)
    return int(row.id)
