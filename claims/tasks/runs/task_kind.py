"""Tasks as a kind of claim: the field `run` says what an agent executes for the claim."""

import json
from collections.abc import Sequence

from claims.allocation.requests.claim_request import TASKS
from claims.kinds import Attach, ClaimKind, ClaimPool, NewClaim, ShownClaim, register_kind
from claims.models import Approval, Task
from claims.tasks.files import sources_sql
from claims.tasks.files.sources import source_of
from claims.tasks.git_urls import is_host_allowed
from claims.tasks.run_spec import RUN_SCHEMA, RunRequest, read_run
from claims.tasks.task_body import seal_body
from claims.tasks.valid_approvals import find_faults
from pools.config.approval_spec import DEFAULT
from pools.config.parsing import Faults
from pools.lifecycle.selectors import spec_of
from pools.models import Pool
from pools.providers.base import has_agents
from project.kernel.errors import FieldError, Invalid, wrong_field


class TaskKind(ClaimKind):
    field = "run"
    schema = RUN_SCHEMA
    template = "claims/tasks/task_page.html"

    def read(self, value: object, claim: NewClaim, faults: Faults) -> RunRequest | None:
        run = read_run(value, self.field, claim.task, faults)
        if run is not None:
            _check_claim(claim, faults)
        return run

    def is_missing(self, claim: NewClaim, pool: ClaimPool | None) -> bool:
        """A pool with agents rejects a task without `run`: it would hold a slot that no agent
        works in. A claim that only holds a slot there names no task.
        """
        return bool(
            claim.task and claim.work is None and pool is not None and has_agents(pool.spec)
        )

    def prepare(self, claim: NewClaim, pool: ClaimPool | None) -> Attach | None:
        if self.is_missing(claim, pool):
            text = f"Pool {claim.pools[0]} has agents, so a task needs `run`."
            way_out = 'Send run: {executor: command, commands: {plan: "..."}}.'
            raise wrong_field("run", text, way_out)
        run = claim.work
        if not isinstance(run, RunRequest):
            return None
        if faults := _list_pool_faults(run, claim.pools[0], pool):
            raise Invalid(fields=faults)
        body, sealed = seal_body(run.as_body())
        source = source_of(run, made_by=claim.requested_by, pools=claim.pools)

        def attach(claim_id: int) -> None:
            sources_sql.add_task(
                claim=claim_id,
                executor=run.executor,
                body=json.dumps(body),
                sealed=sealed,
                source=source,
            )

        return attach

    def owns(self, claim_id: int) -> bool:
        return Task.objects.filter(claim_id=claim_id).exists()

    def display(self, claims: Sequence[ShownClaim]) -> None:
        """Counts the approvals of each plan that waits."""
        plans = {claim.approval["plan"]: claim for claim in claims if claim.approval is not None}
        if not plans:
            return  # every shown claim comes here, and Django takes long for a query without rows
        given = Approval.objects.filter(plan_id__in=list(plans), is_yes=True)
        by_plan: dict[int, list[Approval]] = {}
        for approval in given:
            by_plan.setdefault(approval.plan_id, []).append(approval)
        rules = {
            pool.pk: spec_of(pool).approval
            for pool in Pool.objects.filter(pk__in={plans[plan].pool_id for plan in by_plan})
        }
        for plan, found in by_plan.items():
            claim = plans[plan]
            rule = rules.get(claim.pool_id or 0, DEFAULT)
            faults = find_faults(
                found, pool_id=claim.pool_id, requested_by=claim.requested_by, rule=rule
            )
            if claim.approval is not None:
                claim.approval["given"] = faults.count("")


register_kind(TaskKind())


def _check_claim(claim: NewClaim, faults: Faults) -> None:
    """An agent runs a task in one slot."""
    if not claim.task:
        faults.add("task", "`run` needs a task.", f"Choose from {', '.join(TASKS)}.")
    if claim.size > 1:
        faults.add("size", "A task runs in one slot.", "Leave `size` out.")
    if len(claim.pools) > 1:
        faults.add("pools", "A task runs in one pool.", "Name one pool.")


def _list_pool_faults(run: RunRequest, name: str, pool: ClaimPool | None) -> list[FieldError]:
    """Rejects a run that no agent of the pool would ever start."""
    if pool is None:
        text = f"There is no pool {name} yet, so no agent could start the run."
        return [FieldError(run.where, text, "Create the pool first, or name another pool.")]
    if not has_agents(pool.spec):
        text = f"Pool {pool.name} has no agents."
        way_out = "Leave run out to hold a slot, or name a pool with agents."
        return [FieldError(run.where, text, way_out)]
    hosts = pool.spec.task.git_hosts
    if run.source.kind != "git" or is_host_allowed(run.source.host, hosts):
        return []
    text = f"Pool {pool.name} does not fetch from {run.source.host}."
    way_out = (
        f"Allowed: {', '.join(hosts)}."
        if hosts
        else "Upload an archive, or have the host added to the pool's task.git.hosts."
    )
    return [FieldError(f"{run.where}.source.git.url", text, way_out)]
