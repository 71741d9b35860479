"""Hands ports of a claim over to other slots. The hold goes on: the claim gets another generation,
and the departure leads from the former one to it (`act_for_hold`).
"""

import json
from collections.abc import Mapping, Sequence

from django.db import DatabaseError, transaction

from claims import claims_sql
from claims.allocation.claim_view import ClaimView
from claims.allocation.selectors import view_claim
from claims.kinds import ShownPort
from claims.lifecycle.release import DRAIN
from claims.ports.evacuation import evacuation_sql
from claims.statements import TAKEN, sqlstate
from project.kernel.actor import current_actor
from project.kernel.events.log import record

Slots = Mapping[int, int]  # with the ordinal of each


def hand_over_ports(
    member_id: int, claim: claims_sql.LockClaimRow, left: Slots, targets: Slots, why: str
) -> ClaimView | None:
    """Hand the locked claim its targets in place of the slots at their ordinals. `left`: those that
    it has on the evacuated member. Returns the claim as it was. None: a target is taken, or its
    pool hands out no slots.
    """
    before = view_claim(claim.id)
    in_order = sorted(targets, key=lambda slot: targets[slot])
    ordinals = [targets[slot] for slot in in_order]
    try:
        with transaction.atomic():
            rows = claims_sql.move(
                claim=claim.id,
                generation=claim.generation,
                ordinals=ordinals,
                targets=in_order,
                lost_member=None,
                drain=DRAIN,
                actor=current_actor(),
                reason=why,
            )
    except DatabaseError as error:
        if sqlstate(error) not in TAKEN:
            raise
        return None
    if not rows:
        return None
    evacuation_sql.add_departure(
        claim=claim.id,
        generation=claim.generation,
        current=rows[0].generation,
        member=member_id,
        slots=json.dumps(left),
    )
    _record_addresses(before, ordinals, why)
    return before


def return_to_member(
    member_id: int, claim: claims_sql.LockClaimRow, left: Slots, why: str
) -> ClaimView | None:
    """Give the locked claim the locked slots back that it has left on the member. Returns the claim
    as it was. None: their pool hands out no slots.
    """
    with transaction.atomic():
        opened = [row.id for row in evacuation_sql.open_left(slots=sorted(left))]
        before = hand_over_ports(member_id, claim, {}, left, why)
        if opened:
            evacuation_sql.close_again(slots=opened)
    return before


def lock_left(generation: int, left: Slots, size: int) -> bool:
    """Lock the slots that a claim has left. True: one of them still drains for the locked claim, no
    other claim has held the others since, and the claim is as large as then.
    """
    found = {each.id: each.is_draining for each in evacuation_sql.lock_left(generation=generation)}
    return any(found.values()) and set(found) == set(left) and max(left.values()) < size


def _record_addresses(before: ClaimView, ordinals: Sequence[int], why: str) -> None:
    """The event of the claim that says from where to where."""
    after = view_claim(before.id)
    record(
        "readdress",
        pool_id=after.pool_id,
        claim_id=after.id,
        generation=after.generation,
        reason=why,
        data={
            "from": [name_address(before.ports[ordinal]) for ordinal in ordinals],
            "to": [name_address(after.ports[ordinal]) for ordinal in ordinals],
        },
    )


def name_address(port: ShownPort) -> str:
    return port["address"] or f"{port['member']} {port['number']}"
