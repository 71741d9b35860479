"""What has become of a claim so far, and what comes next: the steps at the top of its
page. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from claims.allocation.claim_view import ClaimView
from claims.display import claim_class, claim_word
from project.kernel.ui import formatting


@dataclass(frozen=True, slots=True)
class ClaimStep:
    css: str
    word: str
    text: str = ""
    at: datetime | None = None
    counts_from: datetime | None = None  # the text is a duration that goes on
    is_current: bool = False
    is_next: bool = False


def steps_of(claim: ClaimView, now: datetime) -> list[ClaimStep]:
    found = [_waiting(claim, now)]
    if claim.bound_at is not None and not claim.is_waiting:
        found.append(_bound(claim))
    if claim.state in ("reserved", "parked"):
        found.append(
            ClaimStep(
                "apply_pending",
                "apply_pending",
                "",
                claim.changed_at,
                claim.changed_at,
                is_current=True,
            )
        )
    if claim.state == "ended":
        css = claim_class(claim.state, outcome=claim.outcome, step=claim.step)
        held = (
            f"after {formatting.duration((claim.changed_at - claim.bound_at).total_seconds())}"
            if claim.changed_at and claim.bound_at
            else ""
        )
        found.append(
            ClaimStep(
                css,
                claim_word(claim.state, outcome=claim.outcome),
                held,
                claim.changed_at,
                is_current=True,
            )
        )
        return found
    return [*found, *_ahead(claim)]


def _waiting(claim: ClaimView, now: datetime) -> ClaimStep:
    if claim.is_waiting:
        text = f"position {claim.wait.place}, " if claim.wait and claim.wait.place else ""
        return ClaimStep(
            "waiting",
            claim_word(claim.state),
            text,
            claim.created_at,
            claim.created_at,
            is_current=True,
        )
    until = claim.bound_at or claim.changed_at or now
    waited = (until - claim.created_at).total_seconds()
    word = "waiting" if waited >= 1 else "asked"
    return ClaimStep(
        "done",
        word,
        formatting.duration(waited) if waited >= 1 else "served at once" if claim.bound_at else "",
        claim.created_at,
    )


def _bound(claim: ClaimView) -> ClaimStep:
    places = [f"{slot.member} · {slot.lane} {slot.number}" for slot in claim.slots]
    text = places[0] + (f" and {len(places) - 1} more" if len(places) > 1 else "") if places else ""
    if claim.state != "bound":
        return ClaimStep("done", "bound", text, claim.bound_at)
    css = claim_class(claim.state, step=claim.step)
    return ClaimStep(
        css, css, f"{text}, " if text else "", claim.bound_at, claim.bound_at, is_current=True
    )


def _ahead(claim: ClaimView) -> list[ClaimStep]:
    ahead = []
    if claim.is_waiting:
        ahead.append(
            ClaimStep(
                "bound",
                "bound",
                claim.wait.start_note if claim.wait and claim.wait.start is None else _soon(claim),
                is_next=True,
            )
        )
    if claim.acknowledge_by is not None:
        ahead.append(
            ClaimStep(
                "bound",
                "acknowledged",
                "by then, or the slot is released",
                claim.acknowledge_by,
                is_next=True,
            )
        )
    text = "at the latest" if claim.expires_at else "when the holder releases it"
    ahead.append(ClaimStep("done", "released", text, claim.expires_at, is_next=True))
    return ahead


def _soon(claim: ClaimView) -> str:
    start = claim.wait.start if claim.wait else None
    return (
        ""
        if start is None
        else f"in about {formatting.span(*start)}"
        if start[1] > 1
        else "at once"
    )


# -- tasks: plan, decision, apply ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AgentRun:
    """A run on an agent."""

    step: str  # plan | apply
    place: str
    started_at: datetime
    ended_at: datetime | None = None
    outcome: str = ""

    @property
    def is_over(self) -> bool:
        return self.ended_at is not None or bool(self.outcome)


@dataclass(frozen=True, slots=True)
class ApprovalSummary:
    """A plan, and who said yes."""

    made_at: datetime
    is_kept: bool = True  # it is the claim's plan still
    given: tuple[tuple[str, datetime], ...] = ()
    needed: int = 1

    @property
    def is_approved(self) -> bool:
        return len(self.given) >= self.needed

    @property
    def by(self) -> str:
        return formatting.sentence([name for name, _ in self.given])


MOST = 8  # steps that fit beside each other
BAD_RUNS = {"failed": "failed", "lost": "lost", "cancelled": "cancelled"}


def steps_of_task(
    claim: ClaimView,
    runs: Sequence[AgentRun],
    plans: Sequence[ApprovalSummary],
    now: datetime,
    behind: Sequence[int] = (),
) -> list[ClaimStep]:
    """In the order of time; what is to come stands behind it, dotted."""
    first = runs[0].started_at if runs else claim.bound_at
    found: list[tuple[datetime, ClaimStep]] = []
    if first is not None or not claim.is_waiting:
        found.append((claim.created_at, _asked(claim, first or claim.changed_at or now)))
    found += [(run.started_at, _ran(run, now)) for run in runs]
    found += [step for plan in plans for step in _decision(claim, plan, is_last=plan is plans[-1])]
    found.sort(key=lambda pair: pair[0])
    steps = [step for _, step in found]
    if len(steps) > MOST - 2:
        left = len(steps) - (MOST - 3)
        steps = [
            steps[0],
            ClaimStep("done", f"{left} more steps", "in its events"),
            *steps[-(MOST - 4) :],
        ]
    if claim.state == "ended":
        css = claim_class(claim.state, outcome=claim.outcome, step=claim.step)
        took = (
            formatting.duration((claim.changed_at - claim.created_at).total_seconds())
            if claim.changed_at
            else ""
        )
        return [
            *steps,
            ClaimStep(
                css,
                claim_word(claim.state, outcome=claim.outcome),
                f"after {took}" if took else "",
                claim.changed_at,
                is_current=True,
            ),
        ]
    if claim.is_waiting:
        is_approved = any(plan.is_kept and plan.is_approved for plan in plans)
        since = claim.changed_at if steps else claim.created_at
        place = f"position {claim.wait.place}, " if claim.wait and claim.wait.place else ""
        word = "waiting to apply" if is_approved else claim_word(claim.state)
        steps.append(
            ClaimStep(
                "waiting",
                word,
                "goes first, " if is_approved else place,
                since,
                since,
                is_current=True,
            )
        )
    elif claim.state == "bound" and not any(not run.is_over for run in runs):
        css = claim_class(claim.state, step=claim.step)
        steps.append(
            ClaimStep(
                css,
                "applying" if claim.step == "apply" else "bound",
                f"{_place(claim)}handed to the agent, ",
                claim.bound_at,
                claim.bound_at,
                is_current=True,
            )
        )
    return [*steps, *_to_come(claim, behind)]


def _place(claim: ClaimView) -> str:
    return (
        f"{claim.slots[0].member} · {claim.slots[0].lane} {claim.slots[0].number}, "
        if claim.slots
        else ""
    )


def _asked(claim: ClaimView, until: datetime) -> ClaimStep:
    waited = (until - claim.created_at).total_seconds()
    return ClaimStep(
        "done",
        "waiting" if waited >= 1 else "asked",
        formatting.duration(waited) if waited >= 1 else "served at once",
        claim.created_at,
    )


def _ran(run: AgentRun, now: datetime) -> ClaimStep:
    word = "applying" if run.step == "apply" else "running plan"
    if not run.is_over:
        return ClaimStep(
            "applying" if run.step == "apply" else "running",
            word,
            f"{run.place}, ",
            run.started_at,
            run.started_at,
            is_current=True,
        )
    took = formatting.duration(((run.ended_at or run.started_at) - run.started_at).total_seconds())
    css = BAD_RUNS.get(run.outcome, "done")
    said = f"{run.step} {run.outcome}" if css != "done" else run.step
    return ClaimStep(css, said, f"{took}, {run.place}", run.started_at)


def _decision(
    claim: ClaimView, plan: ApprovalSummary, *, is_last: bool
) -> list[tuple[datetime, ClaimStep]]:
    if claim.state in ("reserved", "parked") and plan.is_kept:
        kept = "keeps its slot, " if claim.state == "reserved" else "without a slot, "
        return [
            (
                plan.made_at,
                ClaimStep(
                    "apply_pending",
                    "apply_pending",
                    kept,
                    plan.made_at,
                    plan.made_at,
                    is_current=True,
                ),
            )
        ]
    steps = []
    if plan.given and plan.is_approved:
        at = plan.given[-1][1]
        waited = formatting.duration((at - plan.made_at).total_seconds())
        steps.append((plan.made_at, ClaimStep("done", "apply_pending", waited, plan.made_at)))
        steps.append((at, ClaimStep("done", "approved", f"by {plan.by}", at)))
    elif (
        claim.state == "ended"
        and is_last
        and claim.task == "plan_and_apply"
        and claim.outcome != "planned"
        and claim.changed_at
    ):
        waited = formatting.duration((claim.changed_at - plan.made_at).total_seconds())
        steps.append((plan.made_at, ClaimStep("done", "apply_pending", waited, plan.made_at)))
    elif not plan.is_kept:
        steps.append((plan.made_at, ClaimStep("cancelled", "plan replaced", "stale", plan.made_at)))
    return steps


def _to_come(claim: ClaimView, behind: Sequence[int]) -> list[ClaimStep]:
    if claim.task != "plan_and_apply":
        return [ClaimStep("done", "planned", "then its slot is released", is_next=True)]
    unlocks = f"then {behind[0]} of its workspace goes on" if behind else ""
    ahead = [ClaimStep("done", "applied", unlocks, is_next=True)]
    if claim.step == "apply":
        return ahead
    ahead.insert(
        0,
        ClaimStep(
            "applying",
            "applying",
            "in the same slot" if claim.state == "reserved" else "",
            is_next=True,
        ),
    )
    if claim.state in ("reserved", "parked") or claim.rank == 0:
        return ahead
    return [
        ClaimStep("apply_pending", "apply_pending", "if there are changes to apply", is_next=True),
        *ahead,
    ]
