"""Which part of a claim does not fit, and its name for people."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from claims import pairs_sql
from claims.allocation.requests.demands import PoolDemand
from claims.allocation.requests.policy import HOLDERS_LEAVE
from claims.allocation.requests.pool_facts import PoolFacts
from claims.allocation.wait_messages import WaitContext

MOST_NAMED = 3


class DemandFacts(NamedTuple):
    """The facts about one demand of a waiting claim."""

    context: WaitContext
    trouble: PoolFacts | None  # the pool that the facts are about
    demand: PoolDemand


def fits_now(context: WaitContext) -> bool:
    """Whether the slots are free by now, so that only the turn of the claim is missing."""
    wanted, places = context.wanted, context.places
    return bool(
        context.code == "next"
        or (context.code == "full" and places.open and not wanted.selector)
        or (context.code == "not_enough" and places.open >= wanted.size)
        or (context.code == "no_pair" and context.pairs >= wanted.size)
    )


def choose_part(read: Sequence[DemandFacts]) -> DemandFacts:
    """The demand that decides: the first that no leaving holder could serve, else the first that
    does not fit, else the lane in which all of them together do not fit.
    """
    for each in read:
        if each.context.code not in HOLDERS_LEAVE:
            return each
    for each in read:
        if not fits_now(each.context):
            return each
    needed: dict[tuple[str, str], int] = {}
    for context, _, demand in read:
        if len(context.lanes) > 1 and not context.wanted.is_paired:
            continue
        for place in product(demand.names, context.lanes):
            needed[place] = needed.get(place, 0) + context.wanted.size
    for each in read:
        context = each.context
        if len(context.lanes) == 1:
            together = needed[context.pool, context.lanes[0]]
            if together > context.places.open:
                wanted = replace(context.wanted, size=together)
                return each._replace(context=replace(context, code="not_enough", wanted=wanted))
    return read[0]


class PartLabels:
    """The names of the parts of waiting claims, read once for all of them."""

    def __init__(self, claims: Sequence[int]) -> None:
        self._claims = claims
        self._rows: list[pairs_sql.PartLabelsRow] | None = None

    def of(self, claim: int, demand: PoolDemand, pools: Sequence[str]) -> str:
        """The parts of a claim that a demand covers, such as "80/TCP, 81/TCP"."""
        if self._rows is None:
            self._rows = pairs_sql.part_labels(claims=list(self._claims))
        names = [
            row.label
            for row in self._rows
            if row.claim_id == claim
            and row.kind == demand.kind
            and tuple(row.pools) == demand.names
            and row.same_number == demand.wanted.same_number
        ]
        if not names:
            return ""
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        where = f" in {', '.join(demand.names)}" if len(pools) > 1 else ""
        return ", ".join(names[:MOST_NAMED]) + more + where
