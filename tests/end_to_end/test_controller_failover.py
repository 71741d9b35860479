"""A spare process takes over from killed controllers, without the start of a process."""

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from project.kernel.embedded.process import free_port
from tests.end_to_end.stack import Stack

COMMAND = "manage.py controllers"
STANDS_BY = r"controllers \|.* standing by"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(tmp_path_factory.mktemp("spare") / "state", free_port()).start(120)
    yield stack
    stack.stop()


@pytest.fixture(scope="module")
def token(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("pools") / "lab.yaml"
    file.write_text(
        "kind: Pool\nname: lab\nprovider: static\nslots: 1\nmembers: {list: [{name: a}]}\n"
    )
    done = stack.manage("apply", "-f", str(file))
    assert done.returncode == 0, done.stderr
    made = stack.manage("token", "create", "admin", "spare")
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def call(stack: Stack, token: str, method: str, path: str, body: Any = None) -> Any:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{stack.port}/api/v1/{path}", data, headers, method=method
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def pids_of_controllers(stack: Stack) -> list[int]:
    """The older one first: it runs, the other one is its spare."""
    return [pid for pid, command in sorted(stack.list_processes().items()) if COMMAND in command]


@pytest.mark.parametrize("time_of_death", ["first", "again"])
def test_a_spare_takes_over_from_killed_controllers_and_serves_claims(
    stack: Stack, token: str, time_of_death: str
) -> None:
    stack.wait_for(STANDS_BY, 120)
    runs, spare = pids_of_controllers(stack)
    holds = call(stack, token, "POST", "claims/", {"pool": "lab"})
    waits = call(stack, token, "POST", "claims/", {"pool": "lab"})
    assert (holds["state"], waits["state"]) == ("bound", "waiting")
    os.kill(runs, signal.SIGKILL)
    call(
        stack, token, "POST", f"claims/{holds['id']}/release/", {"generation": holds["generation"]}
    )
    found = call(stack, token, "GET", f"claims/{waits['id']}/?wait=30&until=bound")
    assert found["state"] == "bound"
    stack.wait_for(r"controllers ended \(SIGKILL\); its spare takes over")
    assert pids_of_controllers(stack)[0] == spare
    call(
        stack, token, "POST", f"claims/{found['id']}/release/", {"generation": found["generation"]}
    )


def test_a_spare_that_dies_is_replaced_while_the_active_process_continues(
    stack: Stack, token: str
) -> None:
    stack.wait_for(STANDS_BY, 120)
    runs, spare = pids_of_controllers(stack)
    os.kill(spare, signal.SIGKILL)
    stack.wait_for(STANDS_BY, 120)
    assert pids_of_controllers(stack)[0] == runs
    claim = call(stack, token, "POST", "claims/", {"pool": "lab"})
    assert claim["state"] == "bound"
    call(
        stack, token, "POST", f"claims/{claim['id']}/release/", {"generation": claim["generation"]}
    )


def test_stopping_the_stack_stops_the_spare(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "state", free_port()).start(120)
    try:
        stack.wait_for(STANDS_BY, 120)
        pids = pids_of_controllers(stack)
    finally:
        stack.stop()
    assert len(pids) == 2
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
