"""Creates many claims in one call. Each claim gets the answer that a call of its own would get, in
the order of the request.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial

from claims import claims_sql
from claims.allocation.claim_view import ClaimView
from claims.allocation.create import create_claim
from claims.allocation.metrics import CREATED
from claims.allocation.new_claim import check_same, claim_made, explain_made, notify_made
from claims.allocation.requests.claim_request import ClaimRequest
from claims.allocation.requests.resolve import Route, find_route
from claims.allocation.selectors import view_claims
from claims.allocation.wait_reason import explain_claims
from claims.kinds import is_work_missing
from claims.statements import attempt, repeat
from project.kernel.actor import current_actor
from project.kernel.errors import BerthError, Invalid, Unavailable

MAX_CLAIMS_PER_CALL = 1000
CHUNK = 250  # claims of one queue and rank in one statement: a few ten milliseconds
TRIES = 4

Answer = ClaimView | BerthError


def create_claims(requests: Sequence[ClaimRequest]) -> list[Answer]:
    """Simple claims of one queue share statements; other claims are created one by one."""
    if len(requests) > MAX_CLAIMS_PER_CALL:
        raise Invalid(
            f"{len(requests)} claims are too many for one call.",
            way_out=f"Send {MAX_CLAIMS_PER_CALL} at most.",
        )
    answers: dict[int, Answer] = {}
    queues: dict[tuple[object, ...], list[int]] = defaultdict(list)
    again = find_repeated(requests)
    for i, request in enumerate(requests):
        if i in again:
            continue
        if request.is_plain:
            queue = (request.pools, request.kind, request.rank, request.task, request.requested_by)
            queues[queue].append(i)
        else:
            answers[i] = _alone(request)
    waiting: list[ClaimView] = []
    for queue_items in queues.values():
        for at in range(0, len(queue_items), CHUNK):
            chunk = queue_items[at : at + CHUNK]
            found = _create_chunk([requests[i] for i in chunk])
            waiting += [
                answer for answer in found if isinstance(answer, ClaimView) and answer.is_waiting
            ]
            answers |= dict(zip(chunk, found, strict=True))
    for i in sorted(again):
        answers[i] = _alone(requests[i])
    explain_made(waiting, _explain)
    return [answers[i] for i in range(len(requests))]


def find_repeated(requests: Sequence[ClaimRequest]) -> set[int]:
    """Items that repeat the key of an earlier item. They are answered after it, like a repeated
    call.
    """
    seen: set[tuple[str, str]] = set()
    found = set()
    for i, request in enumerate(requests):
        if request.key is not None:
            if (request.requested_by, request.key) in seen:
                found.add(i)
            seen.add((request.requested_by, request.key))
    return found


def _alone(request: ClaimRequest) -> Answer:
    return attempt(partial(create_claim, request))


def _create_chunk(requests: list[ClaimRequest]) -> list[Answer]:
    """The answers to claims of one queue and rank."""
    try:
        for turn in range(TRIES):
            route = find_route(requests[0], fresh=turn > 0)
            if not (route.is_whole and route.is_simple) or is_work_missing(
                requests[0], route.pools[0]
            ):
                return [_alone(request) for request in requests]
            made = repeat(partial(_create_batch, requests, route))
            missing = [i for i in range(len(requests)) if i not in made]
            found = made | _find_by_keys(requests, missing)
            if len(found) == len(requests):
                return [found[i] for i in range(len(requests))]
            if made:  # the route is current; the rest lost a race for their keys
                return [
                    found[i] if i in found else _alone(requests[i]) for i in range(len(requests))
                ]
    except BerthError as error:
        return [error if request.key is None else _alone(request) for request in requests]
    return [Unavailable("The pool keeps changing.", way_out="Send the same call again.")] * len(
        requests
    )


def _create_batch(requests: list[ClaimRequest], route: Route) -> dict[int, Answer]:
    first, (pool,) = requests[0], route.found
    specs = [request.spec(pool.spec.lease) for request in requests]
    rows = claims_sql.create_batch(
        pool=pool.id,
        revision=pool.revision,
        pool_name=pool.name,
        line=route.digest,
        shape=route.shape,
        lanes=route.lanes,
        queue=pool.queue,
        rank=first.rank,
        step=first.step,
        requested_by=first.requested_by,
        actor=current_actor(),
        owners=[request.owner for request in requests],
        keys=[request.key for request in requests],
        digests=[None if request.key is None else request.digest() for request in requests],
        specs=specs,
    )
    made: dict[int, Answer] = {
        row.n - 1: claim_made(requests[row.n - 1], route, row, specs[row.n - 1]) for row in rows
    }
    for state, count in Counter(row.state for row in rows).items():
        CREATED.labels(state).inc(count)
    if rows:
        notify_made(
            [pool],
            any_bound=any(r.state == "bound" for r in rows),
            any_waiting=any(r.state == "waiting" for r in rows),
        )
    return made


def _find_by_keys(requests: list[ClaimRequest], missing: list[int]) -> dict[int, Answer]:
    """The claims that these keys have created before, or why a key is refused."""
    keys = [key for i in missing if (key := requests[i].key) is not None]
    if not keys:
        return {}
    rows = {
        row.key: row
        for row in claims_sql.claims_by_keys(requested_by=requests[0].requested_by, keys=keys)
    }
    views = {view.id: view for view in view_claims([row.id for row in rows.values()], explain=True)}
    found: dict[int, Answer] = {}
    for i in missing:
        row = rows.get(requests[i].key)
        if row is None:
            continue
        try:
            check_same(requests[i], row.id, row.body_digest)
            found[i] = views[row.id]
            views[row.id].is_replay = True
        except BerthError as error:
            found[i] = error
    return found


def _explain(waiting: list[ClaimView]) -> None:
    """Reads reason and position of the first claim of each queue and rank, and counts on."""
    first_of: dict[tuple[int, int], ClaimView] = {}
    seen: dict[tuple[int, int], int] = defaultdict(int)
    places: dict[int, int] = {}
    for claim in sorted(waiting, key=lambda c: (c.rank, c.id)):
        queue = (claim.shape_id, claim.rank)
        if queue not in first_of:
            first_of[queue] = claim
            explain_claims([claim])
        wait = first_of[queue].wait
        places[claim.id] = (wait.place or 1) + seen[queue] if wait is not None else 1
        seen[queue] += 1
    explain_claims(waiting, places)
