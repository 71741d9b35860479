"""Processes that a task leaves behind are ended, or the slot is not reported free."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slots.agent.processes import process_table
from tests.slots.agent.conftest import Agent
from tests.slots.agent.fake_berth import Server
from tests.waiting import wait_until

HIDE = (
    "import os, time; os.fork() and os._exit(0); os.setsid(); os.fork() and "
    "os._exit(0); os.chdir('/')"
)
LIVES = (
    f"{HIDE}; open(os.sys.argv[1], 'w').write(str(os.getpid())); os.sys.argv[2] and time.sleep(600)"
)


def is_alive(pid: int) -> bool:
    return process_table.started_at(pid) != ""


def hidden(proof: Path, foreground: str) -> str:
    """A process that forks twice, takes a session of its own, another folder, and no
    environment at all.
    """
    begin = f'env -i {sys.executable} -I -S -c "{LIVES}" {proof} stay > /dev/null 2>&1'
    return f"{begin}; while ! test -s {proof}; do sleep 0.05; done; {foreground}"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="others have no such call")
@pytest.mark.parametrize("how", ["it ends", "it is cancelled"])
def test_unmarked_orphan_process_is_ended_with_its_task(
    server: Server, start_agent: Callable[..., Agent], tmp_path: Path, how: str
) -> None:
    """Red where the agent does not adopt orphans of a task."""
    proof, other = tmp_path / "pid", tmp_path / "other"
    start_agent()
    server.order(2, 2, slot=2, commands={"plan": hidden(other, "sleep 300")})
    wait_until(lambda: other.exists() and other.read_text())
    server.order(
        1, 1, commands={"plan": hidden(proof, "true" if how == "it ends" else "sleep 300")}
    )
    pid = int(wait_until(lambda: proof.exists() and proof.read_text()))
    if how != "it ends":
        assert is_alive(pid)
        server.cancel(1, 1)
    assert server.result(1, 1)["outcome"] == ("planned" if how == "it ends" else "cancelled")
    wait_until(lambda: not is_alive(pid))
    assert is_alive(int(other.read_text())), "what another task runs is left alone"
    server.cancel(2, 2)
    server.result(2, 2)
    wait_until(lambda: not is_alive(int(other.read_text())))


@pytest.fixture
def leftover(tmp_path: Path) -> Iterator[Callable[[str], "subprocess.Popen[bytes]"]]:
    """Marked like a process of a task that not even KILL ended: the agent was not there
    to see it.
    """
    started = []

    def start(mark: str) -> "subprocess.Popen[bytes]":
        started.append(
            subprocess.Popen(["sleep", "600"], env={**os.environ, process_table.MARK: mark})
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_slot_is_not_reported_free_before_its_last_process_ended(
    server: Server,
    start_agent: Callable[..., Agent],
    leftover: Callable[[str], "subprocess.Popen[bytes]"],
) -> None:
    agent = start_agent()
    server.wait(lambda: server.hellos)
    identity = (agent.state / "id").read_text()
    stuck = leftover(f"7.41.{identity}")
    with server.changed:
        server.stops += [{"slot": 3, "generation": 41}, {"slot": 4, "generation": 42}]
        server.changed.notify_all()
    server.wait(lambda: (4, 42) in server.stopped)
    polls = len(server.calls)
    server.wait(lambda: len(server.calls) > polls + 2)
    assert (3, 41) not in server.stopped
    stuck.kill()
    stuck.wait()
    server.wait(lambda: (3, 41) in server.stopped)


def test_unkillable_process_blocks_no_other_task() -> None:
    """Red where a left process counts for the next task that ends: one disk that does not answer
    would take all slots of its agent.
    """
    children = process_table.Children()
    children.is_adopting = True
    stuck, other = (subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(2))
    try:
        assert {stuck.pid, other.pid} <= children.list_strays()
        children.give_up(
            [
                (stuck.pid, process_table.started_at(stuck.pid)),
                (other.pid, "another process of that number"),
            ]
        )
        found = children.list_strays()
        assert (stuck.pid in found, other.pid in found) == (False, True)
    finally:
        for process in (stuck, other):
            process.kill()
            process.wait()
    children.give_up([])
    assert stuck.pid not in children.left


def test_agent_without_subreaper_ignores_foreign_children() -> None:
    """Red where every child in another session is a task's: an agent inside another program
    would end what that one has started.
    """
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as somebody_else:
        assert process_table.Children().list_strays() == set()
        somebody_else.kill()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="others have no /proc")
def test_ended_process_that_was_not_collected_is_no_shell() -> None:
    ended = subprocess.Popen(["sh", "-c", "exit 0"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert not process_table.is_shell(ended.pid)
    finally:
        ended.wait()
