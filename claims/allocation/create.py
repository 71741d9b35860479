"""A new claim: bound at once, or waiting with its reason.

A simple one (one slot, one pool, no terms, no workspace) is one statement outside any
transaction block: it decides, binds and tells, and those that are asked for at the same moment
share it (`thread_batching`).
The others are a few statements in one transaction, in the order of locks: pools, workspace,
claim, slots.
"""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from django.db import DatabaseError, connection, transaction

from claims import claims_sql, lines_sql
from claims.allocation.bind import assign_slots, bind_claim, notify_bound, overtake_waiters
from claims.allocation.claim_view import ClaimView, HeldSlot, set_deadlines
from claims.allocation.metrics import CREATED
from claims.allocation.requests.claim_request import ClaimRequest
from claims.allocation.requests.resolve import (
    PoolFacts,
    Route,
    find_cached_route,
    find_pools,
    find_route,
)
from claims.allocation.scale_request import request_scaling
from claims.allocation.selectors import view_claim
from claims.allocation.thread_batching import create_batched
from claims.allocation.wait_reason import explain_claims
from claims.kinds import Attach, is_work_missing, prepare_work
from claims.statements import TAKEN, constraint, is_transient, repeat, sqlstate
from claims.workspaces.services import WorkspaceEntry, enter_workspace
from pools.access.tokens import CachedToken
from pools.config.layout import default_kind
from pools.config.spec import LeaseSpec
from project.kernel.actor import current_actor
from project.kernel.db.after_commit import after_commit
from project.kernel.errors import (
    BerthError,
    Conflict,
    FieldError,
    Invalid,
    NotFound,
    Refused,
    Unavailable,
)
from project.kernel.events.notify import publish
from slots.members import members_sql

TRIES = 4
NO_PLACE = WorkspaceEntry(None, "waiting", "")
NO_LEASE = LeaseSpec()
CLOSED = "It is closed: its pool or its member takes nothing new."
ANOTHER = "Claim another one, or wait for any."

logger = logging.getLogger(__name__)


def create_claim(request: ClaimRequest) -> ClaimView:
    """201 or 202 in one value: `state` says whether it is bound. A key that was used for the
    same request answers with that claim.
    """
    if request.slot is not None:
        return claim_named_slot(slot_id=request.slot, request=request)
    return _count_made(repeat(partial(_create, request), also=frozenset({"23505"})))


def create_at_once(request: ClaimRequest, proof: CachedToken) -> ClaimView | None:
    """The same in one statement that makes sure of the caller, too: for a simple one whose line is
    known, so that nothing else is asked or written. None: nothing was done, for whatever reason;
    ask who calls, then create."""
    route = route_at_once(request)
    if route is None:
        return None
    try:
        claim = _create_simple(request, route, proof=proof)
    except DatabaseError as error:
        if not may_repeat(request, error):
            raise
        return None
    return None if claim is None else _count_made(claim)


def route_at_once(request: ClaimRequest) -> Route | None:
    is_plain = (
        request.is_simple
        and request.slot is None
        and not request.workspace
        and not request.task
        and request.work is None
    )
    route = find_cached_route(request) if is_plain else None
    return route if route is not None and route.is_simple else None


def may_repeat(request: ClaimRequest, error: BaseException) -> bool:
    """Without a key only what certainly was not done: the connection may be lost, and the claim
    there all the same.
    """
    return request.key is not None or is_transient(error) or sqlstate(error) in TAKEN


def _count_made(claim: ClaimView) -> ClaimView:
    if not claim.is_replay:
        CREATED.labels(claim.state).inc()
    if claim.is_waiting:
        explain_made([claim])
    return claim


def explain_made(
    claims: list[ClaimView], explain: Callable[[list[ClaimView]], None] | None = None
) -> None:
    """They are there, so that is the answer also where it can't be found out why they wait: who
    gets an error asks once more.
    """
    try:
        (explain or explain_claims)(claims)
    except Exception as error:
        if connection.in_atomic_block:  # of the caller: it is lost as a whole
            raise
        logger.warning("claims were made, and why they wait could not be found out: %s", error)


def claim_named_slot(*, slot_id: int, request: ClaimRequest) -> ClaimView:
    """This slot and no other, if it is free and nobody stands before. It never waits: what can't
    be had now is refused.
    """
    return repeat(partial(_create_named, slot_id, request), also=frozenset({"23505"}))


def find_by_key(request: ClaimRequest) -> ClaimView | None:
    """What this key got when it was used first."""
    if request.key is None:
        return None
    row = claims_sql.claim_by_key(requested_by=request.requested_by, key=request.key)
    if row is None:
        return None
    check_same(request, row.id, row.body_digest)
    claim = view_claim(row.id)
    claim.is_replay = True
    return claim


