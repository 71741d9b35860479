"""The page of a task: head, state, plan, log, approval panel and slot, each a live region."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from claims.allocation.claim_view import ClaimView
from claims.allocation.selectors import view_claim
from claims.lifecycle.claim_steps import AgentRun, ApprovalSummary, steps_of_task
from claims.lifecycle.pages.claim_list import describe_demand, describe_estimate, may_touch
from claims.lifecycle.pages.claim_page import find_claim, opened_region
from claims.models import Approval, Claim, Plan, Run, Task
from claims.states import PENDING
from claims.tasks.approvals.lost_apply import SETTLED
from claims.tasks.failure_hints import way_out
from claims.tasks.pages.approval_panel import approval_context
from claims.tasks.pages.plan_page import plan_context
from claims.tasks.states.views import rescued_of_claim
from claims.tasks.task_result import is_cut_off
from claims.timeline.queries import Filter, list_lines
from pools.access.permissions import ADMIN, Identity
from pools.models import Member
from pools.pages.base import action, explain_missing_role
from project.kernel.live.regions import OpenedRegion, Subject, region
from project.kernel.ui import formatting
from slots.models import Slot

LINES = 12
CUT_SHORT = ("lost", "cancelled", "expired")  # outcomes of a claim whose apply was interrupted
ENDED = {
    "applied": "The plan was applied as it was approved.",
    "rejected": "An approver rejected the plan; nothing was applied.",
    "expired": "No decision was made in time; nothing was applied.",
    "cancelled": "The claim was cancelled.",
    "lost": "Its agent was lost.",
}
PLANNED = {
    "plan_and_apply": "There was nothing to apply.",
    "drift_check": "A drift check applies nothing.",
}


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as a tab of the log."""

    run: Run
    word: str
    place: str

    @property
    def is_over(self) -> bool:
        return self.run.ended_at is not None or bool(self.run.outcome)

    @property
    def is_bad(self) -> bool:
        return self.run.outcome in ("failed", "lost", "cancelled")

    @property
    def way_out(self) -> str:
        return way_out(self.run.code)

    @property
    def css(self) -> str:
        if not self.is_over:
            return "applying" if self.run.step == "apply" else "running"
        return self.run.outcome if self.is_bad else "done"

    @property
    def took(self) -> str:
        start, end = self.run.started_at, self.run.ended_at
        return formatting.duration((end - start).total_seconds()) if end else "ended"


def list_run_rows(claim_id: int) -> list[RunRow]:
    runs = list(Run.objects.filter(claim_id=claim_id).order_by("generation"))
    many, seen = Counter(run.step for run in runs), Counter[str]()
    rows = []
    for run in runs:
        seen[run.step] += 1
        word = f"{run.step} {seen[run.step]}" if many[run.step] > 1 else run.step
        place = f"{run.member} · {run.place.replace('-', ' ')}" if run.place else run.member
        rows.append(RunRow(run, word, place))
    return rows


# -- regions ---------------------------------------------------------------------------------------


def of_task(
    name: str,
    template: str,
    context: Callable[[Identity, ClaimView], dict[str, object]],
    every: float = 0.5,
) -> None:
    """Registers a region of one claim, visible with the claim."""

    def opener(identity: Identity, argument: str) -> OpenedRegion | None:
        claim = find_claim(identity, argument)
        if claim is None:
            return None
        subjects: set[Subject] = {("claim", claim.id)}
        if claim.pool_id is not None and claim.state in ("waiting", "blocked", "parked"):
            subjects.add(("pool", claim.pool_id))  # the wait reason changes with the pool
        claim_id = claim.id

        def render() -> str:
            fresh = view_claim(claim_id, explain=True)
            return render_to_string(
                template,
                {
                    "claim": fresh,
                    "now": timezone.now(),
                    "identity": identity,
                    **context(identity, fresh),
                },
            ).strip()

        return opened_region(identity, name, str(claim_id), render, every, subjects)

    region(name)(opener)


def list_waiting_behind(identity: Identity, claim: ClaimView) -> list[int]:
    """The first five claims that wait for the same workspace."""
    if not claim.workspace:
        return []
    visible = identity.visible_pools()
    found = Claim.objects.filter(
        workspace=claim.workspace_id,
        state="blocked",
        **({} if visible is None else {"pool_id__in": visible}),
    )
    return list(found.exclude(pk=claim.id).order_by("rank", "id").values_list("pk", flat=True)[:5])


