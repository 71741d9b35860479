"""Helpers that create tasks by agent calls: a waiting plan, a growing log, a lost apply."""

import hashlib
import json
from contextlib import suppress
from typing import Any

from django.db.models.functions import Now
from django.utils import timezone

from claims.allocation.claim_view import ClaimView
from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import parse_claim
from claims.allocation.selectors import view_claim
from claims.models import Claim, Run
from claims.tasks.files.sealed_files import save_file
from claims.tasks.logs.logs import Piece, add_log
from claims.tasks.plans.outlines import outline_plan
from claims.tasks.plans.plan_changes import PlanTree, read_outline
from claims.tasks.plans.plan_outline import NotAPlan, answer_outline
from claims.tasks.runs.results import record_result
from claims.tasks.runs.services import start_run
from claims.tasks.task_result import TaskResult
from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from project.kernel.actor import acting_as
from slots.members.liveness import record_heartbeat
from slots.models import Slot

LOG = 64_000_000


def read_plan(data: bytes) -> PlanTree:
    """Reads the JSON of a plan in this process."""
    return read_outline(answer_outline(data))


def make_task_pool(
    name: str = "tf", members: int = 2, slots: Any = ("any", "plan", "plan"), **more: Any
) -> Pool:
    listed = [{"name": f"{name}-{n:02d}"} for n in range(1, members + 1)]
    config = {
        "name": name,
        "provider": "agents",
        "slots": list(slots),
        "members": {"max": max(members, 4), "list": listed},
    }
    pool = create_pool(config | more)
    # As once its provider was looked at.
    Pool.objects.filter(pk=pool.pk).update(state="active", observed_at=Now())
    for member in Member.objects.filter(pool=pool):
        record_heartbeat(member_id=member.pk, incarnation=member.incarnation)
    Member.objects.filter(pool=pool).update(state="ready")
    Slot.objects.filter(pool=pool).update(is_open=True)
    return pool


def task(
    workspace: str = "network",
    pool: str = "tf",
    who: str = "ci",
    kind: str = "plan_and_apply",
    **body: Any,
) -> ClaimView:
    """Asked for; bound if a slot is free."""
    commands = {"plan": "./plan.sh"} | ({"apply": "./apply.sh"} if kind == "plan_and_apply" else {})
    run = {"executor": "command", "commands": commands}
    wanted = {"pools": [pool], "task": kind, "workspace": workspace, "run": run, **body}
    with acting_as(who):
        made = create_claim(parse_claim(wanted, requested_by=who))
    return view_claim(made.id)


def begin(claim: ClaimView) -> Member:
    slot = Slot.objects.select_related("member").get(claim_id=claim.id)
    generation = Claim.objects.get(pk=claim.id).generation
    with acting_as(f"agent/{slot.member.name}"):
        start_run(
            claim_id=claim.id,
            generation=generation,
            member=slot.member,
            boot="b1",
            place=f"{slot.lane}-{slot.number}",
        )
    return slot.member


def say(claim: ClaimView, text: str, seq: int | None = None, left_out: int = 0) -> None:
    """More of the log of its newest run."""
    run = Run.objects.filter(claim_id=claim.id).latest("generation")
    piece = Piece(run.log_next if seq is None else seq, text, left_out)
    add_log(
        claim_id=claim.id,
        generation=run.generation,
        member_id=run.member_id,
        pieces=[piece],
        most=LOG,
    )


def finish(
    claim: ClaimView, outcome: str, *, plan: dict[str, Any] | None = None, **more: Any
) -> ClaimView:
    """As its agent reports it."""
    run = Run.objects.filter(claim_id=claim.id).latest("generation")
    member = Member.objects.get(pk=run.member_id)
    if plan is not None:
        data = json.dumps(plan).encode()
        name = f"{claim.id}-{run.generation}"
        kept: dict[str, Any] = {"json": save_file("json", name, data)}
        with suppress(NotAPlan):  # then it is one that an earlier release took
            outlined = outline_plan(data)
            kept |= {
                "outline": save_file("outline", name, outlined.data),
                "json_counts": outlined.counts,
            }
            more.setdefault("summary", outlined.counts)
        Run.objects.filter(claim_id=claim.id, generation=run.generation).update(
            facts={"files": kept}
        )
    digest = (
        hashlib.sha256(f"{claim.id}-{run.generation}".encode()).digest()
        if outcome == "planned"
        else None
    )
    result = TaskResult(
        outcome,
        digest=digest,
        summary=more.pop("summary", {"add": 1, "change": 0, "destroy": 0, "replace": 0}),
        **more,
    )
    with acting_as(f"agent/{member.name}"):
        record_result(claim_id=claim.id, generation=run.generation, member=member, result=result)
    return view_claim(claim.id)


