"""The state of a campaign: a file with one JSON line for each finished round. All rounds are of one
commit.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

FILE = "rounds.jsonl"
LOGS = "logs"  # folder with the whole log of each round that had a finding


class OtherCommitError(Exception):
    """The campaign belongs to another commit."""


@dataclass
class Round:
    scenario: str
    number: int
    seed: int
    fault: str
    faults: int
    again: float  # seconds
    seconds: float
    findings: list[str] = field(default_factory=list)
    load: float | None = None  # of the machine at the end, processes; None: not measured
    pair: str = ""  # step and victim; empty: the scenario has none, or the kill did not happen
    api_server: str = ""  # of Kubernetes


@dataclass
class Verification:
    """The audits after the last round of a session."""

    scenario: str
    seed: int
    rounds: int  # of this session
    seconds: float
    findings: list[str] = field(default_factory=list)


class State:
    def __init__(self, folder: Path) -> None:
        self.file = folder / FILE
        self.facts: dict[str, Any] = {}  # seed, commit and machine
        self.rounds: list[Round] = []
        self.verifications: list[Verification] = []
        # By scenario: positions in `rounds` of those whose session ended before its audit.
        self.unaudited: dict[str, list[int]] = {}
        self.skipped: dict[str, str] = {}
        if self.file.exists():
            for line in self._read():
                self._add(line)

    def _read(self) -> Iterator[dict[str, Any]]:
        for line in self.file.read_text().splitlines():
            try:
                yield json.loads(line)
            except ValueError:  # the line that a kill has cut off
                continue

    def _add(self, line: dict[str, Any]) -> None:
        kind, values = line["kind"], line["values"]
        if kind == "facts":
            self.refuse_other_commit(values["commit"])
            self.facts = values
        elif kind == "round":
            done = Round(**values)
            self.unaudited.setdefault(done.scenario, []).append(len(self.rounds))
            self.rounds.append(done)
        elif kind == "verification":
            audit = Verification(**values)
            self.verifications.append(audit)
            if audit.rounds:
                del self.unaudited.get(audit.scenario, [])[-audit.rounds :]
        else:
            self.skipped[values["scenario"]] = values["why"]

    def _write(self, kind: str, values: dict[str, Any]) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        line = {"kind": kind, "values": values}
        with self.file.open("a") as file:
            if file.tell() and not self.file.read_bytes().endswith(b"\n"):
                file.write("\n")
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._add(line)

    def refuse_other_commit(self, commit: str) -> None:
        if self.facts and self.facts["commit"] != commit:
            raise OtherCommitError(
                f"The campaign in {self.file.parent} has rounds of commit {self.facts['commit']}, "
                f"so it cannot go on with {commit}. Choose another NAME."
            )

    def write_facts(self, **facts: Any) -> None:
        self.refuse_other_commit(facts["commit"])
        self._write("facts", facts)

    def write_logs(self, name: str, text: str) -> None:
        folder = self.file.parent / LOGS
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.log").write_text(text)

    def write_round(self, done: Round) -> None:
        self._write("round", asdict(done))

    def write_verification(self, done: Verification) -> None:
        self._write("verification", asdict(done))

    def write_skipped(self, scenario: str, why: str) -> None:
        if self.skipped.get(scenario) != why:
            self._write("skipped", {"scenario": scenario, "why": why})

    # -- reading ----------------------------------------------------------------------------------
    def rounds_of(self, scenario: str) -> list[Round]:
        return [done for done in self.rounds if done.scenario == scenario]

    def findings_of(self, scenario: str) -> list[tuple[str, str]]:
        """Findings with the place where each was made."""
        found = [
            (f"round {done.number}, seed {done.seed}: {done.fault}", text)
            for done in self.rounds_of(scenario)
            for text in done.findings
        ]
        found += [
            (f"audit after {done.rounds} rounds, seed {done.seed}", text)
            for done in self.verifications
            if done.scenario == scenario
            for text in done.findings
        ]
        return found

    def unaudited_rounds_of(self, scenario: str) -> list[int]:
        """Numbers of the rounds that no audit followed, also not when they were repeated."""
        left = self.unaudited.get(scenario, [])
        audited = {
            done.number
            for position, done in enumerate(self.rounds)
            if done.scenario == scenario and position not in left
        }
        return sorted({self.rounds[position].number for position in left} - audited)

    def count_findings(self) -> int:
        names = {done.scenario for done in (*self.rounds, *self.verifications)}
        return sum(len(self.findings_of(name)) for name in names)

    def median_seconds(self, scenario: str) -> float | None:
        done = self.rounds_of(scenario)
        return median(each.seconds for each in done) if done else None
