"""The real agent and the real web server: a plan is approved and applied where it was planned,
and no run is repeated.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import connection

from claims.allocation.claim_view import ClaimView
from claims.lifecycle.cancel import cancel_claim
from claims.models import Claim, Plan, Run, Task
from claims.tasks.approvals.services import approve_plan
from claims.tasks.logs.logs import read_log
from pools.models import Member, Pool
from project.kernel.models import Event
from slots.agent.processes.process_table import list_marked
from slots.members.tokens import issue_token, revoke_tokens
from slots.models import Slot
from tests.claims.tasks.agent_api.conftest import make_agents, make_claim
from tests.claims.tasks.approvals.helpers import decider
from tests.waiting import wait_until

from .conftest import ROOT, Agent
from .processes.test_kills import mark

pytestmark = pytest.mark.django_db(transaction=True)

CHANGE = {"actions": ["create"], "before": None, "after": {}}
JSON = json.dumps(
    {"resource_changes": [{"address": "file.a", "type": "file", "name": "a", "change": CHANGE}]}
)


@pytest.fixture
def pool(site: str) -> Pool:
    return make_agents("tf", liveness={"heartbeat": "2s", "lost": "10s"})


@pytest.fixture
def live_agent(site: str, pool: Pool, tmp_path: Path, start_agent: Callable[..., Agent]) -> Agent:
    member = Member.objects.get(pool=pool)
    (tmp_path / "token").write_text(issue_token(member_id=member.pk))
    agent = start_agent(url=site, token=(tmp_path / "token").read_text())
    wait_until(lambda: "hello" in agent.log)
    return agent


def state_of(claim: ClaimView) -> Any:
    return Claim.objects.values_list("state", "outcome", "generation").get(pk=claim.id)


def order(pool: Pool, proof: Path, **body: Any) -> ClaimView:
    plan = f"echo planning; echo '{JSON}' > $BERTH_PLAN_JSON; echo saved > $BERTH_PLAN_FILE"
    commands = {"plan": plan, "apply": f"cat $BERTH_PLAN_FILE >> {proof}"}
    return make_claim(pool, "plan_and_apply", is_started=False, body={"commands": commands, **body})


def test_plan_is_approved_and_applied_once(pool: Pool, live_agent: Agent, tmp_path: Path) -> None:
    claim = order(pool, tmp_path / "proof")
    wait_until(lambda: state_of(claim)[0] == "reserved")
    plan = Plan.objects.get(claim=claim.id)
    assert plan.summary["add"] == 1
    assert not (tmp_path / "proof").exists()
    slot = Slot.objects.get(claim_id=claim.id)
    approve_plan(claim_id=claim.id, digest=bytes(plan.digest).hex(), by=decider("bob"))
    wait_until(lambda: state_of(claim)[:2] == ("ended", "applied"))
    assert (tmp_path / "proof").read_text() == "saved\n"
    runs = list(Run.objects.filter(claim_id=claim.id).order_by("generation"))
    assert [(run.step, run.outcome, run.place) for run in runs] == [
        ("plan", "planned", runs[0].place),
        ("apply", "applied", runs[0].place),
    ]
    wait_until(lambda: Slot.objects.get(pk=slot.pk).state == "idle")
    page = read_log(claim.id, runs[0].generation)
    assert [chunk.text for chunk in page.chunks] == ["planning\n"]


def test_cancelled_slot_drains_until_no_process_runs(
    pool: Pool, live_agent: Agent, tmp_path: Path
) -> None:
    claim = order(
        pool, tmp_path / "proof", commands={"plan": "echo begun; sleep 300", "apply": "true"}
    )
    wait_until(lambda: Run.objects.filter(claim_id=claim.id).exists())
    slot = Slot.objects.get(claim_id=claim.id)
    cancel_claim(claim_id=claim.id, reason="no longer needed")
    assert state_of(claim)[:2] == ("ended", "cancelled")
    wait_until(lambda: Slot.objects.get(pk=slot.pk).state == "idle")
    assert list_marked(mark(live_agent)) == []
    cleaned = Event.objects.filter(verb="clean", slot_id=slot.pk)
    assert [(event.before, event.after) for event in cleaned] == [("draining", "idle")]


def test_failed_task_ends_the_claim_with_its_reason(
    pool: Pool, live_agent: Agent, tmp_path: Path
) -> None:
    claim = order(pool, tmp_path / "proof", commands={"plan": "no-such-program", "apply": "true"})
    wait_until(lambda: state_of(claim)[:2] == ("ended", "failed"))
    assert Run.objects.get(claim_id=claim.id).code == "command_not_found"
    wait_until(lambda: not Slot.objects.exclude(state="idle").exists())


def test_apply_of_a_killed_agent_is_lost(pool: Pool, live_agent: Agent, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    plan = f"echo '{JSON}' > $BERTH_PLAN_JSON; echo saved > $BERTH_PLAN_FILE"
    claim = order(pool, proof, commands={"plan": plan, "apply": f"echo ran >> {proof}; sleep 300"})
    wait_until(lambda: state_of(claim)[0] == "reserved")
    approve_plan(
        claim_id=claim.id,
        digest=bytes(Plan.objects.get(claim=claim.id).digest).hex(),
        by=decider("bob"),
    )
    wait_until(proof.exists)
    live_agent.kill()
    live_agent.start()
    wait_until(lambda: state_of(claim)[:2] == ("ended", "lost"))
    assert proof.read_text() == "ran\n"
    assert Task.objects.filter(claim_id=claim.id).exists()


class Web:
    """A web process of this test's own, on an address that stays."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.start()

    def start(self) -> None:
        at = urlsplit(os.environ["DATABASE_URL"])
        environment = {
            **os.environ,
            "DATABASE_URL": at._replace(path=f"/{connection.settings_dict['NAME']}").geturl(),
        }
        ready, told = os.pipe()
        handles = (self.listener.fileno(), os.open(os.devnull, os.O_RDONLY), told)
        command = [sys.executable, "-m", "project.kernel.embedded.web", *map(str, handles)]
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment, pass_fds=handles)
        os.close(handles[1])
        os.close(told)
        assert os.read(ready, 1), "the web process does not start"
        os.close(ready)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def web(transactional_db: None) -> Iterator[Web]:
    web = Web()
    yield web
    web.end()
    web.listener.close()


