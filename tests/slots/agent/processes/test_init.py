"""The agent in a container, where it would be process 1."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slots.agent.processes.process_table import list_children
from tests.slots.agent.conftest import PYTHON, Agent
from tests.slots.agent.fake_berth import Server
from tests.waiting import wait_until

CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def can_unshare() -> bool:
    return (
        shutil.which("unshare") is not None
        and subprocess.run([*CONTAINER, "true"], capture_output=True).returncode == 0
    )


pytestmark = pytest.mark.skipif(
    not can_unshare(), reason="no PID namespaces here: needs root, and unshare of util-linux"
)
WAITS = (
    "trap 'echo interrupted; is_last=yes' INT; echo begun; while ! test -e {gate} || test -z "
    "$is_last; do sleep 0.1; done; touch {end}"
)


class Container:
    def __init__(self, agent: Agent) -> None:
        self.outside = agent.process  # unshare, which ends as process 1 does
        (self.init,) = wait_until(lambda: list_children(self.outside.pid))
        (self.agent,) = wait_until(lambda: list_children(self.init))


@pytest.fixture
def start_container(start_agent: Callable[..., Agent]) -> Callable[..., Container]:
    def start(*options: str, **more: Any) -> Container:
        return Container(
            start_agent(*options, program=(*CONTAINER, PYTHON, "-m", "slots.agent"), **more)
        )

    return start


def order(server: Server, folder: Path) -> None:
    command = WAITS.format(gate=folder / "gate", end=folder / "end")
    server.order(
        1,
        10,
        "apply",
        commands={"apply": command},
        plan={"digest": "0" * 64, "size": 0, "facts": {}, "has_file": False},
    )
    server.wait(lambda: "begun" in server.log(1, 10))


def test_sigterm_reaches_the_agent_which_lets_its_task_end(
    server: Server, start_container: Callable[..., Container]
) -> None:
    container = start_container()
    server.order(1, 10, commands={"plan": "echo begun; sleep 1; echo done"})
    server.wait(lambda: "begun" in server.log(1, 10))
    os.kill(container.init, signal.SIGTERM)
    assert server.result(1, 10)["outcome"] == "planned"
    assert container.outside.wait(20) == 0
    assert server.goodbyes == 1


def test_container_of_a_killed_agent_stays_until_its_apply_has_ended(
    server: Server, start_container: Callable[..., Container], tmp_path: Path
) -> None:
    container = start_container()
    order(server, tmp_path)
    os.kill(container.agent, signal.SIGKILL)
    head = tmp_path / "state" / "spool" / "1-10" / "head"
    wait_until(lambda: "interrupted\n" in head.read_text())
    assert container.outside.poll() is None
    (tmp_path / "gate").touch()
    assert container.outside.wait(20) == 128 + signal.SIGKILL
    assert (tmp_path / "end").exists()


def test_process_1_collects_what_tasks_leave_behind(
    server: Server, start_container: Callable[..., Container]
) -> None:
    container = start_container()
    server.order(1, 10, commands={"plan": "(setsid sh -c 'sleep 0.1' &); true"})
    server.result(1, 10)
    wait_until(lambda: list_children_and_zombies(container.init) == {container.agent})


def list_children_and_zombies(parent: int) -> set[int]:
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if stat.read_text().rpartition(")")[2].split()[1] == str(parent):
                found.add(int(stat.parent.name))
    return found


def test_agent_that_has_to_end_in_time_interrupts_its_apply(
    server: Server, start_container: Callable[..., Container], tmp_path: Path
) -> None:
    """Kubernetes kills everything when the grace period of the pod is over."""
    container = start_container(env={"BERTH_AGENT_END_WITHIN": "600"})
    order(server, tmp_path)
    os.kill(container.init, signal.SIGTERM)
    server.wait(lambda: "interrupted\n" in server.log(1, 10))
    (tmp_path / "gate").touch()
    assert container.outside.wait(20) == 0
    assert (tmp_path / "end").exists()
