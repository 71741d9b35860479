"""Every state of a task meets every report of an agent and every action of a person; a
refused one leaves the state as it is.
"""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from claims.allocation.claim_view import ClaimView
from claims.lifecycle.cancel import cancel_claim
from claims.tasks.approvals.reservations import extend_reservation, move_reserved, plan_again
from claims.tasks.runs.services import start_run
from claims.tasks.task_result import OUTCOMES
from claims.workspaces.services import lock_workspace
from project.kernel.errors import BerthError
from tests.claims.tasks.approvals.helpers import (
    BOOT,
    agents,
    applying,
    begin,
    is_sound,
    member,
    no,
    planned,
    result,
    row,
    task,
    tell,
    ws,
    yes,
)

pytestmark = pytest.mark.django_db


def waiting() -> ClaimView:
    for busy in ("one", "two"):
        task(workspace=busy)
    return task()


def blocked() -> ClaimView:
    claim = task()
    lock_workspace(workspace_id=ws("net"), reason="x")
    cancel_claim(claim_id=claim.id)
    return task()


def ordered() -> ClaimView:
    return task()


def planning() -> ClaimView:
    return begin(task())


def to_apply() -> ClaimView:
    claim = planned()
    yes(claim)
    return claim


def over(outcome: str) -> Callable[[], ClaimView]:
    def make() -> ClaimView:
        claim = planning()
        tell(claim, result(outcome))
        return claim

    return make


def rejected() -> ClaimView:
    claim = planned()
    no(claim)
    return claim


def applied() -> ClaimView:
    claim = applying()
    tell(claim, result("applied"))
    return claim


STATES: dict[str, Callable[[], ClaimView]] = {
    "waiting": waiting, "blocked": blocked, "ordered": ordered, "planning": planning,
    "pending": planned, "to apply": to_apply, "applying": applying, "failed": over("failed"),
    "planned": over("no_changes"), "rejected": rejected, "applied": applied,
}  # fmt: skip


def said(outcome: str) -> Callable[[ClaimView], Any]:
    return lambda claim: tell(claim, result(outcome), row(claim).generation or 1, member())


WORDS: dict[str, Callable[[ClaimView], Any]] = {
    **{outcome: said(outcome) for outcome in OUTCOMES},
    "started": lambda c: start_run(
        claim_id=c.id, generation=row(c).generation or 1, member=member(), boot=BOOT
    ),
    "started by another": lambda c: start_run(
        claim_id=c.id, generation=row(c).generation or 1, member=member(), boot="another"
    ),
    "yes": yes,
    "no": no,
    "extend": lambda c: extend_reservation(claim_id=c.id, seconds=60, reason="x"),
    "plan again": lambda c: plan_again(claim_id=c.id, reason="x"),
    "move": lambda c: move_reserved(claim_id=c.id, reason="x"),
    "cancel": lambda c: cancel_claim(claim_id=c.id),
}
SAME = ""
# What comes of it, where anything does: state, step and outcome afterwards.
DOES: dict[tuple[str, str], str] = {
    ("ordered", "failed"): "ended plan failed",
    ("ordered", "cancelled"): "ended plan cancelled",
    ("ordered", "started"): SAME,
    ("ordered", "started by another"): SAME,
    ("planning", "planned"): "reserved plan ",
    ("planning", "no_changes"): "ended plan planned",
    ("planning", "failed"): "ended plan failed",
    ("planning", "cancelled"): "ended plan cancelled",
    ("planning", "started"): SAME,
    ("pending", "yes"): "bound apply ",
    ("pending", "no"): "ended plan rejected",
    ("pending", "extend"): SAME,
    ("pending", "plan again"): "bound plan ",
    ("pending", "move"): "reserved plan ",
    ("to apply", "failed"): "ended apply failed",
    ("to apply", "cancelled"): "ended apply cancelled",
    ("to apply", "plan_again"): "waiting plan ",
    ("to apply", "started"): SAME,
    ("to apply", "started by another"): SAME,
    ("to apply", "yes"): SAME,  # the same person again
    ("applying", "applied"): "ended apply applied",
    ("applying", "failed"): "ended apply failed",
    ("applying", "cancelled"): "ended apply cancelled",
    ("applying", "plan_again"): "waiting plan ",
    ("applying", "started"): SAME,
    ("applying", "yes"): SAME,
    ("failed", "failed"): SAME,  # repeated: answered as then
    ("planned", "no_changes"): SAME,
    ("rejected", "no"): SAME,
    ("applied", "applied"): SAME,
    ("applied", "yes"): SAME,
    **{(state, "cancel"): f"ended {step} cancelled" for state, step in (
        ("waiting", "plan"), ("blocked", "plan"), ("ordered", "plan"), ("planning", "plan"),
        ("pending", "plan"), ("to apply", "apply"), ("applying", "apply"),
    )},
}  # fmt: skip


def looks(claim: ClaimView) -> str:
    now = row(claim)
    return f"{now.state} {now.step} {now.outcome}"


def refusal(say: Callable[[ClaimView], Any], claim: ClaimView) -> str:
    """The way out of a refusal; empty without a refusal."""
    try:
        say(claim)
    except BerthError as error:
        return error.way_out or "none is given"
    return ""


@pytest.mark.parametrize("state", STATES)
def test_every_report_in_every_state_is_applied_or_refused(state: str) -> None:
    """Each word on the same state; what it did is taken back."""
    agents()
    claim = STATES[state]()
    before = looks(claim)
    for word, say in WORDS.items():
        with transaction.atomic():
            refused = refusal(say, claim)
            expected = DOES.get((state, word))
            assert bool(refused) is (expected is None), (word, refused, looks(claim))
            assert looks(claim) == (expected or before), word
            assert refused != "none is given", word
            transaction.set_rollback(True)
    assert is_sound()
