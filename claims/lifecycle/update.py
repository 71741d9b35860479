"""Change a live claim: its priority and its size; record acknowledgement and heartbeat."""

import json

from django.db import transaction

from claims import claims_sql
from claims.allocation.claim_view import ClaimView
from claims.allocation.requests.claim_request import HIGHEST_PRIORITY, LOWEST_PRIORITY, shape_digest
from claims.allocation.selectors import view_claim
from claims.lifecycle.release import (
    DRAIN,
    act_for_hold,
    answer_late,
    find_present,
    notify_freed,
    stale,
)
from claims.statements import repeat
from project.kernel.actor import current_actor
from project.kernel.errors import Conflict, Refused, wrong_field
from project.kernel.events.log import record
from project.kernel.events.notify import publish


def prioritise_claim(*, claim_id: int, priority: int, reason: str = "") -> ClaimView:
    """Set the priority of a waiting claim. `Refused` for an approved claim, which is already
    served before claims without an approval.
    """
    if not LOWEST_PRIORITY <= priority <= HIGHEST_PRIORITY:
        text = f"{priority} is out of range."
        raise wrong_field(
            "priority", text, f"Use one from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}."
        )
    rank = 100 - priority
    if repeat(
        lambda: claims_sql.prioritise(
            claim=claim_id, rank=rank, actor=current_actor(), reason=reason.strip()
        )
    ):
        publish("claims", "events")
        return view_claim(claim_id, explain=True)
    claim = view_claim(claim_id)
    if claim.is_waiting:
        raise Refused(
            f"Claim {claim_id} is approved: approved claims already go before all others.",
            way_out="No action is needed.",
        )
    raise Conflict(
        f"Claim {claim_id} is {claim.state}: only waiting claims can be prioritised.",
        code="not_waiting",
        way_out="No action is needed.",
    )


def resize_claim(*, claim_id: int, generation: int, size: int) -> ClaimView:
    """Reduce a bound claim to `size` slots in each of its pools; the last slots are released.
    The remaining slots get a new generation.
    """
    claim = view_claim(claim_id)
    if claim.generation != find_present(claim_id, generation) or claim.state != "bound":
        return answer_late(claim_id, generation, "resize")
    if size == claim.size:
        return claim
    if size > claim.size:
        way_out = "Create another claim for the remaining slots."
        raise Refused(
            f"Claim {claim_id} has {claim.size} slots; size cannot grow to {size}.",
            code="cannot_grow",
            way_out=way_out,
        )
    if claim.terms.get("parts"):
        raise Refused(
            f"Claim {claim_id} has {claim.size} ports, which it keeps all or none.",
            code="has_parts",
            way_out="Release it and claim the ports that are needed.",
        )
    if size < 1:
        raise wrong_field(
            "size", f"{size} is out of range.", "Release the claim to release all slots."
        )
    total = size * (claim.total // claim.size)  # over all its pools

    def shrink(named: int) -> bool:
        shape = _queue_of(claim, size)
        rows = claims_sql.shrink(
            claim=claim_id,
            generation=named,
            size=total,
            shape=shape,
            drain=DRAIN,
            actor=current_actor(),
            reason="",
        )
        if rows:
            notify_freed(rows)
        return bool(rows)

    if not act_for_hold(claim_id, generation, shrink):
        return answer_late(claim_id, generation, "resize")
    return view_claim(claim_id)


def acknowledge_claim(*, claim_id: int, generation: int) -> ClaimView:
    """Record that the holder has accepted its claim. `Conflict` if the deadline has passed by
    the clock of the database. A repeated call returns the same answer.
    """

    def acknowledge(named: int) -> bool:
        with transaction.atomic():
            row = claims_sql.acknowledge(claim=claim_id, generation=named)
            if row is not None:
                record(
                    "acknowledge",
                    pool_id=row.pool_id,
                    claim_id=claim_id,
                    generation=named,
                    before="bound",
                    after="bound",
                )
            return row is not None

    if act_for_hold(claim_id, generation, acknowledge):
        return view_claim(claim_id)
    claim = view_claim(claim_id)
    if claim.generation == find_present(claim_id, generation) and claim.state == "bound":
        if claim.acknowledged_at is not None:
            return claim
        record(
            "late_acknowledge",
            pool_id=claim.pool_id,
            claim_id=claim_id,
            generation=generation,
            before="bound",
            after="bound",
        )
        raise Conflict(
            f"Claim {claim_id} had to be acknowledged by {claim.acknowledge_by:%H:%M:%S} UTC. It "
            "is about to end.",
            code="too_late",
            way_out="Stop the work and create a new claim.",
        )
    return answer_late(claim_id, generation, "acknowledge")


def record_claim_heartbeat(*, claim_id: int, generation: int) -> ClaimView:
    """Record a heartbeat of the holder."""
    if not act_for_hold(
        claim_id, generation, lambda named: claims_sql.keep(claim=claim_id, generation=named)
    ):
        raise stale(view_claim(claim_id), generation)
    return view_claim(claim_id)


def _queue_of(claim: ClaimView, size: int) -> int:
    """The id of the queue for claims of this size, which the claim joins if it waits again."""
    terms = claim.terms.copy()
    if size == 1:
        terms.pop("contiguous", None)
        terms.pop("on_one_member", None)
    digest = shape_digest(tuple(claim.pools), claim.kind, size, terms)
    row = claims_sql.shape_by_digest(digest=digest)
    if row is not None:
        return int(row.id)
    made = claims_sql.copy_shape(
        shape=claim.shape_id, digest=digest, size=size, terms=json.dumps(terms)
    )
    if made is None:
        made = claims_sql.shape_by_digest(digest=digest).id  # type: ignore[union-attr]
    return int(made)
