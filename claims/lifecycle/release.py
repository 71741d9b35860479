"""Release claims: the holder names the generation that it received when the claim was bound.

A call with an old generation changes no row and is rejected. An event records it, because the
caller may have used slots that belong to another claim. An evacuation gives a hold another
generation and leaves its holder alone: the holder may go on to name the former one.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from claims import claims_sql
from claims.allocation.claim_view import ClaimView
from claims.allocation.selectors import view_claim, view_claims
from claims.statements import attempt, repeat
from claims.workspaces.services import free_workspace
from project.kernel.actor import current_actor
from project.kernel.db.after_commit import after_commit
from project.kernel.errors import BerthError, Conflict, Invalid, NotFound, StaleGeneration
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from project.kernel.validation import LONGEST_REASON

DRAIN = "10 min"  # drain time of a slot if the pool sets none
CHUNK = 250
MAX_RELEASES = 1000


class Ending(NamedTuple):
    """How a claim that holds slots stops holding them."""

    to: str = "ended"
    outcome: str = "released"
    verb: str = "release"
    reason: str = ""
    wait: float = 0.0  # seconds of back-off of a blocked claim, time limit of a parked one
    lost_member: int | None = None
    is_clean: bool = False  # no process or resource is left outside: the slots need not drain
    rank: int | None = None  # new rank in the queue; None: unchanged
    step: str | None = None  # `plan`: the approvals are void
    is_seeking: bool = False  # a parked claim that gets a slot again before its approval
    by_holder: bool = False


class FreedSlot(Protocol):
    @property
    def state(self) -> str: ...


class EndedClaim(Protocol):
    @property
    def workspace_id(self) -> int | None: ...


def release_claim(*, claim_id: int, generation: int, reason: str = "") -> ClaimView:
    """Release all slots of a claim. A repeated call returns the same answer."""
    ending = Ending(reason=reason.strip(), by_holder=True)
    if not act_for_hold(claim_id, generation, lambda named: release_slots(claim_id, named, ending)):
        return answer_late(claim_id, generation, "release", done_as="released")
    return view_claim(claim_id)


def release_claims(named: Sequence[tuple[int, int]]) -> list[ClaimView | BerthError]:
    """Release claims, each independently. Returns the answer or error of `release_claim` for
    each, in the given order.
    """
    if len(named) > MAX_RELEASES:
        raise Invalid(
            f"{len(named)} releases are too many for one call.",
            way_out=f"Send {MAX_RELEASES} at most.",
        )
    done: set[int] = set()
    for at in range(0, len(named), CHUNK):
        done |= repeat(partial(_release_chunk, named[at : at + CHUNK]))
    views = {
        view.id: view for view in view_claims(dict.fromkeys(claim_id for claim_id, _ in named))
    }
    answers: list[ClaimView | BerthError] = []
    for claim_id, generation in named:
        if claim_id in done and views[claim_id].generation == generation:
            answers.append(views[claim_id])
        else:
            # Its ports may have moved.
            answers.append(
                attempt(partial(release_claim, claim_id=claim_id, generation=generation))
            )
    return answers


def release_slots(claim_id: int, generation: int, ending: Ending) -> list[claims_sql.GiveBackRow]:
    """Take all slots from one claim; all code paths for a single claim end here.

    Returns a row for each slot, and none if the claim has another generation or holds no slot.
    """
    rows = claims_sql.give_back(
        claim=claim_id,
        generation=generation,
        to=ending.to,
        outcome=ending.outcome,
        lost_member=ending.lost_member,
        drain=DRAIN,
        wait=f"{ending.wait} s",
        verb=ending.verb,
        actor=current_actor(),
        reason=ending.reason[:LONGEST_REASON],
        is_clean=ending.is_clean,
        rank=ending.rank,
        step=ending.step,
        is_seeking=ending.is_seeking,
        by_holder=ending.by_holder,
        data=None,
    )
    if rows:
        notify_freed(rows)
        after_end(rows)
    return rows


def end_unheld(claim_id: int, outcome: str, verb: str, reason: str) -> bool:
    rows = claims_sql.end_unheld(
        claim=claim_id,
        outcome=outcome,
        verb=verb,
        actor=current_actor(),
        reason=reason[:LONGEST_REASON],
    )
    if rows:
        publish("claims", "events")
        after_end(rows)
    return bool(rows)


def notify_freed(rows: Sequence[FreedSlot]) -> None:
    """Wake the allocator for idle slots, and the workers for slots that must be cleaned first."""
    states = {row.state for row in rows}
    publish(
        "events",
        *(["slots"] if "idle" in states else []),
        *(["operations"] if "draining" in states else []),
    )


def after_end(rows: Sequence[EndedClaim]) -> None:
    """Unblock the next claim of each workspace after the commit, in a transaction of its own:
    a workspace must be locked before its claims.
    """
    for workspace in sorted({row.workspace_id for row in rows if row.workspace_id is not None}):
        after_commit(free_workspace, workspace)


def lock_claim(claim_id: int) -> claims_sql.LockClaimRow:
    row = claims_sql.lock_claim(claim=claim_id)
    if row is None:
        raise NotFound(
            f"There is no claim {claim_id}.", way_out="Check the number in the list of claims."
        )
    return row


def act_for_hold(claim_id: int, generation: int, act: Callable[[int], object]) -> bool:
    """Whether `act` has changed rows of the hold whose generation the holder names. `act` is
    repeated after a transient error. If an evacuation has moved the hold since, `act` is called
    with its present generation; the statement of `act` compares that with the claim, so a later
    hold is not affected.
    """
    while not repeat(partial(act, generation)):
        present = find_present(claim_id, generation)
        if present == generation:
            return False
        generation = present
    return True


def find_present(claim_id: int, generation: int) -> int:
    """The generation of a hold after all its moves by evacuations."""
    found = claims_sql.current_generation(claim=claim_id, generation=generation)
    return generation if found is None else found


def answer_late(claim_id: int, generation: int, verb: str, *, done_as: str = "") -> ClaimView:
    """Answer a call that changed no row: return the claim if the call repeats a completed one,
    else record an event and raise `Conflict` or `StaleGeneration`.
    """
    claim = view_claim(claim_id)
    is_last = claim.generation == find_present(claim_id, generation)
    if is_last and claim.holds and claim.step:
        raise Conflict(
            f"Claim {claim_id} is run by an agent: the claim ends with its task.",
            code="run_by_agent",
            way_out="Cancel the claim: the agent then stops the task.",
            generation=generation,
        )
    if claim.state == "ended" and claim.outcome == done_as and is_last:
        return claim
    record(
        f"late_{verb}"[:24], pool_id=claim.pool_id, claim_id=claim_id, generation=generation,
        before=claim.state, after=claim.state,
        reason=f"generation {generation} was named, it is {claim.generation} now",
        data={"named": generation, "now": claim.generation},
    )  # fmt: skip
    raise stale(claim, generation)


def stale(claim: ClaimView, generation: int) -> BerthError:
    if claim.generation != find_present(claim.id, generation):
        text = f"Claim {claim.id} is at generation {claim.generation}, not {generation}."
        way_out = "The call belongs to an earlier hold. Stop its work and read the claim again."
        return StaleGeneration(
            text, way_out=way_out, generation=claim.generation, state=claim.state
        )
    if claim.state == "ended":
        return Conflict(
            f"Claim {claim.id} has already ended: {claim.outcome}.",
            code="ended",
            way_out="Stop: the claim holds no slots.",
        )
    return Conflict(
        f"Claim {claim.id} is {claim.state} and holds no slots.",
        code="holds_nothing",
        way_out="Cancel it instead.",
    )


def _release_chunk(named: Sequence[tuple[int, int]]) -> set[int]:
    rows = claims_sql.release_batch(
        claims=[claim_id for claim_id, _ in named],
        generations=[generation for _, generation in named],
        outcome="released",
        drain=DRAIN,
        actor=current_actor(),
    )
    done = {row.claim_id for row in rows}
    if done:
        notify_freed(rows)
        after_end(rows)
    return done
