"""The steps of a claim, past and to come, as the top of its page shows them. Pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from claims.allocation.claim_view import ClaimView
from claims.display import claim_class, claim_word
from project.kernel.ui import formatting

PENDING = claim_class("reserved")


@dataclass(frozen=True, slots=True)
class ClaimStep:
    css: str
    word: str
    text: str = ""
    at: datetime | None = None
    counts_from: datetime | None = None  # start of a duration that still grows
    is_current: bool = False
    is_next: bool = False


def steps_of(claim: ClaimView, now: datetime) -> list[ClaimStep]:
    """The steps of a claim without a task."""
    if claim.is_waiting:
        text = f"position {claim.wait.place}, " if claim.wait and claim.wait.place else ""
        found = [_going_on("waiting", claim.word, text, claim.created_at)]
    else:
        at_once = "served at once" if claim.bound_at else ""
        found = [_requested(claim, claim.bound_at or claim.changed_at or now, at_once)]
        if claim.bound_at is not None:
            found.append(_bound(claim))
    if claim.state in ("reserved", "parked"):
        found.append(_going_on(PENDING, claim.word, "", claim.changed_at))
    if claim.state == "ended":
        return [*found, _ended(claim, claim.bound_at)]
    return [*found, *_ahead(claim)]


def _going_on(css: str, word: str, text: str, since: datetime | None) -> ClaimStep:
    return ClaimStep(css, word, text, since, since, is_current=True)


def _to_come(css: str, word: str, text: str = "", at: datetime | None = None) -> ClaimStep:
    return ClaimStep(css, word, text, at, is_next=True)


def _requested(claim: ClaimView, until: datetime, at_once: str) -> ClaimStep:
    waited = (until - claim.created_at).total_seconds()
    if waited < 1:
        return ClaimStep("done", "requested", at_once, claim.created_at)
    return ClaimStep("done", "waiting", formatting.duration(waited), claim.created_at)


def _ended(claim: ClaimView, since: datetime | None) -> ClaimStep:
    text = f"after {_between(since, claim.changed_at)}" if since and claim.changed_at else ""
    return ClaimStep(claim.css, claim.word, text, claim.changed_at, is_current=True)


def _between(start: datetime, end: datetime) -> str:
    return formatting.duration((end - start).total_seconds())


def _bound(claim: ClaimView) -> ClaimStep:
    more = f" and {len(claim.slots) - 1} more" if len(claim.slots) > 1 else ""
    text = f"{claim.slots[0].place}{more}" if claim.slots else ""
    if claim.state != "bound":
        return ClaimStep("done", "bound", text, claim.bound_at)
    return _going_on(claim.css, claim.css, f"{text}, " if text else "", claim.bound_at)


def _ahead(claim: ClaimView) -> list[ClaimStep]:
    ahead = []
    if claim.is_waiting:
        wait = claim.wait
        ahead.append(
            _to_come("bound", "bound", wait.start_note if wait and not wait.start else _soon(claim))
        )
    if claim.acknowledge_by is not None:
        text = "deadline, then the slot is released"
        ahead.append(_to_come("bound", "acknowledged", text, claim.acknowledge_by))
    text = "at the latest" if claim.expires_at else "when the holder releases it"
    return [*ahead, _to_come("done", "released", text, claim.expires_at)]


def _soon(claim: ClaimView) -> str:
    start = claim.wait.start if claim.wait else None
    if start is None:
        return ""
    return f"in about {formatting.span(*start)}" if start[1] > 1 else "at once"


# -- tasks: plan, approval, apply ------------------------------------------------------------------


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
    """A plan and its approvals."""

    made_at: datetime
    is_kept: bool = True  # it is still the plan of its claim
    given: tuple[tuple[str, datetime], ...] = ()
    needed: int = 1

    @property
    def is_approved(self) -> bool:
        return len(self.given) >= self.needed

    @property
    def by(self) -> str:
        return formatting.sentence([name for name, _ in self.given])


MAX_STEPS = 8  # steps that fit beside each other
BAD_RUNS = ("failed", "lost", "cancelled")


def steps_of_task(
    claim: ClaimView,
    runs: Sequence[AgentRun],
    plans: Sequence[ApprovalSummary],
    now: datetime,
    behind: Sequence[int] = (),
) -> list[ClaimStep]:
    """The steps of a claim with a task, by time; steps to come last.

    `behind`: the claims of its workspace that wait for it.
    """
    first = runs[0].started_at if runs else claim.bound_at
    found: list[tuple[datetime, ClaimStep]] = []
    if first is not None or not claim.is_waiting:
        until = first or claim.changed_at or now
        found.append((claim.created_at, _requested(claim, until, "served at once")))
    found += [(run.started_at, _ran(run)) for run in runs]
    found += [step for plan in plans for step in _approval(claim, plan, is_last=plan is plans[-1])]
    found.sort(key=lambda pair: pair[0])
    steps = [step for _, step in found]
    if len(steps) > MAX_STEPS - 2:
        left = len(steps) - (MAX_STEPS - 3)
        more = ClaimStep("done", f"{left} more steps", "in its events")
        steps = [steps[0], more, *steps[-(MAX_STEPS - 4) :]]
    if claim.state == "ended":
        return [*steps, _ended(claim, claim.created_at)]
    if claim.is_waiting:
        is_approved = any(plan.is_kept and plan.is_approved for plan in plans)
        since = claim.changed_at if steps else claim.created_at
        place = f"position {claim.wait.place}, " if claim.wait and claim.wait.place else ""
        word = "waiting to apply" if is_approved else claim.word
        steps.append(_going_on("waiting", word, "next in queue, " if is_approved else place, since))
    elif claim.state == "bound" and all(run.is_over for run in runs):
        word = "applying" if claim.step == "apply" else "bound"
        place = f"{claim.slots[0].place}, " if claim.slots else ""
        text = f"{place}handed to the agent, "
        steps.append(_going_on(claim.css, word, text, claim.bound_at))
    return [*steps, *_ahead_of_task(claim, behind)]


def _ran(run: AgentRun) -> ClaimStep:
    if not run.is_over:
        css, word = ("applying", "applying") if run.step == "apply" else ("running", "running plan")
        return _going_on(css, word, f"{run.place}, ", run.started_at)
    text = f"{_between(run.started_at, run.ended_at or run.started_at)}, {run.place}"
    if run.outcome in BAD_RUNS:
        return ClaimStep(run.outcome, f"{run.step} {run.outcome}", text, run.started_at)
    return ClaimStep("done", run.step, text, run.started_at)


def _approval(
    claim: ClaimView, plan: ApprovalSummary, *, is_last: bool
) -> list[tuple[datetime, ClaimStep]]:
    word, made_at = claim_word("reserved"), plan.made_at
    if claim.state in ("reserved", "parked") and plan.is_kept:
        text = "slot reserved, " if claim.state == "reserved" else "without a slot, "
        return [(made_at, _going_on(PENDING, word, text, made_at))]
    if plan.given and plan.is_approved:
        at = plan.given[-1][1]
        return [
            (made_at, ClaimStep("done", word, _between(made_at, at), made_at)),
            (at, ClaimStep("done", "approved", f"by {plan.by}", at)),
        ]
    is_undecided = claim.state == "ended" and is_last and claim.task == "plan_and_apply"
    if is_undecided and claim.outcome != "planned" and claim.changed_at:
        waited = _between(made_at, claim.changed_at)
        return [(made_at, ClaimStep("done", word, waited, made_at))]
    if not plan.is_kept:
        return [(made_at, ClaimStep("cancelled", "plan replaced", "stale", made_at))]
    return []


def _ahead_of_task(claim: ClaimView, behind: Sequence[int]) -> list[ClaimStep]:
    if claim.task != "plan_and_apply":
        return [_to_come("done", "planned", "then its slot is released")]
    applied = _to_come(
        "done", "applied", f"then claim {behind[0]} of its workspace continues" if behind else ""
    )
    if claim.step == "apply":
        return [applied]
    text = "in the same slot" if claim.state == "reserved" else ""
    applying = _to_come("applying", "applying", text)
    if claim.state in ("reserved", "parked") or claim.rank == 0:
        return [applying, applied]
    pending = _to_come(PENDING, claim_word("reserved"), "if there are changes to apply")
    return [pending, applying, applied]
