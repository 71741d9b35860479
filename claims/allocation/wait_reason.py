"""Explains why claims wait: one claim, or the first hundred of a queue with one explanation for
each distinct request.

Facts about a queue are read once for all its claims, and facts about a pool once for all its
queues. A slow read (a pool of a million slots) is cached for a time in proportion to its cost, so
explanations take a small share of the time.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from claims import claims_sql, pairs_sql
from claims.allocation.blocked_reason import explain_blocked
from claims.allocation.claim_view import ClaimView, Wait
from claims.allocation.estimate import Band, Forecast, HoldTimes
from claims.allocation.member_limits import limits_of
from claims.allocation.part_reason import DemandFacts, PartLabels, choose_part, fits_now
from claims.allocation.requests.demands import (
    PoolDemand,
    kind_in,
    lanes_in,
    refusal_in,
    slot_demand_in,
    slot_demand_of,
    split_demand,
)
from claims.allocation.requests.policy import (
    HOLDERS_LEAVE,
    PoolState,
    Refusal,
    SlotDemand,
    WaitingHead,
    find_reason,
    find_refusal,
)
from claims.allocation.requests.pool_facts import (
    OfferCache,
    PoolFacts,
    find_pools,
    read_pool_row,
    read_pool_state,
)
from claims.allocation.slow_reads import SlowReads
from claims.allocation.wait_messages import (
    SlotCounts,
    WaitContext,
    describe_wait,
    moment,
)
from pools.config.label_selector import matches
from pools.scaling import MemberLimits
from project.kernel.ui.formatting import rfc3339

SAMPLE = 1000  # holders read for an estimate
RECENT = 200  # hold times read for an estimate
MOST_NAMED = 4  # members and claims that a message names

T = TypeVar("T")
Head = tuple[int, int, WaitingHead]  # queue, rank, claim
LongestRow = claims_sql.LongestFreeRunRow | pairs_sql.LongestPairedRunRow


_pair_counts = SlowReads[pairs_sql.CountPairsRow]()
_slot_counts = SlowReads[list[claims_sql.CountPlacesRow]]()
_holders = SlowReads[list[claims_sql.HoldersRow]]()
_holds = SlowReads[list[claims_sql.RecentHoldsRow]]()
_longest = SlowReads[LongestRow | None]()


def explain_claims(claims: Sequence[ClaimView], places: dict[int, int] | None = None) -> None:
    """Sets `wait` of the claims that wait. `places`: positions that the caller has counted."""
    reader = _ReadCache(PartLabels([claim.id for claim in claims if claim.terms.get("parts")]))
    for claim in claims:
        if claim.state == "waiting":
            claim.wait = reader.explain(claim, (places or {}).get(claim.id))
    blocked = [claim for claim in claims if claim.state == "blocked"]
    if blocked:
        explain_blocked(blocked, reader.holds)


def forget_explanations() -> None:
    for reads in (_pair_counts, _slot_counts, _holders, _holds, _longest):
        reads.cached.clear()


@dataclass(frozen=True, slots=True)
class _QueueFacts:
    context: WaitContext
    pools: tuple[PoolFacts, ...]
    rivals: tuple[int, ...]
    # First claims of rival queues that could take every slot that is open to this queue.
    ahead: tuple[Head, ...]
    trouble: PoolFacts | None  # the pool that the reason is about
    part: PoolDemand | None = None  # the parts that do not fit, of a claim of several parts


@dataclass
class _ReadCache:
    """The facts that one call of `explain_claims` has read."""

    labels: PartLabels
    queues: dict[int, _QueueFacts] = field(default_factory=dict)
    states: dict[int, claims_sql.PoolStateRow] = field(default_factory=dict)
    pools: dict[str, PoolFacts] = field(default_factory=dict)
    offers: OfferCache = field(default_factory=OfferCache)
    # By queue; None: the start depends on a person.
    forecasts: dict[int, Forecast | None] = field(default_factory=dict)

    def explain(self, claim: ClaimView, place: int | None) -> Wait:
        queue = self.queues.get(claim.shape_id)
        if queue is None:
            queue = self.queues[claim.shape_id] = self.read_queue(claim)
        ahead = (
            place - 1
            if place is not None
            else claims_sql.place_in_queue(
                rivals=list(queue.rivals), rank=claim.rank, claim=claim.id
            )
        )
        context = replace(queue.context, ahead=ahead)
        if fits_now(context):
            context = replace(context, code="next", strict=self.strict_ahead(queue, claim))
        elif queue.part is not None:
            context = replace(context, part=self.labels.of(claim.id, queue.part, claim.pools))
        message = describe_wait(context)
        band = self.estimate(claim.shape_id, queue, context)
        return Wait(
            code=context.code if context.strict is None else "behind_head",
            text=message.text,
            unblock=message.unblock,
            place=ahead + 1,
            start=band.span,
            start_note=band.note,
            blockers=list(context.blockers if context.strict is None else (context.strict,)),
            facts=_facts_of(context),
        )

    def read_queue(self, claim: ClaimView) -> _QueueFacts:
        names = [name for name in claim.pools if name not in self.pools]
        if names:
            self.pools |= find_pools(names)
        pools = tuple(self.pools.get(name) for name in claim.pools)
        kind = kind_in(pools, claim.kind)
        wanted = slot_demand_in(slot_demand_of(claim.size, claim.terms), pools, kind)
        lanes = lanes_in(pools, kind, wanted.parts)
        demands = split_demand(wanted, pools, claim.pools, kind)
        read = [self.read_demand(demand, claim.size > 1) for demand in demands]
        context, trouble, part = read[0]
        if len(read) > 1:
            context, trouble, part = choose_part(read)
        rivals = (
            claims_sql.rivals(pools=claim.pools, lanes=lanes, labels=wanted.labels) if lanes else []
        )
        ahead = tuple(
            (
                row.id,
                row.rank or 0,
                WaitingHead(row.head, row.size or 1, row.passed or 0, row.waited or 0.0),
            )
            for row in rivals
            if row.holds_back and row.head is not None
        )
        ids = tuple(row.id for row in rivals) or (claim.shape_id,)
        return _QueueFacts(
            context, tuple(part.found), ids, ahead, trouble, part if wanted.parts else None
        )

    def read_demand(self, demand: PoolDemand, with_members: bool) -> DemandFacts:
        """The facts about one demand, and the pool that they are about."""
        wanted, pools, kind = demand.wanted, demand.pools, demand.kind
        refusals = {
            pool.name: find_refusal(
                wanted, [self.offers.get(pool, kind, with_members=with_members)]
            )
            for pool in demand.found
        }
        if len(refusals) == len(pools) and not any(refusals.values()):
            first = demand.found[0].name
            refusals[first] = refusal_in(demand, self.offers, with_members=False)
        code, at = self.find_cause(wanted, pools, kind, refusals)
        name, trouble = demand.names[at], pools[at]
        context = WaitContext(
            pool=name,
            code=code,
            lanes=tuple(lanes_in(pools, kind)),
            kind=kind,
            wanted=wanted,
            refusal=refusals.get(name),
        )
        if trouble is not None:
            context = self.read_context(context, trouble, kind)
        return DemandFacts(context, trouble, demand)

    def find_cause(
        self,
        wanted: SlotDemand,
        pools: Sequence[PoolFacts | None],
        kind: str,
        refusals: dict[str, Refusal | None],
    ) -> tuple[str, int]:
        """The code of the reason, and the index of the pool that it is about."""
        states = [
            PoolState()
            if pool is None
            else read_pool_state(
                pool, read_pool_row(pool.id, self.states), wanted, kind, refusals.get(pool.name)
            )
            for pool in pools
        ]
        for at, state in enumerate(states):
            code = find_reason(wanted, [state])
            if code not in HOLDERS_LEAVE or code == "full":
                return code, at
        code = find_reason(wanted, states)
        if code != "no_pair":
            return code, 0
        counts = [
            self.count_pairs(pool, wanted, kind) if pool is not None else None for pool in pools
        ]
        return code, next(
            (at for at, row in enumerate(counts) if row is not None and row.both < wanted.size), 0
        )

    def count_pairs(
        self, pool: PoolFacts, wanted: SlotDemand, kind: str
    ) -> pairs_sql.CountPairsRow | None:
        """Numbers that are free in TCP and UDP. None: each number of the pool has one slot."""
        pair = pool.pair_for(kind)
        if pair is None:
            return None
        labels = wanted.labels
        return _pair_counts.get(
            (pool.id, labels),
            lambda: pairs_sql.count_pairs(pool=pool.id, lane=pair[0], other=pair[1], labels=labels),
        )

    def limits_of(self, pool: PoolFacts) -> MemberLimits | None:
        """The limits of the pool's scaler at this moment; None: the pool has no scaler."""
        if pool.spec.scaling is None:
            return None
        row = claims_sql.read_limits(pool=pool.id)
        return None if row is None else limits_of(row, pool.spec)[0]

    def read_context(self, context: WaitContext, pool: PoolFacts, kind: str) -> WaitContext:
        """Adds the numbers and names that the message needs."""
        row = read_pool_row(pool.id, self.states)
        labels, lanes = context.wanted.labels, pool.lanes_for(kind)
        places = _slot_counts.get(
            (pool.id, labels), lambda: claims_sql.count_places(pool=pool.id, labels=labels)
        )
        unwilling = claims_sql.unwilling_members(
            MOST_NAMED, pool=pool.id, lanes=lanes, labels=labels
        )
        offer = self.offers.get(pool, kind, with_members=True)
        selector = context.wanted.selector
        context = replace(
            context,
            limits=self.limits_of(pool),
            is_carried=matches(selector, pool.spec.member_labels),
            lanes=tuple(lanes),
            places=_count_slots(places, lanes),
            members=len(offer.members),
            max_members=offer.max_members,
            each=offer.each,
            paused_until=row.paused_until,
            pause_reason=row.pause_reason,
            offline=tuple(m.name for m in unwilling if m.state == "offline"),
            creating=tuple(m.name for m in unwilling if m.state == "creating"),
            cordoned=tuple(
                m.name
                for m in unwilling
                if m.is_cordoned and not m.is_leaving and m.state == "ready"
            ),
        )
        if context.code in HOLDERS_LEAVE:
            context = self.read_holders(context, pool, lanes, labels)
            pairs = self.count_pairs(pool, context.wanted, kind)
            if pairs is not None:
                context = replace(context, pairs=pairs.both, apart=(pairs.one, pairs.other))
            if context.code in ("not_contiguous", "not_together"):
                context = self.read_longest(context, pool, lanes, labels, pool.pair_for(kind))
                # Slots were released since the allocator has tried the queue.
                if context.longest >= context.wanted.size:
                    context = replace(context, code="next")
        return context

    def read_holders(
        self, context: WaitContext, pool: PoolFacts, lanes: list[str], labels: str
    ) -> WaitContext:
        rows = self.holders(pool.id, lanes, labels)
        ids = list(dict.fromkeys(row.id for row in rows))
        kept = sorted(
            (row for row in rows if row.state == "reserved"), key=lambda row: -(row.waited or 0.0)
        )
        return replace(
            context,
            undecided=tuple(row.id for row in kept[:MOST_NAMED]),
            kept=kept[0].waited or 0.0 if kept else 0.0,
            holders=len(ids),
            one_holder=ids[0] if len(ids) == 1 else None,
            blockers=tuple(ids[:10]),
        )

    def read_longest(
        self,
        context: WaitContext,
        pool: PoolFacts,
        lanes: list[str],
        labels: str,
        pair: tuple[str, str] | None,
    ) -> WaitContext:
        is_run = context.code == "not_contiguous"
        found = _longest.get(
            (pool.id, labels, tuple(lanes), is_run),
            lambda: _find_longest(pool, lanes, labels, pair, is_run=is_run),
        )
        if found is None:
            return context
        name = claims_sql.member_name(member=found.member_id) or ""
        return replace(context, longest=found.length, longest_on=name)

    def holders(self, pool_id: int, lanes: list[str], labels: str) -> list[claims_sql.HoldersRow]:
        return _holders.get(
            (pool_id, tuple(lanes), labels),
            lambda: claims_sql.holders(SAMPLE, pool=pool_id, lanes=lanes, labels=labels),
        )

    def holds(self, pool_id: int) -> HoldTimes:
        rows = _holds.get(pool_id, lambda: claims_sql.recent_holds(RECENT, pool=pool_id))
        return HoldTimes([row.seconds or 0.0 for row in rows])

    def strict_ahead(self, queue: _QueueFacts, claim: ClaimView) -> int | None:
        """The first claim that goes before this claim and may not be passed by it."""
        ahead = [
            (rank, head.claim)
            for shape, rank, head in queue.ahead
            if shape != claim.shape_id
            and (rank, head.claim) < (claim.rank, claim.id)
            and not head.may_be_passed(claim.total, 1)
        ]
        return min(ahead)[1] if ahead else None

    def estimate(self, shape: int, queue: _QueueFacts, context: WaitContext) -> Band:
        """An estimate needs holders that leave by themselves. A start that depends on a person, a
        member or a run of numbers gets a note.
        """
        code, need = context.code, (context.ahead + 1) * context.wanted.size - context.places.open
        if code == "pool_paused" and context.paused_until is not None:
            return Band(None, None, f"not before {moment(context.paused_until)}")
        if code == "next" and context.strict is None and need <= 0:
            return Band(0.0, 1.0)
        if (
            code not in ("full", "not_enough", "next")
            or queue.trouble is None
            or len(queue.pools) > 1
        ):
            default = "which claims end" if code in HOLDERS_LEAVE else "a person"
            return Band(None, None, _NOTES.get(code, f"depends on {default}"))
        if context.strict is not None:
            return Band(None, None, f"depends on claim {context.strict}")
        if shape not in self.forecasts:
            self.forecasts[shape] = self.forecast(queue.trouble.id, context)
        forecast = self.forecasts[shape]
        if forecast is None:
            return Band(None, None, "depends on a person")
        return forecast.start(need - context.places.draining)

    def forecast(self, pool_id: int, context: WaitContext) -> Forecast | None:
        rows = self.holders(pool_id, list(context.lanes), context.wanted.labels)
        ages = [row.age or 0.0 for row in rows if row.state == "bound"]
        if rows and not ages:
            return None
        weight = max(1.0, context.places.held / max(1, len(rows)))
        return Forecast(ages, self.holds(pool_id), weight=weight)


