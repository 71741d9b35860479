"""The REST API to create, list and read claims, and to wait for them."""

import time
from concurrent.futures import Executor
from functools import partial

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiExample, OpenApiParameter

from claims.allocation.api import schemas
from claims.allocation.api.long_poll import READY, wait_for_claim
from claims.allocation.api.permissions import may_see, require_all, require_to_create
from claims.allocation.batching import PendingCreate, begin_create, create_at_once
from claims.allocation.claim_view import ClaimView
from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import parse_claim
from claims.allocation.selectors import ClaimFilter, list_claims, view_claim
from claims.states import OUTCOMES
from pools.access.permissions import Identity, require
from pools.access.tokens import CachedToken
from pools.http.endpoint import (
    PAGES,
    describe,
    in_query,
    page_of,
    pages_of,
    read_choices,
    read_integer,
    read_page,
    read_text,
)
from pools.http.fast_view import FastRequest, LeanEndpoint, answer, refuse
from pools.lifecycle.selectors import get_pool
from project.kernel.errors import wrong_field
from project.kernel.http.api_base import LONGEST_KEY
from project.kernel.http.deferred import DeferredResponse, threads_of

TAG = "claims"
LONGEST_WAIT = 300  # seconds
SINCE = "berth_since"
UNTIL = (*schemas.CLAIM_STATES, READY)

KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": "^[ -~]+$"},
    OpenApiParameter.HEADER,
    description=(
        "Makes the call safe to repeat: the same key of the same caller answers with the same "
        "claim. Kept as long as the claim."
    ),
)
EXAMPLE = OpenApiExample(
    "One slot",
    value={"pool": "env-test", "owner": "branch:login", "hold_for": "2h"},
    request_only=True,
)


class ClaimList(LeanEndpoint):
    @describe(
        "Claims",
        {200: pages_of(schemas.ClaimAnswer)},
        query=[
            *PAGES,
            in_query("pool", "Of this pool."),
            in_query("state", "In one of these states.", choices=schemas.CLAIM_STATES, many=True),
            in_query("outcome", "With one of these outcomes.", choices=tuple(OUTCOMES), many=True),
            in_query("owner", "For this owner."),
            in_query("requested_by", "Requested by this user."),
            in_query("kind", "Of this kind."),
            in_query("key", "With this key."),
            in_query("workspace", "Of this workspace."),
            in_query("member", "Holding a slot of this member.", {"type": "integer", "minimum": 1}),
            in_query("q", "An id, or part of an owner or workspace."),
        ],
        problems=(404,),
        name="list_claims",
        tag=TAG,
    )
    def get(self, call: FastRequest) -> HttpResponse:
        """Claims in the pools that the caller may read, newest first."""
        limit, before = read_page(call)
        wanted = read_filter(call)
        found = list_claims(wanted, before=before, limit=limit + 1)
        shown = [
            claim.as_dict()
            for claim in found[:limit]
            if len(claim.pools) == 1 or may_see(call.identity, claim)
        ]
        return answer(page_of(call, shown, found[limit - 1].id if len(found) > limit else None))

    @describe(
        "Claim",
        {201: schemas.ClaimAnswer, 202: schemas.ClaimAnswer},
        body=schemas.CLAIM_BODY,
        headers=[KEY],
        problems=(404, 409, 422, 507),
        name="create_claim",
        tag=TAG,
        examples=[EXAMPLE],
    )
    def post(self, call: FastRequest) -> HttpResponse:
        """201: the claim holds its slots. 202: the claim waits; `wait` contains the reason and what
        would end the wait. A claim that no pool could ever serve is refused.
        """
        body = call.read()
        request = parse_claim(body, requested_by=call.identity.requester, key=read_key(call))
        require_to_create(call.identity, request)
        claim = create_claim(request)
        response = show_made(call, claim)
        if claim.is_replay:
            response.headers["Idempotency-Replayed"] = "true"
        return response

    def post_at_once(self, call: FastRequest, cached_token: CachedToken) -> HttpResponse | None:
        """Creates a simple claim of a caller with a cached token, in one statement that also checks
        the token and is shared with simultaneous claims. None: the claim needs `post`.
        """
        request = parse_claim(call.read(), requested_by=call.identity.requester, key=read_key(call))
        if request.priority > 0 or request.slot is not None:
            return None
        require_to_create(call.identity, request)
        if (threads := threads_of(call.request)) is not None:
            pending = begin_create(request, cached_token)
            if pending is None:
                return None
            return DeferredResponse(partial(self.finish_at_once, call, pending, threads))
        claim = create_at_once(request, cached_token)
        return None if claim is None else show_made(call, claim)

    async def finish_at_once(
        self, call: FastRequest, pending: PendingCreate, threads: Executor
    ) -> HttpResponse | None:
        try:
            claim = await pending.make(threads)
        except Exception as error:
            return refuse(error, {})
        return None if claim is None else show_made(call, claim)


