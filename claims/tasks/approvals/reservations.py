"""Plans that wait for a decision: extend the deadline, move the reservation, plan again, reserve a
slot again for parked claims, and bind approved claims near their saved plan.
"""

from functools import partial

from django.db import transaction

from claims import claims_sql
from claims.allocation.claim_view import ClaimView
from claims.allocation.queues.allocator import served_first
from claims.allocation.scale_request import request_scaling
from claims.allocation.selectors import view_claim
from claims.lifecycle import tasks_sql
from claims.lifecycle.release import Ending, lock_claim, release_slots
from claims.statements import repeat
from claims.states import PENDING
from pools.config.durations import DAY
from project.kernel.actor import current_actor
from project.kernel.errors import Conflict, Refused, wrong_field
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from project.kernel.ui.formatting import rfc3339
from project.kernel.validation import require_reason

MAX_EXTENSION_SECONDS = 30 * DAY  # from now
AT_A_TIME = 100


def extend_reservation(*, claim_id: int, seconds: float, reason: str) -> ClaimView:
    """Moves the deadline by `seconds`. A deadline that has passed cannot be extended."""
    note = require_reason(reason)
    if not 1 <= seconds <= MAX_EXTENSION_SECONDS:
        text = f"{seconds:.0f} s are out of range."
        raise wrong_field("seconds", text, "Use a length from 1 second to 30 days.")
    repeat(partial(_extend, claim_id, seconds, note))
    return view_claim(claim_id)


def plan_again(*, claim_id: int, reason: str) -> ClaimView:
    """Discards the plan and its approvals. The claim plans again, in its reserved slot if the
    member still accepts claims.
    """
    note = require_reason(reason)
    repeat(partial(_plan_again, claim_id, note))
    return view_claim(claim_id)


def move_reserved(*, claim_id: int, reason: str) -> ClaimView:
    """Reserves a slot on another member; plan and approvals stay. Without a free slot the call
    fails, unless the member is closing: then the claim waits without a slot.
    """
    note = require_reason(reason)
    repeat(partial(_move, claim_id, note))
    return view_claim(claim_id)


def reserve_parked() -> int:
    """Reserves slots for parked claims that seek one, in the order of their turns: on the earlier
    member if it has a free slot, else on any member. Approved claims in the queue go first. Several
    allocators may run this at the same time. Returns the number of reserved slots.
    """
    found = 0
    for row in tasks_sql.seekers(AT_A_TIME):
        found += repeat(partial(_reserve_again, row))
    if found:
        publish("events", "slots")
    if wanting := {row.pool_id for row in tasks_sql.seeking_pools()}:
        request_scaling(wanting)
    return found


def bind_approved() -> int:
    """Binds approved claims in the queue to the member that has their saved plan, if it has a free
    slot. Other approved claims stay first in their queue and take any slot.
    """
    found = 0
    for row in tasks_sql.queued_applies(AT_A_TIME):
        if row.member_id is None:
            continue
        bind = partial(
            claims_sql.bind_near,
            claim=row.id,
            member=row.member_id,
            pool=row.pool_id,
            lanes=row.lanes,
            queue=row.queue,
            actor=current_actor(),
        )
        found += len(repeat(bind))
    if found:
        publish("events", "slots", "operations")
    return found


def _extend(claim_id: int, seconds: float, note: str) -> None:
    with transaction.atomic():
        claim = lock_claim(claim_id)
        check_pending(claim)
        row = tasks_sql.extend(claim=claim_id, seconds=seconds)
        assert row is not None  # the claim is locked and pending
        if tasks_sql.is_too_far(claim=claim_id, longest=MAX_EXTENSION_SECONDS):
            raise Refused(
                f"Claim {claim_id} would wait for more than 30 days from now.",
                code="too_far",
                way_out="Extend it by less now and again later.",
            )
        until = {"seconds": seconds, "expires_at": rfc3339(row.expires_at)}
        record(
            "extend", pool_id=row.pool_id, claim_id=claim_id, generation=row.generation,
            before=row.state, after=row.state, reason=note, data=until,
        )  # fmt: skip
        publish("claims")


