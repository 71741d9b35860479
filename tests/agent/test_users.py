"""Where the agent is root, tasks run as others, who can reach neither its token nor each other."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from slots.agent import users
from slots.agent.errors import Unusable
from slots.agent.users import FIRST, LAST, TaskUsers

from .conftest import Agent
from .server import Server
from .test_tofu import pack

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs tasks as others")


@needs_root
def test_a_task_of_a_root_agent(server: Server, start_agent: Callable[..., Agent]) -> None:
    agent = start_agent("--task-user", "auto")
    reads = [f"cat {agent.token} || echo kept out", f"cat /proc/{agent.process.pid}/environ || echo kept out", "cat a"]
    plan = "; ".join(["id -u", "id -G", "stat -c '%U %a' . $HOME $TMPDIR", *reads, "echo x > $BERTH_PLAN_FILE"])
    server.order(1, 10, commands={"plan": plan, "apply": "id -u; cat a $BERTH_PLAN_FILE"}, source=server.archive(pack({"a": "content\n"})))
    planned = server.result(1, 10)
    lines = server.log(1, 10).splitlines()
    assert planned["outcome"] == "planned"
    assert FIRST <= int(lines[0]) <= LAST
    assert lines[1] == lines[0]  # no group of root's
    assert lines[2:5] == ["UNKNOWN 700"] * 3
    assert lines.count("kept out") == 2 and "content" in lines
    assert "berthm_" not in server.log(1, 10)
    plan_of = {"digest": planned["digest"], "size": 2, "facts": planned["facts"], "has_file": True}
    server.order(1, 11, "apply", commands={"apply": "id -u; cat a $BERTH_PLAN_FILE"}, source={"kind": "none"}, plan=plan_of)
    assert server.result(1, 11)["outcome"] == "applied", server.log(1, 11)
    assert "content\nx\n" in server.log(1, 11)
    assert "in the folder of the plan" in server.log(1, 11)


@needs_root
def test_two_tasks_at_once_are_two_users_and_a_kept_folder_is_shut(server: Server, start_agent: Callable[..., Agent]) -> None:
    start_agent("--task-user", "auto")
    server.order(1, 10, commands={"plan": "id -u; pwd; echo mine > mine"})
    server.result(1, 10)
    kept = server.log(1, 10).splitlines()[1]
    server.order(2, 20, commands={"plan": f"id -u; cat {kept}/mine || echo shut; ls {kept} || echo shut; sleep 1"}, slot=2)
    server.order(3, 30, commands={"plan": "id -u; sleep 1"}, slot=3)
    server.result(2, 20)
    server.result(3, 30)
    assert server.log(2, 20).count("shut") == 2
    assert server.log(2, 20).splitlines()[0] != server.log(3, 30).splitlines()[0]


@needs_root
def test_a_program_that_the_user_may_not_run(server: Server, start_agent: Callable[..., Agent], tmp_path: Path) -> None:
    start_agent("--task-user", "nobody")
    program = tmp_path / "tofu"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    server.order(1, 10, executor="terraform", binary=str(program))
    result = server.result(1, 10)
    assert (result["outcome"], result["code"]) == ("failed", "command_not_found")
    assert "may not be run by the task's user" in result["reason"]


@needs_root
def test_a_machine_that_lets_nobody_become_another(monkeypatch: pytest.MonkeyPatch) -> None:
    TaskUsers("auto").check()
    monkeypatch.setattr(users, "BECOME", "raise PermissionError(1, 'Operation not permitted')")
    with pytest.raises(Unusable, match="--task-user same"):
        TaskUsers("auto").check()
    TaskUsers("same").check()


@needs_root
@pytest.mark.parametrize("option", ["root", "0", "no-such-user", "1000:staff", "1000:0"])
def test_users_that_cannot_be(option: str) -> None:
    with pytest.raises(Unusable):
        TaskUsers(option)


@needs_root
def test_a_token_that_lies_open_is_refused(server: Server, start_agent: Callable[..., Agent]) -> None:
    folder = Path(tempfile.mkdtemp())  # unlike pytest's own, below folders that everybody may enter
    try:
        folder.chmod(0o755)
        agent = start_agent("--task-user", "auto", folder=folder)
        server.wait(lambda: server.hellos)
        agent.end()
        agent.token.chmod(0o644)
        agent.start()
        assert agent.process.wait(20) == 2
        assert "chmod 600" in agent.log
    finally:
        shutil.rmtree(folder)


def test_numbers_are_taken_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    taken = TaskUsers("auto")
    first, second = taken.take(), taken.take()
    assert first and second and first.uid != second.uid
    taken.give_back(first)
    assert taken.take() == first


def test_an_agent_that_is_not_root_has_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert TaskUsers("").take() is None
    with pytest.raises(Unusable, match="only an agent that runs as root"):
        TaskUsers("auto")