def check_same(request: ClaimRequest, claim: int, digest: Any) -> None:
    if digest is None or bytes(digest) != request.digest():
        raise Conflict(
            f"This key was used for another request, which is claim {claim}.",
            code="key_reused",
            way_out="Use a new key for a new request.",
            claim=claim,
        )


def columns(
    request: ClaimRequest, route: Route, place: WorkspaceEntry = NO_PLACE
) -> dict[str, Any]:
    """What every statement that makes a claim needs to know of it."""
    first = route.pools[0]
    return {
        "shape": route.shape,
        "pool": None if first is None else first.id,
        "owner": request.owner,
        "requested_by": request.requested_by,
        "key": request.key,
        "digest": None if request.key is None else request.digest(),
        "rank": request.rank,
        "spec": request.spec(NO_LEASE if first is None else first.spec.lease),
        "workspace": place.workspace,
        "is_serial": request.is_serial,
        "step": "plan" if request.task else "",
        "state": place.state,
        "actor": current_actor(),
        "reason": place.reason,
    }


def claim_made(
    request: ClaimRequest, route: Route, row: Any, spec: str, place: WorkspaceEntry = NO_PLACE
) -> ClaimView:
    """The answer to a simple one, from the row of the statement that made it: nothing is
    read again.
    """
    claim = ClaimView(
        id=row.id, pool=route.names[0], pools=list(route.names), kind=route.kind, size=request.size,
        state=row.state, generation=row.generation, created_at=row.created_at, owner=request.owner,
        requested_by=request.requested_by, priority=request.priority, key=request.key,
        workspace=request.workspace or None, workspace_pool=place.owner or None,
        workspace_id=place.workspace, task=request.task,
        pool_id=route.pools[0].id if route.pools[0] else None, shape_id=route.shape,
        total=route.total, rank=request.rank, step="plan" if request.task else "",
        is_serial=request.is_serial, terms=request.terms,
        spec=json.loads(spec) if len(spec) > 2 else {},
    )  # fmt: skip
    if row.state == "bound":
        claim.bound_at = row.bound_at
        claim.slots = [
            HeldSlot(
                row.slot_id,
                route.names[0],
                row.member_id,
                row.member,
                row.lane,
                row.number,
                json.loads(row.labels),
            )
        ]
        set_deadlines(claim)
    return claim


def notify_made(pools: list[PoolFacts], *, any_bound: bool, any_waiting: bool) -> None:
    if any_bound:
        notify_bound(pools)
    if any_waiting:
        publish("claims", "events")
        # In a transaction of its own, once this one has committed: the pool's row is everybody's.
        after_commit(request_scaling, [pool.id for pool in pools])


def _create(request: ClaimRequest) -> ClaimView:
    for turn in range(TRIES):
        try:
            # The configuration of the pool decides what may run, and no statement checks it
            # again.
            route = find_route(request, fresh=turn > 0 or request.work is not None)
            if is_work_missing(request, route.pools[0]):  # the name may be of a new pool by now
                route = find_route(request, fresh=True)
            work = prepare_work(request, route.pools[0])
        except BerthError:  # refused by now, but a repeated call gets what it got then
            if (earlier := find_by_key(request)) is not None:
                return earlier
            raise
        if route.is_simple and not request.workspace and request.work is None and route.is_whole:
            claim = _create_simple(request, route)
        else:
            claim = _create_in_transaction(request, route, work)
        if claim is not None:
            return claim
        if (earlier := find_by_key(request)) is not None:
            return earlier
    raise Unavailable("The pool changes all the time.", way_out="Send the same call again.")


def _create_simple(
    request: ClaimRequest,
    route: Route,
    place: WorkspaceEntry = NO_PLACE,
    proof: CachedToken | None = None,
) -> ClaimView | None:
    """None: the key exists, or what we remember of the pool, or of the caller, is old."""
    pool = route.pools[0]
    assert pool is not None
    values = columns(request, route, place)
    row = create_batched(route, values, proof)
    if row is None:
        return None
    notify_made([pool], any_bound=row.state == "bound", any_waiting=row.state == "waiting")
    if row.state == "blocked":
        publish("claims", "events")
    return claim_made(request, route, row, values["spec"], place)


