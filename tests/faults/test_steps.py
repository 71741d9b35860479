"""Kills at steps: each process is killed in each step, and a performer in its own. No stack
starts.
"""

import os
import random
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.faults.campaign import site as sites
from tests.faults.campaign import steps
from tests.faults.campaign.runner import ENOUGH, Runner
from tests.faults.campaign.scenario import FEWER_ROUNDS, KNOWN, QUICK, NotInjectedError
from tests.faults.campaign.scenarios import load_all
from tests.faults.campaign.scenarios.clocks import READERS, SILENT, ClockOff, count_faults
from tests.faults.campaign.scenarios.kills_scaling import KillAtScaleOut
from tests.faults.campaign.scenarios.kills_tasks import KillAtApprove, KillTofu
from tests.faults.campaign.site import Site
from tests.faults.campaign.state import Round, State
from tests.faults.campaign.steps import StepScenario
from tests.faults.traps import Trap
from tests.faults.victims import AGENT, ALL, list_owners

load_all()
KILLS = [kind for kind in KNOWN.values() if issubclass(kind, StepScenario)]
SEED = 7


@pytest.mark.parametrize("kind", KILLS, ids=lambda kind: str(kind.name))
def test_each_process_dies_in_each_step_and_a_performer_after_its_own(
    kind: type[StepScenario],
) -> None:
    assert set(ALL) <= set(kind.victims)
    pairs = kind.list_pairs()
    inside = {f"{trap.name}/{name}" for trap, name in product(kind.traps, kind.victims)}
    after = {f"after {trap.name}/{name}" for trap in kind.traps for name in trap.performers}
    assert Counter(pairs) == Counter(inside | after)
    assert all(trap.performers for trap in kind.traps)
    made = kind(Path(), SEED)
    for turn in range(2):
        numbers = range(turn * len(pairs), (turn + 1) * len(pairs))
        picked = [str(made.pick_pair(number)) for number in numbers]
        assert sorted(picked) == sorted(pairs)
        assert picked == [str(kind(Path(), SEED).pick_pair(number)) for number in numbers]


@pytest.mark.parametrize("kind", KILLS, ids=lambda kind: str(kind.name))
def test_no_process_dies_in_three_rounds_in_a_row(kind: type[StepScenario]) -> None:
    made = kind(Path(), SEED)
    inside = len(kind.traps) * len(kind.victims)
    victims = [made.pick_pair(number).victim for number in range(inside)]
    assert all(len(set(victims[at : at + 3])) > 1 for at in range(inside - 2))


def test_scenario_has_a_round_for_each_pair(tmp_path: Path) -> None:
    state = State(tmp_path)
    for number in range(ENOUGH):
        state.write_round(Round(KillTofu.name, number, SEED, "fault", 1, 0.5, QUICK))
    goal = Runner(state, SEED).goal(KillTofu)
    assert goal == len(KillTofu.list_pairs()) > FEWER_ROUNDS


# -- the kill itself -------------------------------------------------------------------------------
def make_scenario(kind: type[StepScenario], *standing: str) -> tuple[StepScenario, list[str]]:
    """A scenario whose trap holds these processes, and what is done to it."""
    done: list[str] = []

    @contextmanager
    def trapped(step: str, victim: str, provoke: Callable[[], Any]) -> Iterator[Any]:
        done.append(f"close {step} for {victim}")
        yield set(standing), lambda: done.append("open")
        done.append("end")

    made = kind(Path(), SEED)
    made.site = cast(Site, SimpleNamespace(trapped=trapped, stack=None))
    return made, done


def find_round(made: StepScenario, pair: str) -> int:
    return next(n for n in range(200) if str(made.pick_pair(n)) == pair)


