"""Plan, wait and apply over real sockets with real processes."""

import signal
import sys
from collections.abc import Callable

from slots.agent_build import SOURCE
from tests.waiting import wait_until

from .conftest import Agent
from .fake_berth import Server


def test_apply_runs_in_the_folder_of_its_plan(server: Server, agent: Agent) -> None:
    commands = {
        "plan": "echo hello; echo made > made; echo saved > $BERTH_PLAN_FILE",
        "apply": "cat made; cat $BERTH_PLAN_FILE",
    }
    server.order(1, 10, commands=commands)
    planned = server.result(1, 10)
    assert planned["outcome"] == "planned"
    assert server.log(1, 10) == "hello\n"
    assert server.plans[1, 10] == b"saved\n"
    plan = {"digest": planned["digest"], "size": 6, "facts": planned["facts"], "has_file": True}
    server.order(1, 11, "apply", commands=commands, plan=plan)
    applied = server.result(1, 11)
    assert (applied["outcome"], applied["exit_code"]) == ("applied", 0)
    assert "made\nsaved\n" in server.log(1, 11)
    assert agent.end() == 0
    assert server.goodbyes == 1


def test_graceful_end_waits_for_running_tasks(server: Server, agent: Agent) -> None:
    server.order(1, 10, commands={"plan": "echo begun; sleep 1; echo done"})
    server.wait(lambda: server.log(1, 10))
    agent.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "ends when its tasks have ended" in agent.log)
    server.order(2, 20, slot=2)
    assert agent.process.wait(20) == 0
    assert server.results[1, 10]["outcome"] == "planned"
    assert (2, 20) not in server.started


CLOCK = """
import itertools, sys, time
jumps, real = itertools.cycle([0, 86400 * 400, -86400 * 400, 3, -1e9]), time.time
time.time = lambda: max(1.0, real() + next(jumps))
from slots.agent.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_clock_jumps_do_not_affect_the_agent(
    server: Server, start_agent: Callable[..., Agent]
) -> None:
    """Only what never goes back is asked for the time: no wait, deadline or lease of the agent
    follows the clock on the wall.
    """
    agent = start_agent(program=(sys.executable, "-c", CLOCK))
    server.order(
        1,
        10,
        commands={"plan": "for i in 1 2 3 4 5; do echo line $i; sleep 0.3; done"},
        timeout_s=20,
    )
    assert server.result(1, 10)["outcome"] == "planned"
    assert server.log(1, 10) == "".join(f"line {number}\n" for number in range(1, 6))
    assert agent.end() == 0
    assert not [
        path
        for path in SOURCE.rglob("*.py")
        if "time.time(" in path.read_text() or "datetime" in path.read_text()
    ]


def test_folder_of_an_abandoned_plan_is_removed(
    server: Server, start_agent: Callable[..., Agent]
) -> None:
    """The server names the claims that wait here; an older list than the plan is no reason."""
    server.wait_s = 0.5
    agent = start_agent()
    server.order(1, 10)
    server.result(1, 10)
    work = agent.state / "work"
    wait_until(lambda: "reported" in agent.log)
    server.keep_list = [1]
    seen = len(server.calls)
    server.wait(lambda: server.calls[seen:].count(("GET", "orders/")) > 3)
    assert (work / "1-10").exists()
    server.keep_list = []
    wait_until(lambda: "folder of a plan removed" in agent.log)
    assert not (work / "1-10").exists()
