"""Plans that wait for a person: read, decided on one by one or many at once, made to wait
longer, elsewhere, or made anew.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse

from claims.allocation.api import schemas
from claims.allocation.api.claims import TAG as CLAIMS
from claims.allocation.api.claims import read_pool, show_claim
from claims.allocation.api.permissions import require_all, require_on_claim
from claims.allocation.claim_view import ClaimView
from claims.allocation.selectors import view_claim
from claims.lifecycle.api.actions import Body
from claims.lifecycle.api.bulk import read_items, show_item
from claims.tasks.api import approval_schemas as said
from claims.tasks.approvals.reservations import extend_reservation, move_reserved, plan_again
from claims.tasks.approvals.services import MOST as LONGEST_BULK
from claims.tasks.approvals.services import (
    ApprovalResult,
    ApprovalVote,
    apply_votes,
    approve_plan,
    reject_plan,
)
from claims.tasks.files.sealed_files import iterate_file
from claims.tasks.plans.selectors import InboxPosition, PlanView, list_pending, view_plan
from pools.config.parsing import Faults, read_duration, read_flag, read_mapping
from pools.config.parsing import read_integer as read_number
from pools.config.parsing import read_text as read_words
from pools.http.endpoint import MOST as LONGEST_PAGE
from pools.http.endpoint import (
    PAGES,
    describe,
    in_query,
    page_of,
    pages_of,
    read_integer,
    read_text,
)
from pools.http.fast_view import FastRequest, LeanEndpoint, answer
from project.kernel.errors import BerthError, FieldError, Forbidden, Invalid, NotFound

TAG = "approvals"
DAY = 86400.0
BIGINT = (1 << 63) - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DIGEST_LENGTH = 64
VIA = "api"
WHY = schemas.as_json(schemas.NEEDED_REASON_BODY)


class ApprovalEndpoint(LeanEndpoint):
    def act(
        self,
        call: FastRequest,
        claim_id: int,
        action: str,
        service: Callable[..., Any],
        **values: Any,
    ) -> HttpResponse:
        require_on_claim(call.identity, claim_id, action)
        service(claim_id=claim_id, **values)
        return answer(show_claim(view_claim(claim_id)))


class ClaimApprove(ApprovalEndpoint):
    @describe(
        "Approve",
        {200: schemas.ClaimAnswer},
        body=schemas.as_json(said.APPROVE_BODY),
        problems=(409, 422),
        name="approve_plan",
        tag=CLAIMS,
    )
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Yes to the plan that was read. With the last yes that is needed its apply begins. Whoever
        comes too late gets 409, which says who was first."""
        body = Body(call, "digest", "comment", required=("digest",))
        digest, comment = body.text("digest", DIGEST_LENGTH), body.text("comment")
        body.check()
        by = call.identity
        return self.act(
            call, claim_id, "decide", approve_plan, digest=digest, by=by, comment=comment, via=VIA
        )


class ClaimReject(ApprovalEndpoint):
    @describe(
        "Reject",
        {200: schemas.ClaimAnswer},
        body=schemas.as_json(said.REJECT_BODY),
        problems=(409,),
        name="reject_plan",
        tag=CLAIMS,
    )
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """No to the plan that was read, with a comment. Nothing is applied; the claim ends."""
        body = Body(call, "digest", "comment", required=("digest", "comment"))
        digest, comment = body.text("digest", DIGEST_LENGTH), body.text("comment")
        body.check()
        by = call.identity
        return self.act(
            call, claim_id, "decide", reject_plan, digest=digest, by=by, comment=comment, via=VIA
        )


class ClaimExtend(ApprovalEndpoint):
    @describe(
        "Extend",
        {200: schemas.ClaimAnswer},
        body=schemas.as_json(said.EXTEND_BODY),
        problems=(409, 422),
        name="extend_plan",
        tag=CLAIMS,
    )
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """It waits so much longer for its decision, up to 30 days from now."""
        body = Body(call, "for", "reason", required=("for", "reason"))
        seconds = read_duration(body.given, "", "for", body.faults, 1.0, 30 * DAY)
        reason = body.text("reason")
        body.check()
        return self.act(
            call, claim_id, "decide", extend_reservation, seconds=seconds or 0.0, reason=reason
        )


class ClaimPlanAgain(ApprovalEndpoint):
    @describe(
        "Plan again",
        {200: schemas.ClaimAnswer},
        body=WHY,
        problems=(409,),
        name="plan_again",
        tag=CLAIMS,
    )
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """The plan that waits is set aside, and what was said of it is void."""
        body = Body(call, "reason", required=("reason",))
        reason = body.text("reason")
        body.check()
        return self.act(call, claim_id, "replan", plan_again, reason=reason)


class ClaimMove(ApprovalEndpoint):
    @describe(
        "Move", {200: schemas.ClaimAnswer}, body=WHY, problems=(409,), name="move_plan", tag=CLAIMS
    )
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """The plan that waits gets a slot on another member; the plan and what was said
        of it stay.
        """
        body = Body(call, "reason", required=("reason",))
        reason = body.text("reason")
        body.check()
        return self.act(call, claim_id, "replan", move_reserved, reason=reason)


# -- reading ---------------------------------------------------------------------------------------


