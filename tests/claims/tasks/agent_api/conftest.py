"""A pool of agents, claims with tasks that are bound there, and a caller that is an agent."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from claims.allocation.claim_view import ClaimView
from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import ClaimRequest
from claims.models import Run, Task
from claims.tasks.run_spec import RunRequest
from claims.tasks.runs import work_order
from claims.tasks.runs.orders import heartbeat_buffer
from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from project.kernel.security import encryption
from slots.members.services import activate_pool, record_sync_result
from slots.members.tokens import issue_token
from tests.api.conftest import Caller, caller

__all__ = ["caller"]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, settings: Any) -> Path:
    """Keys and files of this test's own."""
    settings.BERTH_HOME = tmp_path
    settings.STORAGES = settings.STORAGES | {
        "sealed": {
            "BACKEND": "claims.tasks.files.sealed_files.DurableStorage",
            "OPTIONS": {"location": tmp_path / "files"},
        }
    }
    encryption.forget()
    return tmp_path / "files"


@pytest.fixture(autouse=True)
def fresh_ears() -> None:
    """Forgets the agents of the test before: no call waits for them, and pools with the same
    numbers are not confused.
    """
    work_order._specs.clear()
    heartbeat_buffer.take_due()
    heartbeat_buffer._collected.clear()
    heartbeat_buffer._written_at = 0.0


def make_agents(name: str = "tf", members: tuple[str, ...] = ("a",), **config: Any) -> Pool:
    """Ready, as after their agents' first word."""
    pool = create_pool(
        {
            "name": name,
            "provider": "agents",
            "members": {"list": [{"name": member} for member in members]},
            **config,
        }
    )
    activate_pool(pool_id=pool.pk)
    for member in pool.members.all():
        record_sync_result(member_id=member.pk, is_gone=False, is_ready=True)
    return Pool.objects.get(pk=pool.pk)


@dataclass
class Agent:
    """A member's agent, as far as the server knows it."""

    member: Member
    secret: str
    call: Caller

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        return self.call(method, f"agent/{path}", body, **headers)

    def get(self, path: str, **headers: str) -> Any:
        return self("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self("POST", path, body, **headers)


def agent_of(member: Member) -> Agent:
    secret = issue_token(member_id=member.pk)
    return Agent(Member.objects.get(pk=member.pk), secret, Caller(secret))


@pytest.fixture
def pool(db: None) -> Pool:
    return make_agents()


@pytest.fixture
def agent(pool: Pool) -> Agent:
    return agent_of(pool.members.get())


_numbers = itertools.count()


def make_claim(
    pool: Pool, task: str = "plan", *, is_started: bool = True, **work: Any
) -> ClaimView:
    """A claim with a task, bound, its run begun."""
    run = RunRequest("command", (("plan", "make plan"),))
    wanted = ClaimRequest(
        pools=(pool.name,),
        kind=task,
        task=task,
        workspace=f"net/{next(_numbers)}",
        owner="ana",
        requested_by="ana",
        work=run,
    )
    with transaction.atomic():  # a poll for orders sees both or none
        claim = create_claim(wanted)
        Task.objects.filter(claim_id=claim.id).update(
            **({"body": {"commands": {"plan": "make plan"}}} | work)
        )
    if is_started and claim.slots:
        slot = claim.slots[0]
        Run.objects.create(
            claim_id=claim.id, generation=claim.generation, step=claim.step,
            member_id=slot.member_id, member=slot.member, place=f"{slot.lane}-{slot.number}",
            boot="b0",
        )  # fmt: skip
    return claim


@pytest.fixture
def claim(pool: Pool) -> ClaimView:
    return make_claim(pool)


Claims = Callable[..., ClaimView]
