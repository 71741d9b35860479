"""Cancel a claim that waits or whose task an agent runs; force the release of any claim."""

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
    """End a claim that waits, or whose task an agent runs or will run.

    The slot of a task is free once its agent reports that no process is left. A claim that was
    bound meanwhile and has no task stays bound: `Conflict` names the generation to release.
    """
    note = reason.strip()
    for _ in range(TIMES):  # between the two attempts the claim may be bound or queued again
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
    """End a claim on behalf of an operator: its slots are released, or it leaves the queue."""
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
    """End a claim with a task. The agent's result locks the same row, so the first of the two
    wins. False: the claim holds no slot, or has no task.
    """
    with transaction.atomic():
        held = lock_hold(claim_id)
        if not held.holds or not (held.claim.has_task or held.claim.state == "reserved"):
            return False
        ending = Ending(outcome="cancelled", verb="cancel", reason=note)
        return bool(end_hold(held, ending, words="was cancelled while it applied"))
