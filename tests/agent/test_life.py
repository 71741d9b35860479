"""Plan, wait, apply, over real sockets and with real processes."""

import signal

from .conftest import Agent, until
from .server import Server


def test_a_plan_and_its_apply_in_the_same_folder(server: Server, agent: Agent) -> None:
    commands = {"plan": "echo hello; echo made > made; echo saved > $BERTH_PLAN_FILE", "apply": "cat made; cat $BERTH_PLAN_FILE"}
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


def test_a_graceful_end_lets_tasks_end(server: Server, agent: Agent) -> None:
    server.order(1, 10, commands={"plan": "echo begun; sleep 1; echo done"})
    server.wait(lambda: server.log(1, 10))
    agent.process.send_signal(signal.SIGTERM)
    until(lambda: "ends when its tasks have ended" in agent.log)
    server.order(2, 20, slot=2)
    assert agent.process.wait(20) == 0
    assert server.results[1, 10]["outcome"] == "planned"
    assert (2, 20) not in server.started