def summarise_approvals(claim: ClaimView) -> list[ApprovalSummary]:
    """All plans of the claim with their approvals, oldest first."""
    plans = list(Plan.objects.filter(claim_id=claim.id).order_by("pk"))
    approved = Claim.objects.filter(pk=claim.id).values_list("approved_plan_id", flat=True).first()
    yes: dict[int, list[tuple[str, datetime]]] = {}
    for approval in Approval.objects.filter(plan__claim_id=claim.id, is_yes=True).order_by("at"):
        yes.setdefault(approval.plan_id, []).append((approval.by_user, approval.at))
    found = []
    for plan in plans:
        given = yes.get(plan.pk, [])
        is_approved = plan.pk == approved
        needed = len(given) if is_approved and given else len(given) + 1
        found.append(ApprovalSummary(plan.made_at, not plan.is_stale, tuple(given), needed))
    return found


def head(identity: Identity, claim: ClaimView) -> dict[str, object]:
    now, rows = timezone.now(), list_run_rows(claim.id)
    runs = [
        AgentRun(row.run.step, row.place, row.run.started_at, row.run.ended_at, row.run.outcome)
        for row in rows
    ]
    plan = Plan.objects.filter(claim_id=claim.id).order_by("-pk").first()
    return {
        "title": claim.label or "task",
        "what": describe_demand(claim) or claim.kind,
        "has_work": True,
        "says_owner": bool(claim.owner)
        and claim.owner not in (claim.workspace, f"workspace:{claim.workspace}"),
        "commit": str(plan.facts.get("commit") or "") if plan else "",
        "steps": steps_of_task(
            claim, runs, summarise_approvals(claim), now, list_waiting_behind(identity, claim)
        ),
        "actions": task_actions(identity, claim),
    }


def state(identity: Identity, claim: ClaimView) -> dict[str, object]:
    """The section above the plan: why the claim waits, or why it ended."""
    last = Run.objects.filter(claim_id=claim.id).order_by("-generation").first()
    apply = last if last is not None and last.step == "apply" else None
    lost = (
        apply is not None
        and claim.outcome in CUT_SHORT
        and apply.outcome not in ("applied", "failed")
    )
    cut_off = (
        apply is not None
        and claim.outcome == "failed"
        and is_cut_off(apply.outcome, apply.code, apply.exit_code)
    )
    facts = last.facts if last else {}
    answer, report = facts.get("settled"), facts.get("report")
    settled = (
        {"by": answer.get("by", ""), "words": SETTLED.get(str(answer.get("what")), "")}
        if isinstance(answer, dict)
        else None
    )
    return {
        "probably": describe_estimate(claim),
        "ending": task_ending(claim),
        "last": last,
        "why": last.reason.rstrip(".") if last else "",
        "way_out": way_out(last.code) if last else "",
        "lost_apply": lost,
        "cut_off": cut_off,
        "interrupt": interrupt_of(last, facts.get("interrupt")),
        "report": str(report.get("reason") or "") if isinstance(report, dict) else "",
        "settled": settled,
        "rescued": rescued_of_claim(identity, claim.id),
    }


def task_ending(claim: ClaimView) -> str:
    """The ending of a task as a sentence; empty for a failed task, because its run has the
    reason.
    """
    if claim.outcome == "planned":
        return PLANNED.get(claim.task or "", "Only a plan was requested.")
    return ENDED.get(claim.outcome or "", "")


def interrupt_of(run: Run | None, interrupt: object) -> dict[str, object] | None:
    """The interrupt of a program that may still be running: its run is open or its slot drains."""
    if run is None or not isinstance(interrupt, dict):
        return None
    slots = Slot.objects.filter(
        member_id=run.member_id, generation=run.generation, state="draining"
    )
    if run.ended_at is not None and not slots.exists():
        return None
    return {
        "why": interrupt.get("why"),
        "until": parse_datetime(str(interrupt.get("until") or "")),
        "waits_for": interrupt.get("waits_for") or [],
        "more": interrupt.get("more"),
    }


def plan(identity: Identity, claim: ClaimView) -> dict[str, object]:
    found = Plan.objects.filter(claim_id=claim.id).order_by("is_stale", "-pk").first()
    if found is None:
        return {"plan": None, "is_planning": claim.state != "ended"}
    context = plan_context(found) if found.json_file else {}
    return {"plan": found, "counts": found.summary, **context}


