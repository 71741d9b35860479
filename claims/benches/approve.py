"""The time from the approval to the order of the apply at the agent, over HTTP on both sides."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain
from typing import Any, TypeVar

from django.db import connections

from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import ClaimRequest
from claims.benches.agent_client import AsyncLine, SimulatedAgent, stop
from claims.benches.processes import controller, make_token, web_server
from claims.benches.rows.seed import WHO, make_agents
from claims.tasks.run_spec import RunRequest
from claims.tasks.runs.results import record_result
from claims.tasks.runs.services import start_run
from claims.tasks.task_result import TaskResult
from pools.access.permissions import APPROVER
from pools.models import Member
from project.kernel.bench.registry import AT_MOST, BenchRun, Goal, bench
from project.kernel.bench.workers import latency_figures, percentile_ms

POOL = "approve"
RATE = 50.0  # approvals a second
PERSONS = 8  # connections that approve
PATIENCE = 60.0  # seconds within which every order of a round must arrive

T = TypeVar("T")


@dataclass
class ApprovalRound:
    """Waiting plans, with the times of their approvals and orders."""

    plans: dict[int, str]  # claim -> digest
    clicked: dict[int, float] = field(default_factory=dict)
    answered: dict[int, float] = field(default_factory=dict)
    ordered: dict[int, float] = field(default_factory=dict)
    applied: set[int] = field(default_factory=set)
    is_done: asyncio.Event = field(default_factory=asyncio.Event)


@bench(
    "approve",
    (
        "100 connected agents, 300 slots: from the approval to the order of the apply at the "
        "agent, at 50 approvals a second"
    ),
    [Goal("p99_ms", 500.0, AT_MOST)],
)
def bench_approve(run: BenchRun) -> Mapping[str, object]:
    agents, rounds = (10, 1) if run.is_quick else (100, 4)
    tokens = make_agents(POOL, agents, ["any"] * 3)  # every slot may apply
    person = make_token("approver", APPROVER)
    with (
        run.reference_around() as around,
        web_server() as (host, port),
        controller("allocate", "allocate"),
        controller("finalize", "finalize"),
    ):
        found = asyncio.run(play(host, port, tokens, person, rounds, run.log))
    rounds_late = [sorted(one.ordered[c] - one.clicked[c] for c in one.plans) for one in found]
    late = sorted(chain.from_iterable(rounds_late))
    answer_times = sorted(
        one.answered[claim] - one.clicked[claim] for one in found for claim in one.plans
    )
    return {
        **latency_figures(late),
        "rounds_p99_ms": [round(percentile_ms(times, 0.99), 1) for times in rounds_late],
        "answer_p99_ms": round(percentile_ms(answer_times, 0.99), 1),
        "agents": agents,
        "slots": agents * 3,
        "approvals": len(late),
        "per_second": RATE,
        **around,
    }


def make_plans(turn: int, count: int) -> dict[int, str]:
    """Creates `count` waiting plans, one on each slot, by the services that agents call."""
    found = {}
    task, run = (
        "plan_and_apply",
        RunRequest("command", (("plan", "make plan"), ("apply", "make apply"))),
    )
    for i in range(count):
        request = ClaimRequest(
            pools=(POOL,), kind=task, task=task, workspace=f"w{i}", requested_by=WHO, work=run
        )
        claim = create_claim(request)
        if claim.state != "bound":
            raise RuntimeError(f"claim {claim.id} of round {turn} is {claim.state}")
        member = Member.objects.get(pk=claim.slots[0].member_id)
        digest = sha256(f"{claim.id}".encode()).digest()
        start_run(claim_id=claim.id, generation=claim.generation, member=member, boot="bench")
        planned = TaskResult(
            "planned", 0, digest=digest, summary={"add": 1, "change": 0, "destroy": 0, "replace": 0}
        )
        record_result(claim_id=claim.id, generation=claim.generation, member=member, result=planned)
        found[claim.id] = digest.hex()
    return found


async def run_in_thread(work: Callable[[], T]) -> T:
    """Runs the work in a thread, which closes its connection at the end."""

    def call() -> T:
        try:
            return work()
        finally:
            connections.close_all()

    return await asyncio.to_thread(call)


async def play(
    host: str, port: int, tokens: list[str], person: str, rounds: int, log: Callable[[str], None]
) -> list[ApprovalRound]:
    agents = [SimulatedAgent(host, port, token, boot="bench") for token in tokens]
    for agent in agents:
        await agent.hello()
    now = ApprovalRound({})
    tasks: set[asyncio.Task[None]] = set()

    def on_orders(agent: SimulatedAgent, answer: dict[str, Any]) -> None:
        at = time.monotonic()
        for order in answer["orders"]:
            if (
                order["step"] == "apply"
                and order["claim"] in now.plans
                and order["claim"] not in now.ordered
            ):
                now.ordered[order["claim"]] = at
                tasks.add(asyncio.create_task(apply(agent, order, now)))

    listeners = [asyncio.create_task(agent.listen(on_orders)) for agent in agents]
    persons: asyncio.Queue[AsyncLine] = asyncio.Queue()
    for _ in range(PERSONS):
        persons.put_nowait(AsyncLine(host, port, person))
    found = []
    for turn in range(rounds):
        plans = await run_in_thread(lambda turn=turn: make_plans(turn, len(tokens) * 3))  # type: ignore[misc]
        now = ApprovalRound(plans)
        await approve_all(now, persons)
        await asyncio.wait_for(now.is_done.wait(), PATIENCE)
        found.append(now)
        log(
            f"  {turn + 1}: {len(now.ordered)} orders, the last after "
            f"{max(now.ordered[c] - now.clicked[c] for c in plans):.3f} s"
        )
    await stop(listeners)
    while not persons.empty():
        await persons.get_nowait().close()
    for agent in agents:
        await agent.close()
    return found


async def approve_all(now: ApprovalRound, persons: asyncio.Queue[AsyncLine]) -> None:
    """Approves at an even pace. A time counts from its due moment, even without a connection."""
    began = time.monotonic()
    clicks = []
    for n, (claim, digest) in enumerate(now.plans.items()):
        due = began + n / RATE
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        now.clicked[claim] = due
        clicks.append(asyncio.create_task(approve(now, persons, claim, digest)))
    await asyncio.gather(*clicks)


async def approve(
    now: ApprovalRound, persons: asyncio.Queue[AsyncLine], claim: int, digest: str
) -> None:
    line = await persons.get()
    try:
        status, answer = await line.call(
            "POST", f"/api/v1/claims/{claim}/approve/", {"digest": digest}
        )
    finally:
        persons.put_nowait(line)
    now.answered[claim] = time.monotonic()
    if status != 200 or answer["step"] != "apply":  # by now it may be done
        raise RuntimeError(f"approve: {status} {str(answer)[:300]}")


async def apply(agent: SimulatedAgent, order: dict[str, Any], now: ApprovalRound) -> None:
    """Reports the start and the end of the apply, like a real agent."""
    path = f"tasks/{order['claim']}/{order['generation']}/"
    await agent.call("POST", f"{path}started/", {"boot": agent.boot})
    await agent.call("POST", f"{path}result/", {"outcome": "applied", "exit_code": 0})
    now.applied.add(order["claim"])
    if len(now.applied) == len(now.plans):
        now.is_done.set()