_NOTES = {
    "pool_not_found": "when it is created",
    "no_member": "when a member is there",
    "no_member_with_labels": "when a member with the labels is there",
    "no_member_willing": "when a member is ready again",
}


def _count_slots(rows: Sequence[claims_sql.CountPlacesRow], lanes: Sequence[str]) -> SlotCounts:
    n = Counter[str]()
    for row in rows:
        if row.lane not in lanes:
            continue
        n["total"] += row.n
        if row.member_state == "offline":
            n["offline"] += row.n
        elif row.state == "idle":
            n["open" if row.is_open else "closed"] += row.n
        else:
            n[row.state] += row.n
    return SlotCounts(**n)


def _facts_of(context: WaitContext) -> dict[str, object]:
    """The `facts` of the API, which pages draw."""
    facts: dict[str, object] = {
        "pool": context.pool,
        "lanes": list(context.lanes),
        "ahead": context.ahead,
        **context.places._asdict(),
        "members": context.members,
        "max_members": context.max_members,
    }
    if context.code in ("not_contiguous", "not_together"):
        facts |= {"longest": context.longest, "longest_on": context.longest_on}
    if context.part:
        facts["part"] = context.part
    if context.wanted.is_paired:
        facts["pairs"] = context.pairs
    if context.undecided:
        facts |= {"undecided": list(context.undecided), "kept_s": round(context.kept, 1)}
    if context.paused_until is not None:
        facts["paused_until"] = rfc3339(context.paused_until)
    return facts


def _find_longest(
    pool: PoolFacts, lanes: list[str], labels: str, pair: tuple[str, str] | None, *, is_run: bool
) -> LongestRow | None:
    """The member with the longest free run, or with the most free numbers."""
    if pair is None:
        if is_run:
            return claims_sql.longest_free_run(
                pool=pool.id, labels=labels, lanes=lanes, step=pool.step
            )
        return claims_sql.most_on_one(pool=pool.id, labels=labels, lanes=lanes)
    lane, other = pair
    if is_run:
        return pairs_sql.longest_paired_run(
            pool=pool.id, labels=labels, lane=lane, other=other, step=pool.step
        )
    return pairs_sql.most_paired_on_one(pool=pool.id, labels=labels, lane=lane, other=other)
