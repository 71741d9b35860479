"""Takes claims back that an evacuation has moved, while their former ports still drain.

The former listeners serve again from the next sync on, and the new ones drain. Berth cannot keep
both: the former listeners may have lost their targets already.
"""

import logging
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import groupby

from django.db import transaction

from claims.lifecycle.release import lock_claim
from claims.ports.evacuation import evacuation_sql
from claims.ports.evacuation.facts import add_stuck, describe_stay, parse_left
from claims.ports.evacuation.hand_over import lock_left, return_to_member
from claims.statements import repeat
from pools.lifecycle.selectors import lock_member
from pools.models import Member, Pool
from project.kernel.actor import current_actor
from project.kernel.errors import BerthError, Conflict
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from project.kernel.validation import require_reason
from slots.members.store import refuse_unless_there

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReturnableClaim:
    """A claim that has arrived elsewhere. One of its former slots still drains at least, and no
    other claim has held the others since.
    """

    id: int
    owner: str
    generation: int  # in which it held them
    left: dict[int, int]  # the slots, with the ordinal of each
    places: tuple[tuple[str, int], ...]  # lane and number
    until: datetime | None  # the end of the drain, unless connections end before


def list_returnable(member_id: int) -> list[ReturnableClaim]:
    rows = evacuation_sql.departures_from(member=member_id)
    found = []
    for _, group in groupby(rows, key=lambda row: row.generation):
        slots = list(group)
        first = slots[0]
        left = parse_left(first.left_slots)
        if len(slots) == len(left) and any(row.is_draining for row in slots):
            places = tuple((row.lane, row.number) for row in slots)
            until = max((row.drain_until for row in slots if row.drain_until), default=None)
            owner = first.owner or first.requested_by
            found.append(
                ReturnableClaim(first.claim_id, owner, first.generation, left, places, until)
            )
    return found


def return_claim(*, member_id: int, claim_id: int, reason: str) -> None:
    """Give a claim the ports back that it has left on the member. Raises Conflict once none of them
    drains any more, or if the member cannot keep the claim. An evacuation that goes on does
    not move the claim again.
    """
    repeat(partial(_return, member_id, claim_id, require_reason(reason)))


def return_claims(*, member_id: int, reason: str) -> int:
    """Give all claims that can go back their ports back, each on its own. Returns how many."""
    count = 0
    for claim in list_returnable(member_id):
        try:
            return_claim(
                member_id=member_id,
                claim_id=claim.id,
                reason=reason or "the evacuation was undone",
            )
        except BerthError as error:
            logger.info("claim %s stays where it is: %s", claim.id, error)
        else:
            count += 1
    return count


def _return(member_id: int, claim_id: int, reason: str) -> None:
    with transaction.atomic():
        pool, member = lock_member(member_id)
        _refuse_member(member)
        evacuation = evacuation_sql.lock_any(member=member_id)
        claim = lock_claim(claim_id)
        if evacuation is not None and evacuation.claim_id == claim_id:
            raise Conflict(
                f"Claim {claim_id} moves and has not arrived.",
                code="moves",
                way_out="Undo the evacuation: the claim then goes back.",
            )
        found = next((each for each in list_returnable(member_id) if each.id == claim_id), None)
        if found is None or not lock_left(found.generation, found.left, claim.size):
            raise _explain(claim_id, member)
        if return_to_member(member_id, claim, found.left, reason) is None:
            raise Conflict(
                f"Pool {pool.name} hands out no ports now.",
                code="pool_closed",
                way_out="Resume the pool, then order it again.",
            )
        if evacuation is not None:
            about = describe_stay(
                "returned",
                f"{current_actor()} moved it back: {reason}",
                "Order the evacuation again to move it.",
            )
            evacuation_sql.note_return(
                member=member_id, stuck=add_stuck(evacuation.stuck, claim_id, about)
            )
        _record(pool, member, claim_id)


def _record(pool: Pool, member: Member, claim_id: int) -> None:
    """An event of the member, by which open pages show it."""
    text = f"claim {claim_id} has gone back"
    record("return_claim", pool_id=pool.pk, member_id=member.pk, reason=text)
    publish("events", "operations")


def _refuse_member(member: Member) -> None:
    refuse_unless_there(member)
    if member.is_leaving or member.drain_until is not None:
        raise Conflict(
            f"Member {member.name} is leaving, so no claim goes back to it.",
            way_out="Undrain the member first.",
        )
    if member.state != "ready":
        raise Conflict(
            f"Member {member.name} is {member.state}, so no claim goes back to it.",
            way_out="Wait until the member is ready.",
        )


def _explain(claim_id: int, member: Member) -> Conflict:
    """Why the claim cannot go back."""
    return Conflict(
        f"Claim {claim_id} has no former ports on {member.name} that still drain.",
        code="ports_gone",
        way_out="The claim keeps its ports. To move it here, evacuate the load balancer it is on.",
    )
