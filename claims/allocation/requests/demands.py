"""What a claim asks of its pools: of all of them the same, or in parts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice

from claims.allocation.requests.policy import (
    PartDemand,
    Refusal,
    SlotDemand,
    Terms,
    find_joint_refusal,
    find_refusal,
)
from claims.allocation.requests.pool_facts import OfferCache, PoolFacts
from claims.kinds import StoredPart
from pools.config.layout import NODE, default_kind


@dataclass(frozen=True, slots=True)
class PoolDemand:
    """What a claim asks of some pools: all of it, or the parts with the same kind and pools."""

    wanted: SlotDemand  # without parts
    pools: tuple[PoolFacts | None, ...]
    names: tuple[str, ...]
    kind: str

    @property
    def found(self) -> list[PoolFacts]:
        return [pool for pool in self.pools if pool is not None]


def split_demand(
    wanted: SlotDemand, pools: Sequence[PoolFacts | None], names: Sequence[str], kind: str
) -> list[PoolDemand]:
    """The demand for each kind and its pools. A claim without parts has one."""
    if not wanted.parts:
        return [PoolDemand(wanted, tuple(pools), tuple(names), kind)]
    known = dict(zip(names, pools, strict=True))
    sizes: dict[tuple[str, tuple[str, ...], bool], int] = {}
    for part in wanted.parts:
        key = part.kind, part.pools, part.same_number
        sizes[key] = sizes.get(key, 0) + part.size
    found = []
    for (each, of, is_same), size in sizes.items():
        these = tuple(known.get(name) for name in of)
        alone = SlotDemand(size, same_number=is_same, selector=wanted.selector)
        found.append(PoolDemand(slot_demand_in(alone, these, each), these, of, each))
    return found


def slot_demand_of(size: int, terms: Terms) -> SlotDemand:
    return SlotDemand(
        size=size,
        contiguous=bool(terms.get("contiguous")),
        on_one_member=bool(terms.get("on_one_member")),
        same_number=bool(terms.get("same_number")),
        selector=terms.get("selector", {}),
        parts=tuple(
            PartDemand(
                part["kind"],
                tuple(part["pools"]),
                part.get("size", 1),
                part.get("same_number", False),
            )
            for part in terms.get("parts", ())
        ),
    )


def slot_demand_in(wanted: SlotDemand, pools: Sequence[PoolFacts | None], kind: str) -> SlotDemand:
    """The demand in these pools. Where TCP and UDP have separate slots, a demand for both takes two
    slots for each number.
    """
    found = [pool for pool in pools if pool is not None]
    if wanted.parts:
        known = {pool.name: pool for pool in found}
        is_paired = any(
            known[name].pair_for(part.kind)
            for part in wanted.parts
            for name in part.pools
            if name in known
        )
    else:
        is_paired = any(pool.pair_for(kind) for pool in found)
    return wanted if is_paired == wanted.is_paired else replace(wanted, is_paired=is_paired)


def is_simple_demand(wanted: SlotDemand, names: Sequence[str], lanes: Sequence[str]) -> bool:
    """Whether any free slot of one lane serves the demand, so that claims are served in batches. A
    node is chosen for its claim: an owner gets its last node again.
    """
    return (
        wanted.size == 1
        and len(names) == 1
        and not wanted.selector
        and not wanted.is_paired
        and NODE not in lanes
    )


def lane_runs_in(
    wanted: SlotDemand, pools: Sequence[PoolFacts | None], kind: str
) -> list[tuple[str, int]]:
    """The lane of each number, as runs in their order, if any free slot of these lanes serves the
    demand, so that one statement finds the slots. Empty: the demand needs a search.
    """
    pool = pools[0] if len(pools) == 1 else None
    needs_search = wanted.selector or wanted.is_paired or wanted.contiguous or wanted.on_one_member
    if pool is None or needs_search:
        return []
    sizes = [(part.kind, part.size) for part in wanted.parts] or [(kind, wanted.size)]
    runs = [(pool.lanes_for(each), size) for each, size in sizes]
    if any(len(lanes) != 1 or NODE in lanes for lanes, _ in runs):
        return []
    return [(lane, size) for (lane,), size in runs]


def kind_in(pools: Sequence[PoolFacts | None], kind: str) -> str:
    """The kind of a claim: as named, or else the only kind of its first pool. Empty while that pool
    does not exist.
    """
    first = pools[0]
    return kind or (default_kind(first.spec.layout) or "" if first is not None else "")


def lanes_in(
    pools: Sequence[PoolFacts | None], kind: str, parts: Sequence[PartDemand] = ()
) -> list[str]:
    found = [pool for pool in pools if pool is not None]
    if not parts:
        return list(dict.fromkeys(lane for pool in found for lane in pool.lanes_for(kind)))
    known = {pool.name: pool for pool in found}
    return list(
        dict.fromkeys(
            lane
            for part in parts
            for name in part.pools
            if name in known
            for lane in known[name].lanes_for(part.kind)
        )
    )


def refusal_in(demand: PoolDemand, offers: OfferCache, *, with_members: bool) -> Refusal | None:
    """Why the pools could never serve a demand."""
    return find_refusal(
        demand.wanted,
        [offers.get(pool, demand.kind, with_members=with_members) for pool in demand.found],
    )


def joint_refusal_in(demands: Sequence[PoolDemand], offers: OfferCache) -> Refusal | None:
    """Why the pools could never serve the parts of a claim together."""
    return find_joint_refusal(
        [
            (slot_demand_in(demand.wanted, [pool], demand.kind), offer)
            for demand in demands
            for pool in demand.found
            for offer in [offers.get(pool, demand.kind, with_members=True)]
        ]
    )


def slots_of_parts(
    wanted: SlotDemand, pools: Sequence[PoolFacts | None], names: Sequence[str]
) -> list[int]:
    """The number of slots that each number of the parts takes, in the order of the parts. A
    missing pool counts one slot.
    """
    known = dict(zip(names, pools, strict=True))
    found = []
    for part in wanted.parts:
        of = [known.get(name) for name in part.pools]
        width = sum(1 if pool is None else pool.width_of(part.kind) for pool in of)
        found += [width] * part.size
    return found


def stored_parts(parts: Sequence[PartDemand], widths: Sequence[int]) -> list[StoredPart]:
    """The rows of the parts of a claim. `widths`: the slots of each number."""
    each = iter(widths)
    counts = [sum(islice(each, part.size)) for part in parts]
    return [
        StoredPart(
            index=i, kind=part.kind, pools=part.pools, count=count, first=end - count,
            options=part.options,
        )
        for i, (part, count, end) in enumerate(zip(parts, counts, accumulate(counts), strict=True))
    ]  # fmt: skip