class ClaimDetail(LeanEndpoint):
    @describe(
        "A claim",
        {200: schemas.ClaimAnswer},
        query=[
            in_query(
                "wait",
                "Seconds to wait for one of the states in `until`.",
                {"type": "number", "minimum": 0, "maximum": LONGEST_WAIT, "default": 0},
            ),
            in_query(
                "until",
                "The states to wait for, or `ready`: all ports of the claim work. A claim that has "
                "ended is answered at once.",
                choices=UNTIL,
                many=True,
            ),
        ],
        name="get_claim",
        tag=TAG,
    )
    def get(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """With `wait`, the answer comes when the claim is in a state of `until` (default: bound) or
        has ended, or else with its present state when the time is over. Any number of calls may
        wait: each needs only its connection.
        """
        left = read_wait(call)
        states = frozenset(read_choices(call, "until", UNTIL) or ("bound",))
        claim = view_claim(claim_id)
        require_all(call.identity, "read", claim.id, claim.pool_id, claim.pools)
        is_there = claim.state in states or (READY in states and claim.is_ready)
        if left > 0 and not is_there and claim.state != "ended":
            response = answer(claim.as_dict())
            # See project.kernel.http.asgi.
            response.again = lambda: wait_for_claim(claim_id, states, left)  # type: ignore[attr-defined]
            return response
        if claim.is_waiting:
            claim = view_claim(claim_id, explain=True)
        return answer(claim.as_dict())


def show_made(call: FastRequest, claim: ClaimView) -> HttpResponse:
    return answer(claim.as_dict(), status_of(claim), Location=f"{call.path}{claim.id}/")


def status_of(claim: ClaimView) -> int:
    """The status of a create call, also of a repeated one: 202 while the claim waits."""
    return 202 if claim.state in ("waiting", "blocked", "parked") else 201


def read_key(call: FastRequest) -> str | None:
    key: str | None = call.request.META.get("HTTP_IDEMPOTENCY_KEY")
    if key is not None and not (
        0 < len(key) <= LONGEST_KEY and key.isascii() and key.isprintable()
    ):
        text = f"This is not a text of 1 to {LONGEST_KEY} printable ASCII characters."
        raise wrong_field("Idempotency-Key", text)
    return key


def read_wait(call: FastRequest, longest: float = LONGEST_WAIT) -> float:
    """The rest of the requested seconds. A request that waits runs again after each change, so the
    start of its first run is kept in its scope.
    """
    text = call.query_params.get("wait")
    if text is None:
        return 0.0
    try:
        seconds = float(text) if text.isascii() and len(text) < 20 else -1.0
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= longest:
        text = f"This is not a number of seconds from 0 to {longest:g}."
        raise wrong_field("wait", text)
    scope: dict[str, float] = getattr(call.request, "scope", {})
    now = time.monotonic()
    return seconds - (now - scope.setdefault(SINCE, now))


def read_filter(call: FastRequest) -> ClaimFilter:
    return ClaimFilter(
        visible=call.identity.visible_pools(),
        pool_id=read_pool(call.identity, call),
        states=read_choices(call, "state", schemas.CLAIM_STATES) or None,
        outcomes=read_choices(call, "outcome", OUTCOMES) or None,
        owner=call.query_params.get("owner"),
        requested_by=call.query_params.get("requested_by"),
        kind=call.query_params.get("kind"),
        key=call.query_params.get("key"),
        workspace=call.query_params.get("workspace"),
        member_id=read_integer(call, "member"),
        text=read_text(call, "q") or None,
    )


def read_pool(identity: Identity, call: FastRequest) -> int | None:
    name = read_text(call, "pool")
    if not name:
        return None
    pool = get_pool(name)
    require(identity, "read", pool)
    return int(pool.pk)