class ClaimPlan(LeanEndpoint):
    @describe("Its plan", {200: said.PlanAnswer}, name="get_plan", tag=CLAIMS)
    def get(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """The one that is to be decided on, or was; what was said of it."""
        return answer(find_plan(call, claim_id).as_dict())


class ClaimPlanJson(LeanEndpoint):
    @describe("Its plan as JSON", {200: said.TERRAFORM}, name="get_plan_json", tag=CLAIMS)
    def get(self, call: FastRequest, claim_id: int) -> HttpResponseBase:
        """In Terraform's format, without what is sensitive."""
        plan = find_plan(call, claim_id)
        return send(
            plan.json_file,
            "application/json",
            f"plan-{claim_id}.json",
            "It was made by a command that writes none.",
        )


class ClaimPlanFile(LeanEndpoint):
    @describe(
        "Its saved plan",
        {(200, "application/octet-stream"): said.RAW},
        name="get_plan_file",
        tag=CLAIMS,
    )
    def get(self, call: FastRequest, claim_id: int) -> HttpResponseBase:
        """As the agent has saved it, secrets and all: for who decides."""
        require_on_claim(call.identity, claim_id, "decide")
        plan = find_plan(call, claim_id)
        return send(
            plan.file,
            "application/octet-stream",
            f"plan-{claim_id}.bin",
            "It was made by a command that saves none.",
        )


class ApprovalList(LeanEndpoint):
    @describe(
        "Plans that wait",
        {200: pages_of(said.PendingAnswer)},
        query=[
            *PAGES,
            in_query("pool", "Of this pool."),
            in_query("workspace", "Of this workspace."),
        ],
        problems=(404,),
        name="list_approvals",
        tag=TAG,
    )
    def get(self, call: FastRequest) -> HttpResponse:
        """Every plan that waits for a person in the pools that one may read, the soonest to
        expire first.
        """
        limit = read_integer(call, "limit", high=LONGEST_PAGE) or 50
        found = list_pending(
            call.identity.visible_pools(),
            pool_id=read_pool(call.identity, call),
            workspace=read_text(call, "workspace") or None,
            after=read_place(call),
            limit=limit + 1,
        )
        cursor = None
        if len(found) > limit:
            last = found[limit - 1]
            cursor = f"{(last.expires_at - EPOCH) // timedelta(microseconds=1)}-{last.claim_id}"
        return answer(page_of(call, [pending.as_dict() for pending in found[:limit]], cursor))


class BulkDecide(LeanEndpoint):
    @describe(
        "Decide on many",
        {200: schemas.BulkAnswer},
        body=schemas.as_json(said.BULK_BODY),
        name="decide_plans",
        tag=TAG,
    )
    def post(self, call: FastRequest) -> HttpResponse:
        """Each stands on its own, and is answered as by itself. Plans that destroy or replace
        are approved one by one only.
        """
        items = [read_verdict(item, call) for item in read_items(call, "decisions", LONGEST_BULK)]
        decided = iter(apply_votes([item for item in items if isinstance(item, ApprovalVote)]))
        found = [
            show_decided(item, next(decided)) if isinstance(item, ApprovalVote) else item
            for item in items
        ]
        return answer({"results": [show_item(item, 200) for item in found]})


def show_decided(
    verdict: ApprovalVote, found: ApprovalResult | BerthError
) -> ClaimView | BerthError:
    return found if isinstance(found, BerthError) else view_claim(verdict.claim_id)


def read_verdict(item: Any, call: FastRequest) -> ApprovalVote | BerthError:
    faults = Faults()
    given = read_mapping(
        item,
        "",
        ("claim", "digest", "approve", "comment"),
        faults,
        required=("claim", "digest", "approve"),
    )
    verdict = ApprovalVote(
        claim_id=read_number(given, "", "claim", faults, 1, BIGINT, 0),
        digest=read_words(given, "", "digest", faults, DIGEST_LENGTH),
        is_yes=read_flag(given, "", "approve", faults),
        by=call.identity,
        comment=read_words(given, "", "comment", faults, 500),
        via=VIA,
    )
    if faults.found:
        return Invalid(fields=faults.found)
    try:
        require_on_claim(call.identity, verdict.claim_id, "decide")
    except (Forbidden, NotFound) as error:
        return error
    return verdict


def find_plan(call: FastRequest, claim_id: int) -> PlanView:
    claim = view_claim(claim_id)
    require_all(call.identity, "read", claim.id, claim.pool_id, claim.pools)
    plan = view_plan(claim_id)
    if plan is None:
        raise NotFound(f"Claim {claim_id} has no plan.", way_out="Wait until it has planned.")
    return plan


def send(name: str, kind: str, as_file: str, why_not: str) -> HttpResponseBase:
    if not name:
        raise NotFound("There is no such file of this plan.", way_out=why_not)
    response = StreamingHttpResponse(iterate_file(name), content_type=kind)
    response.headers["Content-Disposition"] = f'attachment; filename="{as_file}"'
    response.headers["Cache-Control"] = "no-store"
    return response


def read_place(call: FastRequest) -> InboxPosition | None:
    text = call.query_params.get("cursor")
    if text is None:
        return None
    at, _, claim = text.partition("-")
    if not (
        at.isascii()
        and at.isdigit()
        and len(at) < 17
        and claim.isascii()
        and claim.isdigit()
        and len(claim) < 19
    ):
        raise Invalid(
            fields=[
                FieldError(
                    "cursor",
                    "This cursor is not one that was given out.",
                    "Take it from an answer, or leave it out.",
                )
            ]
        )
    return InboxPosition(EPOCH + timedelta(microseconds=int(at)), int(claim))