def runs(identity: Identity, claim: ClaimView) -> dict[str, object]:
    rows = list_run_rows(claim.id)
    bad = [row for row in rows if row.is_bad][-1:]
    # The section above already shows why an ended claim failed.
    return {"runs": rows, "bad": [] if claim.state == "ended" and bad == rows[-1:] else bad}


def side(identity: Identity, claim: ClaimView) -> dict[str, object]:
    lines, _ = list_lines(
        Filter(claim_id=claim.id, is_admin=ADMIN in identity.everywhere, reader=identity.requester),
        limit=4 * LINES,
    )
    task = Task.objects.filter(claim_id=claim.id).select_related("source").first()
    member = Member.objects.filter(pk=claim.slots[0].member_id).first() if claim.slots else None
    return {
        "member": member,
        "member_css": "draining"
        if member and (member.is_leaving or member.drain_until)
        else "cordoned"
        if member and member.is_cordoned
        else "",
        "held": claim.bound_at is not None and claim.holds,
        "lines": lines[:LINES],
        "behind": [] if claim.state == "ended" else list_waiting_behind(identity, claim),
        "waiting": count_waiting_behind(claim),
        "task": task,
        "source": describe_source(task) if task else "",
    }


def count_waiting_behind(claim: ClaimView) -> int:
    """Waiting claims of the pool whose slot the claim holds."""
    if not claim.holds or claim.pool_id is None:
        return 0
    return Claim.objects.filter(pool_id=claim.pool_id, state="waiting").count()


def describe_source(task: Task) -> str:
    source = task.body.get("source", {})
    if source.get("url"):
        place = f", {source['path']}" if source.get("path") else ""
        return f"{source['url']} at {source.get('ref') or 'HEAD'}{place}"
    if task.source is not None:
        return f"{formatting.plural(task.source.files, 'file')}, {task.source.size:,} bytes"
    return ""


# -- actions ---------------------------------------------------------------------------------------


def task_actions(identity: Identity, claim: ClaimView) -> list[dict[str, object]]:
    """All actions on a task. `why` says why an action is off; empty: it is on."""
    ended = f"The claim has ended: {claim.outcome}." if claim.state == "ended" else ""
    role = explain_missing_role(identity, "claim_any", claim.pool_id)
    own = (
        ""
        if may_touch(identity, claim)
        else "This needs the role operator: another user requested the claim."
    )
    deciding = role and explain_missing_role(identity, "decide", claim.pool_id)
    no_plan = "" if claim.state in PENDING else "No plan waits for an approval."
    not_movable = (
        "A task runs. The claim can be moved once its plan waits for an approval."
        if claim.state == "bound"
        else no_plan
    )
    made = [
        ("Plan again…", "plan-again", ended or no_plan or role, False),
        ("Extend…", "extend", ended or no_plan or deciding, False),
        ("Move…", "move", ended or not_movable or role, False),
        ("Cancel…", "cancel", ended or own, True),
        ("Release…", "release", ended or release_why(claim) or own, False),
        (
            "Force release…",
            "force-release",
            ended or ("The claim holds no slots." if not claim.holds else "") or role,
            True,
        ),
    ]
    if claim.is_waiting:
        made.insert(0, ("Prioritise…", "prioritise", own, False))
    if ended:
        query = urlencode(
            {"pool": claim.pool or "", "workspace": claim.workspace or "", "kind": claim.task}
        )
        return [action("Run again", f"/claims/run/?{query}", own, is_page=True)]
    return [
        action(word, f"/claims/{claim.id}/{name}/", why, is_dangerous=is_dangerous)
        for word, name, why, is_dangerous in made
    ]


def release_why(claim: ClaimView) -> str:
    if claim.is_waiting or claim.state == "parked":
        return "The claim holds no slot. Cancel it instead."
    if claim.state == "reserved":
        return "The slot is reserved for the apply. Reject the plan instead."
    what = "An apply" if claim.step == "apply" else "A plan"
    return f"{what} runs. Cancel the claim to stop it."


of_task("task.head", "claims/tasks/task_head.html", head)
of_task("task.state", "claims/tasks/task_state.html", state, 1.0)
of_task("task.plan", "claims/tasks/task_plan.html", plan)
of_task("task.runs", "claims/tasks/task_runs.html", runs)
of_task("task.decide", "claims/tasks/task_approval.html", approval_context)
of_task("task.side", "claims/tasks/task_side.html", side, 1.0)
