"""The sample with real agents: it plans, applies, queues, and leaves plans to the visitor."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pools.providers.forwarder import forwarder_folder
from pools.providers.forwarder.control_client import ask
from pools.providers.local import agent_folder
from project.kernel.embedded import detached
from project.kernel.embedded.process import free_port
from project.sample.client import SampleClient
from project.sample.driver import RELEASER_FILE, TOKEN_FILE
from project.sample.rollouts import Rollouts
from project.sample.scenario import ARCADE, BY_POOL, HARBOUR, RUNNERS, VISITORS
from tests.end_to_end.stack import Stack, wait_gone
from tests.sample.visitor import CONTENT, visit
from tests.waiting import slack, wait_until

POOLS = (ARCADE, "device-ports", "env-test", HARBOUR, RUNNERS)
# Outdated runners with a claim.
OCCUPIED = f"""
SELECT m.id, m.incarnation FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id
WHERE p.name = '{RUNNERS}' AND m.state = 'ready' AND m.spec_digest <> p.member_digest
  AND EXISTS (SELECT FROM slots_slot s WHERE s.member_id = m.id AND s.state = 'held') ORDER BY 1
"""
# Runners with the labels of the present configuration.
RENEWED = f"""
SELECT count(*) FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id
WHERE p.name = '{RUNNERS}' AND m.state = 'ready' AND m.spec_digest = p.member_digest
  AND m.labels = p.spec #> '{{members,labels}}'
