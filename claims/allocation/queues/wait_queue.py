"""A queue of waiting claims with equal demands, and the result of one step of the allocator."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from claims import claims_sql
from claims.allocation.requests.demands import PoolDemand, split_demand
from claims.allocation.requests.policy import Offer, QueueHead, SlotDemand, Turn, WaitingHead
from claims.allocation.requests.pool_facts import PoolFacts

STALE = 20.0  # seconds after which a queue is tried although no slot is free for it


@dataclass
class WaitQueue:
    """The claims with the same request, and the state of the first of them."""

    shape: int
    names: list[str]
    kind: str
    lanes: list[str]
    wanted: SlotDemand
    is_simple: bool
    turn: Turn
    pool_id: int | None
    waited: float
    tried: float | None
    stored_reason: Mapping[str, object] | None
    stored_lanes: list[str]
    total: int = 1  # slots of the first claim in all its pools
    passed: int = 0
    # Of its first pool, when the step began; all lanes of a queue that is tried in any case.
    free_lanes: set[str] = field(default_factory=set)
    pools: tuple[PoolFacts | None, ...] = ()
    is_done: bool = False  # its first claim was bound in this step
    following: Turn | None = None  # then its next claim, which the next step tries
    was_tried: bool = False
    code: str = ""  # the wait reason, once it is known

    @property
    def found(self) -> list[PoolFacts]:
        return [pool for pool in self.pools if pool is not None]

    @property
    def is_whole(self) -> bool:
        return all(pool is not None and pool.state == "active" for pool in self.pools)

    @property
    def known_name(self) -> str:
        """Name of its first pool, "" while that pool does not exist: a metric has no labels that
        callers choose.
        """
        return self.found[0].name if self.found else ""

    @property
    def demands(self) -> list[PoolDemand]:
        return split_demand(self.wanted, self.pools, self.names, self.kind)

    def head(self) -> QueueHead:
        return QueueHead(self.turn, self.shape, self.is_simple, self.tried)

    def waiter(self) -> WaitingHead:
        return WaitingHead(
            self.turn.claim,
            self.total,
            self.passed,
            self.waited,
            frozenset(self.lanes),
            self.wanted.selector,
        )


@dataclass
class AllocationResult:
    """The result of one step, and the facts that it has read."""

    bound: int = 0
    is_more: bool = False
    states: dict[int, claims_sql.PoolStateRow] = field(default_factory=dict)
    offers: dict[tuple[int, int, str, bool], Offer] = field(default_factory=dict)
    bound_pools: set[int] = field(default_factory=set)
    has_operations: bool = False
