"""Plans that wait for a decision: read, approve, reject, extend, move and plan again."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse

from claims.allocation.api import schemas
from claims.allocation.api.claims import TAG as CLAIMS
from claims.allocation.api.claims import read_pool
from claims.allocation.api.permissions import require_all, require_on_claim
from claims.allocation.claim_view import ClaimView
from claims.allocation.selectors import view_claim
from claims.lifecycle.api.actions import Body, describe_action, read_reason
from claims.lifecycle.api.bulk import read_items, show_item
from claims.tasks.api import approval_schemas
from claims.tasks.approvals.reservations import extend_reservation, move_reserved, plan_again
from claims.tasks.approvals.services import (
    MAX_VOTES,
    ApprovalResult,
    ApprovalVote,
    apply_votes,
    approve_plan,
    reject_plan,
)
from claims.tasks.files.sealed_files import iterate_file
from claims.tasks.plans.selectors import (
    InboxPosition,
    PendingPlan,
    PlanView,
    list_pending,
    view_plan,
)
from pools.config.durations import DAY
from pools.config.parsing import Faults, read_duration, read_flag, read_mapping
from pools.config.parsing import read_integer as read_number
from pools.config.parsing import read_text as read_words
from pools.http.endpoint import (
    MAX_PAGE_SIZE,
    PAGES,
    describe,
    in_query,
    page_of,
    pages_of,
    read_integer,
    read_text,
    show,
)
from pools.http.fast_view import FastRequest, LeanEndpoint, answer
from project.kernel.errors import BerthError, Forbidden, Invalid, NotFound, wrong_field
from project.kernel.http.api_base import BIGINT

TAG = "approvals"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DIGEST_LENGTH = 64
VIA = "api"
WHY = schemas.NEEDED_REASON_BODY


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
        return answer(view_claim(claim_id).as_dict())

    def decide(
        self, call: FastRequest, claim_id: int, service: Callable[..., Any], *required: str
    ) -> HttpResponse:
        body = Body(call, "digest", "comment", required=("digest", *required))
        digest, comment = body.text("digest", DIGEST_LENGTH), body.text("comment")
        body.check()
        by = call.identity
        return self.act(
            call, claim_id, "decide", service, digest=digest, by=by, comment=comment, via=VIA
        )


class ClaimApprove(ApprovalEndpoint):
    @describe_action("Approve", approval_schemas.APPROVE_BODY, "approve_plan", 422)
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Approve the plan of this digest. The last required approval starts the apply. A late call
        gets 409, which names the earlier decision.
        """
        return self.decide(call, claim_id, approve_plan)


class ClaimReject(ApprovalEndpoint):
    @describe_action("Reject", approval_schemas.REJECT_BODY, "reject_plan")
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Reject the plan of this digest, with a comment. The claim ends."""
        return self.decide(call, claim_id, reject_plan, "comment")


class ClaimExtend(ApprovalEndpoint):
    @describe_action("Extend", approval_schemas.EXTEND_BODY, "extend_plan", 422)
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Extend the decision deadline, up to 30 days from now."""
        body = Body(call, "for", "reason", required=("for", "reason"))
        seconds = read_duration(body.given, "", "for", body.faults, 1.0, 30 * DAY)
        reason = body.text("reason")
        body.check()
        return self.act(
            call, claim_id, "decide", extend_reservation, seconds=seconds or 0.0, reason=reason
        )


class ClaimPlanAgain(ApprovalEndpoint):
    @describe_action("Plan again", WHY, "plan_again")
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Discard the waiting plan and its approvals, and plan again."""
        return self.act(call, claim_id, "replan", plan_again, reason=read_reason(call))


class ClaimMove(ApprovalEndpoint):
    @describe_action("Move", WHY, "move_plan")
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Reserve a slot on another member. The plan and its approvals stay."""
        return self.act(call, claim_id, "replan", move_reserved, reason=read_reason(call))


# -- reading ---------------------------------------------------------------------------------------


