"""Creates a claim: bound at once, or waiting with its reason.

A simple claim (one slot, one pool, no terms, no workspace) takes one statement outside any
transaction block: it decides, binds, and writes the event and the operation. So does a claim of
several slots, or of ports, that any free slots of some lanes of one pool serve. Other claims take a
few statements in one transaction, which locks pools, workspace, claim and slots in this order.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from django.db import DatabaseError, transaction

from claims import claims_sql
from claims.allocation.bind import (
    assign_slots,
    bind_new_claim,
    notify_bound,
    overtake_waiters,
)
from claims.allocation.claim_view import ClaimView
from claims.allocation.metrics import CREATED
from claims.allocation.new_claim import (
    NO_PLACE,
    check_same,
    claim_made,
    columns,
    create_several,
    create_single,
    explain_made,
    notify_made,
    set_bound,
    several_made,
)
from claims.allocation.requests.claim_request import ClaimRequest
from claims.allocation.requests.demands import stored_parts
from claims.allocation.requests.pool_facts import find_pools
from claims.allocation.requests.resolve import Route, find_route
from claims.allocation.selectors import view_claim
from claims.kinds import Attach, StoredPart, complete_new_view, is_work_missing, prepare_work
from claims.statements import TAKEN, constraint, repeat, sqlstate
from claims.workspaces.services import WorkspaceEntry, enter_workspace
from pools.config.layout import default_kind
from project.kernel.errors import (
    BerthError,
    Conflict,
    NotFound,
    Refused,
    Unavailable,
    wrong_field,
)
from project.kernel.events.notify import publish
from slots.members import members_sql

TRIES = 4
CLOSED = "The slot is closed: its pool or its member takes no new claims."
ANOTHER = "Claim another slot, or wait for any."


def create_claim(request: ClaimRequest) -> ClaimView:
    """The new claim, or the claim that the same key and request have created before. Raises a
    `BerthError` for a request that could never be served.
    """
    create = _create if request.slot is None else partial(_create_named, request.slot)
    claim = repeat(partial(create, request), also=frozenset({"23505"}))
    if not claim.is_replay:
        CREATED.labels(claim.state).inc()
    if claim.is_waiting:
        explain_made([claim])
    return claim


def find_by_key(request: ClaimRequest) -> ClaimView | None:
    """The claim that the request's key has created before, if any."""
    if request.key is None:
        return None
    row = claims_sql.claim_by_key(requested_by=request.requested_by, key=request.key)
    if row is None:
        return None
    check_same(request, row.id, row.body_digest)
    claim = view_claim(row.id)
    claim.is_replay = True
    return claim


def _create(request: ClaimRequest) -> ClaimView:
    for turn in range(TRIES):
        try:
            # The configuration of the pool decides which work may run, and no statement checks
            # it again. Parts depend on the route only, which is checked.
            needs_fresh_pool = request.work is not None and not request.parts
            route = find_route(request, fresh=turn > 0 or needs_fresh_pool)
            if is_work_missing(request, route.pools[0]):  # a new pool may have the name by now
                route = find_route(request, fresh=True)
            work = prepare_work(request, route.pools[0])
        except BerthError:  # a repeated call gets its claim even if the request is refused by now
            if (earlier := find_by_key(request)) is not None:
                return earlier
            raise
        if request.is_plain and route.is_simple and route.is_whole:
            claim = _create_simple(request, route)
        else:
            parts = stored_parts(request.parts, route.widths) if request.parts else []
            if route.lane_runs and not request.workspace and not work:
                claim = _create_several(request, route, parts)
            else:
                claim = _create_in_transaction(request, route, work, parts)
            if claim is not None:
                complete_new_view(claim, request, parts, route.pools)
        if claim is not None:
            return claim
        if (earlier := find_by_key(request)) is not None:
            return earlier
    raise Unavailable("The pool keeps changing.", way_out="Send the same call again.")


def _enter_workspace(request: ClaimRequest, route: Route) -> WorkspaceEntry:
    ids = (None if pool is None else pool.id for pool in route.pools)
    pools = list(zip(route.names, ids, strict=True))
    return enter_workspace(request.workspace, pools, is_serial=request.is_serial)


def _create_simple(
    request: ClaimRequest, route: Route, place: WorkspaceEntry = NO_PLACE
) -> ClaimView | None:
    values = columns(request, route, place)
    row = create_single(route, values)
    if row is None:
        return None
    notify_made(route.found, any_bound=row.state == "bound", any_waiting=row.state == "waiting")
    if row.state == "blocked":
        publish("claims", "events")
    return claim_made(request, route, row, values["spec"], place)


