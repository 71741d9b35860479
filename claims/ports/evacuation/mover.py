"""Moves the claims of an evacuated member to other members, one at a time.

Make before break: one statement hands the claim its new slots, and its address changes with it. The
slots that it leaves drain by their rows, but are given to the provider as held (`slots_outside`),
so their listeners serve on. Once the new ports are ready, the old slots really drain, for as long
as the pool lets slots drain, and the next claim moves. If the new ports fail, the claim takes its
former slots back. While the provider does not answer, no further claim moves.

Each step is one short transaction. It locks the evacuation (a second mover skips it), then the
claim, then slots. A process that dies between two steps leaves a claim that has moved whole, or not
at all.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Literal

from django.db import transaction

from claims import claims_sql
from claims.allocation.bind import notify_bound
from claims.allocation.claim_view import ClaimView
from claims.allocation.requests.pool_facts import PoolFacts
from claims.allocation.scale_request import request_scaling
from claims.allocation.selectors import view_claim
from claims.lifecycle.release import lock_claim
from claims.ports.evacuation import evacuation_sql
from claims.ports.evacuation.facts import (
    Evacuating,
    HoldingClaim,
    add_stuck,
    describe_stay,
    describe_way_out,
    list_holding,
    list_stuck,
    read_free,
    read_left,
    read_pool,
    read_room,
)
from claims.ports.evacuation.hand_over import (
    Slots,
    hand_over_ports,
    lock_left,
    return_to_member,
)
from claims.ports.evacuation.orders import finish_evacuation, stop_evacuation
from claims.ports.evacuation.plan import (
    Arrival,
    ArrivalFacts,
    Move,
    Stay,
    judge_arrival,
    plan_moves,
)
from claims.ports.evacuation.returns import return_claims
from claims.statements import repeat
from pools.lifecycle.selectors import lock_member
from project.kernel.controllers.periodic import chore, run_each
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from project.kernel.outbox.operations import add_operation
from project.kernel.ui import formatting
from project.kernel.validation import moment
from slots.members import members_sql
from slots.members.store import lane_of
from slots.models import Slot

BATCH = 20  # evacuations in one step of the chore
POLL = 1.0  # seconds between two looks at new ports
TRY_AGAIN = 5.0  # seconds until claims that cannot move are planned again
RETRY = 600.0  # seconds until a claim moves again after its new ports failed
FAILED_ONCE, FAILED_AGAIN = 30.0, 600.0  # seconds until the next move after failed ones

Stuck = Mapping[str, str]  # code, reason, way out, and the time of a failed move
Step = Literal["nothing", "moved", "waits", "stuck", "arrived", "taken_back", "empty"]


@chore("evacuations", every=1.0)
def move_claims() -> bool:
    """Take the next step of each evacuation."""
    rows = evacuation_sql.due_evacuations(BATCH)
    run_each([row.member_id for row in rows], step_evacuation)
    return len(rows) == BATCH


def step_evacuation(member_id: int) -> Step:
    """Take one step of an evacuation that is due: move a claim, look at the claim that moves, or
    end the evacuation of an empty member.
    """
    step, pool_id = repeat(partial(_step, member_id))
    if step == "empty":
        finish_evacuation(member_id)
    elif step == "stuck" and pool_id is not None:
        request_scaling([pool_id])
    return step


def undo_evacuation(*, member_id: int, reason: str = "", returns_claims: bool = False) -> int:
    """Stop further moves and uncordon the member, unless it was cordoned before. The claim that
    moves takes its former slots back if they still serve. Claims that have arrived stay where they
    are; with `returns_claims` they go back, too, as far as their former slots still drain. Returns
    how many of these go back.
    """
    repeat(partial(_undo, member_id, reason))
    return return_claims(member_id=member_id, reason=reason) if returns_claims else 0


def _undo(member_id: int, reason: str) -> None:
    with transaction.atomic():
        pool, member = lock_member(member_id)
        row = evacuation_sql.lock_any(member=member_id)
        if row is None:
            return
        if row.claim_id is not None:
            left = read_left(row.generation)
            is_arriving = _judge(row, left).action == "arrive"
            claim = None if is_arriving else _lock_returning(row, left)
            if claim is not None:
                _take_back(row, claim, left, f"the evacuation of {row.name} was undone")
        stop_evacuation(pool, member, reason)


def _step(member_id: int) -> tuple[Step, int | None]:
    with transaction.atomic():
        row = evacuation_sql.lock_due(member=member_id)
        if row is None:
            return "nothing", None
        if row.state in ("deleting", "gone"):
            return "empty", None
        if row.claim_id is not None:
            return _follow(row), None
        if row.is_paused or row.pool_state != "active":
            state = "paused or frozen" if row.is_paused else row.pool_state
            _postpone(row, f"Pool {row.pool} is {state}", TRY_AGAIN)
            return "waits", None
        return _move_next(row)


# -- the claim that moves --------------------------------------------------------------------------


def _follow(row: Evacuating) -> Step:
    left = read_left(row.generation)
    arrival = _judge(row, left)
    limit = read_pool(row.pool_id).spec.drain_limit
    claim = _lock_returning(row, left) if arrival.action == "take_back" else None
    if claim is not None and _take_back(row, claim, left, arrival.reason):
        return "taken_back"
    # A pool that is paused hands out no slots, not even former ones: they serve until it does.
    if arrival.action == "wait" or claim is not None:
        evacuation_sql.serve_on(member=row.member_id, limit=limit)
        _postpone(row, arrival.reason, POLL)
        return "waits"
    evacuation_sql.end_move(
        member=row.member_id, limit=limit, moved=arrival.reason != "the claim has ended"
    )
    _sync(row)
    _tell(row, f"claim {row.claim_id} has left")
    _notify()
    return "arrived"


def _judge(row: Evacuating, left: Slots) -> Arrival:
    assert row.claim_id is not None
    claim = view_claim(row.claim_id)
    return judge_arrival(
        read_arrival(
            claim,
            list(left.values()),
            is_serving=_is_serving(row),
            was_ready=row.was_ready,
            waited=row.waited,
        )
    )


def _is_serving(row: Evacuating) -> bool:
    """Whether slots that the moving claim has left still serve. No lock: the claim comes first."""
    left = Slot.objects.filter(
        member_id=row.member_id,
        state="draining",
        last_claim_id=row.claim_id,
        generation=row.generation or 0,
    )
    return left.exists()


def read_arrival(
    claim: ClaimView, ordinals: Sequence[int], *, is_serving: bool, was_ready: bool, waited: float
) -> ArrivalFacts:
    """The facts about the ports of a claim at these ordinals."""
    ports = [claim.ports[i] for i in ordinals if i < len(claim.ports)]
    if not claim.holds or not ports:
        return ArrivalFacts(is_bound=False, is_serving=is_serving, was_ready=was_ready)
    programmed = [port["conditions"][0] for port in ports]
    unmet = [(port, port["conditions"][1]) for port in ports if not port["ready"]]
    texts = [f"{port['member']} {port['number']}: {ready['reason']}" for port, ready in unmet]
    failed = [text for text, (_, ready) in zip(texts, unmet, strict=True) if ready["is_failed"]]
    return ArrivalFacts(
        is_bound=True,
        is_serving=is_serving,
        was_ready=was_ready,
        is_programmed=all(each["is_met"] for each in programmed),
        is_ready=not unmet,
        failure=failed[0] if failed else "",
        waits_for=texts[0] if texts else "",
        waited=waited,
    )


def _lock_returning(row: Evacuating, left: Slots) -> claims_sql.LockClaimRow | None:
    """Lock the moving claim and the slots that it has left. None: it cannot take them back, because
    it has ended or shrunk, or the slots or their member do not serve any more.
    """
    assert row.claim_id is not None and row.generation is not None
    claim = lock_claim(row.claim_id)
    is_whole = lock_left(row.generation, left, claim.size)
    return claim if claim.state == "bound" and row.state == "ready" and is_whole else None


def _take_back(row: Evacuating, claim: claims_sql.LockClaimRow, left: Slots, why: str) -> bool:
    """Give the locked claim the slots that it has left. False: the pool takes no claims now."""
    if return_to_member(row.member_id, claim, left, why) is None:
        return False
    about = describe_stay(
        "failed",
        f"Its new ports failed, and it went back: {why}",
        "Correct the cause, then order the evacuation again.",
    )
    is_first = row.failed_in_row == 0
    evacuation_sql.fail_move(
        member=row.member_id,
        stuck=add_stuck(row.stuck, claim.id, about),
        waits_for=f"Claim {claim.id} went back: {why}"[:500],
        seconds=FAILED_ONCE if is_first else FAILED_AGAIN,
    )
    _notify()
    return True


# -- the next claim --------------------------------------------------------------------------------


def _move_next(row: Evacuating) -> tuple[Step, int | None]:
    holding = list_holding(row.member_id)
    if not holding:
        is_empty = members_sql.is_member_empty(member=row.member_id)
        _postpone(row, "" if is_empty else "Connections of its last claims end", POLL)
        return ("empty" if is_empty else "waits"), None
    pool = read_pool(row.pool_id)
    resting = _list_resting(row.stuck)
    trying = [each for each in holding if str(each.id) not in resting]
    movable = [each.movable for each in trying]
    outcomes = list(plan_moves(movable, read_free(pool, row.member_id, movable)))
    stays = [each for each in outcomes if isinstance(each, Stay)]
    stuck = resting | _describe(stays, pool)
    move = next((each for each in outcomes if isinstance(each, Move)), None)
    if move is not None:
        claim = next(each for each in trying if each.id == move.claim.id)
        is_moved = _move(row, pool, claim, move, stuck)
        if not is_moved:  # its holder or another claim was faster
            _postpone(row, row.waits_for, POLL)
        return ("moved" if is_moved else "waits"), None
    wanted: dict[str, int] = {}
    for stay in stays:
        for lane, count in stay.wants.items():
            wanted[lane] = wanted.get(lane, 0) + count
    evacuation_sql.note_stuck(
        member=row.member_id,
        stuck=json.dumps(stuck),
        wanted=json.dumps(wanted),
        is_scattered=any(stay.needs_room and stay.code != "full" for stay in stays),
        seconds=TRY_AGAIN,
    )
    before = {claim_id: about["code"] for claim_id, about in list_stuck(row.stuck).items()}
    if before != {int(claim_id): about["code"] for claim_id, about in stuck.items()}:
        _tell(row, f"{formatting.plural(len(stuck), 'claim')} cannot move now")
    return "stuck", row.pool_id if wanted else None


def _move(
    row: Evacuating,
    pool: PoolFacts,
    planned: HoldingClaim,
    move: Move,
    stuck: Mapping[str, Stuck],
) -> bool:
    """Hand the claim over to its targets. False: the claim or a target has changed since."""
    claim = lock_claim(planned.id)
    if claim.state != "bound" or claim.generation != planned.generation:
        return False
    slots = [target.slot for target in move.targets.values()]
    if sum(each.is_free for each in evacuation_sql.lock_targets(slots=slots)) != len(slots):
        return False
    why = f"{row.name} is evacuated by {row.by}: {row.reason}"[:500]
    left = {port.slot: port.ordinal for port in planned.movable.ports}
    targets = {target.slot: ordinal for ordinal, target in move.targets.items()}
    before = hand_over_ports(row.member_id, claim, left, targets, why)
    if before is None:
        return False
    if row.queue:
        evacuation_sql.start_move(
            member=row.member_id,
            claim=claim.id,
            generation=claim.generation,
            was_ready=all(before.ports[ordinal]["ready"] for ordinal in left.values()),
            stuck=json.dumps(stuck),
        )
    else:  # the provider has no objects: the slots were free at once
        evacuation_sql.count_move(member=row.member_id, stuck=json.dumps(stuck))
    notify_bound([pool])
    _notify()
    return True


def _list_resting(stuck: str) -> dict[str, Stuck]:
    """The claims that went back a short time ago or by order, with what is known of each."""
    now = moment()
    return {
        str(claim_id): about
        for claim_id, about in list_stuck(stuck).items()
        if about["code"] == "returned"
        or (
            about["code"] == "failed"
            and (now - datetime.fromisoformat(about["at"])).total_seconds() < RETRY
        )
    }


def _describe(stays: Sequence[Stay], pool: PoolFacts) -> dict[str, Stuck]:
    if not stays:
        return {}
    room = read_room(pool)
    return {
        str(stay.claim.id): {
            "code": stay.code,
            "reason": stay.reason,
            "way_out": describe_way_out(stay, room),
        }
        for stay in stays
    }


def _postpone(row: Evacuating, waits_for: str, seconds: float) -> None:
    text = waits_for[:500]
    evacuation_sql.postpone(member=row.member_id, waits_for=text, seconds=seconds)
    if text != row.waits_for:
        _tell(row, text)


def _sync(row: Evacuating) -> None:
    """Let the provider drain what the claim has left."""
    if row.queue:
        add_operation(
            queue=row.queue,
            lane=lane_of(row.member_id),
            kind="sync",
            pool_id=row.pool_id,
            member_id=row.member_id,
        )


def _tell(row: Evacuating, text: str) -> None:
    """An event of the member, by which open pages show the progress."""
    record("evacuation", pool_id=row.pool_id, member_id=row.member_id, reason=text)


def _notify() -> None:
    publish("events", "operations")
