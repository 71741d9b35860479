"""Where the agent is root, each task runs as its own user and can reach neither the token of the
agent nor another task.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from slots.agent.common.errors import Unusable
from slots.agent.processes import users
from slots.agent.processes.process_table import has_child_ended, kill_user, list_marked, list_owned
from slots.agent.processes.users import FIRST, LAST, TaskUsers, User, end_strays
from tests.slots.agent.conftest import Agent
from tests.slots.agent.executors.test_tofu import pack
from tests.slots.agent.fake_berth import Server
from tests.waiting import wait_until

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs tasks as others")


@needs_root
def test_task_of_a_root_agent_runs_as_an_unprivileged_user(
    server: Server, start_agent: Callable[..., Agent]
) -> None:
    agent = start_agent("--task-user", "auto")
    reads = [
        f"cat {agent.token} || echo kept out",
        f"cat /proc/{agent.process.pid}/environ || echo kept out",
        "cat a",
    ]
    plan = "; ".join(
        ["id -u", "id -G", "stat -c '%U %a' . $HOME $TMPDIR", *reads, "echo x > $BERTH_PLAN_FILE"]
    )
    server.order(
        1,
        10,
        commands={"plan": plan, "apply": "id -u; cat a $BERTH_PLAN_FILE"},
        source=server.archive(pack({"a": "content\n"})),
    )
    planned = server.result(1, 10)
    lines = server.log(1, 10).splitlines()
    assert planned["outcome"] == "planned"
    assert FIRST <= int(lines[0]) <= LAST
    assert lines[1] == lines[0]  # no group of root's
    assert lines[2:5] == ["UNKNOWN 700"] * 3
    assert lines.count("kept out") == 2 and "content" in lines
    assert "berthm_" not in server.log(1, 10)
    plan_of = {"digest": planned["digest"], "size": 2, "facts": planned["facts"], "has_file": True}
    server.order(
        1,
        11,
        "apply",
        commands={"apply": "id -u; cat a $BERTH_PLAN_FILE"},
        source={"kind": "none"},
        plan=plan_of,
    )
    assert server.result(1, 11)["outcome"] == "applied", server.log(1, 11)
    assert "content\nx\n" in server.log(1, 11)
    assert "in the folder of the plan" in server.log(1, 11)


@needs_root
def test_concurrent_tasks_are_two_users_and_a_kept_folder_is_closed(
    server: Server, start_agent: Callable[..., Agent]
) -> None:
    start_agent("--task-user", "auto")
    server.order(1, 10, commands={"plan": "id -u; pwd; echo mine > mine"})
    server.result(1, 10)
    kept = server.log(1, 10).splitlines()[1]
    server.order(
        2,
        20,
        commands={"plan": f"id -u; cat {kept}/mine || echo shut; ls {kept} || echo shut; sleep 1"},
        slot=2,
    )
    server.order(3, 30, commands={"plan": "id -u; sleep 1"}, slot=3)
    server.result(2, 20)
    server.result(3, 30)
    assert server.log(2, 20).count("shut") == 2
    assert server.log(2, 20).splitlines()[0] != server.log(3, 30).splitlines()[0]


@needs_root
def test_program_that_the_task_user_may_not_run_is_reported(
    server: Server, start_agent: Callable[..., Agent], tmp_path: Path
) -> None:
    start_agent("--task-user", "nobody")
    program = tmp_path / "tofu"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    server.order(1, 10, executor="terraform", binary=str(program))
    result = server.result(1, 10)
    assert (result["outcome"], result["code"]) == ("failed", "command_not_found")
    assert "may not be run by the task's user" in result["reason"]


@needs_root
def test_missing_command_is_reported_as_missing(
    server: Server, start_agent: Callable[..., Agent], tmp_path: Path
) -> None:
    """A shell says `Permission denied` of a program it does not find, while a folder of its PATH
    is shut to it.
    """
    shut = tmp_path / "shut"
    shut.mkdir(mode=0o700)
    start_agent("--task-user", "auto", env={"PATH": f"{shut}:{os.environ['PATH']}"})
    server.order(1, 10, commands={"plan": "echo $PATH; no-such-program"})
    result = server.result(1, 10)
    assert result["code"] == "command_not_found"
    assert "not found" in result["reason"] and "ermission" not in result["reason"], result
    folders = server.log(1, 10).splitlines()[0].split(":")
    assert str(shut) not in folders and "/usr/bin" in folders


@needs_root
def test_program_is_searched_as_the_task_user(
    server: Server, start_agent: Callable[..., Agent]
) -> None:
    """Also where Python itself is out of that user's reach: what the search needs is
    there before.
    """
    start_agent("--task-user", "auto")
    server.order(
        1,
        10,
        commands={"plan": "true"},
        source={"kind": "git", "url": "https://127.0.0.1:9/x", "ref": "v1"},
        git_hosts=["127.0.0.1:9"],
    )
    result = server.result(1, 10)
    assert result["code"] == "source_failed" and "unable to access" in result["reason"], server.log(
        1, 10
    )


@needs_root
def test_next_start_of_the_agent_does_not_end_the_user_of_a_task_that_a_reaper_ends(
    server: Server, start_agent: Callable[..., Agent]
) -> None:
    agent = start_agent("--task-user", "auto")
    told = "trap 'echo interrupted; is_last=yes' INT; trap 'echo terminated' TERM"
    server.order(
        1,
        10,
        commands={
            "plan": (
                f"{told}; pwd; while ! test -e gate || test -z $is_last; do sleep 0.1; done; echo "
                "finished"
            )
        },
    )
    source = Path(server.wait(lambda: server.log(1, 10).strip()))
    agent.kill()
    wait_until(lambda: "interrupted\n" in (agent.state / "spool" / "1-10" / "head").read_text())
    agent.start()
    server.wait(lambda: len(server.hellos) == 2)
    assert [run["status"] for run in server.hellos[1]["runs"]] == ["running"]
    (source / "gate").touch()
    server.wait(lambda: [run["status"] for run in server.hellos[-1]["runs"]] == ["lost"])
    server.wait(lambda: "finished\n" in server.log(1, 10))
    assert "terminated" not in server.log(1, 10)


@needs_root
def test_agent_needs_the_same_user_where_switching_is_forbidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    TaskUsers("auto").check()
    monkeypatch.setattr(users, "BECOME", "raise PermissionError(1, 'Operation not permitted')")
    with pytest.raises(Unusable, match="--task-user same"):
        TaskUsers("auto").check()
    TaskUsers("same").check()


@needs_root
@pytest.mark.parametrize("option", ["root", "0", "no-such-user", "1000:staff", "1000:0"])
def test_invalid_task_user_option_is_refused(option: str) -> None:
    with pytest.raises(Unusable):
        TaskUsers(option)


@needs_root
def test_world_readable_token_is_refused(server: Server, start_agent: Callable[..., Agent]) -> None:
    folder = Path(tempfile.mkdtemp())  # unlike pytest's own, below folders that all users may enter
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


@needs_root
def test_user_ids_are_unique_across_agents_of_a_machine() -> None:
    one, other = TaskUsers("auto"), TaskUsers("auto")
    first, second, third = one.acquire(), one.acquire(), other.acquire()
    assert first and second and third and len({first.uid, second.uid, third.uid}) == 3
    one.release(first)
    assert other.acquire() == first
    assert one.acquire() != first
    for users_ in (one, other):
        for number in list(users_.taken):
            users_.release(User(number, number))


@needs_root
def test_unlockable_user_ids_are_refused_unless_tasks_share_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.setattr(users, "LOCKS", (Path("/proc/none"), tmp_path / "open", tmp_path / "new"))
    assert users.find_locks() == tmp_path / "new"
    monkeypatch.setattr(users, "LOCKS", (Path("/proc/none"), tmp_path / "open", tmp_path / "link"))
    with pytest.raises(Unusable, match="cannot lock user ids"):
        TaskUsers("auto")
    TaskUsers("same")


@needs_root
def test_unmarked_process_of_a_task_user_ends_with_its_task(
    server: Server, start_agent: Callable[..., Agent]
) -> None:
    start_agent("--task-user", "auto")
    plan = (
        "id -u; setsid env -i sleep 4711 & setsid env -i sh -c \"trap '' TERM; while :; do sleep "
        '0.1; done" & sleep 0.5; id -u'
    )
    server.order(1, 10, commands={"plan": plan})
    assert server.result(1, 10)["outcome"] in ("planned", "no_changes", "failed")
    user = int(server.log(1, 10).splitlines()[0])
    assert FIRST <= user <= LAST
    assert not list(list_owned((user,)))


@needs_root
def test_only_processes_of_dead_agents_are_ended() -> None:
    taken = TaskUsers("auto")
    user = taken.acquire()
    assert user
    code = (
        f"import os, time; os.setgid({user.gid}); os.setuid({user.uid}); print(flush=True); "
        "time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout and process.stdout.readline() == b"\n"
            assert end_strays() and process.poll() is None
            os.close(taken.taken.pop(user.uid))  # as the system does it when an agent dies
            other = TaskUsers("auto")
            another = other.acquire()  # while it still runs
            assert another and another.uid != user.uid
            other.release(another)
            assert end_strays() and process.wait(5) == -15
        finally:
            process.kill()


@needs_root
def test_all_processes_of_a_task_user_are_killed_and_never_root() -> None:
    kill_user(0)
    taken = TaskUsers("auto")
    user = taken.acquire()
    assert user
    code = (
        f"import os, time; os.setgid({user.gid}); os.setuid({user.uid}); os.fork(); "
        "print(flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code], stdout=subprocess.PIPE
    ) as process:
        try:
            assert (
                process.stdout and process.stdout.readline() + process.stdout.readline() == b"\n\n"
            )
            assert len(list(list_owned((user.uid,)))) == 2
            kill_user(user.uid)
            assert process.wait(5) == -9
            assert not list(list_owned((user.uid,)))
        finally:
            process.kill()
            taken.release(user)


def test_ended_process_keeps_its_id_until_it_is_waited_for() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert not has_child_ended(process.pid)
        process.kill()
        wait_until(lambda: has_child_ended(process.pid))
        os.kill(process.pid, 0)  # still there
        assert process.wait() == -9


def test_mark_is_not_hidden_by_another_before_it() -> None:
    code = "import time; print(flush=True); time.sleep(60)"
    environment = {"X": "BERTH_RUN=not.mine", "BERTH_RUN": "1.10.hidden-test"}
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code], env=environment, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout and process.stdout.readline() == b"\n"
            assert list_marked(".hidden-test") == [process.pid]
        finally:
            process.kill()


def test_non_root_agent_cannot_switch_task_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert TaskUsers("").acquire() is None
    with pytest.raises(Unusable, match="only an agent that runs as root"):
        TaskUsers("auto")
