"""Record the start of a run before the agent executes anything. An apply starts only while enough
of its approvals count.
"""

from collections.abc import Callable
from functools import partial

from django.db import transaction

from claims.lifecycle import tasks_sql
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
    """False if the run did not start: the member does not hold this generation, the generation was
    started before, or the approvals of an apply no longer suffice. In the last case the claim waits
    for a decision again.
    """

    def start(*, is_approved: bool) -> bool:
        rows = tasks_sql.start_run(
            claim=claim_id,
            generation=generation,
            member=member.pk,
            is_approved=is_approved,
            place=place[:LONGEST_PLACE],
            boot=boot[:LONGEST_BOOT],
            actor=current_actor(),
        )
        return bool(rows)

    return repeat(partial(start, is_approved=False)) or repeat(
        partial(_start_apply, claim_id, generation, member.pk, partial(start, is_approved=True))
    )


def _start_apply(
    claim_id: int, generation: int, member_id: int, start_approved: Callable[[], bool]
) -> bool:
    with transaction.atomic():
        claim = lock_claim(claim_id)
        if (
            claim.generation != generation
            or claim.state != "bound"
            or claim.step != "apply"
            or claim.approved_plan_id is None
        ):
            return False
        if tasks_sql.run_of(claim=claim.id, generation=claim.generation) is not None:
            return False
        rule = approval_of(claim.pool_id)
        yes = [row for row in tasks_sql.approvals_of(plan=claim.approved_plan_id) if row.is_yes]
        lock_rights(row.user_id for row in yes if row.user_id is not None)
        faults = find_faults(yes, pool_id=claim.pool_id, requested_by=claim.requested_by, rule=rule)
        if faults.count("") >= rule.needed:
            return start_approved()
        holder = tasks_sql.holder_of(claim=claim.id, generation=claim.generation)
        if holder is None or holder.member_id != member_id:
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
