"""Tasks are ended by the server or by the person who runs the agent."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from slots.agent.processes.process_table import collect_orphans, list_marked, started_at
from tests.slots.agent.conftest import Agent
from tests.slots.agent.fake_berth import TOKEN, Exchange, Server
from tests.waiting import wait_until

from .test_kills import mark


def test_cancel_interrupts_then_terminates_then_kills_the_whole_group(
    server: Server, agent: Agent
) -> None:
    traps = "trap 'echo interrupted' INT; trap 'echo terminated' TERM"
    command = (
        f"{traps}; echo begun; (trap '' TERM; while :; do sleep 0.1; done) & while :; do "
        "sleep 0.1; done"
    )
    server.order(1, 10, commands={"plan": command}, stop_timeout_s=1)
    server.wait(lambda: "begun" in server.log(1, 10))
    server.cancel(1, 10)
    server.wait(lambda: server.stopped)
    assert server.stopped == [(1, 10)]
    assert list_marked(mark(agent)) == []
    result = server.result(1, 10)
    assert (result["outcome"], result["code"]) == ("cancelled", "killed")
    said = server.log(1, 10)  # what it says at its end is kept
    assert said.count("interrupted\n") == 1 and said.index("interrupted\n") < said.index(
        "terminated\n"
    )


def test_cancel_waits_for_what_an_interrupted_program_finishes(
    server: Server, agent: Agent
) -> None:
    gate = agent.folder / "gate"
    traps = "trap 'echo interrupted; is_last=yes' INT; trap 'echo terminated' TERM"
    command = (
        f"{traps}; echo begun; while ! test -e {gate} || test -z $is_last; do sleep 0.1; "
        "done; echo finished"
    )
    server.order(1, 10, commands={"plan": command})
    server.wait(lambda: "begun" in server.log(1, 10))
    server.cancel(1, 10)
    server.wait(lambda: "interrupted\n" in server.log(1, 10))
    assert (1, 10) not in server.stopped
    gate.touch()
    server.wait(lambda: (1, 10) in server.stopped)
    assert server.result(1, 10)["outcome"] == "cancelled"
    assert server.log(1, 10).count("interrupted\n") == 1
    assert "finished" in server.log(1, 10) and "terminated" not in server.log(1, 10)


def test_cancel_does_not_wait_for_background_jobs_of_a_shell(server: Server, agent: Agent) -> None:
    """A shell lets its background ignore SIGINT: it would use up all the time that the
    program has.
    """
    server.order(1, 10, commands={"plan": "echo begun; sleep 300 & sleep 300"}, stop_timeout_s=600)
    server.wait(lambda: "begun" in server.log(1, 10))
    server.cancel(1, 10)
    assert server.result(1, 10)["outcome"] == "cancelled"
    assert list_marked(mark(agent)) == []


def test_program_ends_when_its_reaper_is_killed(server: Server, agent: Agent) -> None:
    server.order(
        1,
        10,
        commands={
            "plan": f"env -i sh -c 'echo $$ > {agent.folder}/pid; sleep 300'; echo begun; sleep 300"
        },
    )
    wait_until(lambda: (agent.folder / "pid").exists() and (agent.folder / "pid").read_text())
    record = json.loads((agent.state / "runs" / "1-10.json").read_text())
    os.kill(record["pid"], signal.SIGKILL)
    result = server.result(1, 10)
    assert (result["outcome"], result["code"]) == ("failed", "killed")
    assert list_marked(mark(agent)) == []
    wait_until(lambda: not started_at(int((agent.folder / "pid").read_text())))


def test_next_order_of_a_slot_waits_until_the_stopped_run_ended(
    server: Server, agent: Agent
) -> None:
    server.order(
        1,
        10,
        commands={"plan": f"trap '' TERM; echo begun; sleep 300; echo late > {agent.folder}/late"},
    )
    server.wait(lambda: "begun" in server.log(1, 10))
    before = list_marked(f"1.10{mark(agent)}")
    left: list[Any] = []

    def look(exchange: Exchange) -> None:
        left.append(list_marked(f"1.10{mark(agent)}"))
        server.serve(exchange, "tasks/2/20/started/")

    server.hooks["tasks/2/20/started/"] = look
    with server.changed:
        entry = server.orders.pop()
        server.stops.append({"slot": entry["slot"], "generation": 10})
    server.order(2, 20, commands={"plan": "date"})
    assert server.result(2, 20)["outcome"] == "planned"
    assert (len(before) > 0, left) == (True, [[]])


def test_refused_order_that_still_stands_is_retried(server: Server, agent: Agent) -> None:
    server.hooks["tasks/1/10/started/"] = lambda exchange: exchange.refuse(409, "stale_generation")
    server.order(1, 10)
    server.wait(lambda: ("POST", "tasks/1/10/started/") in server.calls)
    server.hooks.clear()
    assert server.result(1, 10)["outcome"] == "planned"


def test_run_without_an_order_is_cancelled(server: Server, agent: Agent) -> None:
    server.order(1, 10, commands={"plan": "echo begun; sleep 300"})
    server.wait(lambda: "begun" in server.log(1, 10))
    with server.changed:
        server.orders.clear()
        server.changed.notify_all()
    assert server.result(1, 10)["outcome"] == "cancelled"


def test_stop_of_an_idle_slot_is_confirmed(server: Server, agent: Agent) -> None:
    with server.changed:
        server.stops.append({"slot": 5, "generation": 50})
        server.changed.notify_all()
    server.wait(lambda: (5, 50) in server.stopped)


def test_timed_out_task_is_killed(server: Server, agent: Agent) -> None:
    server.order(
        1,
        10,
        commands={"plan": "trap '' TERM; echo begun; sleep 300 & wait; sleep 300"},
        timeout_s=1,
    )
    result = server.result(1, 10)
    assert (result["outcome"], result["code"]) == ("failed", "timeout")
    assert list_marked(mark(agent)) == []
    assert "begun" in server.log(1, 10)


@pytest.mark.parametrize("signals", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT,)])
def test_second_signal_ends_the_running_tasks(
    signals: tuple[int, ...], server: Server, agent: Agent
) -> None:
    server.order(1, 10, commands={"plan": "echo begun; sleep 300"})
    server.wait(lambda: "begun" in server.log(1, 10))
    for number, sent in enumerate(signals):
        agent.process.send_signal(sent)
        if number == 0:
            wait_until(lambda: "ends when its tasks have ended" in agent.log)
    assert agent.process.wait(20) == 0
    assert {"claim": 1, "generation": 10, "step": "plan", "status": "lost"} in server.hellos[-1][
        "runs"
    ]  # not cancelled: no cancellation was ordered
    assert (1, 10) not in server.results and server.goodbyes == 1
    assert list_marked(mark(agent)) == []


def test_agent_exits_when_the_server_stays_away_and_no_task_runs(
    server: Server, start_agent: Callable[..., Agent]
) -> None:
    agent = start_agent("--exit-when-away", "3")
    server.order(1, 10, commands={"plan": "echo begun; sleep 6; echo done"})
    server.wait(lambda: "begun" in server.log(1, 10))
    server.hooks[""] = lambda exchange: exchange.answer(503)
    assert agent.process.wait(120) == 0
    assert '"phase": "finished"' in (agent.state / "runs" / "1-10.json").read_text(), (
        "its task came to its end first"
    )
    server.hooks.clear()
    agent.start()
    assert server.result(1, 10)["outcome"] == "planned"
    assert server.log(1, 10).endswith("done\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("call", ["tasks/1/10/", "tasks/1/10/started/"])
def test_agent_told_to_end_gives_up_a_task_that_cannot_begin(
    call: str, number: int, server: Server, agent: Agent
) -> None:
    server.hooks[call] = lambda exchange: exchange.answer(503)
    server.order(1, 10, commands={"plan": f"echo ran >> {agent.folder}/proof"})
    wait_until(lambda: "cannot begin yet" in agent.log)
    assert agent.end(number) == 0
    assert not (agent.folder / "proof").exists()
    assert {"claim": 1, "generation": 10, "step": "plan", "status": "not_started"} in server.hellos[
        -1
    ]["runs"]


def test_agent_ended_during_an_outage_reports_at_its_next_start(
    server: Server, agent: Agent
) -> None:
    server.hooks["tasks/1/10/started/"] = lambda exchange: exchange.answer(503)
    server.order(1, 10)
    wait_until(lambda: "cannot begin yet" in agent.log)
    server.hooks[""] = lambda exchange: exchange.answer(503)
    assert agent.end() == 0
    server.hooks.clear()
    agent.start()
    assert server.result(1, 10)["outcome"] == "planned", (
        "nothing of it had run, and its order still stands"
    )


def test_unreported_result_does_not_keep_the_agent_running(
    server: Server, start_agent: Callable[..., Agent]
) -> None:
    agent = start_agent("--exit-when-away", "1")
    server.hooks["tasks/1/10/result/"] = lambda exchange: exchange.answer(503)
    server.order(1, 10)
    server.wait(lambda: ("POST", "tasks/1/10/result/") in server.calls)
    server.hooks[""] = lambda exchange: exchange.answer(503)
    assert agent.process.wait(20) == 0
    server.hooks.clear()
    agent.start()
    assert server.result(1, 10)["outcome"] == "planned"


def test_process_1_of_a_container_reaps_orphans_of_tasks() -> None:
    child = subprocess.Popen(["true"])
    waited = subprocess.Popen(["true"])
    wait_until(lambda: {child.pid, waited.pid} <= collect_orphans({waited.pid}, set()))
    dead = collect_orphans({waited.pid}, set())
    collect_orphans({waited.pid}, dead)
    assert child.pid not in collect_orphans({waited.pid}, set())
    assert waited.wait(5) == 0
    child.returncode = 0  # collected


def test_agent_exits_when_its_token_is_refused_for_long(
    server: Server, start_agent: Callable[..., Agent]
) -> None:
    agent = start_agent("--give-up", "0.5")
    server.wait(lambda: server.hellos)
    server.token = "another"
    assert agent.process.wait(30) == 3
    assert "refused this agent's token for too long" in agent.log


IMPATIENT = """
import sys
from slots.agent import loop, poller
from slots.agent.cli import main
loop.REFUSED_LONG, poller.SLOW = 1.0, 1.0
sys.exit(main(sys.argv[1:]))
"""


def test_agent_whose_token_is_refused_for_long_ends_its_tasks(
    server: Server, start_agent: Callable[..., Agent]
) -> None:
    """The server has called them lost and may plan elsewhere. What became of them is told once
    it listens again.
    """
    agent = start_agent(program=(sys.executable, "-c", IMPATIENT))
    server.order(1, 10, commands={"plan": "echo begun; sleep 300"})
    server.wait(lambda: "begun" in server.log(1, 10))
    server.token = "another"
    wait_until(lambda: list_marked(mark(agent)) == [])
    assert agent.process.poll() is None
    server.token = TOKEN
    server.wait(
        lambda: (
            {"claim": 1, "generation": 10, "step": "plan", "status": "lost"}
            in server.hellos[-1]["runs"]
        )
    )
    assert (1, 10) not in server.results


def test_rotated_token_is_read_again(server: Server, agent: Agent) -> None:
    server.wait(lambda: server.hellos)
    agent.token.write_text("berthm_7_another-secret")
    server.token = "berthm_7_another-secret"
    server.order(1, 10)
    assert server.result(1, 10)["outcome"] == "planned"
