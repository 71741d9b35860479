"""The dialog that records the outcome of a lost apply."""

from django.http import HttpResponse

from claims.allocation.selectors import view_claims
from claims.lifecycle.pages.claim_dialogs import affected
from claims.tasks.approvals.lost_apply import resolve_lost_apply
from claims.tasks.states.views import rescued_facts
from claims.workspaces.web.permissions import existing_workspace, require_settle
from claims.workspaces.web.views import claims_of
from pools.pages.base import PageRequest, confirm, signed_in
from project.kernel.ui import formatting
from project.kernel.ui.confirm import ConfirmInput, Done, Field, Question

ANSWERS = (
    ("applied", "Applied: all changes of the plan were made"),
    ("not_applied", "Not applied: no change was made"),
    ("unknown", "Applied in part or unknown: the next run must plan again"),
)


@signed_in
def settle(request: PageRequest, name: str) -> HttpResponse:
    view = existing_workspace(request.identity, name)
    require_settle(request.identity, view)
    name = view.name
    lost = view_claims([view.lost_claim])[0:1] if view.lost_claim else []
    blocked = claims_of(request.identity, view.id, states=("blocked",))
    question = Question(
        title=f"Outcome of the lost apply of {name}",
        verb="Record outcome",
        # The address names the claim, so an old dialog cannot settle a later apply.
        href=f"{request.path}?claim={lost[0].id}" if lost else request.path,
        intro=(
            f"The apply of claim {lost[0].id} was lost while it ran. Check the real resources "
            "before you answer: your answer unlocks the workspace, and the next run starts."
        )
        if lost
        else "",
        affected=[affected(claim, ("waiting", "queued"), "") for claim in blocked],
        fields=[
            Field(
                "what",
                "Outcome",
                "select",
                "",
                options=[("", "Choose…"), *ANSWERS],
                is_needed=True,
            )
        ],
        reason_hint="Evidence, recorded in the event log",
        nothing="" if lost else "No apply of this workspace was lost.",
        facts=[
            ("Blocked claims", formatting.plural(len(blocked), "claim")),
            *rescued_facts(view.id),
        ],
    )

    def perform(given: ConfirmInput) -> Done:
        named = request.GET.get("claim", "")
        meant = int(named) if named.isdecimal() and len(named) < 19 else lost[0].id
        resolve_lost_apply(
            workspace_id=view.id, what=given.values["what"], reason=given.reason, claim=meant
        )
        return Done(f"{name} is unlocked; the outcome is recorded.")

    return confirm(request, question, perform, "claims")