def _create_in_transaction(
    request: ClaimRequest, route: Route, work: Sequence[Attach]
) -> ClaimView | None:
    with transaction.atomic():
        if (
            not _are_current(route)
            or lines_sql.hold_line(line=route.shape, digest=route.digest) is None
        ):
            return None
        place = enter_workspace(request, route)
        if route.is_simple and route.is_whole:
            claim = _create_simple(request, route, place)
            if claim is not None:
                attach_work(claim.id, work)
            return claim
        row = claims_sql.create(size=route.total, **columns(request, route, place))
        if row is None:
            return None
        attach_work(row.id, work)
        pools = route.found
        if (
            place.state == "waiting"
            and route.is_whole
            and bind_claim(row.id, route.wanted, pools, route.kind)
        ):
            return view_claim(row.id)
        if place.state == "waiting":
            notify_made(pools, any_bound=False, any_waiting=True)
        else:
            publish("claims", "events")
        return claim_made(
            request,
            route,
            row,
            request.spec(pools[0].spec.lease if route.pools[0] else NO_LEASE),
            place,
        )


def attach_work(claim_id: int, work: Sequence[Attach]) -> None:
    for attach in work:
        attach(claim_id)


def _are_current(route: Route) -> bool:
    """Locks the pools, so that none of them is deleted before the claim is there. False: one has
    changed since we looked.
    """
    known = {pool.id: pool.revision for pool in route.found}
    rows = claims_sql.lock_pools(pools=list(known)) if known else []
    return {row.id: row.revision for row in rows if row.state in ("pending", "active")} == known


def _create_named(slot_id: int, request: ClaimRequest) -> ClaimView:
    request = _with_place_of(slot_id, request)
    if (earlier := find_by_key(request)) is not None:
        return earlier
    work = prepare_work(request, find_route(request, fresh=True).pools[0])
    try:
        with transaction.atomic():
            route = find_route(request, fresh=True)
            if not _are_current(route):
                raise Unavailable(
                    "The pool changes at this moment.", way_out="Send the same call again."
                )
            place = enter_workspace(request, route)
            if place.state != "waiting":
                raise Conflict(
                    f"Workspace {request.workspace} is busy: {place.reason}.",
                    code="workspace_busy",
                    way_out="Claim it later.",
                )
            row = claims_sql.create(size=1, **columns(request, route, place))
            if row is None:
                raise Unavailable(
                    "The same key is in use at this moment.", way_out="Send the same call again."
                )
            attach_work(row.id, work)
            _check_free(members_sql.lock_named(slots=[slot_id]))
            if not overtake_waiters(row.id, [slot_id], may_pass=False):
                raise Conflict(
                    "Others wait for a slot like this one.",
                    code="others_wait",
                    way_out="Claim it with a higher priority.",
                )
            if not assign_slots(row.id, [slot_id], reason="this slot was named"):
                # Its pool has just been paused.
                raise Conflict(CLOSED, code="slot_taken", way_out=ANOTHER)
            notify_bound(route.found)
    except DatabaseError as error:
        if sqlstate(error) in TAKEN and constraint(error) != "claim_serial":
            raise Conflict(
                f"Slot {slot_id} is taken.", code="slot_taken", way_out="Claim another one."
            ) from error
        raise
    return view_claim(row.id)


def _with_place_of(slot_id: int, request: ClaimRequest) -> ClaimRequest:
    """The request for exactly that slot: its pool, and a kind that its lane serves."""
    row = claims_sql.slot_place(slot=slot_id)
    if row is None:
        raise NotFound(f"There is no slot {slot_id}.", way_out="Look at the slots of the pool.")
    if request.pools and request.pools != (row.pool,):
        raise Invalid(
            fields=[
                FieldError("slot", f"Slot {slot_id} is in pool {row.pool}.", "Leave the pool out.")
            ]
        )
    layout = find_pools([row.pool])[row.pool].spec.layout
    accepted = next((c.accepts for c in layout.classes if c.lane == row.lane), ())
    kind = request.kind or default_kind(layout) or (accepted[0] if accepted else "")
    if kind not in accepted:
        raise Refused(
            f"This slot does not serve {kind}.",
            code="kind_not_offered",
            way_out=f"Use one of {', '.join(accepted)}.",
        )
    return replace(request, pools=(row.pool,), kind=kind, slot=slot_id)


def _check_free(row: Any) -> None:
    state = "gone" if row is None else row.state
    if state == "idle" and row.is_open:
        return
    text = {
        "gone": "It is not there any more.",
        "idle": CLOSED,
        "held": "A claim holds it.",
        "reserved": "A claim holds it and waits for a person.",
        "draining": "Its last claim has left, it is being cleaned.",
        "retired": "It is not offered any more.",
    }[state]
    raise Conflict(text, code="slot_taken", way_out=ANOTHER)
