"""The facts about a pool that routes, the search and explanations need."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from claims import claims_sql
from claims.allocation.requests.policy import Offer, PoolState, Refusal, SlotDemand, longest_run
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
from pools.providers.base import known_providers


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


def find_pools(names: Iterable[str]) -> dict[str, PoolFacts]:
    """Existing pools by name."""
    return {row.name: _facts_of(row) for row in claims_sql.pools_by_name(names=list(names))}


def find_pools_by_id(ids: Iterable[int]) -> dict[int, PoolFacts]:
    """Pools by id, also deleted ones."""
    return {row.id: _facts_of(row) for row in claims_sql.pools_by_id(pools=list(ids))}


def _facts_of(row: claims_sql.PoolsByNameRow) -> PoolFacts:
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


@dataclass(slots=True)
class OfferCache:
    """The offers of pools that one call has read: many parts of a claim have the same pools."""

    known: dict[tuple[int, str, bool], Offer] = field(default_factory=dict)

    def get(self, pool: PoolFacts, kind: str, *, with_members: bool) -> Offer:
        key = pool.id, kind, with_members
        if key not in self.known:
            self.known[key] = offer_of(pool, kind, with_members=with_members)
        return self.known[key]


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
    provider = known_providers().get(pool.provider)
    unserved = {} if provider is None else provider.unserved_kinds
    return Offer(
        pool=pool.name,
        kind=kind,
        kinds=tuple(each for each in kinds(layout) if each not in unserved),
        lanes=tuple(pool.lanes_for(kind)),
        each=each,
        run=run,
        max_members=pool.spec.max_members,
        members=tuple(members),
        segment=step_of(layout),
        quota=layout.ports.quota if layout.ports else None,
        span=ports_of(layout),
        unserved=unserved.get(kind, ""),
    )


def _room(layout: Layout, kind: str, own: OwnSlots) -> tuple[int, int]:
    """The number of slots of a member that serve the kind, and its longest run in one lane."""
    numbers = numbers_for(layout, kind, own).values()
    step = step_of(layout)
    return sum(map(len, numbers)), max((longest_run(each, step) for each in numbers), default=0)
