"""I31: Terraform states that a backend did not store: rescued, only on an agent, or lost."""

from collections.abc import Iterator

from claims.tasks.states.selectors import KEPT, LOST, list_unsettled
from project.kernel.doctor.registry import Finding, check

MAX_STATES = 1000


@check(
    "I31",
    "No unsaved Terraform state waits for an approver",
    "The backend lacks the changes of an apply: the next plan would create the resources again.",
)
def find_unsettled_states() -> Iterator[Finding]:
    for view in list_unsettled(MAX_STATES):
        where = f"workspace {view.workspace}" if view.workspace else f"claim {view.claim_id}"
        if view.status == KEPT:
            detail = (
                f"the state of claim {view.claim_id} is rescued and kept sealed, "
                f"{view.size:,} bytes"
            )
            way_out = (
                "An approver downloads it from the page of the claim and pushes it to the backend; "
                "then settle the workspace."
            )
        elif view.status == LOST:
            detail = (
                f"the state of claim {view.claim_id} was only on the agent of "
                f"{view.member} and is lost"
            )
            way_out = "Import the resources that the backend lacks; then settle the workspace."
        else:
            detail = (
                f"only the agent of {view.member} has the state of claim {view.claim_id}; the "
                "member is not removed"
            )
            way_out = (
                "Start the agent and let it reach the server: it uploads the state. If it "
                "cannot, discard the state."
            )
        yield Finding(where, detail, way_out)
