"""The work order of a task: everything that an agent needs to execute the claim that it holds."""

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from claims.tasks.logs.logs import CHUNK_BYTES
from claims.tasks.runs import agents_sql
from claims.tasks.task_body import open_body
from pools.config.spec import PoolSpec
from pools.lifecycle.selectors import spec_of as spec_of_pool
from pools.models import Pool
from pools.secrets.services import read_secrets
from project.kernel.errors import Conflict, NotFound, StaleGeneration
from slots.members.tokens import AgentIdentity, record_refusal

MB = 10**6
BEAT = 15.0  # seconds between two calls of an idle agent
GRACE = 20.0  # seconds from TERM to KILL
MOST_TAIL = 100 * MB
MOST_JSON = 64 * MB  # of a plan as JSON: limited by the memory of the child process that reads it
SOURCE_BYTES = 32 * MB
MOST_KNOWN = 500
REPORT_START = "Report the start of the run before you execute it."

_specs: OrderedDict[tuple[int, int], PoolSpec] = OrderedDict()


@dataclass(frozen=True, slots=True)
class TaskHold:
    """A bound claim on a slot of the calling member, in the generation that the call names."""

    row: agents_sql.HoldRow
    body: Mapping[str, Any]

    @property
    def place(self) -> str:
        return f"{self.row.lane}-{self.row.number}"


def spec_of(agent: AgentIdentity) -> PoolSpec:
    """The configuration of the agent's pool, cached for each revision."""
    key = (agent.pool_id, agent.revision)
    found = _specs.get(key)
    if found is None:
        pool = Pool.objects.only("name", "spec").get(pk=agent.pool_id)
        found = _specs[key] = spec_of_pool(pool)
        if len(_specs) > MOST_KNOWN:
            _specs.popitem(last=False)
    return found


def heartbeat_interval(spec: PoolSpec) -> float:
    """Several heartbeats fit into the silence after which the pool's member counts as offline."""
    return BEAT if spec.liveness is None else max(0.5, min(BEAT, spec.liveness.heartbeat / 4))


def limits_of(spec: PoolSpec) -> dict[str, int]:
    tail = min(spec.task.log // 4, MOST_TAIL)
    return {
        "chunk_bytes": CHUNK_BYTES,
        "log_head_bytes": spec.task.log - tail,
        "log_tail_bytes": tail,
        "plan_bytes": spec.task.plan,
        "json_bytes": most_json(spec),
        "source_bytes": SOURCE_BYTES,
    }


def most_json(spec: PoolSpec) -> int:
    return min(spec.task.plan, MOST_JSON)


def find_hold(agent: AgentIdentity, claim_id: int, generation: int) -> TaskHold:
    """Raises for a claim that this member does not hold; see `refuse`."""
    row = agents_sql.hold(claim=claim_id, generation=generation, member=agent.member_id)
    if row is None:
        raise refuse(agent, claim_id, generation)
    return TaskHold(row, open_body(json.loads(row.body), row.sealed))


def refuse(agent: AgentIdentity, claim_id: int, generation: int) -> Exception:
    """The error for a call of a member that does not hold this generation of the claim."""
    if was_here(agent, claim_id, generation):
        text = f"Generation {generation} of claim {claim_id} is over."
        return StaleGeneration(text, way_out="Stop its processes and ask for orders again.")
    if not agents_sql.is_there(claim=claim_id):
        return NotFound(f"There is no claim {claim_id}.", way_out="Ask for orders again.")
    record_refusal(
        "names a claim that is not on its member",
        pool_id=agent.pool_id,
        member_id=agent.member_id,
        claim_id=claim_id,
    )
    text = f"Claim {claim_id} was never handed to this member under generation {generation}."
    return Conflict(text, code="not_yours", way_out="Stop, and ask for orders again.")


def was_here(agent: AgentIdentity, claim_id: int, generation: int) -> bool:
    """True if the member ever held this generation."""
    return bool(agents_sql.was_here(claim=claim_id, generation=generation, member=agent.member_id))


def describe_work(agent: AgentIdentity, hold: TaskHold) -> dict[str, object]:
    """WORK of the protocol. Only this function sends secrets to an agent."""
    row, body, spec = hold.row, hold.body, spec_of(agent)
    timeout = body.get("timeout")
    limits = {
        k: v
        for k, v in limits_of(spec).items()
        if k in ("log_head_bytes", "log_tail_bytes", "plan_bytes")
    }
    if spec.task.cpu is not None:
        limits["cpu_s"] = max(1, round(spec.task.cpu))
    if spec.task.memory is not None:
        limits["memory_bytes"] = spec.task.memory
    return {
        "claim": row.id,
        "generation": row.generation,
        "step": row.step,
        "task": row.task or "plan",
        "executor": row.executor,
        "workspace": row.workspace or "",
        "requested_by": row.requested_by,
        "source": source_of(hold),
        "commands": body.get("commands") or {},
        "binary": body.get("binary") or spec.task.binary,
        "variables": body.get("variables") or {},
        "env": {**spec.task.env, **(body.get("env") or {})},
        "secrets": read_secrets(agent.pool_id, body.get("secrets") or ()),
        "timeout_s": spec.task.timeout if timeout is None else min(timeout, spec.task.timeout),
        "stop_timeout_s": spec.task.stop_timeout,
        "limits": limits,
        "git_hosts": list(spec.task.git_hosts),
        "state": body.get("state") or "",
        "plan": plan_of(hold),
    }


def source_of(hold: TaskHold) -> dict[str, str]:
    source: Mapping[str, str] = hold.body.get("source") or {}
    path = {"path": source["path"]} if source.get("path") else {}
    if hold.row.source_digest is not None:
        return {"kind": "archive", "digest": bytes(hold.row.source_digest).hex(), **path}
    if source.get("kind") == "git":
        return {"kind": "git", "url": source["url"], "ref": source.get("ref") or "", **path}
    return {"kind": "none"}


def plan_of(hold: TaskHold) -> dict[str, object] | None:
    """The plan that an apply executes."""
    if hold.row.step != "apply":
        return None
    plan = saved_plan(hold)
    return {
        "digest": bytes(plan.digest).hex(),
        "size": plan.size,
        "facts": json.loads(plan.facts),
        "summary": json.loads(plan.summary),
        "has_file": bool(plan.file),
        "member_id": plan.member_id,
        "generation": plan.generation,
    }


def saved_plan(hold: TaskHold) -> agents_sql.PlanForRow:
    plan = agents_sql.plan_for(claim=hold.row.id, plan=hold.row.approved_plan_id)
    if plan is None:
        raise NotFound(
            f"Claim {hold.row.id} has no plan.", code="no_plan", way_out="Ask for orders again."
        )
    return plan