def planned(
    workspace: str = "network",
    pool: str = "tf",
    who: str = "ci",
    *,
    text: str = "planning\n",
    plan: Any = None,
    **more: Any,
) -> ClaimView:
    """A plan that waits for a person."""
    claim = task(workspace, pool, who, **more.pop("body", {}))
    begin(claim)
    if text:
        say(claim, text)
    return finish(claim, "planned", plan=plan, **more)


def digest_of(claim: ClaimView) -> str:
    return bytes(Claim.objects.get(pk=claim.id).plans.get(is_stale=False).digest).hex()


def resource(
    address: str, *actions: str, before: Any = None, after: Any = None, **more: Any
) -> dict[str, Any]:
    module = ".".join(address.split(".")[:-2])
    change = {"actions": list(actions), "before": before, "after": after, **more.pop("change", {})}
    return {
        "address": address,
        "module_address": module,
        "type": address.split(".")[-2],
        "change": change,
        **more,
    }


def network_plan() -> dict[str, Any]:
    """A plan that replaces one resource, changes two and creates two."""
    before = {
        "id": "nat-0d44",
        "subnet_id": "subnet-07c1",
        "connectivity_type": "public",
        "allocation_id": "eipalloc-0b51c9",
    }
    after = {
        "id": None,
        "subnet_id": "subnet-0e92",
        "connectivity_type": "public",
        "allocation_id": None,
    }
    table = {
        "id": "rtb-0aa3",
        "route": [{"cidr_block": "0.0.0.0/0", "nat_gateway_id": "nat-0d44"}],
        "token": "x",
    }
    return {
        "format_version": "1.2",
        "terraform_version": "1.12.6",
        "resource_changes": [
            resource(
                'aws_nat_gateway.main["b"]',
                "delete",
                "create",
                before=before,
                after=after,
                change={
                    "replace_paths": [["subnet_id"]],
                    "after_unknown": {"id": True, "allocation_id": True},
                },
            ),
            resource(
                'aws_route_table.private["b"]',
                "update",
                before=table,
                after=table | {"route": [{"cidr_block": "0.0.0.0/0", "nat_gateway_id": None}]},
                change={
                    "after_unknown": {"route": [{"nat_gateway_id": True}]},
                    "before_sensitive": {"token": True},
                    "after_sensitive": {"token": True},
                },
            ),
            resource(
                'aws_route_table.private["a"]',
                "update",
                before={"tags": {"owner": "net"}},
                after={"tags": {"owner": "network-core"}},
            ),
            resource(
                "aws_route_table_association.b_extra",
                "create",
                after={"route_table_id": "rtb-0aa3f1", "subnet_id": "subnet-0e92"},
            ),
            resource(
                'aws_cloudwatch_metric_alarm.nat_drops["b"]',
                "create",
                after={"metric_name": "PacketsDropCount", "threshold": 100},
            ),
        ],
    }


NETWORK = {"add": 2, "change": 2, "destroy": 0, "replace": 1}


def big_plan(resources: int = 5000, modules: int = 40) -> dict[str, Any]:
    body = {f"attribute_{n}": f"value {n}" for n in range(12)}
    return {
        "resource_changes": [
            resource(
                f"module.m{n % modules}.aws_{'thing' if n % 2 else 'other'}.r{n}",
                "update",
                before=body,
                after=body | {"attribute_3": "new"},
            )
            for n in range(resources)
        ]
    }


def now() -> Any:
    return timezone.now()
