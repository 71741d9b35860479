"""Reads claims and queues for the API, pages and services."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from django.db.models import Q

from claims import claims_sql
from claims.allocation.claim_view import ClaimView, claim_of_row
from claims.allocation.wait_reason import explain_claims
from claims.kinds import complete_views
from claims.models import Claim
from project.kernel.db.guards import reporting
from project.kernel.errors import NotFound

MOST_LISTED = 1000


@dataclass(frozen=True, slots=True)
class ClaimFilter:
    """Conditions on claims; None: no condition. `visible`: the pools that the reader may read;
    None: all claims, also those of pools that do not exist yet.
    """

    visible: Set[int] | None = None
    pool_id: int | None = None
    states: Sequence[str] | None = None
    steps: Sequence[str] | None = None
    outcomes: Sequence[str] | None = None
    owner: str | None = None
    requested_by: str | None = None
    workspace: str | None = None  # the name, in any pool
    workspace_id: int | None = None
    kind: str | None = None
    key: str | None = None
    member_id: int | None = None  # the claim holds a slot of this member now
    text: str | None = None  # an id, or part of an owner or workspace


def view_claim(claim_id: int, *, explain: bool = False) -> ClaimView:
    found = view_claims([claim_id], explain=explain)
    if not found:
        raise no_such_claim(claim_id)
    return found[0]


def no_such_claim(claim_id: int) -> NotFound:
    return NotFound(
        f"There is no claim {claim_id}.",
        way_out="Look at the list of claims; ended ones are kept for 90 days.",
    )


def view_claims(claim_ids: Iterable[int], *, explain: bool = False) -> list[ClaimView]:
    """Claims in the order of the ids. Ids without a claim are left out."""
    ids = list(claim_ids)
    claims = [claim_of_row(row) for row in claims_sql.view_claims(claims=ids)] if ids else []
    complete_views(claims)
    if explain:
        explain_claims(claims)
    return claims


def list_claims(
    wanted: ClaimFilter, *, before: int | None = None, limit: int = 100, explain: bool = False
) -> list[ClaimView]:
    """Claims, newest first. `before`: the last id of the previous page."""
    found = Claim.objects.filter(_condition(wanted))
    if before is not None:
        found = found.filter(pk__lt=before)
    with reporting():
        ids = list(found.order_by("-pk").values_list("pk", flat=True)[: min(limit, MOST_LISTED)])
        return view_claims(ids, explain=explain)


def queue_of_pool(
    pool_name: str, *, limit: int = 100, with_blocked: bool = True
) -> list[ClaimView]:
    """The queued claims of a pool in the order of their turns, then its blocked claims, all with
    their wait reasons. A position counts only claims that compete for the same lanes.
    """
    waiting = view_claims(row.id for row in claims_sql.queue(limit, pool_name=pool_name))
    waiting = [claim for claim in waiting if claim.state == "waiting"]
    lanes = {
        row.id: frozenset(row.lanes)
        for row in claims_sql.lanes_of(shapes=list({claim.shape_id for claim in waiting}))
    }
    places: dict[int, int] = {}
    ahead: dict[frozenset[str], int] = {}
    for claim in waiting:
        mine = lanes.get(claim.shape_id, frozenset())
        places[claim.id] = 1 + sum(n for other, n in ahead.items() if other & mine or other == mine)
        ahead[mine] = ahead.get(mine, 0) + 1
    left = limit - len(waiting)
    blocked = (
        view_claims(row.id for row in claims_sql.queue_blocked(left, pool_name=pool_name))
        if with_blocked and left > 0
        else []
    )
    explain_claims([*waiting, *blocked], places)
    return [*waiting, *blocked]


def count_queues() -> Mapping[int | None, claims_sql.CountQueuesRow]:
    """The waiting and blocked claims by pool; None: claims of pools that do not exist."""
    with reporting():
        return {row.pool_id: row for row in claims_sql.count_queues()}


def count_live_claims(pool_id: int) -> int:
    """The number of claims that use a pool, also those that name it after another pool."""
    return int(claims_sql.count_live(pool=pool_id))


def list_live_claims(pool_id: int, *, limit: int = 100) -> list[ClaimView]:
    return view_claims(row.id for row in claims_sql.live_of_pool(limit, pool=pool_id))


def _condition(wanted: ClaimFilter) -> Q:
    columns = {
        "pool_id__in": wanted.visible,
        "pool_id": wanted.pool_id,
        "state__in": wanted.states,
        "step__in": wanted.steps,
        "outcome__in": wanted.outcomes,
        "owner": wanted.owner,
        "requested_by": wanted.requested_by,
        "workspace__name": wanted.workspace,
        "workspace_id": wanted.workspace_id,
        "shape__kind": wanted.kind,
        "key": wanted.key,
    }
    q = Q(**{name: value for name, value in columns.items() if value is not None})
    if wanted.owner is not None and wanted.states is not None and "ended" not in wanted.states:
        q &= Q(outcome="")  # the condition of the index by owner
    if wanted.member_id is not None:
        q &= Q(pk__in=[row.id for row in claims_sql.claims_on_member(member=wanted.member_id)])
    if wanted.text:
        q &= _text_condition(wanted.text.strip())
    return q


def _text_condition(text: str) -> Q:
    if text.isascii() and text.isdigit() and len(text) < 19:
        return Q(pk=int(text))
    return Q(owner__icontains=text) | Q(workspace__name__icontains=text)
