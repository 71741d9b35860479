"""The sample with real agents: it plans, applies, queues, and leaves plans to the visitor."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pools.providers.local import agent_folder
from project.kernel.embedded import detached
from project.kernel.embedded.process import free_port
from project.sample.scenario import HARBOUR, VISITORS
from tests.end_to_end.stack import Stack, wait_gone
from tests.waiting import load, wait_until

WITHIN = 60.0  # seconds: the first minute counts


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    home = tmp_path_factory.mktemp("home")
    home.chmod(0o700)
    stack = Stack(home / "state", free_port(), BERTH_SAMPLE="1").start(120)
    yield stack
    assert stack.process is not None
    if stack.process.poll() is None:
        stack.manage("sample", "remove")
        stack.stop()
    for folder in (stack.home / agent_folder.FOLDER).glob("*"):
        agent_folder.remove(folder)


def wait_for(stack: Stack, query: str, least: int = 1) -> int:
    rows = stack.wait_rows(query, lambda rows: int(rows[0][0]) >= least, WITHIN)
    return int(rows[0][0])


def agents(stack: Stack) -> list[int]:
    found = [detached.read(folder) for folder in (stack.home / agent_folder.FOLDER).glob("*")]
    return [process.pid for process in found if process is not None and detached.is_alive(process)]


def wait_for_agents(stack: Stack, count: int) -> list[int]:
    """After a start: members are ready by what was known before, until their agents are
    there again.
    """

    def started() -> list[int] | None:
        return found if len(found := agents(stack)) == count else None

    return wait_until(started, lambda: stack.heard[-3000:], patience=WITHIN)


def reserved(stack: Stack) -> set[Any]:
    return set(stack.execute("select id, generation from claims_claim where state = 'reserved'"))


def pages_of(stack: Stack) -> Path:
    query = f"select spec #>> '{{task,env,HELLO_TARGET}}' from pools_pool where name = '{HARBOUR}'"
    return Path(stack.execute(query)[0][0])


def test_a_task_is_applied_and_writes_a_page(stack: Stack) -> None:
    wait_for(stack, "select count(*) from claims_claim where outcome = 'applied'")
    assert list(pages_of(stack).glob("*/index.html"))
    assert stack.execute("select distinct by_user from claims_approval") == [("ben",)]


def test_some_plans_are_left_for_the_visitor_to_approve(stack: Stack) -> None:
    wait_for(stack, "select count(*) from claims_claim where state = 'reserved'", VISITORS)


def test_a_queue_forms_with_a_reason_to_wait(stack: Stack) -> None:
    because = "select id from claims_shape where wait_reason is not null"
    wait_for(
        stack,
        f"select count(*) from claims_claim where state = 'waiting' and shape_id in ({because})",
    )


def test_no_run_fails_and_the_api_refuses_no_request(stack: Stack) -> None:
    failed = "select code, reason from claims_run where outcome = 'failed'"
    assert stack.execute(failed) == []
    assert "refuses" not in stack.heard


def test_ctrl_c_stops_every_agent_and_a_restart_keeps_reservations(stack: Stack) -> None:
    before, running = reserved(stack), [*stack.list_processes(), *agents(stack)]
    assert before
    assert stack.stop() < 5
    # A task of the sample takes seconds. Then its agent tries for 5 s each to send log and result.
    assert wait_gone(running, 30 * load()) == []
    stack.start(120)
    wait_for(
        stack,
        (
            "select count(*) from pools_member m join pools_pool p on p.id = m.pool_id where "
            f"p.name = '{HARBOUR}' and m.state = 'ready'"
        ),
        2,
    )
    decided = {
        (row[0], row[1])
        for row in stack.execute(
            "select id, generation from claims_claim where approved_plan_id is not null or "
            "outcome = 'rejected'"
        )
    }
    still = {number for number, _ in reserved(stack)}
    assert {number for number, _ in before} - still <= {number for number, _ in decided}
    assert stack.execute(
        "select count(*) from claims_claim where outcome in ('lost', 'failed')"
    ) == [(0,)]


def test_removing_the_sample_stops_its_agents(stack: Stack) -> None:
    running, pages = wait_for_agents(stack, 2), pages_of(stack)
    assert stack.manage("sample", "remove").returncode == 0
    wait_for(stack, f"select count(*) from pools_pool where name = '{HARBOUR}' and state = 'gone'")
    assert wait_gone(running, 5) == []
    assert list((stack.home / agent_folder.FOLDER).glob("*")) == []
    assert not pages.parent.exists()
