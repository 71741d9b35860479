"""Permissions on claims: the pools in which a call needs its role. The actions of each role are in
pools.access.permissions.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from claims.allocation.api import api_sql
from claims.allocation.claim_view import ClaimView
from claims.allocation.requests.claim_request import ClaimRequest
from claims.allocation.requests.pool_facts import find_pools
from claims.allocation.selectors import no_such_claim
from pools.access.permissions import OPERATOR, VIEWER, Identity, require, require_named
from project.kernel.errors import BerthError, Forbidden, NotFound, wrong_field


def require_all(
    identity: Identity, action: str, claim_id: int, pool_id: int | None, names: Sequence[str]
) -> None:
    """Requires the action in each pool of a claim: in the first by its id, if known (its name may
    belong to a new pool by now), in further pools by name. Raises `NotFound` if the caller may not
    read one of the pools.
    """
    if not may_read(identity, pool_id, names):
        raise no_such_claim(claim_id)
    if pool_id is None:
        require_named(identity, action, names)
    else:
        require(identity, action, _Ref(pool_id, names[0]))
        require_named(identity, action, names[1:])


def may_read(identity: Identity, pool_id: int | None, names: Sequence[str]) -> bool:
    first = identity.roles_in_named(names[0]) if pool_id is None else identity.roles_in(pool_id)
    return VIEWER in first and all(VIEWER in identity.roles_in_named(name) for name in names[1:])


def may_see(identity: Identity, claim: ClaimView) -> bool:
    return may_read(identity, claim.pool_id, claim.pools)


def require_change(
    identity: Identity, claim: ClaimView | api_sql.ClaimsAccessRow, action: str = ""
) -> None:
    """Claimants may change their own claims, operators all claims. `action`: the action to require
    in place of these two rules.
    """
    own = "claim" if claim.requested_by == identity.requester else "claim_any"
    require_all(identity, action or own, claim.id, claim.pool_id, claim.pools)


def require_on_claims(
    identity: Identity, claim_ids: Iterable[int]
) -> dict[int, api_sql.ClaimsAccessRow | BerthError]:
    """The claims that the caller may change, or the refusals, by id."""
    found: dict[int, api_sql.ClaimsAccessRow | BerthError] = {}
    for row in api_sql.claims_access(claims=list(claim_ids)):
        try:
            require_change(identity, row)
            found[row.id] = row
        except (Forbidden, NotFound) as error:
            found[row.id] = error
    return found


def require_on_claim(
    identity: Identity, claim_id: int, action: str = ""
) -> api_sql.ClaimsAccessRow:
    """`action`: see `require_change`."""
    rows = api_sql.claims_access(claims=[claim_id])
    if not rows:
        raise no_such_claim(claim_id)
    require_change(identity, rows[0], action)
    return rows[0]


def require_to_create(identity: Identity, request: ClaimRequest) -> None:
    require_named(identity, "claim", request.pools)
    if request.slot is not None:
        pool = api_sql.slot_pool(slot=request.slot)
        missing = NotFound(
            f"There is no slot {request.slot}.", way_out="Look at the slots of the pool."
        )
        if pool is None:
            raise missing
        require(identity, "claim_slot", pool, hidden=missing)
    if request.priority > 0:
        check_priority(identity, request.priority, request.pools)


def check_priority(identity: Identity, priority: int, names: Sequence[str]) -> None:
    """Raises `Invalid` for a claimant's priority above the limit of a pool."""
    beyond = [name for name in names if OPERATOR not in identity.roles_in_named(name)]
    if priority <= 0 or not beyond:
        return
    known = find_pools(beyond)
    for name in beyond:
        limit = known[name].spec.top_priority if name in known else 0
        if priority > limit:
            text = f"The highest priority for claimants of pool {name} is {limit}."
            way_out = f"Use {limit} at most; the role {OPERATOR} may go higher."
            raise wrong_field("priority", text, way_out)


class _Ref(NamedTuple):
    id: int
    name: str
