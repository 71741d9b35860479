"""The report of the campaign of faults: rows, findings, and what a lost state leaves."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.campaign import __main__ as command
from tests.faults.campaign import report, rows
from tests.faults.campaign.report import PAGE, SHOWN, write_report, write_row
from tests.faults.campaign.rows import (
    KEPT,
    MeasuredRow,
    make_row,
    merge_rows,
    name_numbers,
    read_rows,
    write_rows,
)
from tests.faults.campaign.scenario import FAKE, FEWER_ROUNDS, KNOWN, QUICK
from tests.faults.campaign.scenarios import load_all
from tests.faults.campaign.scenarios.cluster import Api403
from tests.faults.campaign.scenarios.kills_claims import KillAtBind
from tests.faults.campaign.scenarios.twins import FrozenControllers
from tests.faults.campaign.state import Round, State, Verification
from tests.suite.test_docs_are_short import MOST_WORDS

SEED = 7
BIND, FROZEN = KillAtBind.name, FrozenControllers.name
BOTH = {BIND: KillAtBind, FROZEN: FrozenControllers}
OLD = MeasuredRow(
    FROZEN, "0ld", "5", "4 cores", FEWER_ROUNDS, 114, (0.2, 5.3), 61.4, 21.9,
    findings=(("round 12", "no claim served"),),
)  # fmt: skip


@pytest.fixture
def state(tmp_path: Path) -> State:
    made = State(tmp_path)
    made.write_facts(seed=SEED, commit="abc", machine="2 cores")
    return made


def add_rounds(state: State, name: str, count: int, *findings: str) -> None:
    for number in range(count):
        state.write_round(Round(name, number, SEED, "fault", 1, 0.5, QUICK, list(findings)))
    state.write_verification(Verification(name, SEED, count, 2.5))


def add_kill(state: State, number: int, pair: str) -> None:
    state.write_round(Round(BIND, number, SEED, "fault", 1, 0.5, QUICK, pair=pair))


def report_of(kept: list[MeasuredRow], state: State) -> str:
    return write_report(merge_rows(kept, state, BOTH), BOTH, state.skipped)


def test_report_is_made_from_the_state_file(state: State, tmp_path: Path) -> None:
    add_rounds(state, BIND, 2, "slot 3 has two holders")
    state.write_skipped(FROZEN, "no compiler")
    text = report_of([], State(tmp_path))
    assert "- abc, seed 7: 0 minutes, 2 rounds, 2 faults, 2 findings." in text
    assert f"| `{BIND}` | {KillAtBind.breaks} | abc | 2/20 | 2 (0/11) | 0.5/0.5 |" in text
    assert f"- `{FROZEN}`: {FrozenControllers.breaks} (skipped: no compiler)" in text
    assert f"- `{BIND}`, commit abc, round 1, seed 7: fault: slot 3 has two holders" in text


def test_scenario_without_a_round_keeps_its_row_and_findings(state: State) -> None:
    add_rounds(state, BIND, 2)
    state.write_skipped(FROZEN, "no compiler")
    text = report_of([OLD], state)
    assert "- 0ld, seed 5: 22 minutes, 20 rounds, 114 faults, 1 findings." in text
    assert f"| `{FROZEN}` | {FrozenControllers.breaks} | 0ld | 20/20 | 114 | 0.2/5.3 |" in text
    assert f"- `{FROZEN}`, commit 0ld, round 12: no claim served" in text
    assert "Not run" not in text


@pytest.mark.parametrize(
    ("older", "newer", "left"),
    [
        (FEWER_ROUNDS, FEWER_ROUNDS - 1, ["abc", "0ld"]),
        (FEWER_ROUNDS, FEWER_ROUNDS, ["abc"]),
        (3, 3, ["abc"]),
        (FEWER_ROUNDS + 80, FEWER_ROUNDS, ["abc"]),  # both are finished
    ],
)
def test_older_row_stays_until_the_scenario_is_finished_or_has_as_many_rounds(
    state: State, older: int, newer: int, left: list[str]
) -> None:
    add_rounds(state, FROZEN, newer)
    merged = merge_rows([replace(OLD, rounds=older)], state, BOTH)
    assert [row.commit for row in merged] == left


def test_written_report_is_the_same_after_the_next_one(state: State) -> None:
    add_rounds(state, FROZEN, 3)
    merged = merge_rows([OLD], state, BOTH)
    assert merge_rows(merged, state, BOTH) == merged


def test_report_names_the_load_of_the_machine(state: State) -> None:
    for number, (name, load) in enumerate([(BIND, 3.0), (BIND, 8.0), (BIND, 4.0), (FROZEN, 22.6)]):
        state.write_round(Round(name, number, SEED, "fault", 1, 0.5, QUICK, load=load))
    assert "seed 7, load 4 to 23: 0 minutes, 4 rounds" in report_of([], state)
    assert "seed 5, load 9: 22 minutes, 20 rounds" in report_of([replace(OLD, load=9.2)], state)


def test_rows_return_from_their_file(state: State, tmp_path: Path) -> None:
    add_rounds(state, BIND, 2, "a finding\nof two lines")
    row = make_row(state, KillAtBind)
    assert row is not None
    made = [row, OLD, replace(OLD, again=None, pairs=(3, 27), api_server=FAKE)]
    write_rows(tmp_path / "rows", made)
    assert read_rows(tmp_path / "rows") == made
    assert len((tmp_path / "rows").read_text().splitlines()) == 3


def test_report_on_a_machine_without_the_state_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(rows, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(report, "PAGE", tmp_path / "page")
    monkeypatch.setattr("sys.argv", ["make faults", "--report"])
    load_all()
    write_rows(rows.KEPT, [OLD])
    assert command.run(command.read_arguments()) == 0
    assert read_rows(rows.KEPT) == [OLD]
    assert write_row(OLD, FrozenControllers) in report.PAGE.read_text()


def test_page_shows_the_begin_of_a_long_finding_and_the_row_keeps_all(state: State) -> None:
    text = "no claim was served: " + "a line of a log\n" * 100
    add_rounds(state, BIND, 1, text)
    row = make_row(state, KillAtBind)
    assert row is not None and row.findings[0][1] == text
    shown = report_of([], state).splitlines()[-1]
    assert "fault: no claim was served: a line of a log a line" in shown
    assert len(shown) < SHOWN + 100


def test_report_names_rounds_without_an_audit(state: State) -> None:
    add_rounds(state, BIND, 2)
    assert "without an audit" not in report_of([], state)
    state.write_round(Round(BIND, 2, SEED, "fault", 1, 0.5, QUICK))
    assert f"Rounds without an audit: `{BIND}` 2." in report_of([], state)


def test_row_counts_pairs_of_step_and_process_once(state: State) -> None:
    for number, pair in enumerate(["bind/web", "bind/web", "after bind/web", "", "other/web"]):
        add_kill(state, number, pair)
    row = make_row(state, KillAtBind)
    assert row is not None and row.pairs == (2, 11)
    assert "| 5 (2/11) |" in write_row(row, KillAtBind)


def test_row_is_not_finished_with_fewer_rounds_than_pairs() -> None:
    row = replace(OLD, pairs=(FEWER_ROUNDS, FEWER_ROUNDS + 7))
    assert (row.rounds, row.goal) == (FEWER_ROUNDS, FEWER_ROUNDS + 7)


@pytest.mark.parametrize(
    ("server", "shown"),
    [("kube-apiserver", "kube-apiserver"), (FAKE, FAKE), ("", "server unknown")],
)
def test_row_names_the_api_server(state: State, server: str, shown: str) -> None:
    state.write_round(Round(Api403.name, 0, SEED, "fault", 1, 0.5, QUICK, api_server=server))
    known = {Api403.name: Api403}
    text = write_report(merge_rows([], state, known), known, {})
    assert f"| `api-403` | {Api403.breaks} ({shown}) |" in text
    warning = "**FakeKube, not a real API server, served `api-403`.**"
    assert (warning in text) == (server == FAKE)


@pytest.mark.parametrize(
    ("numbers", "text"), [([3], "3"), ([0, 1, 2], "0-2"), ([0, 1, 4, 6, 7], "0-1+4+6-7")]
)
def test_numbers_are_written_as_ranges(numbers: list[int], text: str) -> None:
    assert name_numbers(numbers) == text


def test_committed_page_has_the_committed_rows() -> None:
    load_all()
    written = [write_row(row, KNOWN[row.scenario]) for row in read_rows(KEPT)]
    shown = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert written and sorted(shown) == sorted(written)


def test_report_of_all_scenarios_fits_on_a_page(state: State) -> None:
    load_all()
    for name in KNOWN:
        add_rounds(state, name, 1)
    assert len(write_report(merge_rows([], state, KNOWN), KNOWN, {}).split()) < MOST_WORDS