def test_agent_reconnects_after_a_server_restart(
    web: Web, tmp_path: Path, start_agent: Callable[..., Agent]
) -> None:
    pool = make_agents("tf", liveness={"heartbeat": "2s", "lost": "60s"})
    agent = start_agent(url=web.url, token=issue_token(member_id=pool.members.get().pk))
    wait_until(lambda: "connected" in agent.log)
    claim = order(pool, tmp_path / "proof")
    wait_until(lambda: state_of(claim)[0] == "reserved")
    web.end()
    approve_plan(
        claim_id=claim.id,
        digest=bytes(Plan.objects.get(claim=claim.id).digest).hex(),
        by=decider("bob"),
    )
    wait_until(lambda: "connection ended" in agent.log)
    assert state_of(claim)[0] == "bound"
    web.start()
    wait_until(lambda: state_of(claim)[:2] == ("ended", "applied"))
    assert (tmp_path / "proof").read_text() == "saved\n"
    wait_until(lambda: agent.log.count(" connected ") == 2)


def test_agent_takes_a_replaced_token_and_stops_on_a_revoked_one(
    pool: Pool, live_agent: Agent, tmp_path: Path
) -> None:
    member = pool.members.get()
    wait_until(lambda: "connected" in live_agent.log)
    live_agent.token.write_text(issue_token(member_id=member.pk))
    wait_until(lambda: live_agent.log.count(" connected ") == 2)
    claim = order(pool, tmp_path / "proof")
    wait_until(lambda: state_of(claim)[0] == "reserved")
    revoke_tokens(member_id=member.pk)
    wait_until(lambda: "refuses this agent" in live_agent.log)
