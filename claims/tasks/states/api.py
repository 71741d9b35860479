"""Rescued Terraform states in the API: approvers download them; the right to settle the workspace
includes the right to discard them.
"""

from django.http import HttpResponse

from claims.allocation.api.claims import TAG
from claims.allocation.api.schemas import NEEDED_REASON_BODY
from claims.lifecycle.api.actions import Body
from claims.tasks import run_schemas as shapes
from claims.tasks.states.selectors import RescuedView, find_rescued
from claims.tasks.states.services import discard_state, read_state
from pools.access.permissions import require
from pools.http.endpoint import describe
from pools.http.fast_view import FastRequest, LeanEndpoint, answer
from pools.lifecycle.selectors import get_pool_by_id
from pools.models import Pool
from project.kernel.errors import NotFound
from project.kernel.validation import LONGEST_REASON

RAW = "application/octet-stream"


class RunState(LeanEndpoint):
    @describe(
        "Download a rescued state",
        {(200, RAW): {"type": "string", "format": "binary"}},
        name="get_rescued_state",
        tag=TAG,
    )
    def get(self, call: FastRequest, claim_id: int, generation: int) -> HttpResponse:
        """The Terraform state that the backend of this apply did not accept. A state may hold
        secrets: the download needs the role approver and is recorded. Berth keeps the state until
        the workspace is settled or a user discards the state.
        """
        view = get_state(claim_id, generation)
        require(call.identity, "decide", pool_of(view), hidden=no_such_state(claim_id, generation))
        return state_file(view)


class RunStateDiscard(LeanEndpoint):
    @describe(
        "Discard a rescued state",
        {200: shapes.RescuedAnswer},
        body=NEEDED_REASON_BODY,
        name="discard_rescued_state",
        tag=TAG,
    )
    def post(self, call: FastRequest, claim_id: int, generation: int) -> HttpResponse:
        """Delete the state on the server and on its agent, as settling the workspace does. Needs
        the role operator or approver.
        """
        view = get_state(claim_id, generation)
        if not call.identity.may("decide", view.pool_id):
            require(
                call.identity, "settle", pool_of(view), hidden=no_such_state(claim_id, generation)
            )
        body = Body(call, "reason", required=("reason",))
        reason = body.text("reason", LONGEST_REASON)
        body.check()
        discard_state(claim_id=claim_id, generation=generation, reason=reason)
        return answer(get_state(claim_id, generation).as_dict())


def pool_of(view: RescuedView) -> Pool | None:
    """The pool of the state; its claim may be deleted."""
    return None if view.pool_id is None else get_pool_by_id(view.pool_id)


def get_state(claim_id: int, generation: int) -> RescuedView:
    view = find_rescued(claim_id, generation)
    if view is None:
        raise no_such_state(claim_id, generation)
    return view


def no_such_state(claim_id: int, generation: int) -> NotFound:
    text = f"There is no rescued state of claim {claim_id}, generation {generation}."
    return NotFound(text, code="no_state", way_out="List the runs of the claim.")


def state_file(view: RescuedView) -> HttpResponse:
    """A download that browsers neither show nor cache."""
    response = HttpResponse(
        read_state(claim_id=view.claim_id, generation=view.generation), content_type=RAW
    )
    response["Content-Disposition"] = (
        f'attachment; filename="claim-{view.claim_id}-{view.generation}.tfstate"'
    )
    response["Cache-Control"] = "no-store"
    response["X-Content-Type-Options"] = "nosniff"
    return response
