"""Reports of agents about their runs: started, lost, stopped; `results.py` records results. A
report names a generation and is accepted only from the member that holds it.

A generation starts once: the row of its run is written before the agent executes anything. A late
report changes nothing and is recorded as an event.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from django.db import transaction

from claims.allocation.claim_view import ClaimView
from claims.allocation.selectors import view_claim
from claims.lifecycle import tasks_sql
from claims.lifecycle.end_hold import NEVER_RAN, end_run, lock_hold, lose_hold
from claims.statements import repeat
from claims.tasks.runs.start import LONGEST_BOOT, write_start
from pools.config.fields import option, required
from pools.config.parsing import Choice, Integer, Text
from pools.models import Member
from project.kernel.errors import BerthError, Conflict, StaleGeneration
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from slots.members.services import clean_slot

STATUSES = ("running", "finished", "lost", NEVER_RAN)
ID = Integer(1, 2**63 - 1)


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """The status of a run as a restarted agent knows it."""

    claim: int = required(ID, "")
    generation: int = required(ID, "")
    status: str = required(Choice(STATUSES), "")
    step: str = option(Text(40), "", "")


def start_run(
    *, claim_id: int, generation: int, member: Member, boot: str, place: str = ""
) -> None:
    """Called before the agent executes anything. Repeating the call is harmless for the same start
    of the agent and rejected for another start.
    """
    if write_start(claim_id=claim_id, generation=generation, member=member, boot=boot, place=place):
        publish("events")
        return
    run = tasks_sql.run_of(claim=claim_id, generation=generation)
    holder = tasks_sql.holder_of(claim=claim_id, generation=generation)
    if run is None or holder is None or holder.member_id != member.pk or run.ended_at is not None:
        raise refuse_late(claim_id, generation, member, "started")
    if run.boot != boot[:LONGEST_BOOT]:
        text = (
            f"Another start of this agent has started generation {generation} of claim {claim_id}."
        )
        way_out = "Do not execute the run: report it as lost."
        raise Conflict(text, code="already_started", way_out=way_out)


def lose_runs(member: Member, boot: str, runs: Iterable[ReportedRun]) -> int:
    """Ends the runs that a restarted agent reports as lost, and those that an earlier start of the
    agent started and that it no longer knows. Returns the number of lost runs.
    """
    statuses = {(run.claim, run.generation): run.status for run in runs}
    for row in tasks_sql.open_runs(member=member.pk):
        if row.boot != boot:
            statuses.setdefault((row.claim_id, row.generation), "lost")
    lost = [pair for pair, status in statuses.items() if status in ("lost", NEVER_RAN)]
    return sum(repeat(partial(_lose_run, member, *pair, statuses[pair])) for pair in sorted(lost))


def confirm_stopped(member: Member, slots: Sequence[tuple[int, int]]) -> int:
    """Frees draining slots whose processes have ended. Slots of other members stay unchanged."""
    mine = {
        row.id
        for row in tasks_sql.slots_on_member(slots=[slot for slot, _ in slots], member=member.pk)
    }
    return sum(
        clean_slot(slot_id=slot, generation=generation)
        for slot, generation in slots
        if slot in mine
    )


def _lose_run(member: Member, claim_id: int, generation: int, status: str) -> bool:
    if tasks_sql.holder_of(claim=claim_id, generation=generation) is None:
        return False  # the run is over, so no lock is needed
    with transaction.atomic():
        held = lock_hold(claim_id)
        holder = tasks_sql.holder_of(claim=claim_id, generation=generation)
        run = tasks_sql.run_of(claim=claim_id, generation=generation)
        if (
            holder is None
            or holder.member_id != member.pk
            or run is None
            or run.ended_at is not None
        ):
            return False  # the run is over; or it never started, and the agent gets the order again
        if status == NEVER_RAN:
            end_run(held.claim, NEVER_RAN, NEVER_RAN, "its agent ended before it executed the run")
            lose_hold(held._replace(is_started=False), what="its agent ended before it ran")
        else:
            lose_hold(held, what="its agent has lost it")
    return True


def refuse_late(claim_id: int, generation: int, member: Member, report: str) -> BerthError:
    """Records the report and returns the error for it."""
    claim: ClaimView = view_claim(claim_id)
    is_holder = any(slot.member_id == member.pk for slot in claim.slots)
    verb = "stale_report" if is_holder or generation != claim.generation else "refused_agent"
    record(
        verb,
        pool_id=claim.pool_id,
        member_id=member.pk,
        claim_id=claim_id,
        generation=generation,
        before=claim.state,
        after=claim.state,
        reason=(
            f"agent of {member.name} reports {report} for generation {generation}, the current "
            f"generation is {claim.generation}"
        ),
    )
    if claim.holds and not is_holder:
        return Conflict(
            f"Claim {claim_id} is not on this member.",
            code="not_yours",
            way_out="Stop, and ask for orders again.",
        )
    return explain_over(claim, generation)


def explain_over(claim: ClaimView, generation: int) -> StaleGeneration:
    """For an agent both cases mean the same, to stop: the claim has ended, or another member holds
    it.
    """
    what = (
        f"has ended: {claim.outcome}"
        if claim.state == "ended"
        else f"is {claim.state}, at generation {claim.generation}"
    )
    text = f"Generation {generation} of claim {claim.id} is over: the claim {what}."
    return StaleGeneration(
        text, way_out="Stop its processes.", generation=claim.generation, state=claim.state
    )