def _create_several(
    request: ClaimRequest, route: Route, parts: Sequence[StoredPart]
) -> ClaimView | None:
    values = columns(request, route)
    rows = create_several(route, values, parts)
    if not rows:
        return None
    claim = several_made(request, route, rows, values["spec"])
    is_bound = claim.state == "bound"
    notify_made(route.found, any_bound=is_bound, any_waiting=not is_bound)
    return claim


def _create_in_transaction(
    request: ClaimRequest, route: Route, work: Sequence[Attach], parts: Sequence[StoredPart]
) -> ClaimView | None:
    with transaction.atomic():
        if not _lock_route(route):
            return None
        place = _enter_workspace(request, route)
        if route.is_simple and route.is_whole and not parts:
            claim = _create_simple(request, route, place)
            if claim is not None:
                attach_work(claim.id, work)
            return claim
        values = columns(request, route, place)
        row = claims_sql.create(size=route.total, parts=json.dumps(parts), **values)
        if row is None:
            return None
        attach_work(row.id, work)
        pools, claim = route.found, claim_made(request, route, row, values["spec"], place)
        if place.state == "waiting" and route.is_whole:
            set_bound(claim, bind_new_claim(row.id, route.wanted, pools, route.kind), pools)
        if claim.state == "waiting":
            notify_made(pools, any_bound=False, any_waiting=True)
        elif claim.state == "blocked":
            publish("claims", "events")
        return claim


def attach_work(claim_id: int, work: Sequence[Attach]) -> None:
    for attach in work:
        attach(claim_id)


def _lock_route(route: Route) -> bool:
    """Locks the pools and the queue, so that none of them is deleted before the claim exists. False
    if the queue is gone, or a pool has changed since the route was found.
    """
    known = {pool.id: pool.revision for pool in route.found}
    if not known:
        return claims_sql.hold_queue(queue=route.shape, digest=route.digest) is not None
    rows = claims_sql.lock_route(pools=list(known), queue=route.shape, digest=route.digest)
    return {row.id: row.revision for row in rows if row.state in ("pending", "active")} == known


def _create_named(slot_id: int, request: ClaimRequest) -> ClaimView:
    """Creates a claim of this slot. It never waits: `Conflict` unless the slot is free and no
    earlier claim waits for it.
    """
    request = _with_place_of(slot_id, request)
    if (earlier := find_by_key(request)) is not None:
        return earlier
    work = prepare_work(request, find_route(request, fresh=True).pools[0])
    try:
        with transaction.atomic():
            route = find_route(request, fresh=True)
            if not _lock_route(route):
                raise Unavailable(
                    "The pool changes at this moment.", way_out="Send the same call again."
                )
            place = _enter_workspace(request, route)
            if place.state != "waiting":
                raise Conflict(
                    f"Workspace {request.workspace} is busy: {place.reason}.",
                    code="workspace_busy",
                    way_out="Claim it later.",
                )
            row = claims_sql.create(size=1, parts="[]", **columns(request, route, place))
            if row is None:
                raise Unavailable(
                    "The same key is in use at this moment.", way_out="Send the same call again."
                )
            attach_work(row.id, work)
            _check_free(members_sql.lock_named(slots=[slot_id]))
            if not overtake_waiters(row.id, [slot_id], may_pass=False):
                raise Conflict(
                    "Other claims wait for a slot like this one.",
                    code="others_wait",
                    way_out="Claim it with a higher priority.",
                )
            if not assign_slots(row.id, [slot_id], reason="this slot was named"):
                # The pool has just been paused.
                raise Conflict(CLOSED, code="slot_taken", way_out=ANOTHER)
            notify_bound(route.found)
    except DatabaseError as error:
        if sqlstate(error) in TAKEN and constraint(error) != "claim_serial":
            raise Conflict(
                f"Slot {slot_id} is taken.", code="slot_taken", way_out="Claim another slot."
            ) from error
        raise
    return view_claim(row.id)


def _with_place_of(slot_id: int, request: ClaimRequest) -> ClaimRequest:
    """The request, with the slot's pool and a kind that the slot's lane serves."""
    row = claims_sql.slot_place(slot=slot_id)
    if row is None:
        raise NotFound(f"There is no slot {slot_id}.", way_out="Look at the slots of the pool.")
    if request.pools and request.pools != (row.pool,):
        raise wrong_field("slot", f"Slot {slot_id} is in pool {row.pool}.", "Leave the pool out.")
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


def _check_free(row: members_sql.LockNamedRow | None) -> None:
    if row is not None and row.state == "idle" and row.is_open:
        return
    text = {
        "gone": "The slot does not exist any more.",
        "idle": CLOSED,
        "held": "A claim holds the slot.",
        "reserved": "The slot is reserved for a claim that waits for its approval.",
        "draining": "The slot drains after its last claim.",
        "retired": "The slot is retired.",
    }["gone" if row is None else row.state]
    raise Conflict(text, code="slot_taken", way_out=ANOTHER)
