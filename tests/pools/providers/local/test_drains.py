"""Drains and token rotations with real agents under a real `make up`."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pools.providers.local import agent_folder
from project.kernel.embedded import detached
from tests.end_to_end.stack import Stack
from tests.pools.providers.local.make_up import ask, call
from tests.waiting import wait_until

POOL = """
kind: Pool
name: lab
provider: local
slots: [any]
members: {list: [{name: one}, {name: two}]}
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Tasks have users of their own: they can't enter a private one."""
    folder = Path(tempfile.mkdtemp(prefix="berth-drains-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def begin(stack: Stack, token: str, command: str, pid_file: Path) -> tuple[int, int, int]:
    """A task that runs: its claim, its member, its process."""
    body = {
        "pool": "lab",
        "task": "plan",
        "run": {
            "executor": "command",
            "commands": {
                "plan": f"echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; {command}"
            },
        },
    }
    claim = call(stack, token, "POST", "claims/", body)["id"]
    wait_until(pid_file.exists, "it does not begin")
    (slot,) = call(stack, token, "GET", f"claims/{claim}/")["slots"]
    members = {
        m["name"]: m["id"] for m in call(stack, token, "GET", "pools/lab/members/")["results"]
    }
    return claim, members[slot["member"]], int(pid_file.read_text())


def test_busy_agent_continues_after_a_token_rotation(
    stack: Stack, token: str, open_folder: Path
) -> None:
    go = open_folder / "go"
    claim, member, _ = begin(
        stack, token, f"while [ ! -e {go} ]; do sleep 0.2; done", open_folder / "pid"
    )
    (folder,) = (stack.home / agent_folder.FOLDER).glob(f"*.{member}")
    file = folder / "token-1"
    before = file.read_text().strip()
    assert ask(stack, before, "POST", f"members/{member}/heartbeat/", {})[0] == 200
    call(
        stack,
        token,
        "POST",
        f"members/{member}/rotate-token/",
        {"reason": "it stood in a log", "ends_previous": True},
    )
    wait_until(lambda: file.read_text().strip() != before, "it is not handed over")
    assert file.stat().st_mode & 0o77 == 0
    used = (
        f"select 1 from pools_member where id = {member} and token_used_at is not null and "
        "previous_token_hash = ''"
    )
    wait_until(lambda: stack.execute(used), "its agent does not take it")
    assert ask(stack, before, "POST", f"members/{member}/heartbeat/", {})[0] == 401
    go.touch()
    ended = call(stack, token, "GET", f"claims/{claim}/?wait=60&until=ended")
    assert (ended["outcome"], ended["state"]) == ("planned", "ended")
    assert call(stack, token, "GET", f"members/{member}/")["incarnation"] == 1


def test_forced_drain_ends_the_task_and_the_agent(
    stack: Stack, token: str, open_folder: Path
) -> None:
    claim, member, pid = begin(stack, token, "exec sleep 600", open_folder / "pid")
    told = call(stack, token, "GET", f"members/{member}/drain/")
    assert [(k["claim_id"], k["then"]["state"]) for k in told["keepers"]] == [(claim, "waiting")]
    call(stack, token, "POST", f"members/{member}/drain/", {"reason": "it burns", "force": True})
    call(stack, token, "POST", f"claims/{claim}/cancel/", {"reason": "it need not go on elsewhere"})
    wait_until(lambda: not detached.start_time(pid), "its task goes on")
    wait_until(
        lambda: stack.execute(f"select 1 from pools_member where id = {member} and state = 'gone'"),
        "it does not go",
    )
    assert not list((stack.home / agent_folder.FOLDER).glob(f"*.{member}")), (
        "its folder has gone, too"
    )
    verbs = [
        row[0]
        for row in stack.execute(
            f"select verb from kernel_event where member_id = {member} order by id"
        )
    ]
    # its agent may still tell how its task ended, which is kept
    assert [verb for verb in verbs if verb != "stale_report"][-2:] == ["delete", "gone"]
    assert "put_out" in verbs
