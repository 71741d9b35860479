"""Shared by all ways to create a claim: the columns and rows of their statements, the view of the
new claim, and its notifications.
"""

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TypedDict

from django.db import connection

from claims import claims_sql
from claims.allocation.bind import notify_bound
from claims.allocation.claim_view import ClaimView, HeldSlot, set_deadlines
from claims.allocation.requests.claim_request import ClaimRequest
from claims.allocation.requests.pool_facts import PoolFacts
from claims.allocation.requests.resolve import Route
from claims.allocation.scale_request import request_scaling
from claims.allocation.wait_reason import explain_claims
from claims.kinds import StoredPart
from claims.statements import TAKEN, is_transient, sqlstate
from claims.workspaces.services import WorkspaceEntry
from pools.access.tokens import CachedToken
from pools.config.spec import LeaseSpec
from project.kernel.actor import current_actor
from project.kernel.db.after_commit import after_commit
from project.kernel.errors import Conflict
from project.kernel.events.notify import publish

NO_PLACE = WorkspaceEntry(None, "waiting", "")
NO_LEASE = LeaseSpec()
BoundRow = (
    claims_sql.CreateAndBindRow
    | claims_sql.CreateGatheredRow
    | claims_sql.CreateBatchRow
    | claims_sql.CreateAndBindSeveralRow
)
CreatedRow = BoundRow | claims_sql.CreateRow

logger = logging.getLogger(__name__)


class ClaimColumns(TypedDict):
    """The columns that each statement for a new claim writes."""

    shape: int
    pool: int | None
    owner: str
    requested_by: str
    key: str | None
    digest: bytes | None
    rank: int
    spec: str
    workspace: int | None
    is_serial: bool
    step: str
    state: str
    actor: str
    reason: str


def columns(request: ClaimRequest, route: Route, place: WorkspaceEntry = NO_PLACE) -> ClaimColumns:
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
        "step": request.step,
        "state": place.state,
        "actor": current_actor(),
        "reason": place.reason,
    }


def create_single(
    route: Route, values: ClaimColumns, cached_token: CachedToken | None = None
) -> claims_sql.CreateAndBindRow | None:
    """Creates a simple claim. None: its key exists, the cached facts about its pool are outdated,
    or the caller (`cached_token`) has lost a permission.
    """
    pool = route.pools[0]
    assert pool is not None
    token = None if cached_token is None else cached_token.hash
    token_facts = None if cached_token is None else cached_token.facts
    if pool.queue:
        return claims_sql.create_and_bind(
            queue=pool.queue, revision=pool.revision, lanes=route.lanes, pool_name=pool.name,
            line=route.digest, token=token, told=token_facts, **values,
        )  # fmt: skip
    return claims_sql.create_and_bind_here(
        revision=pool.revision, lanes=route.lanes, pool_name=pool.name,
        line=route.digest, token=token, told=token_facts, **values,
    )  # fmt: skip


def create_several(
    route: Route, values: ClaimColumns, parts: Sequence[StoredPart]
) -> list[claims_sql.CreateAndBindSeveralRow]:
    """Creates a claim of several slots, or of ports, that needs no search. No row: its key exists,
    or the cached facts about its pool are outdated.
    """
    pool = route.pools[0]
    assert pool is not None
    ordinals, first = defaultdict[str, list[int]](list), 0
    for lane, size in route.lane_runs:
        ordinals[lane] += range(first, first + size)
        first += size
    most = 1 << (route.total - 1).bit_length()  # rounded up: each number is a statement of its own
    return claims_sql.create_and_bind_several(
        most, shape=route.shape, pool=pool.id, revision=pool.revision, pool_name=pool.name,
        queue=pool.queue, line=route.digest, lanes=route.lanes,
        counts=[len(ordinals[lane]) for lane in route.lanes],
        ordinals=list(chain.from_iterable(ordinals[lane] for lane in route.lanes)),
        size=route.total, parts=json.dumps(parts), owner=values["owner"],
        requested_by=values["requested_by"], key=values["key"], digest=values["digest"],
        rank=values["rank"], spec=values["spec"], step=values["step"], actor=values["actor"],
    )  # fmt: skip


