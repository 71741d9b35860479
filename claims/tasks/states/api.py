"""Rescued Terraform states in the API: approvers download them; the right to settle the workspace
includes the right to discard them.
"""

from django.http import HttpResponse

from claims.allocation.api.claims import TAG
from claims.allocation.api.schemas import NEEDED_REASON_BODY
from claims.lifecycle.api.actions import read_reason
from claims.tasks import run_schemas
from claims.tasks.states.selectors import RescuedView, find_rescued
from claims.tasks.states.services import discard_state, read_state
from pools.access.permissions import Identity, require
from pools.http.endpoint import describe, show
from pools.http.fast_view import FastRequest, LeanEndpoint, answer
from pools.lifecycle.selectors import get_pool_by_id
from project.kernel.errors import NotFound

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
        return state_file(state_for(call.identity, claim_id, generation, "decide"))


class RunStateDiscard(LeanEndpoint):
    @describe(
        "Discard a rescued state",
        {200: run_schemas.RescuedAnswer},
        body=NEEDED_REASON_BODY,
        name="discard_rescued_state",
        tag=TAG,
    )
    def post(self, call: FastRequest, claim_id: int, generation: int) -> HttpResponse:
        """Delete the state on the server and on its agent, as settling the workspace does. Needs
        the role operator or approver.
        """
        state_for(call.identity, claim_id, generation, "decide", "settle")
        discard_state(claim_id=claim_id, generation=generation, reason=read_reason(call))
        return answer(show_rescued(get_state(claim_id, generation)))


def state_for(identity: Identity, claim_id: int, generation: int, *actions: str) -> RescuedView:
    """A state whose pool allows the caller one of the actions. A refusal names the role of the last
    one.
    """
    view = get_state(claim_id, generation)
    if not any(identity.may(action, view.pool_id) for action in actions):
        # The claim of the state may be deleted, and its pool with it.
        pool = None if view.pool_id is None else get_pool_by_id(view.pool_id)
        require(identity, actions[-1], pool, hidden=no_such_state(claim_id, generation))
    return view


def show_rescued(view: RescuedView) -> dict[str, object]:
    return show(run_schemas.RescuedAnswer, view, claim=view.claim_id)


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
