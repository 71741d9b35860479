"""Handle the claims of a lost member, as the policy says, one claim in one transaction."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from django.conf import settings
from django.db import DatabaseError, transaction

from claims import claims_sql
from claims.allocation.bind import notify_bound
from claims.allocation.requests.demands import kind_in, slot_demand_of
from claims.allocation.requests.policy import PartDemand, SlotDemand
from claims.allocation.requests.pool_facts import PoolFacts, find_pools
from claims.allocation.search.slot_search import find_replacements, find_slots
from claims.lifecycle.end_hold import LockedHold, lock_hold, lose_hold
from claims.lifecycle.release import DRAIN
from claims.statements import TAKEN, repeat, sqlstate
from project.kernel.actor import current_actor


def lose_claim(*, claim_id: int, member_id: int) -> bool:
    """Replace the slots on the lost member if the claim also has slots elsewhere and enough slots
    are free; else end the hold. The slots on the lost member retire.

    False: the claim holds no slot on the member, or was bound less than BERTH_LOST_GRACE seconds
    ago.
    """
    return repeat(partial(_lose, claim_id, member_id))


def _lose(claim_id: int, member_id: int) -> bool:
    with transaction.atomic():
        held = lock_hold(claim_id)
        if not held.holds or not claims_sql.holds_on(
            claim=claim_id, member=member_id, grace=settings.BERTH_LOST_GRACE
        ):
            return False
        if not replace_slots(held, member_id, "a member was lost"):
            lose_hold(held, what="its member was lost", lost_member=member_id)
    return True


def replace_slots(held: LockedHold, member_id: int, note: str, *, is_lost: bool = True) -> bool:
    """Move the claim's slots on this member to other members.

    False if the claim has no slot elsewhere, runs a task, needs its slots together, or if too few
    slots are free. The old slots retire if the member is lost, else they drain.
    """
    claim = held.claim
    if claim.state != "bound" or claim.size == 1 or claim.step:
        return False
    places = claims_sql.lost_places(claim=claim.id, member=member_id)
    wanted = slot_demand_of(claim.size, json.loads(places[0].terms))
    if len(places) == claim.size or wanted.contiguous or wanted.on_one_member or wanted.same_number:
        return False
    known = find_pools(places[0].pools)
    pools = {pool.id: pool for pool in known.values() if pool.state == "active"}
    kind = kind_in([known.get(places[0].pools[0])], places[0].kind)
    try:
        with transaction.atomic():
            find = _find_for_parts if wanted.parts else _find_alike
            targets = find(wanted, places, pools, kind, claim.id)
            if targets is None:
                return False
            rows = claims_sql.move(
                claim=claim.id,
                generation=claim.generation,
                ordinals=list(targets),
                targets=list(targets.values()),
                lost_member=member_id if is_lost else None,
                drain=DRAIN,
                actor=current_actor(),
                reason=note,
            )
    except DatabaseError as error:
        if sqlstate(error) not in TAKEN:
            raise
        return False  # another transaction took one of the slots
    if rows:
        notify_bound(list(pools.values()))
    return bool(rows)


def _find_alike(
    wanted: SlotDemand,
    places: Sequence[claims_sql.LostPlacesRow],
    pools: Mapping[int, PoolFacts],
    kind: str,
    claim: int,
) -> dict[int, int] | None:
    """A slot for each lost ordinal of a claim without parts."""
    targets: dict[int, int] = {}
    for pool_id in sorted({place.pool_id for place in places}):
        ordinals = [place.ordinal for place in places if place.pool_id == pool_id]
        if pool_id not in pools:
            return None
        found = find_replacements(wanted, pools[pool_id], kind, len(ordinals), claim)
        if found is None:
            return None
        targets |= dict(zip(ordinals, found, strict=True))
    return targets


def _find_for_parts(
    wanted: SlotDemand,
    places: Sequence[claims_sql.LostPlacesRow],
    pools: Mapping[int, PoolFacts],
    kind: str,
    claim: int,
) -> dict[int, int] | None:
    """A slot for each lost ordinal, of the kind of its part. None also for a port that has the same
    number in several pools: it would lose that number.
    """
    by_name = {pool.name: pool for pool in pools.values()}
    lost = {place.ordinal for place in places}
    parts, ordinals, first = list[PartDemand](), list[int](), 0
    for part in [each for each in wanted.parts for _ in range(each.size)]:
        for name in part.pools:
            if name not in by_name:
                return None
            mine = range(first, first := first + by_name[name].width_of(part.kind))
            if lost.isdisjoint(mine):
                continue
            if part.same_number:
                return None
            parts.append(PartDemand(part.kind, (name,)))
            ordinals += mine
    demand = replace(wanted, parts=tuple(parts))
    found = find_slots(demand, list(pools.values()), kind, claim)
    return None if found is None else dict(zip(ordinals, found, strict=True))