def _plan_again(claim_id: int, note: str) -> None:
    with transaction.atomic():
        # Shared row lock: the workspace cannot be locked before this transaction ends.
        workspace = claims_sql.share_workspace_of(claim=claim_id)
        is_locked = workspace is not None and workspace.is_locked
        claim = lock_claim(claim_id)
        is_approved = claim.state in ("waiting", "blocked") and claim.step == "apply"
        if not is_approved:
            check_pending(claim)
        generation, actor = claim.generation, current_actor()
        if claim.state == "reserved":
            slot = tasks_sql.slot_of(claim=claim_id)
            if not is_locked and slot is not None and _accepts_claims(slot.member_id):
                claims_sql.resume_planning(
                    claim=claim_id, generation=generation, actor=actor, reason=note
                )
                publish("slots", "events")
                return
            release_slots(
                claim_id, claim.generation, Ending("parked", "", "park", note, is_clean=True)
            )
        claims_sql.plan_anew(claim=claim_id, generation=generation, actor=actor, reason=note)
        if is_locked:
            claims_sql.block_unparked(
                claim=claim_id,
                actor=current_actor(),
                reason="its workspace is locked",
            )
        publish("claims", "events")


def _accepts_claims(member_id: int) -> bool:
    member = tasks_sql.member_state(member=member_id)
    return member is not None and member.is_ready and not member.is_closing


def _move(claim_id: int, note: str) -> None:
    with transaction.atomic():
        claim = lock_claim(claim_id)
        check_pending(claim)
        slot = tasks_sql.slot_of(claim=claim_id)
        if slot is None or claim.size != 1:
            way_out = "The claim gets a slot after its approval, or earlier if a slot becomes free."
            raise Conflict(
                f"Claim {claim_id} waits without a slot: it has no slot to move.",
                code="not_reserved",
                way_out=way_out,
            )
        release_slots(
            claim_id, claim.generation, Ending("parked", "", "leave", note, is_clean=True)
        )
        lanes = claims_sql.lanes_of(shapes=[claim.shape_id])[0].lanes
        if _reserve_any(claim_id, claim.generation, slot.pool_id, lanes, but=slot.member_id):
            publish("slots", "events")
            return
        if _accepts_claims(slot.member_id):
            text = (
                f"No other member of its pool has a free slot for claim {claim_id}. The claim "
                f"stays on {slot.member}."
            )
            raise Conflict(
                text,
                code="no_place",
                way_out="Free a slot on another member or add a member, then move it.",
            )
        tasks_sql.start_seeking(claim=claim_id)
        publish("claims", "slots", "events")


def _reserve_any(
    claim_id: int, generation: int, pool_id: int | None, lanes: list[str], *, but: int | None = None
) -> bool:
    """Reserves a slot in the first lane that has one. `but`: a member to leave out."""
    return any(
        claims_sql.reserve_again(
            claim=claim_id,
            generation=generation,
            pool=pool_id,
            lane=lane,
            but=but,
            actor=current_actor(),
        )
        for lane in lanes
    )


def _reserve_again(row: tasks_sql.SeekersRow) -> bool:
    with transaction.atomic():
        if (
            row.rank > 0
            and row.pool_id is not None
            and tasks_sql.approved_wait(pool=row.pool_id, lanes=row.lanes)
        ):
            return False
        if row.member_id is not None and claims_sql.reserve_near(
            claim=row.id,
            generation=row.generation,
            member=row.member_id,
            pool=row.pool_id,
            lanes=row.lanes,
            actor=current_actor(),
        ):
            return True
        return _reserve_any(row.id, row.generation, row.pool_id, row.lanes)


def check_pending(claim: claims_sql.LockClaimRow) -> None:
    """Raises unless a locked claim waits for a decision and its deadline has not passed."""
    if claim.state not in PENDING:
        was = (
            f"has ended: {claim.outcome}"
            if claim.state == "ended"
            else f"is {claim.state}, at its {claim.step or 'hold'}"
        )
        way_out = "No action is needed." if claim.state == "ended" else "Read the claim again."
        raise Conflict(
            f"Claim {claim.id} does not wait for an approval: the claim {was}.",
            code="not_pending",
            way_out=way_out,
            state=claim.state,
        )
    if claim.is_over:
        raise too_late(claim)


def too_late(claim: claims_sql.LockClaimRow) -> Conflict:
    assert claim.expires_at is not None  # a pending claim has a deadline
    return Conflict(
        f"The decision deadline of claim {claim.id} passed at {claim.expires_at:%Y-%m-%d %H:%M:%S} "
        "UTC.",
        code="expired",
        way_out="Create a new claim: it plans again.",
        expires_at=rfc3339(claim.expires_at),
    )


served_first.extend([bind_approved, reserve_parked])
