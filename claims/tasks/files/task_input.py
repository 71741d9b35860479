"""What an agent is to do for a claim: checked against its pool, its files kept, written in the
transaction that makes the claim.
"""

import json
from dataclasses import dataclass
from typing import Any

from claims.allocation.requests.claim_request import ClaimRequest
from claims.allocation.requests.resolve import PoolFacts, Route
from claims.tasks.files import sources_sql
from claims.tasks.files.sources import source_of
from claims.tasks.git_urls import is_host_allowed
from claims.tasks.run_spec import RunRequest
from claims.tasks.task_body import seal_body
from pools.providers.base import has_agents
from project.kernel.errors import FieldError, Invalid


@dataclass(frozen=True, slots=True)
class TaskInput:
    executor: str
    body: dict[str, Any]
    sealed: bytes | None  # variables and environment
    source: int | None


def prepare_work(request: ClaimRequest, route: Route) -> TaskInput | None:
    """Before the transaction, since files may be written. None: there is nothing to run."""
    run = request.run
    if run is None:
        refuse_without_run(request, route)
        return None
    if faults := list_faults(run, route):
        raise Invalid(fields=faults)
    body, sealed = seal_body(run.as_body())
    return TaskInput(
        run.executor,
        body,
        sealed,
        source_of(run, made_by=request.requested_by, pools=request.pools),
    )


def add_work(claim_id: int, work: TaskInput | None) -> None:
    if work is not None:
        body = json.dumps(work.body)
        sources_sql.add_task(
            claim=claim_id,
            executor=work.executor,
            body=body,
            sealed=work.sealed,
            source=work.source,
        )


def list_faults(run: RunRequest, route: Route) -> list[FieldError]:
    """A run that nobody would ever begin is refused at once."""
    pool = route.pools[0]
    if pool is None:
        text = f"There is no pool {route.names[0]} yet, so nobody knows whether it has agents."
        return [FieldError(run.where, text, "Make the pool first, or name another one.")]
    if not has_agents(pool.spec):
        text = f"Pool {pool.name} has no agents, so nothing runs there."
        return [
            FieldError(run.where, text, "Leave it out to hold a slot, or name a pool with agents.")
        ]
    return list_source_faults(run, pool)


def list_source_faults(run: RunRequest, pool: PoolFacts) -> list[FieldError]:
    if run.source.kind != "git" or is_host_allowed(run.source.host, pool.spec.task.git_hosts):
        return []
    known = ", ".join(pool.spec.task.git_hosts)
    way_out = (
        f"Allowed: {known}."
        if known
        else "Upload an archive, or have the host added to the pool's task.git.hosts."
    )
    return [
        FieldError(
            f"{run.where}.source.git.url",
            f"Pool {pool.name} does not fetch from {run.source.host}.",
            way_out,
        )
    ]


def is_run_missing(request: ClaimRequest, route: Route) -> bool:
    pool = route.pools[0]
    return bool(request.run is None and request.task and pool is not None and has_agents(pool.spec))


def refuse_without_run(request: ClaimRequest, route: Route) -> None:
    """A task that nobody describes would hold an agent's slot, and the agent would wait for it.
    Whoever holds a slot for another reason names no task."""
    if is_run_missing(request, route):
        text = f"Pool {route.names[0]} has agents, and it is not said what they are to run."
        raise Invalid(
            fields=[
                FieldError("run", text, 'Send run: {executor: command, commands: {plan: "..."}}.')
            ]
        )
