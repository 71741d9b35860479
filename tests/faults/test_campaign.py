"""The campaign of faults itself: its registry, its runner and its state file. No stack starts."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from tests.faults.campaign import __main__ as command
from tests.faults.campaign.report import PAGE
from tests.faults.campaign.runner import ENOUGH, Runner
from tests.faults.campaign.scenario import (
    FAKE,
    FEWER_ROUNDS,
    KNOWN,
    MOST_ROUNDS,
    NotInjectedError,
    Outcome,
    Scenario,
)
from tests.faults.campaign.scenarios import cluster, load_all
from tests.faults.campaign.scenarios.ports import HELD, AwsPorts
from tests.faults.campaign.state import LOGS, Round, State
from tests.pools.providers.aws.harness import put_balancer, put_foreign_listener

SEED = 7


class Drill(Scenario):
    """A scenario without a stack."""

    name = "drill"
    breaks = "nothing at all"
    done: ClassVar[list[tuple[int, float]]] = []
    findings: ClassVar[list[str]] = []
    fails: ClassVar[list[BaseException]] = []
    fails_at: ClassVar[int] = 0  # first round that raises one of `fails`

    def prepare(self) -> None:
        self.done.clear()

    def round(self, chance: random.Random, number: int) -> Outcome:
        if self.fails and number >= self.fails_at:
            raise self.fails.pop()
        self.done.append((number, chance.random()))
        return Outcome(f"fault {number}", 0.5, findings=list(self.findings))

    def verify(self) -> list[str]:
        return []

    def close(self) -> None:
        pass


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Drill.findings.clear()
    Drill.fails.clear()
    Drill.fails_at = 0


def run(state: State, most: int = 3, **more: int) -> None:
    Runner(state, SEED, most=most, say=lambda text: None, **more).run([Drill])


def test_registry_has_25_scenarios_and_the_page_names_each() -> None:
    load_all()
    assert len(KNOWN) >= 25
    page = PAGE.read_text()
    assert [name for name in KNOWN if f"`{name}`" not in page] == []


def test_resumed_campaign_skips_finished_rounds(state: State, tmp_path: Path) -> None:
    run(state, 3)
    first = list(Drill.done)
    assert [number for number, _ in first] == [0, 1, 2]
    with state.file.open("a") as file:
        file.write('{"kind": "round", "values": {"scena')  # as a kill leaves it
    again = State(tmp_path)
    run(again, 5)
    assert [number for number, _ in Drill.done] == [3, 4]
    assert len(State(tmp_path).rounds) == 5
    run(State(tmp_path), 5)
    assert len(State(tmp_path).rounds) == 5


def test_round_repeats_with_its_seed(state: State) -> None:
    run(state, 3)
    first = dict(Drill.done)
    run(state, 3, only=1)
    assert Drill.done == [(1, first[1])]


@pytest.mark.parametrize(("seconds", "rounds"), [(4.9, MOST_ROUNDS), (5.0, FEWER_ROUNDS)])
def test_number_of_rounds_follows_from_the_median(
    state: State, seconds: float, rounds: int
) -> None:
    runner = Runner(state, SEED)
    assert runner.goal(Drill) == ENOUGH
    for number in range(ENOUGH):
        state.write_round(Round("drill", number, SEED, "fault", 1, 0.5, seconds))
    assert runner.goal(Drill) == rounds


@pytest.mark.parametrize("findings", [[], ["slot 3 has two holders"]])
def test_finding_makes_the_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, findings: list[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(command, "read_commit", lambda: "abc")
    monkeypatch.setattr("sys.argv", ["make faults", "drill", "--rounds", "2", "--seed", "7"])
    monkeypatch.setitem(KNOWN, "drill", Drill)
    Drill.findings += findings
    assert command.run(command.read_arguments()) == len(findings)
    state = State(tmp_path / "berth" / "faults" / "abc")
    assert (len(state.rounds), state.facts["seed"]) == (2, 7)
    assert all(done.load is not None for done in state.rounds)
    assert state.findings_of("drill") == [
        (f"round {number}, seed 7: fault {number}", text) for number in (0, 1) for text in findings
    ]


def test_round_without_an_effect_is_repeated_and_then_a_finding(state: State) -> None:
    Drill.fails.append(NotInjectedError("nobody came"))
    run(state, 1)
    assert state.count_findings() == 0
    Drill.fails += [NotInjectedError("nobody came")] * 3
    run(state, 2)
    assert "nobody came" in state.findings_of("drill")[0][1]


def test_exception_of_a_round_is_a_finding_and_another_stack_runs_the_rest(state: State) -> None:
    Drill.fails.append(ValueError("broken"))
    run(state, 3)
    assert [done.number for done in state.rounds] == [0, 1, 2]
    assert [done.rounds for done in state.verifications] == [1, 2]
    assert "broken" in state.findings_of("drill")[0][1]
    assert state.count_findings() == 1


def test_finding_keeps_its_cause_before_long_logs(state: State) -> None:
    Drill.fails.append(AssertionError("no claim was served\n" + "a line of a log\n" * 10_000))
    run(state, 1)
    assert "AssertionError: no claim was served" in state.findings_of("drill")[0][1]


def test_scenario_that_cannot_start_is_a_finding(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Drill) -> None:
        raise ValueError(f"no port\n{'a line of a log' * 10_000}")

    monkeypatch.setattr(Drill, "prepare", fail)
    run(state, 3)
    assert (state.rounds, state.count_findings()) == ([], 1)
    assert "the scenario failed: ValueError: no port" in state.verifications[0].findings[0]


@pytest.mark.parametrize("server", ["kube-apiserver", FAKE])
def test_campaign_warns_of_a_fake_api_server_at_its_begin_and_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], server: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["make faults", "drill", "--rounds", "1", "--name", "mine"])
    monkeypatch.setitem(KNOWN, "drill", Drill)
    monkeypatch.setattr(Drill, "prepare", lambda self: setattr(self, "api_server", server))
    command.run(command.read_arguments())
    state = State(tmp_path / "berth" / "faults" / "mine")
    assert [done.api_server for done in state.rounds] == [server]
    said = capsys.readouterr()
    for text, output in [
        ("WARNING drill: FakeKube serves", said.out),
        ("WARNING FakeKube served drill, not a real API server.", said.err),
    ]:
        assert (text in output) == (server == FAKE)


@pytest.mark.parametrize(("programs", "server"), [(Path("/built"), "kube-apiserver"), (None, FAKE)])
def test_scenario_of_the_kubernetes_api_knows_which_server_serves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, programs: Path | None, server: str
) -> None:
    nothing = lambda *given, **more: SimpleNamespace(  # noqa: E731
        __enter__=list, __exit__=list, close=list
    )
    for name in ("RealKube", "FakeKube", "Standing", "Counting"):
        monkeypatch.setattr(cluster, name, nothing)
    monkeypatch.setattr(cluster, "find_programs", lambda: programs)
    made, later = cluster.Api403(tmp_path, SEED), cluster.Api409(tmp_path, SEED)
    try:
        made.prepare()
        assert later.adopt(made)
        assert (made.api_server, later.api_server) == (server, server)
    finally:
        made.close()


def test_rounds_that_ctrl_c_left_without_an_audit_are_known(state: State, tmp_path: Path) -> None:
    run(state, 2)
    Drill.fails.append(KeyboardInterrupt())
    Drill.fails_at = 4
    with pytest.raises(KeyboardInterrupt):
        run(state, 6)
    assert State(tmp_path).unaudited_rounds_of("drill") == [2, 3]
    run(state, 6)
    assert State(tmp_path).unaudited_rounds_of("drill") == [2, 3]
    for number in (2, 3):
        run(state, only=number)
    assert State(tmp_path).unaudited_rounds_of("drill") == []


def test_logs_of_a_round_with_a_finding_are_kept_whole(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = "a line of a log\n" * 10_000
    monkeypatch.setattr(Drill, "read_logs", lambda self: log)
    run(state, 1)
    Drill.findings.append("slot 3 has two holders")
    run(state, 2)
    logs = state.file.parent / LOGS
    assert [file.name for file in logs.iterdir()] == ["drill-1.log"]
    assert (logs / "drill-1.log").read_text() == log


def test_campaign_does_not_go_on_with_another_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["make faults", "drill", "--rounds", "2", "--name", "mine"])
    monkeypatch.setitem(KNOWN, "drill", Drill)
    codes = []
    for commit in ("abc", "def"):
        monkeypatch.setattr(command, "read_commit", lambda: commit)  # noqa: B023
        codes.append(command.run(command.read_arguments()))
    assert codes == [0, 2]
    assert "has rounds of commit abc, so it cannot go on with def. Choose another NAME." in (
        capsys.readouterr().err
    )
    assert len(State(tmp_path / "berth" / "faults" / "mine").rounds) == 2


def test_audit_of_ports_names_each_difference_between_cloud_and_rows(tmp_path: Path) -> None:
    round_of = AwsPorts(tmp_path, 1)
    held: list[tuple[object, ...]] = []
    execute = lambda query: held if query == HELD else []  # noqa: E731
    round_of.site = cast(Any, SimpleNamespace(stack=SimpleNamespace(execute=execute)))
    with round_of.serve():
        cloud = round_of.outside.cloud
        balancer = put_balancer(cloud, "ours", **{"berth-pool": "1"})
        round_of.foreign = round_of.outside.foreign()
        assert round_of.compare() == [f"{balancer} belongs to no member"]
        put_foreign_listener(cloud, balancer, 31000, **{"berth-pool": "1"})
        held += [(balancer, "port", 31001, "10.0.0.1", 80)]
        put_foreign_listener(cloud, round_of.outside.users_id, 80)
        assert set(round_of.compare()) >= {
            f"no listener at {(balancer, 'port', 31001)}",
            f"a listener of no claim at {(balancer, 'port', 31000)}",
            f"{balancer} belongs to no member",
            "an object of another program was changed",
        }
        held[:] = [(balancer, "port", 31000, "10.0.0.1", 80)]
        assert f"{(balancer, 'port', 31000)} leads to () instead of ('10.0.0.1:80',)" in (
            round_of.compare()
        )
