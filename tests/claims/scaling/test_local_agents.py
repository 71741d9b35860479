"""Real agents on this machine come with demand, run plans and go again."""

import json
import os
import random
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from project.kernel.embedded import detached
from tests.end_to_end.stack import Stack
from tests.pools.providers.local.helpers import end_agents
from tests.pools.providers.local.make_up import folders, up_with

POOL = """
kind: Pool
name: lab
provider: local
slots: [any, plan]
members: {min: 0, max: 2}
scaling: {policy: on_demand, idle_for: 1s, cooldown: {up: 0s, down: 0s}}
"""
WITHIN = 120.0
ROUNDS = int(os.environ.get("BERTH_TEST_ROUNDS", "4"))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with up_with(POOL, tmp_path_factory.mktemp("home"), BERTH_APART="1") as stack:
        yield stack
    end_agents(stack.home)


def wait_for(stack: Stack, query: str, wanted: Any) -> Any:
    def read_logs() -> list[str]:
        files = [file for folder in folders(stack) for file in folder.glob("agent.log")]
        return [file.read_text()[-800:] for file in files]

    return stack.wait_rows(query, lambda rows: rows == wanted, WITHIN, read_logs)


def post(stack: Stack, token: str, path: str, body: Any) -> Any:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(
        f"http://127.0.0.1:{stack.port}/api/v1/{path}", json.dumps(body).encode(), headers
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()) from error


def test_agents_start_with_demand_and_stop_when_idle(stack: Stack) -> None:
    token = stack.manage("token", "create", "admin", "scaling").stdout.strip()
    assert stack.execute("select count(*) from pools_member") == [(0,)]
    run = {"executor": "command", "commands": {"plan": "sleep 2"}}
    claims = [
        post(
            stack,
            token,
            "claims/",
            {"pool": "lab", "task": "plan", "workspace": f"net-{n}", "run": run},
        )["id"]
        for n in range(3)
    ]
    ended = (
        f"select count(*) from claims_claim where id = any(array{claims}) and outcome = 'planned'"
    )
    wait_for(stack, ended, [(3,)])
    made = stack.execute("select name from pools_member order by id")
    assert made[:1] == [("lab-1",)] and len(made) <= 2, (
        "three plans want two members of two slots, the most"
    )
    wait_for(stack, "select count(*) from pools_member where state <> 'gone'", [(0,)])
    assert [folder.name for folder in folders(stack) if detached.read(folder) is not None] == []
    decided = [
        row[0]
        for row in stack.execute("select delta from pools_decision where delta <> 0 order by id")
    ]
    assert (sum(decided), max(decided) >= 1, min(decided)) == (0, True, -1)
    dry = stack.manage("scale", "--dry-run", "lab")
    assert dry.stdout.startswith("no change: "), dry.stderr
    doctor = stack.manage("doctor", "--json")
    assert doctor.returncode == 0, doctor.stdout


def test_scalers_killed_at_random_moments_lose_no_plan_and_no_member(stack: Stack) -> None:
    """kill -9 between decision, rows and operations, or anywhere else: no member too many, none
    left over, and no busy member is removed.
    """
    token = stack.manage("token", "create", "admin", "killing").stdout.strip()
    chance = random.Random(4711)
    run = {"executor": "command", "commands": {"plan": "sleep 1"}}
    claims: list[int] = []
    for number in range(ROUNDS):
        for n in range(3):
            body = {"pool": "lab", "task": "plan", "workspace": f"kill-{number}-{n}", "run": run}
            claims.append(post(stack, token, "claims/", body)["id"])
        time.sleep(chance.uniform(0.0, 1.5))  # some moment: no event says when it is the worst one
        os.kill(stack.wait_for_process("manage.py scale"), signal.SIGKILL)
        assert stack.execute("select count(*) from pools_member where state <> 'gone'")[0][0] <= 2
        wait_for(
            stack,
            f"select count(*) from claims_claim where id = any(array{claims}) and state = 'ended'",
            [(len(claims),)],
        )
    assert stack.execute(
        f"select distinct outcome from claims_claim where id = any(array{claims})"
    ) == [("planned",)], "nobody busy went"
    wait_for(stack, "select count(*) from pools_member where state <> 'gone'", [(0,)])
    assert [folder.name for folder in folders(stack) if detached.read(folder) is not None] == []
    created = stack.execute("select count(*) from kernel_event where verb = 'add'")[0][0]
    assert (
        stack.execute("select coalesce(sum(delta), 0) from pools_decision where delta > 0")[0][0]
        == created
    ), "each is in a decision"
    doctor = stack.manage("doctor", "--json")
    assert doctor.returncode == 0, doctor.stdout
