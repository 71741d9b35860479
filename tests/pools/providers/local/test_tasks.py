"""Tasks on local agents under a real `make up`: their limits, and a task that outlives `make
up`.
"""

import re
from typing import Any

import pytest

from pools.providers.local import agent_folder
from project.kernel.embedded import detached
from tests.end_to_end.stack import Stack, wait_gone
from tests.pools.providers.local.make_up import call

POOL = """
kind: Pool
name: lab
provider: local
members: {list: [{name: one}]}
task: {cpu: 33s, memory: 300MB, env: {SAID_BY: the pool}}
"""


def plan(stack: Stack, token: str, command: str, until: str = "ended") -> Any:
    """A claim that runs this, when it is so far."""
    body = {
        "pool": "lab",
        "task": "plan",
        "workspace": "w",
        "run": {"executor": "command", "commands": {"plan": command}},
    }
    claim = call(stack, token, "POST", "claims/", body)
    return call(stack, token, "GET", f"claims/{claim['id']}/?wait=30&until={until}")


def log_of(stack: Stack, token: str, claim: Any) -> str:
    (run,) = call(stack, token, "GET", f"claims/{claim['id']}/runs/")["results"]
    return str(
        call(stack, token, "GET", f"claims/{claim['id']}/runs/{run['generation']}/log/?format=text")
    )


def wait_begun(stack: Stack) -> None:
    """Waits until the agent reports that the task has begun."""
    stack.wait_rows("select 1 from claims_run where outcome = ''", bool, 20)


def test_task_has_exactly_what_its_pool_allows(stack: Stack, token: str) -> None:
    claim = plan(
        stack,
        token,
        'ulimit -t; ulimit -d; echo "$SAID_BY"; cat "$BERTH_AGENT_STATE"/token* || true; env',
    )
    assert (claim["state"], claim["outcome"]) == ("ended", "planned")
    said = log_of(stack, token, claim).splitlines()
    assert said[0] == "33"
    assert int(said[1]) * 1024 == pytest.approx(300_000_000, rel=0.01)
    assert said[2] == "the pool"
    assert not re.search(r"berthm_|DATABASE_URL|SECRET_KEY|BERTH_HOME", "\n".join(said))


def test_task_over_its_memory_limit_fails_and_frees_its_slot(stack: Stack, token: str) -> None:
    claim = plan(stack, token, """python3 -c 'x = bytearray(900_000_000)'""")
    assert claim["outcome"] == "failed"
    assert stack.execute(f"select code from claims_run where claim_id = {claim['id']}") == [
        ("out_of_memory",)
    ]
    assert stack.execute("select count(*) from slots_slot where state = 'idle' and is_open") == [
        (3,)
    ]


def test_busy_agent_outlives_ctrl_c_and_reports_its_task_at_the_next_start(
    stack: Stack, token: str
) -> None:
    claim = plan(stack, token, "echo begun; sleep 7; echo done", until="bound")
    process = detached.read(next(iter((stack.home / agent_folder.FOLDER).glob("*"))))
    assert process is not None
    wait_begun(stack)
    stack.stop()
    stack.wait_for("still busy with a task: lab-one. Each agent ends after its task")
    assert wait_gone([process.pid], 25) == []
    stack.start(120)
    ended = call(stack, token, "GET", f"claims/{claim['id']}/?wait=40&until=ended")
    assert (ended["state"], ended["outcome"]) == ("ended", "planned")
    assert log_of(stack, token, claim).splitlines() == ["begun", "done"]
    assert stack.execute("select incarnation, restarts from pools_member") == [(2, 0)]


def test_doctor_has_no_findings(stack: Stack) -> None:
    report = stack.manage("doctor", "--json")
    assert report.returncode == 0, report.stdout + report.stderr
