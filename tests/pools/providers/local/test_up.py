"""Local agents under a real `make up`: started, restarted, adopted after a crash, and ended
without leftovers.
"""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.end_to_end.stack import Stack, wait_gone
from tests.pools.providers.local.helpers import agents_in
from tests.pools.providers.local.make_up import folders

POOL = (
    "kind: Pool\nname: lab\nprovider: local\nslots: [any, plan]\n"
    "members: {list: [{name: one}, {name: two}]}\n"
)
WITHIN = 60.0


def running(stack: Stack) -> dict[str, int]:
    """Agents that are up: name of the member -> number of the process."""
    return {name: process.pid for name, process in agents_in(stack.home).items()}


MEMBERS = (
    "select name, state, incarnation, restarts from pools_member "
    "where state <> 'gone' order by name"
)


def rows(stack: Stack) -> list[tuple[Any, ...]]:
    return stack.execute(MEMBERS)


def wait_rows(stack: Stack, wanted: list[tuple[Any, ...]]) -> None:
    stack.wait_rows(
        MEMBERS,
        lambda rows: rows == wanted,
        WITHIN,
        lambda: [(f / "agent.log").read_text()[-500:] for f in folders(stack)],
    )


def test_agents_start_and_are_ready_from_their_first_heartbeat(stack: Stack) -> None:
    wait_rows(stack, [("one", "ready", 1, 0), ("two", "ready", 1, 0)])
    assert list(running(stack)) == ["lab-one", "lab-two"]
    assert stack.execute("select count(*) from slots_slot where is_open") == [(4,)]


def test_agents_do_not_end_with_the_process_that_started_them(stack: Stack) -> None:
    before = running(stack)
    os.kill(stack.pid_of("celery"), signal.SIGKILL)
    stack.wait_for_process("celery")
    assert running(stack) == before


def test_killed_agent_is_restarted_because_its_process_has_ended(stack: Stack) -> None:
    before = running(stack)
    os.kill(before["lab-one"], signal.SIGKILL)
    wait_rows(stack, [("one", "ready", 2, 1), ("two", "ready", 1, 0)])
    reasons = "select reason from kernel_event where verb = 'offline'"
    assert stack.execute(reasons) == [("its process has ended",)], "not: no heartbeat for 2 min"
    assert running(stack)["lab-two"] == before["lab-two"]


def test_remote_agent_starts_with_the_printed_lines(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "far.yaml").write_text(
        "kind: Pool\nname: far\nprovider: agents\nmembers: {list: [{name: theirs}]}\n"
    )
    assert stack.manage("apply", "-f", str(tmp_path / "far.yaml")).returncode == 0
    made = stack.manage("member_token", "far/theirs", "--url", f"http://127.0.0.1:{stack.port}")
    assert made.returncode == 0, made.stderr
    fetch, keep, start = made.stderr.splitlines()[-3:]
    try:
        subprocess.run(["sh", "-euc", f"{fetch}\n{keep}"], cwd=tmp_path, check=True)
        agent = subprocess.Popen(
            ["sh", "-c", f"exec {start}"], cwd=tmp_path, stderr=subprocess.DEVNULL
        )
        try:
            wait_rows(
                stack, [("one", "ready", 2, 1), ("theirs", "ready", 1, 0), ("two", "ready", 1, 0)]
            )
        finally:
            agent.terminate()
            assert agent.wait(20) == 0
        wait_rows(
            stack, [("one", "ready", 2, 1), ("theirs", "offline", 1, 0), ("two", "ready", 1, 0)]
        )
    finally:  # the tests after it see the pool otherwise
        stack.manage(
            "shell",
            "--no-imports",
            "-c",
            (
                "from claims.lifecycle.pool_deletion import delete_pool; "
                "delete_pool(pool_name='far', reason='a test')"
            ),
        )
    wait_rows(stack, [("one", "ready", 2, 1), ("two", "ready", 1, 0)])


def test_agents_survive_a_killed_berth_and_are_found_again(stack: Stack) -> None:
    before = running(stack)
    stack.stop(signal.SIGKILL)
    assert running(stack) == before
    stack.start(120)
    wait_rows(stack, [("one", "ready", 2, 1), ("two", "ready", 1, 0)])
    assert running(stack) == before


def test_ctrl_c_ends_every_process_and_agent(stack: Stack) -> None:
    before = [*stack.list_processes(), *running(stack).values()]
    stack.stop()
    assert wait_gone(before, 0) == []
    marks = [
        (folder / "ended.json").exists() and json.loads((folder / "ended.json").read_text())["why"]
        for folder in folders(stack)
    ]
    assert marks == ["asked", "asked"]


def test_next_start_restarts_agents_without_counting_a_restart(stack: Stack) -> None:
    stack.start(120)
    wait_rows(stack, [("one", "ready", 3, 1), ("two", "ready", 2, 0)])


def test_removed_member_ends_with_its_process_and_folder(stack: Stack) -> None:
    pid = running(stack)["lab-two"]
    member = stack.execute("select id from pools_member where name = 'two'")[0][0]
    code = (
        f"from slots.members.services import remove_member; remove_member(member_id={member}, "
        "reason='a test')"
    )
    assert stack.manage("shell", "--no-imports", "-c", code).returncode == 0
    wait_rows(stack, [("one", "ready", 3, 1)])
    assert wait_gone([pid], 5) == []
    assert [folder.name.partition(".")[0] for folder in folders(stack)] == ["lab-one"]


def test_doctor_has_no_findings(stack: Stack) -> None:
    report = stack.manage("doctor", "--json")
    assert report.returncode == 0, report.stdout + report.stderr