def claim_made(
    request: ClaimRequest,
    route: Route,
    row: CreatedRow,
    spec: str,
    place: WorkspaceEntry = NO_PLACE,
) -> ClaimView:
    """The view of a new claim, from the row of the statement that created it: no second read."""
    claim = ClaimView(
        id=row.id, pool=route.names[0], pools=list(route.names), kind=route.kind, size=request.size,
        state=row.state, generation=row.generation, created_at=row.created_at, owner=request.owner,
        requested_by=request.requested_by, priority=request.priority, key=request.key,
        workspace=request.workspace or None, workspace_pool=place.owner or None,
        workspace_id=place.workspace, task=request.task,
        pool_id=route.pools[0].id if route.pools[0] else None, shape_id=route.shape,
        total=route.total, rank=request.rank, step=request.step,
        is_serial=request.is_serial, terms=request.terms,
        spec=json.loads(spec) if len(spec) > 2 else {},
    )  # fmt: skip
    if row.state == "bound" and not isinstance(
        row, claims_sql.CreateRow | claims_sql.CreateAndBindSeveralRow
    ):
        _show_slots(claim, route.names[0], [row])
    return claim


def several_made(
    request: ClaimRequest,
    route: Route,
    rows: Sequence[claims_sql.CreateAndBindSeveralRow],
    spec: str,
) -> ClaimView:
    """The view of a new claim that `create_several` has created."""
    claim = claim_made(request, route, rows[0], spec)
    if claim.state == "bound":
        _show_slots(claim, route.names[0], rows)
    return claim


def _show_slots(claim: ClaimView, pool: str, rows: Sequence[BoundRow]) -> None:
    """The slots of a bound claim, from the rows of the statement that created it."""
    claim.bound_at = rows[0].bound_at
    for row in rows:
        # The statement returns all columns of the slots of a bound claim.
        assert row.slot_id is not None and row.member_id is not None and row.member is not None
        assert row.lane is not None and row.number is not None and row.labels is not None
        slot = HeldSlot(
            row.slot_id, pool, row.member_id, row.member, row.lane, row.number,
            _read_labels(row.labels),
        )  # fmt: skip
        if isinstance(row, claims_sql.CreateAndBindSeveralRow):
            assert row.addresses is not None
            slot.addresses = row.addresses
        claim.slots.append(slot)
    set_deadlines(claim)


def set_bound(
    claim: ClaimView, rows: Sequence[claims_sql.HandOverRow], pools: Sequence[PoolFacts]
) -> None:
    """Shows a new claim with the slots that it got in its transaction, if any."""
    if not rows:
        return
    names = {pool.id: pool.name for pool in pools}
    claim.state = "bound"
    claim.generation, claim.bound_at, claim.total = rows[0].generation, rows[0].bound_at, len(rows)
    claim.slots = [
        HeldSlot(
            row.id, names[row.pool_id], row.member_id, row.member, row.lane, row.number,
            _read_labels(row.labels), addresses=row.addresses,
        )
        for row in rows
    ]  # fmt: skip
    set_deadlines(claim)


def _read_labels(labels: str) -> Mapping[str, str]:
    return json.loads(labels) if labels != "{}" else {}


def may_repeat(request: ClaimRequest, error: BaseException) -> bool:
    """Whether the claim can be created again after this error. Without a key this needs an error
    that rules out a commit: after a lost connection the claim may exist.
    """
    return request.key is not None or is_transient(error) or sqlstate(error) in TAKEN


def notify_made(pools: list[PoolFacts], *, any_bound: bool, any_waiting: bool) -> None:
    if any_bound:
        notify_bound(pools)
    if any_waiting:
        publish("claims", "events")
        # After the commit, in a transaction of its own: many claims update the same row
        # of the pool.
        after_commit(request_scaling, [pool.id for pool in pools])


def explain_made(
    claims: list[ClaimView], explain: Callable[[list[ClaimView]], None] | None = None
) -> None:
    """Sets the wait reasons. The claims exist, so an error here must not fail the call: its caller
    would create them again.
    """
    try:
        (explain or explain_claims)(claims)
    except Exception as error:
        if connection.in_atomic_block:  # the caller's transaction is lost as a whole
            raise
        logger.warning("claims were created, but their wait reasons could not be read: %s", error)


def check_same(request: ClaimRequest, claim: int, digest: bytes | None) -> None:
    """Raises `Conflict` if the key was used for another request."""
    if digest is None or bytes(digest) != request.digest():
        raise Conflict(
            f"This key was used for another request, which is claim {claim}.",
            code="key_reused",
            way_out="Use a new key for a new request.",
            claim=claim,
        )
