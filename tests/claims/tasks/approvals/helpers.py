"""Helpers that create agent pools and tasks and send agent reports to the real services."""

import hashlib
from typing import Any

from django.contrib.auth.models import User

from claims.allocation.claim_view import ClaimView
from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import parse_claim
from claims.allocation.selectors import view_claim
from claims.models import Claim, Plan, Run, Workspace
from claims.tasks.approvals.services import ApprovalResult, approve_plan, reject_plan
from claims.tasks.plans.selectors import view_plan
from claims.tasks.runs.results import RunEnd, record_result
from claims.tasks.runs.services import start_run
from claims.tasks.task_result import TaskResult
from pools.access.permissions import APPROVER, Identity, load_identity
from pools.lifecycle.services import create_pool
from pools.models import Grant, Member, Pool
from project.kernel.errors import BerthError
from project.kernel.models import Event
from slots.members.liveness import mark_ready
from slots.models import Slot
from tests.claims.helpers import again, is_sound, serve, sql, verbs, ws

__all__ = ["again", "is_sound", "serve", "sql", "verbs", "ws"]

ANA, BEN, EVE = "ana", "ben", "eve"
BOOT = "boot-1"
COMMANDS = {"plan": "make plan", "apply": "make apply"}


def decider(name: str) -> Identity:
    """An approver of every pool."""
    user, _ = User.objects.get_or_create(username=name)
    Grant.objects.get_or_create(user=user, role=APPROVER, pool=None)
    found = load_identity(user.pk)
    assert found is not None
    return found


def agents(name: str = "tf", slots: Any = ("any",), members: int = 2, **more: Any) -> Pool:
    """A pool with ready members, and three approvers."""
    for user in (ANA, BEN, EVE):
        decider(user)
    named = [f"{name}-{i}" for i in range(members)]
    config = {
        "name": name,
        "provider": "agents",
        "slots": list(slots),
        "members": {"max": max(members, 1), "list": named},
    }
    pool = create_pool({**config, **more})
    sql("UPDATE pools_pool SET state = 'active' WHERE id = %s", pool.pk)
    for member in Member.objects.filter(pool=pool):
        mark_ready(member_id=member.pk, incarnation=member.incarnation)
    return pool


def task(
    pool: str = "tf",
    workspace: str = "net",
    *,
    what: str = "plan_and_apply",
    by: str = ANA,
    **body: Any,
) -> ClaimView:
    commands = {
        step: command
        for step, command in COMMANDS.items()
        if step == "plan" or what == "plan_and_apply"
    }
    run = {"executor": "command", "commands": commands}
    wish = {
        "pool": pool,
        "task": what,
        **({"workspace": workspace} if workspace else {}),
        "run": run,
        **body,
    }
    return create_claim(parse_claim(wish, requested_by=by))


def member(name: str = "tf-0") -> Member:
    return Member.objects.exclude(state="gone").get(name=name)


def member_of(claim: ClaimView) -> Member:
    return Member.objects.get(pk=view_claim(claim.id).slots[0].member_id)


def digest(text: str = "a plan") -> bytes:
    return hashlib.sha256(text.encode()).digest()


def hexed(text: str = "a plan") -> str:
    return digest(text).hex()


def begin(claim: ClaimView, boot: str = BOOT) -> ClaimView:
    now = view_claim(claim.id)
    start_run(
        claim_id=claim.id,
        generation=now.generation,
        member=member_of(claim),
        boot=boot,
        place="any-0",
    )
    return now


def result(outcome: str = "planned", *, text: str = "a plan", **more: Any) -> TaskResult:
    summary = {"add": 1, "change": 0, "destroy": 0, "replace": 0} | more.pop("summary", {})
    return TaskResult(
        outcome, more.pop("exit_code", 0), digest=digest(text), summary=summary, **more
    )


def tell(
    claim: ClaimView, said: TaskResult, generation: int | None = None, by: Member | None = None
) -> RunEnd:
    now = view_claim(claim.id)
    return record_result(
        claim_id=claim.id,
        generation=generation or now.generation,
        member=by or member_of(claim),
        result=said,
    )


def planned(
    pool: str = "tf",
    workspace: str = "net",
    *,
    text: str = "a plan",
    summary: dict[str, int] | None = None,
    **more: Any,
) -> ClaimView:
    """A claim whose plan waits for approval."""
    claim = task(pool, workspace, **more)
    begin(claim)
    tell(claim, result(text=text, summary=summary or {}))
    return view_claim(claim.id)


def applying(pool: str = "tf", workspace: str = "net", **more: Any) -> ClaimView:
    """Approved, and its apply has begun."""
    claim = planned(pool, workspace, **more)
    yes(claim)
    begin(claim)
    return view_claim(claim.id)


def known(name: str) -> Identity:
    """The identity of an authenticated caller; the service reads the roles again."""
    return Identity(User.objects.get(username=name).pk, name)


def yes(claim: ClaimView, by: str = BEN, text: str = "a plan", **more: Any) -> ApprovalResult:
    return approve_plan(claim_id=claim.id, digest=hexed(text), by=known(by), **more)


def no(
    claim: ClaimView, by: str = BEN, text: str = "a plan", comment: str = "not today"
) -> ApprovalResult:
    return reject_plan(claim_id=claim.id, digest=hexed(text), by=known(by), comment=comment)


def code_of(work: Any) -> Any:
    """What a call answers, or the code of its refusal."""
    try:
        return work()
    except BerthError as error:
        return error.code


def row(claim: ClaimView) -> Claim:
    return Claim.objects.get(pk=claim.id)


def states() -> dict[str, int]:
    found: dict[str, int] = {}
    for state in Slot.objects.values_list("state", flat=True):
        found[state] = found.get(state, 0) + 1
    return found


def run_of(claim: ClaimView) -> Run:
    """The last one."""
    return Run.objects.filter(claim_id=claim.id).order_by("-generation")[0]


def plan_of(claim: ClaimView) -> Plan:
    return Plan.objects.filter(claim_id=claim.id).order_by("-id")[0]


def approvals(claim: ClaimView) -> list[tuple[str, bool]]:
    found = view_plan(claim.id)
    return [] if found is None else [(a.by_user, a.is_yes) for a in found.approvals]


def workspace(name: str = "net") -> Workspace:
    return Workspace.objects.get(name=name)


def events(verb: str) -> list[Event]:
    return list(Event.objects.filter(verb=verb).order_by("id"))


def pass_time(claim: ClaimView, seconds: float) -> None:
    """Moves the timers of a waiting plan into the past, as if the time had passed."""
    sql(
        """UPDATE claims_claim
           SET due_at = now(), expires_at = expires_at - make_interval(secs => %s),
           reserved_at = reserved_at - make_interval(secs => %s),
             bound_at = bound_at - make_interval(secs => %s) WHERE id = %s""",
        seconds,
        seconds,
        seconds,
        claim.id,
    )
