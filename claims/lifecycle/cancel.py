"""Calling off: what waits, and what an agent runs; and an operator who takes the slots from
whoever holds them.
"""

from functools import partial

from django.db import transaction

from claims.allocation.claim_view import ClaimView
from claims.allocation.selectors import view_claim
from claims.lifecycle.end_hold import end_hold, lock_hold
from claims.lifecycle.release import Ending, end_unheld
from claims.statements import repeat
from project.kernel.errors import Conflict
from project.kernel.validation import require_reason

TIMES = 3


def cancel_claim(*, claim_id: int, reason: str = "") -> ClaimView:
    """Call off a claim that holds nothing yet, or what an agent runs for it: the claim ends now,
    its slot is free once the agent says that nothing runs there any more. Others that were bound in
    the meantime stay so: their holder lets go of them by name."""
    note = reason.strip()
    for _ in range(TIMES):  # between the two looks it may be bound, or stand in line again
        if repeat(partial(end_unheld, claim_id, "cancelled", "cancel", note)) or repeat(
            partial(_cancel_task, claim_id, note)
        ):
            return view_claim(claim_id)
    claim = view_claim(claim_id)
    if claim.state == "ended":
        if claim.outcome == "cancelled":
            return claim
        raise Conflict(
            f"Claim {claim_id} has already ended: {claim.outcome}.",
            code="ended",
            way_out="No action is needed.",
        )
    raise Conflict(
        f"Claim {claim_id} holds slots: it is {claim.state}.",
        code="holds_slots",
        way_out=f"Release it with its generation {claim.generation}.",
        generation=claim.generation,
    )


def force_release(*, claim_id: int, reason: str) -> ClaimView:
    """An operator takes the slots from a claim, whoever holds it, or calls it off
    while it waits.
    """
    note = require_reason(reason)

    def force() -> None:
        with transaction.atomic():
            held = lock_hold(claim_id)
            if held.claim.state == "ended":
                text = f"Claim {claim_id} has already ended: {held.claim.outcome}."
                raise Conflict(text, code="ended", way_out="No action is needed.")
            if held.holds:
                ending = Ending(outcome="cancelled", verb="force_release", reason=note)
                end_hold(held, ending, words="was released by force while it applied")
            else:
                end_unheld(claim_id, "cancelled", "force_release", note)

    repeat(force)
    return view_claim(claim_id)


def _cancel_task(claim_id: int, note: str) -> bool:
    """Against the result of its agent: both need the claim's row, one comes first."""
    with transaction.atomic():
        held = lock_hold(claim_id)
        if not held.holds or not (held.claim.has_task or held.claim.state == "reserved"):
            return False
        ending = Ending(outcome="cancelled", verb="cancel", reason=note)
        return bool(end_hold(held, ending, words="was cancelled while it applied"))