@pytest.mark.parametrize(
    ("pair", "calls", "fault"),
    [
        ("ready/worker", ["kill worker", "end"], "kill -9 of worker in its ready"),
        ("ready/web", ["kill web", "end"], "kill -9 of web in the ready of worker"),
        ("after ready/worker", ["open", "kill worker", "end"], "ms after its ready"),
    ],
)
def test_victim_dies_inside_of_the_step_or_after_its_own(
    monkeypatch: pytest.MonkeyPatch, pair: str, calls: list[str], fault: str
) -> None:
    made, done = make_scenario(KillAtScaleOut, "worker")
    monkeypatch.setattr(
        steps, "kill", lambda stack, victim, chance: (done.append(f"kill {victim}"), victim)[1]
    )
    strike = made.strike(random.Random(1), find_round(made, pair))
    victim = pair.rpartition("/")[2]
    assert (strike.pair, done) == (pair, [f"close ready for {victim}", *calls])
    assert strike.fault.endswith(fault)


def test_kill_of_an_agent_where_none_runs_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = make_scenario(KillAtApprove, "web")
    monkeypatch.setattr(steps, "list_agents", lambda stack: [])
    with pytest.raises(NotInjectedError, match="no agent runs"):
        made.strike(random.Random(1), find_round(made, f"approve/{AGENT}"))


# -- the trap --------------------------------------------------------------------------------------
def make_site(monkeypatch: pytest.MonkeyPatch, *looks: set[str]) -> tuple[Site, list[str]]:
    """A site in whose trap these processes stand, look by look, and what is done to the trap."""
    done: list[str] = []
    coming = iter(looks)
    site = Site.__new__(Site)  # without the start of a stack
    site.traps = [Trap("bind", "slots_slot", "AFTER UPDATE", performers=("web", "allocate"))]
    connection = SimpleNamespace(cursor=lambda: None, close=lambda: done.append("end"))
    site.stack = cast(Any, SimpleNamespace(connect=lambda: connection))
    monkeypatch.setattr(sites, "close_trap", lambda cursor, number: done.append("close"))
    monkeypatch.setattr(sites, "open_trap", lambda cursor, number: done.append("open"))
    monkeypatch.setattr(sites, "list_clients", lambda cursor, number: [1])
    monkeypatch.setattr(sites, "list_owners", lambda stack, ports: next(coming, set()))
    monkeypatch.setattr(sites, "TRAPPED_WITHIN", 0.05)
    return site, done


def test_trap_waits_for_the_performer_and_lets_others_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sites, "OTHERS_FOR", 0.0)
    site, done = make_site(monkeypatch, {"web"}, {"web"}, {"allocate", "web"})
    with site.trapped("bind", "allocate") as (standing, _):
        assert standing == {"allocate", "web"}
    assert done == ["close", "open", "close", "end"]


def test_trap_takes_any_process_for_a_victim_that_does_not_perform_the_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site, _ = make_site(monkeypatch, set(), {"web"})
    with site.trapped("bind", "relay") as (standing, _):
        assert standing == {"web"}


def test_step_of_another_process_is_no_step_of_the_performer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site, done = make_site(monkeypatch, {"web"})
    with pytest.raises(NotInjectedError, match="allocate does not come"):
        with site.trapped("bind", "allocate"):
            pass
    assert done[-1] == "end"


def test_process_is_known_by_the_port_of_its_connection() -> None:
    me = {os.getpid(): "python manage.py scale"}
    stack = cast(Any, SimpleNamespace(list_processes=lambda: me))
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client:
            port = client.getsockname()[1]
            assert list_owners(stack, [port]) == {"scale"}
            assert list_owners(stack, []) == set()
        assert list_owners(stack, [port]) == set()


# -- clocks ----------------------------------------------------------------------------------------
def test_wrong_clock_that_no_process_reads_is_no_fault() -> None:
    assert [count_faults(name, 0) for name in SILENT] == [0] * len(SILENT)
    assert [count_faults(name, 3) for name in (*SILENT, *READERS)] == [1] * 7
    for name in READERS:
        with pytest.raises(NotInjectedError, match="did not read its wrong clock"):
            count_faults(name, 0)


def test_processes_that_rarely_read_their_clock_have_one_round_each() -> None:
    made = ClockOff(Path(), SEED)
    first = len(SILENT)
    assert [made.choose_process(number) for number in range(first)] == list(SILENT)
    later = Counter(made.choose_process(number) for number in range(first, first + 30))
    assert later == dict.fromkeys(READERS, 10)
