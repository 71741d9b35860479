"""A run starts: written before the agent executes anything, and for an apply only while enough
of its approvals count.
"""

from functools import partial
from typing import Any

from django.db import transaction

from claims.allocation import decisions_sql
from claims.lifecycle.end_hold import approval_of
from claims.lifecycle.release import Ending, lock_claim, release_slots
from claims.statements import repeat
from claims.tasks.valid_approvals import find_faults
from pools.access.permissions import lock_rights
from pools.models import Member
from project.kernel.actor import current_actor
from project.kernel.events.notify import publish

LONGEST_PLACE, LONGEST_BOOT = 40, 40


def write_start(*, claim_id: int, generation: int, member: Member, boot: str, place: str) -> bool:
    """False: nothing was started, because this member does not hold this generation, because it was
    started before, or because the approvals of an apply no longer suffice: then the claim waits for
    a decision again."""
    values: dict[str, Any] = {
        "claim": claim_id, "generation": generation, "member": member.pk, "actor": current_actor(),
        "boot": boot[:LONGEST_BOOT], "place": place[:LONGEST_PLACE],
    }  # fmt: skip
    if repeat(lambda: bool(decisions_sql.start_run(is_approved=False, **values))):
        return True
    return repeat(partial(_start_apply, values))


def _start_apply(values: dict[str, Any]) -> bool:
    with transaction.atomic():
        claim = lock_claim(values["claim"])
        if (
            claim.generation != values["generation"]
            or claim.state != "bound"
            or claim.step != "apply"
            or claim.approved_plan_id is None
        ):
            return False
        if decisions_sql.run_of(claim=claim.id, generation=claim.generation) is not None:
            return False
        rule = approval_of(claim.pool_id)
        yes = [row for row in decisions_sql.approvals_of(plan=claim.approved_plan_id) if row.is_yes]
        lock_rights(row.user_id for row in yes if row.user_id is not None)
        faults = find_faults(yes, pool_id=claim.pool_id, requested_by=claim.requested_by, rule=rule)
        if faults.count("") >= rule.needed:
            return bool(decisions_sql.start_run(is_approved=True, **values))
        holder = decisions_sql.holder_of(claim=claim.id, generation=claim.generation)
        if holder is None or holder.member_id != values["member"]:
            return False
        why = (
            f"{faults.count('')} of {rule.needed} approvals count: {' '.join(filter(None, faults))}"
        )
        ending = Ending(
            "parked",
            "",
            "unapprove",
            why,
            wait=rule.expires,
            is_clean=True,
            step="plan",
            is_seeking=rule.holds(0.0),
        )
        release_slots(claim.id, claim.generation, ending)
        publish("claims")
        return False