class ClaimPlan(LeanEndpoint):
    @describe("Plan of a claim", {200: approval_schemas.PlanAnswer}, name="get_plan", tag=CLAIMS)
    def get(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """The current or last plan, with its approvals."""
        return answer(show_plan(find_plan(call, claim_id)))


class ClaimPlanJson(LeanEndpoint):
    @describe("Plan as JSON", {200: approval_schemas.TERRAFORM}, name="get_plan_json", tag=CLAIMS)
    def get(self, call: FastRequest, claim_id: int) -> HttpResponseBase:
        """In Terraform's format, without sensitive values."""
        plan = find_plan(call, claim_id)
        return send(
            plan.json_file,
            "application/json",
            f"plan-{claim_id}.json",
            "The command of this plan writes no JSON.",
        )


class ClaimPlanFile(LeanEndpoint):
    @describe(
        "Download the saved plan",
        {(200, "application/octet-stream"): approval_schemas.RAW},
        name="get_plan_file",
        tag=CLAIMS,
    )
    def get(self, call: FastRequest, claim_id: int) -> HttpResponseBase:
        """The file that the agent saved. It may hold secrets and needs the role approver."""
        require_on_claim(call.identity, claim_id, "decide")
        plan = find_plan(call, claim_id)
        return send(
            plan.file,
            "application/octet-stream",
            f"plan-{claim_id}.bin",
            "The command of this plan saves no file.",
        )


class ApprovalList(LeanEndpoint):
    @describe(
        "List waiting plans",
        {200: pages_of(approval_schemas.PendingAnswer)},
        query=[
            *PAGES,
            in_query("pool", "Only plans of this pool."),
            in_query("workspace", "Only plans of this workspace."),
        ],
        problems=(404,),
        name="list_approvals",
        tag=TAG,
    )
    def get(self, call: FastRequest) -> HttpResponse:
        """All plans that wait for a decision in readable pools, the earliest deadline first."""
        limit = read_integer(call, "limit", high=MAX_PAGE_SIZE) or 50
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
        return answer(page_of(call, list(map(show_pending, found[:limit])), cursor))


class BulkDecide(LeanEndpoint):
    @describe(
        "Decide on several plans",
        {200: schemas.BulkAnswer},
        body=approval_schemas.BULK_BODY,
        name="decide_plans",
        tag=TAG,
    )
    def post(self, call: FastRequest) -> HttpResponse:
        """Each decision succeeds or fails by itself. A plan that destroys or replaces resources
        needs a call of its own.
        """
        items = [read_vote(item, call) for item in read_items(call, "decisions", MAX_VOTES)]
        decided = iter(apply_votes([item for item in items if isinstance(item, ApprovalVote)]))
        found = [
            show_decided(item, next(decided)) if isinstance(item, ApprovalVote) else item
            for item in items
        ]
        return answer({"results": [show_item(item, 200) for item in found]})


def show_decided(vote: ApprovalVote, found: ApprovalResult | BerthError) -> ClaimView | BerthError:
    return found if isinstance(found, BerthError) else view_claim(vote.claim_id)


def read_vote(item: object, call: FastRequest) -> ApprovalVote | BerthError:
    faults = Faults()
    given = read_mapping(
        item,
        "",
        ("claim", "digest", "approve", "comment"),
        faults,
        required=("claim", "digest", "approve"),
    )
    vote = ApprovalVote(
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
        require_on_claim(call.identity, vote.claim_id, "decide")
    except (Forbidden, NotFound) as error:
        return error
    return vote


def show_plan(plan: PlanView) -> dict[str, object]:
    return show(
        approval_schemas.PlanAnswer,
        plan,
        claim=plan.claim_id,
        has_file=bool(plan.file),
        has_json=bool(plan.json_file),
        approvals=[
            show(approval_schemas.VoteAnswer, vote, by=vote.by_user) for vote in plan.approvals
        ],
    )


def show_pending(pending: PendingPlan) -> dict[str, object]:
    held = pending.held_for
    return show(
        approval_schemas.PendingAnswer,
        pending,
        claim=pending.claim_id,
        held_for_s=None if held is None else round(held, 1),
        destroys=pending.plan.destroys,
        plan=show_plan(pending.plan),
    )


def find_plan(call: FastRequest, claim_id: int) -> PlanView:
    claim = view_claim(claim_id)
    require_all(call.identity, "read", claim.id, claim.pool_id, claim.pools)
    plan = view_plan(claim_id)
    if plan is None:
        raise NotFound(
            f"Claim {claim_id} has no plan.", way_out="Wait until the plan step has ended."
        )
    return plan


def send(name: str, kind: str, as_file: str, why_not: str) -> HttpResponseBase:
    if not name:
        raise NotFound("This plan has no such file.", way_out=why_not)
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
        raise wrong_field(
            "cursor",
            "This is not a valid cursor.",
            "Take the cursor from an answer, or leave it out.",
        )
    return InboxPosition(EPOCH + timedelta(microseconds=int(at)), int(claim))
