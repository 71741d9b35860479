"""What a reaper does after its agent has died."""

from collections.abc import Callable

import pytest

from slots.agent.processes.process_table import list_marked
from slots.agent.processes.reaper import leave_out_rest
from tests.slots.agent.conftest import Agent
from tests.slots.agent.fake_berth import Server
from tests.waiting import wait_until

from .test_kills import mark

SECRET = "correct-horse-battery"


def test_log_of_an_orphaned_task_continues_and_masks_secrets(server: Server, agent: Agent) -> None:
    command = (
        "trap 'echo interrupted; echo password: $DB_PASSWORD; exit 3' INT; echo begun; while :; do "
        "sleep 0.1; done"
    )
    server.order(1, 10, commands={"plan": command}, secrets={"DB_PASSWORD": SECRET})
    server.wait(lambda: "begun" in server.log(1, 10))
    agent.kill()
    wait_until(lambda: list_marked(mark(agent)) == [])
    agent.start()
    server.wait(lambda: "password: ***\n" in server.log(1, 10))
    assert "interrupted\n" in server.log(1, 10) and "the agent has died" in server.log(1, 10)
    assert SECRET not in server.log(1, 10)


def test_orphaned_program_that_ignores_its_interrupt_is_killed_in_time(
    server: Server, start_agent: Callable[..., Agent]
) -> None:
    agent = start_agent()
    command = "trap '' INT TERM; echo begun; while :; do sleep 0.1; done"
    server.order(1, 10, commands={"plan": command}, stop_timeout_s=0.5)
    server.wait(lambda: "begun" in server.log(1, 10))
    agent.kill()
    wait_until(lambda: list_marked(mark(agent)) == [])


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (b"horse-battery is it\nnext\n", b"next\n"),
        (b"attery\nnext\n", b"next\n"),
        (b"a line\nnext\n", b"a line\nnext\n"),
        (b"", b""),
    ],
)
def test_first_line_that_may_hold_the_rest_of_a_secret_is_dropped(said: bytes, kept: bytes) -> None:
    assert leave_out_rest(said, [SECRET.encode(), b"abc"]) == kept
