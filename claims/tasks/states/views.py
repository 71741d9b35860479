"""Rescued Terraform states on pages: list, download and the dialog that discards a state."""

from django.http import HttpResponse

from claims.tasks.states.api import state_file, state_for
from claims.tasks.states.selectors import (
    KEPT,
    LOST,
    ON_AGENT,
    SETTLED,
    RescuedView,
    list_rescued,
    list_rescued_in,
)
from claims.tasks.states.services import discard_state
from pools.access.permissions import Identity
from pools.pages.base import PageRequest, confirm, explain_missing_role, signed_in
from project.kernel.ui.confirm import ConfirmInput, Done, Question

WHERE = {
    KEPT: "the server keeps it, encrypted",
    ON_AGENT: "only the agent has it, and its member is not removed",
    LOST: "lost with its agent",
    SETTLED: "it is deleted",
}


def rescued_rows(identity: Identity, views: list[RescuedView]) -> list[dict[str, object]]:
    """The readable unsettled states, with the reasons why the reader may not download or discard
    them.
    """
    return [
        {
            "state": view,
            "download_why": explain_missing_role(identity, "decide", view.pool_id),
            "discard_why": ""
            if may_discard(identity, view)
            else "This needs the role operator or approver.",
        }
        for view in views
        if view.status != SETTLED and identity.may("read", view.pool_id)
    ]


def rescued_of_claim(identity: Identity, claim_id: int) -> list[dict[str, object]]:
    return rescued_rows(identity, list_rescued(claim_id))


def rescued_of_workspace(identity: Identity, workspace: int) -> list[dict[str, object]]:
    return rescued_rows(identity, list_rescued_in([workspace])[workspace])


def rescued_facts(workspace: int) -> list[tuple[str, str]]:
    """The states that settling the workspace deletes, as facts of its dialog."""
    open_ones = [
        view for view in list_rescued_in([workspace])[workspace] if view.status in (KEPT, ON_AGENT)
    ]
    return [
        (
            f"State of claim {view.claim_id}",
            f"{WHERE[view.status]}; recording the outcome deletes it",
        )
        for view in open_ones
    ]


def may_discard(identity: Identity, view: RescuedView) -> bool:
    return identity.may("decide", view.pool_id) or identity.may("settle", view.pool_id)


@signed_in
def download(request: PageRequest, claim_id: int, generation: int) -> HttpResponse:
    return state_file(state_for(request.identity, claim_id, generation, "decide"))


@signed_in
def discard(request: PageRequest, claim_id: int, generation: int) -> HttpResponse:
    view = state_for(request.identity, claim_id, generation, "decide", "settle")
    question = Question(
        title=f"Discard the state of claim {claim_id}",
        verb="Discard",
        intro=(
            "Only this state records the changes of the apply, unless a person has pushed it "
            "to the backend."
        ),
        facts=[
            ("Location", WHERE[view.status]),
            ("Size", f"{view.size:,} bytes"),
            ("Member", view.member),
        ],
        is_dangerous=True,
        note="Cannot be undone.",
        nothing="The state is already discarded." if view.status == SETTLED else "",
    )

    def perform(given: ConfirmInput) -> Done:
        discard_state(claim_id=claim_id, generation=generation, reason=given.reason)
        return Done(f"The state of claim {claim_id} is discarded.")

    return confirm(request, question, perform, "claims")
