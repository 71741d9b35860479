"""SIGKILL of the agent in each state of a run: no run is repeated, finished runs are reported,
and no process stays.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slots.agent.cli import main
from slots.agent.processes.process_table import list_marked
from slots.agent.workdir.folders import base_elsewhere, remove
from tests.slots.agent.conftest import Agent
from tests.slots.agent.fake_berth import Exchange, Server
from tests.waiting import wait_until

pytestmark = pytest.mark.oldest_python


def hold(server: Server, what: str) -> None:
    """The server does not answer these calls any more."""
    server.hooks[what] = lambda exchange: setattr(exchange, "close_connection", True)


def phase(agent: Agent, name: str = "1-10") -> dict[str, Any]:
    path = agent.state / "runs" / f"{name}.json"
    return json.loads(path.read_bytes()) if path.exists() else {"phase": ""}


def told(server: Server) -> list[dict[str, Any]]:
    return server.hellos[-1]["runs"]


def mark(agent: Agent) -> str:
    return f".{(agent.state / 'id').read_text()}"


def test_killed_agent_restarts_a_run_that_was_accepted_and_not_begun(
    server: Server, agent: Agent
) -> None:
    hold(server, "tasks/1/10/")
    server.order(1, 10, commands={"plan": f"echo ran >> {agent.folder}/proof"})
    wait_until(lambda: phase(agent)["phase"] == "accepted")
    agent.kill()
    server.hooks.clear()
    agent.start()
    server.wait(lambda: len(server.hellos) == 2)
    assert told(server) == [{"claim": 1, "generation": 10, "step": "plan", "status": "not_started"}]
    # The order is still valid and had not begun, so the agent starts it.
    assert server.result(1, 10)["outcome"] == "planned"
    assert (agent.folder / "proof").read_text() == "ran\n"
    assert server.started == [(1, 10)]


def test_apply_killed_while_preparing_is_not_started_and_not_repeated(
    server: Server, agent: Agent
) -> None:
    """The agent had fetched and prepared, but applied no change, so the workspace is not locked.
    The order is still not started again under its number.
    """
    hold(server, "tasks/1/10/source/")
    plan = {"digest": "0" * 64, "size": 0, "facts": {}, "has_file": False}
    server.order(1, 10, "apply", commands={"apply": "true"}, source=server.archive(b"x"), plan=plan)
    server.wait(lambda: ("GET", "tasks/1/10/source/") in server.calls)
    agent.kill()
    agent.start()
    server.wait(lambda: len(server.hellos) == 2)
    assert told(server) == [
        {"claim": 1, "generation": 10, "step": "apply", "status": "not_started"}
    ]
    wait_until(lambda: phase(agent)["phase"] == "reported")
    server.order(2, 20, slot=2)
    server.result(2, 20)
    assert server.started == [(1, 10), (2, 20)]


def test_run_of_a_killed_agent_is_lost_ended_and_its_log_kept(server: Server, agent: Agent) -> None:
    command = (
        f"echo ran >> {agent.folder}/proof; echo begun; (setsid sleep 300 &) ; sleep "
        "300 & sleep 300"
    )
    server.order(
        1,
        10,
        "apply",
        commands={"apply": command},
        plan={"digest": "0" * 64, "size": 0, "facts": {}, "has_file": False},
    )
    server.wait(lambda: "begun" in server.log(1, 10))
    before = list_marked(mark(agent))
    assert len(before) >= 3
    agent.kill()
    server.boots.clear()  # this server would let it begin once more
    agent.start()
    lost = [{"claim": 1, "generation": 10, "step": "apply", "status": "lost"}]
    # A hello lists the run as running while its reaper still ends the processes.
    server.wait(lambda: len(server.hellos) >= 2 and told(server) == lost)
    assert list_marked(mark(agent)) == []
    wait_until(lambda: phase(agent)["phase"] == "reported")
    server.order(2, 20, slot=2)  # the order for the lost one still stands; it is not taken again
    server.result(2, 20)
    assert server.started == [(1, 10), (2, 20)]
    assert (agent.folder / "proof").read_text() == "ran\n"
    assert (1, 10) not in server.results


def test_process_in_its_own_session_does_not_outlive_the_task(server: Server, agent: Agent) -> None:
    server.order(
        1, 10, commands={"plan": "(setsid sleep 300 >/dev/null 2>&1 &); sleep 300 & echo done"}
    )
    assert server.result(1, 10)["outcome"] == "planned"
    assert list_marked(mark(agent)) == []


@pytest.mark.parametrize("call", ["tasks/1/10/plan/", "tasks/1/10/result/", "tasks/1/10/log/"])
def test_finished_run_is_reported_after_the_agent_was_killed(
    call: str, server: Server, agent: Agent
) -> None:
    hold(server, call)
    command = f"echo ran >> {agent.folder}/proof; echo said; echo plan > $BERTH_PLAN_FILE"
    server.order(1, 10, commands={"plan": command})
    wait_until(lambda: phase(agent)["phase"] == "finished")
    agent.kill()
    agent.start()
    server.wait(lambda: len(server.hellos) == 2)
    server.hooks.clear()
    result = server.result(1, 10)
    assert {"claim": 1, "generation": 10, "step": "plan", "status": "finished"} in server.hellos[1][
        "runs"
    ]
    assert result["outcome"] == "planned"
    assert server.plans[1, 10] == b"plan\n"
    assert server.log(1, 10) == "said\n"
    assert (agent.folder / "proof").read_text() == "ran\n"


def test_result_is_reported_again_when_its_answer_was_lost(server: Server, agent: Agent) -> None:
    """The server has it, the agent does not know: it says it once more, and the server knows it."""
    seen: list[Any] = []

    def swallow(exchange: Exchange) -> None:
        seen.append(exchange.json)
        exchange.close_connection = True

    server.hooks["tasks/1/10/result/"] = swallow
    server.order(1, 10)
    wait_until(lambda: seen)
    agent.kill()
    server.hooks.clear()
    agent.start()
    assert server.result(1, 10) == seen[0]


def test_reported_run_is_not_repeated_for_a_repeated_order(server: Server, agent: Agent) -> None:
    server.order(1, 10, commands={"plan": f"echo ran >> {agent.folder}/proof"})
    server.result(1, 10)
    wait_until(lambda: phase(agent)["phase"] == "reported")
    agent.kill()
    server.boots.clear()  # this server would let it begin
    agent.start()
    server.order(1, 10, commands={"plan": f"echo ran >> {agent.folder}/proof"})
    server.order(2, 20, slot=2)
    server.result(2, 20)
    assert (agent.folder / "proof").read_text() == "ran\n"


def test_plan_folder_outlives_the_agent(server: Server, agent: Agent) -> None:
    commands = {"plan": "echo made > made", "apply": "cat made"}
    server.order(1, 10, commands=commands)
    planned = server.result(1, 10)
    wait_until(lambda: phase(agent).get("keep"))
    agent.kill()
    agent.start()
    plan = {"digest": planned["digest"], "size": 0, "facts": planned["facts"], "has_file": False}
    server.order(1, 11, "apply", commands=commands, plan=plan)
    assert server.result(1, 11)["outcome"] == "applied"
    assert "made\n" in server.log(1, 11)
    wait_until(lambda: not list((agent.state / "work").iterdir()))


def test_torn_run_record_is_reported_as_lost(server: Server, agent: Agent) -> None:
    agent.kill()
    (agent.state / "runs").mkdir(parents=True, exist_ok=True)
    (agent.state / "runs" / "1-10.json").write_text('{"claim": 1, "gener')
    agent.start()
    server.wait(lambda: any(hello["runs"] for hello in server.hellos))
    assert told(server)[0] | {"step": ""} == {
        "claim": 1,
        "generation": 10,
        "step": "",
        "status": "lost",
    }


def test_process_with_a_reused_id_is_not_killed(
    server: Server, agent: Agent, tmp_path: Path
) -> None:
    """The record names this test's own process group, without its start: it is not what the
    agent started.
    """
    agent.kill()
    (agent.state / "runs").mkdir(parents=True, exist_ok=True)
    record = {
        "claim": 1,
        "generation": 10,
        "step": "plan",
        "slot": 1,
        "phase": "running",
        "pid": os.getpid(),
        "pid_start": "1@other",
    }
    (agent.state / "runs" / "1-10.json").write_text(json.dumps(record))
    agent.start()
    server.wait(
        lambda: any(run["status"] == "lost" for hello in server.hellos for run in hello["runs"])
    )


def test_second_agent_on_a_folder_is_refused(server: Server, agent: Agent) -> None:
    server.wait(lambda: server.hellos)
    pid = agent.process.pid
    first = agent.process
    agent.start()
    assert agent.process.wait(20) == 4
    assert f"Another agent (process {pid}) uses the state folder" in agent.log
    agent.process = first


def test_sweep_ends_processes_of_a_dead_agent(
    server: Server, start_agent: Callable[..., Agent]
) -> None:
    agent = start_agent()
    server.order(
        1,
        10,
        commands={"plan": "echo begun; (setsid sleep 300 &) ; sleep 300 & sleep 300; sleep 300"},
    )
    server.wait(lambda: "begun" in server.log(1, 10))
    agent.kill()
    agent.options, agent.program = ("--sweep",), agent.program
    agent.start()
    assert agent.process.wait(30) == 0
    assert list_marked(mark(agent)) == []


def test_sweep_keeps_waiting_plans(tmp_path: Path) -> None:
    """A member that is down comes back: its claims wait in its folders."""
    kept = base_elsewhere(tmp_path / "state") / "1-10"
    kept.mkdir(parents=True)
    try:
        assert main(["--sweep", "--state", str(tmp_path / "state")]) == 0
        assert kept.is_dir()
    finally:
        remove(kept.parent)