"""
# A pool of forwarders that is not the sample's.
DOORS = """
kind: Pool
name: doors
provider: forwarder
slots: {ports: "20000-20001", protocols: [tcp]}
members: {list: [{name: gate-1}]}
"""
# Seconds of each wait on an idle machine; a busy one gets up to twice as long.
WITHIN = 60.0
SOON = 120.0  # for scaling, which follows the demand


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
    for folder in (stack.home / forwarder_folder.FOLDER).glob("*.*/"):
        forwarder_folder.remove(folder)


def wait_for(stack: Stack, query: str, least: int = 1, within: float = WITHIN) -> int:
    rows = stack.wait_rows(query, lambda rows: int(rows[0][0]) >= least, within=within)
    return int(rows[0][0])


def agents(stack: Stack) -> list[int]:
    found = [detached.read(folder) for folder in (stack.home / agent_folder.FOLDER).glob("*")]
    return [process.pid for process in found if process is not None and detached.is_alive(process)]


def client_of(stack: Stack, file: str) -> SampleClient:
    return SampleClient(f"http://127.0.0.1:{stack.port}/", (stack.home / file).read_text().strip())


@contextmanager
def driver_stopped(stack: Stack) -> Iterator[None]:
    """The driver neither creates nor releases a claim."""
    driver = stack.pid_of("project.sample.driver")
    os.kill(driver, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(driver, signal.SIGCONT)


def end_claims(stack: Stack, state: str, *, member: int = 0, pool: str = RUNNERS) -> None:
    """Cancels the waiting claims of the pool, or releases the bound ones, of one member."""
    rows = stack.execute(
        "select distinct c.id, c.generation from claims_claim c join pools_pool p on p.id = "
        "c.pool_id left join slots_slot s on s.claim_id = c.id where "
        f"p.name = '{pool}' and c.state = '{state}' and {member} in (0, s.member_id)"
    )
    verb = "release" if state == "bound" else "cancel"
    with closing(client_of(stack, TOKEN_FILE)) as client:
        for claim, generation in rows:
            body = {"generation": generation} if verb == "release" else {}
            client.call("POST", f"claims/{claim}/{verb}/", body)


def wait_for_agents(stack: Stack, least: int) -> list[int]:
    """After a start: members are ready by what was known before, until their agents are
    there again.
    """

    def started() -> list[int] | None:
        return found if len(found := agents(stack)) >= least else None

    return wait_until(started, lambda: stack.heard[-3000:], patience=WITHIN)


def forwarder_of(stack: Stack, pool: str) -> Path:
    """The folder of the forwarder of a pool with one member."""
    return next((stack.home / forwarder_folder.FOLDER).glob(f"{pool}-*.*/"))


def pid_of_forwarder(stack: Stack, pool: str) -> int:
    """0: none runs."""
    process = detached.read(forwarder_of(stack, pool))
    return process.pid if process is not None and detached.is_alive(process) else 0


def reserved(stack: Stack) -> set[Any]:
    return set(stack.execute("select id, generation from claims_claim where state = 'reserved'"))


def pages_of(stack: Stack) -> Path:
    query = f"select spec #>> '{{task,env,HELLO_TARGET}}' from pools_pool where name = '{HARBOUR}'"
    return Path(stack.execute(query)[0][0])


def test_every_page_shows_content_soon_after_the_start(stack: Stack) -> None:
    with visit(stack) as visitor:
        pages = visitor.list_pages(POOLS)
        assert [
            page for page in CONTENT if not any(re.fullmatch(page, path) for path in pages)
        ] == []
        empty = list(pages)

        def is_full() -> bool:
            empty[:] = [path for path in empty if not visitor.has_content(path)]
            return not empty

        wait_until(is_full, lambda: f"empty: {empty}", within=SOON, pause=1.0)


def test_a_task_is_applied_and_writes_a_page(stack: Stack) -> None:
    wait_for(stack, "select count(*) from claims_claim where outcome = 'applied'")
    assert list(pages_of(stack).glob("*/index.html"))
    assert stack.execute("select distinct by_user from claims_approval") == [("ben",)]


def test_some_plans_are_left_for_the_visitor_to_approve(stack: Stack) -> None:
    wait_for(stack, "select count(*) from claims_claim where state = 'reserved'", VISITORS)


def wait_for_wave(stack: Stack, source: str, condition: str) -> None:
    """The rows of this table that belong to the runners, in the first wave of their demand."""
    query = (
        f"select count(*) from {source} x join pools_pool p on p.id = x.pool_id "
        f"where p.name = '{RUNNERS}' and {condition}"
    )
    wait_for(stack, query, within=BY_POOL[RUNNERS].period)


def test_runners_grow_roll_and_shrink_by_themselves(stack: Stack) -> None:
    """The test neither stops the driver nor changes the pool."""
    of_policy = "x.inputs->>'step' = ''"
    wait_for_wave(stack, "pools_decision", f"x.delta > 0 and {of_policy}")
    wait_for_wave(stack, "pools_decision", "x.inputs->>'verdict' = 'blocked'")
    rebuilt = "x.verb = 'restart' and x.reason like 'Roll: %is rebuilt in its place'"
    wait_for_wave(stack, "kernel_event", rebuilt)
    wait_for_wave(stack, "pools_decision", f"x.delta < 0 and {of_policy}")
    wait_for_wave(stack, "pools_member", "x.state = 'gone'")
    assert stack.execute(
        "select count(*) > 0, bool_and(actor = 'vera/driver') from kernel_event e "
        f"join pools_pool p on p.id = e.pool_id where p.name = '{RUNNERS}' and verb = 'configure'"
    ) == [(True, True)]


def count_ports(condition: str) -> str:
    return (
        "select count(*) from slots_slot s join pools_pool p on p.id = s.pool_id "
        f"where p.name = '{ARCADE}' and {condition}"
    )


def test_players_reach_their_rooms_through_the_ports_of_the_arcade(stack: Stack) -> None:
    for health in ("healthy", "unchecked"):
        wait_for(stack, count_ports(f"s.state = 'held' and observed->>'health' = '{health}'"))

    def served() -> set[str]:
        listeners = ask(forwarder_of(stack, ARCADE), {"do": "describe"})["listeners"]
        return {each["lane"] for each in listeners if each.get("bytes_out")}

    wait_until(lambda: served() == {"tcp", "udp"}, lambda: stack.heard[-3000:], patience=WITHIN)
    with driver_stopped(stack):  # its players stay
        end_claims(stack, "bound", pool=ARCADE)
        draining = count_ports("s.state = 'draining'")
        wait_for(stack, draining)
        wait_for(stack, f"select 1 - least(1, ({draining}))")


def test_a_queue_forms_with_a_reason_to_wait(stack: Stack) -> None:
    because = "select id from claims_shape where wait_reason is not null"
    wait_for(
        stack,
        f"select count(*) from claims_claim where state = 'waiting' and shape_id in ({because})",
    )


def wait_for_decision(stack: Stack, pool: str, condition: str) -> None:
    query = (
        "select count(*) from pools_decision d join pools_pool p on p.id = d.pool_id "
        f"where p.name = '{pool}' and {condition}"
    )
    wait_for(stack, query, within=SOON)


def test_the_pool_of_tasks_grows(stack: Stack) -> None:
    wait_for_decision(stack, HARBOUR, "delta > 0")


def occupy_runners(stack: Stack, count: int) -> None:
    """Each claim takes all slots of a member."""
    build = {"kind": "build", "size": 2, "on_one_member": True}
    with closing(client_of(stack, TOKEN_FILE)) as client:
        for n in range(count):
            body = {"pools": [RUNNERS], "owner": f"build:own-{n}", **build}
            claim = client.call("POST", "claims/", body, f"own-{n}").body["id"]
            query = f"select generation from claims_claim where id = {claim} and state = 'bound'"
            [(generation,)] = stack.wait_rows(query, bool, within=SOON)
            path = f"claims/{claim}/acknowledge/"
            assert client.call("POST", path, {"generation": generation}).is_success


def test_a_rollout_renews_idle_runners_and_leaves_occupied_ones(stack: Stack) -> None:
    with driver_stopped(stack), closing(client_of(stack, RELEASER_FILE)) as vera:
        end_claims(stack, "waiting")
        end_claims(stack, "bound")
        occupy_runners(stack, 2)
        Rollouts(vera, lambda seconds, call: None).change()
        idle, *occupied = stack.execute(OCCUPIED)
        assert occupied
        end_claims(stack, "bound", member=idle[0])
        wait_for(stack, RENEWED, within=SOON)
        assert set(occupied) <= set(stack.execute(OCCUPIED))
        end_claims(stack, "bound")


def test_no_run_fails_and_the_api_refuses_no_request(stack: Stack) -> None:
    failed = "select code, reason from claims_run where outcome = 'failed'"
    assert stack.execute(failed) == []
    assert "rejects" not in stack.heard


def test_ctrl_c_stops_every_agent_and_a_restart_keeps_reservations(stack: Stack) -> None:
    (stack.home / "doors.yaml").write_text(DOORS)
    assert stack.manage("apply", "-f", str(stack.home / "doors.yaml")).returncode == 0
    wait_for(stack, "select count(*) from pools_member where name = 'gate-1' and state = 'ready'")
    before, doors = reserved(stack), pid_of_forwarder(stack, "doors")
    running = [*stack.list_processes(), *agents(stack), pid_of_forwarder(stack, ARCADE)]
    assert before and doors and all(running)
    running = [pid for pid in running if pid != doors]
    assert stack.stop() < 5
    assert pid_of_forwarder(stack, "doors") == doors, "its pool does not end it with Berth"
    assert not pid_of_forwarder(stack, ARCADE)
    # A task of the sample takes seconds. Then its agent tries for 5 s each to send log and result.
    assert wait_gone(running, 30 * slack()) == []
    stack.start(120)
    wait_for(
        stack,
        (
            "select count(*) from pools_member m join pools_pool p on p.id = m.pool_id where "
            f"p.name = '{HARBOUR}' and m.state = 'ready'"
        ),
        2,
    )
    assert pid_of_forwarder(stack, "doors") == doors
    wait_until(lambda: pid_of_forwarder(stack, ARCADE), lambda: stack.heard[-3000:])
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
    running, pages = wait_for_agents(stack, 2 + 1), pages_of(stack)
    running.append(pid_of_forwarder(stack, ARCADE))
    folder = forwarder_of(stack, ARCADE)
    assert stack.manage("sample", "remove").returncode == 0
    names = f"'{ARCADE}', '{HARBOUR}', '{RUNNERS}'"
    wait_for(
        stack, f"select count(*) from pools_pool where name in ({names}) and state = 'gone'", 3
    )
    assert wait_gone(running, 5) == []
    assert list((stack.home / agent_folder.FOLDER).glob("*")) == []
    assert not pages.parent.exists() and not folder.exists()
