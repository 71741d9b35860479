"""Reads what a plan of an evacuation needs: the claims on the member, and the free ports of the
other members of its pool.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import NamedTuple, Protocol

from claims import claims_sql
from claims.allocation.member_limits import limits_of
from claims.allocation.requests.pool_facts import PoolFacts, find_pools_by_id
from claims.ports.evacuation import evacuation_sql
from claims.ports.evacuation.plan import FreeMember, FreePorts, HeldPort, MovableClaim, Stay
from pools.config.label_selector import matches
from pools.lifecycle.selectors import LIVE
from pools.models import Member
from project.kernel.validation import moment


class Evacuating(Protocol):
    """An evacuation with its member and pool, in the columns of `_evacuation`."""

    @property
    def member_id(self) -> int: ...
    @property
    def by(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def since(self) -> datetime: ...
    @property
    def stays(self) -> bool: ...
    @property
    def was_cordoned(self) -> bool: ...
    @property
    def moved(self) -> int: ...
    @property
    def failed_in_row(self) -> int: ...
    @property
    def claim_id(self) -> int | None: ...
    @property
    def generation(self) -> int | None: ...
    @property
    def was_ready(self) -> bool: ...
    @property
    def waits_for(self) -> str: ...
    @property
    def stuck(self) -> str: ...
    @property
    def moved_at(self) -> datetime | None: ...
    @property
    def waited(self) -> float: ...
    @property
    def name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def pool_id(self) -> int: ...
    @property
    def pool(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def is_paused(self) -> bool: ...


class HoldingClaim(NamedTuple):
    """A claim that holds slots of a member."""

    id: int
    generation: int
    owner: str
    movable: MovableClaim


@dataclass(frozen=True, slots=True)
class Room:
    """Whether a pool may get another member."""

    pool: str
    is_scaled: bool
    members: int
    most: int
    paused: str

    @property
    def may_grow(self) -> bool:
        return self.is_scaled and self.members < self.most and not self.paused


def list_holding(member_id: int) -> list[HoldingClaim]:
    rows = evacuation_sql.held_by_claims(member=member_id)
    return [_holding(list(group)) for _, group in groupby(rows, key=lambda row: row.id)]


def read_free(pool: PoolFacts, member_id: int, claims: Sequence[MovableClaim]) -> FreePorts:
    """The free ports for these claims, without those of the member."""
    lanes = sorted({port.lane for claim in claims for port in claim.ports})
    selectors = {claim.labels for claim in claims if claim.labels}
    found: dict[int, FreeMember] = {}
    rows = evacuation_sql.free_places(pool=pool.id, lanes=lanes, member=member_id) if lanes else []
    for row in rows:
        if row.member_id not in found:
            labels = json.loads(row.labels)
            chosen = frozenset(each for each in selectors if matches(json.loads(each), labels))
            found[row.member_id] = FreeMember(row.member_id, row.name, selected_by=chosen)
        found[row.member_id].free[row.lane] = {
            number: (slot, rank)
            for slot, number, rank in zip(row.slots, row.numbers, row.ranks, strict=True)
        }
    return FreePorts(list(found.values()), pool.step)


def read_pool(pool_id: int) -> PoolFacts:
    return find_pools_by_id([pool_id])[pool_id]


def read_room(pool: PoolFacts) -> Room:
    row = claims_sql.read_limits(pool=pool.id)
    members = Member.objects.filter(LIVE, pool_id=pool.id).count()
    if row is None or pool.spec.scaling is None:
        return Room(pool.name, is_scaled=False, members=members, most=members, paused="")
    limits, _ = limits_of(row, pool.spec)
    return Room(
        pool.name,
        is_scaled=True,
        members=members,
        most=limits.high,
        paused=limits.paused or limits.frozen,
    )


def describe_way_out(stay: Stay, room: Room) -> str:
    """What an operator can do for a claim that stays."""
    if stay.code in ("named_slot", "not_bound"):
        return "Release the claim, or drain the member with a deadline."
    if stay.code == "no_labels":
        return "Add a member with these labels."
    if room.may_grow:
        return "It moves once the pool has another load balancer, which is requested."
    if not room.is_scaled:
        return f"Add a load balancer to {room.pool}, or release claims of other load balancers."
    if room.paused:
        return f"Its pool may not grow now: {room.paused}. Add a load balancer, or wait."
    return f"Raise the maximum of {room.pool} above {room.most}, or release other claims."


def list_stuck(stuck: str) -> Mapping[int, Mapping[str, str]]:
    """The claims that stay for now, as the last step has stored them."""
    found: Mapping[str, Mapping[str, str]] = json.loads(stuck)
    return {int(claim_id): about for claim_id, about in found.items()}


def describe_stay(code: str, reason: str, way_out: str) -> Mapping[str, str]:
    """What is stored of a claim that stays after it went back."""
    return {"code": code, "reason": reason, "way_out": way_out, "at": moment().isoformat()}


def add_stuck(stuck: str, claim_id: int, about: Mapping[str, str]) -> str:
    return json.dumps(json.loads(stuck) | {str(claim_id): about})


def read_left(generation: int | None) -> dict[int, int]:
    """The slots that a claim has left in this generation, with the ordinal of each."""
    if generation is None:
        return {}
    return parse_left(evacuation_sql.left_slots(generation=generation) or "{}")


def parse_left(left_slots: str) -> dict[int, int]:
    return {int(slot): ordinal for slot, ordinal in json.loads(left_slots).items()}


def _holding(rows: Sequence[evacuation_sql.HeldByClaimsRow]) -> HoldingClaim:
    first = rows[0]
    terms = json.loads(first.terms)
    selector = terms.get("selector")
    movable = MovableClaim(
        id=first.id,
        ports=tuple(
            HeldPort(row.ordinal, row.lane, row.number, row.part, row.keeps_number, row.slot)
            for row in rows
        ),
        contiguous=bool(terms.get("contiguous")),
        on_one_member=bool(terms.get("on_one_member")),
        labels=json.dumps(selector, sort_keys=True) if selector else "",
        is_bound=first.state == "bound",
        is_named=first.is_named,
    )
    return HoldingClaim(first.id, first.generation, first.owner or first.requested_by, movable)
