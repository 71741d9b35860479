"""Rows of the report: what a campaign measured in each scenario.

docs/faults.jsonl keeps the rows beside the page, because the state of a campaign may be lost with
its machine. A row has rounds of one commit only.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from tests.faults.campaign.scenario import Scenario, choose_rounds
from tests.faults.campaign.state import State

KEPT = Path(__file__).resolve().parents[3] / "docs" / "faults.jsonl"


@dataclass(frozen=True)
class MeasuredRow:
    scenario: str
    commit: str
    seed: str  # several with commas between them
    machine: str
    rounds: int
    faults: int
    again: tuple[float, float] | None  # median and longest, seconds; None: no fault was injected
    median: float  # seconds of a round
    minutes: float
    unaudited: str = ""  # numbers of rounds
    findings: Sequence[tuple[str, str]] = field(default=())  # place and text in full
    load: float | None = None  # median of the rounds
    # Pairs of a step and a victim that kills hit, and all of the scenario; None: it has no pairs.
    pairs: tuple[int, int] | None = None
    api_server: str = ""  # of Kubernetes, that served the rounds; empty: none, or not recorded

    @property
    def goal(self) -> int:
        return max(choose_rounds(self.median), self.pairs[1] if self.pairs else 0)

    def replaces(self, older: "MeasuredRow") -> bool:
        """A few rounds say less than the many of an older row, which then stays beside them."""
        return self.rounds >= min(self.goal, older.rounds)


def make_row(state: State, kind: type[Scenario]) -> MeasuredRow | None:
    """None: this campaign has no round of the scenario."""
    name, pairs = kind.name, set(kind.list_pairs())
    done = state.rounds_of(name)
    if not done:
        return None
    again = sorted(each.again for each in done if each.faults)
    loads = [each.load for each in done if each.load is not None]
    audits = sum(each.seconds for each in state.verifications if each.scenario == name)
    return MeasuredRow(
        name,
        str(state.facts.get("commit", "unknown")),
        ", ".join(str(seed) for seed in sorted({each.seed for each in done})),
        str(state.facts.get("machine", "unknown machine")),
        len({each.number for each in done}),
        sum(each.faults for each in done),
        (round(median(again), 2), again[-1]) if again else None,
        round(median(each.seconds for each in done), 2),
        round((sum(each.seconds for each in done) + audits) / 60, 2),
        name_numbers(state.unaudited_rounds_of(name)),
        tuple(state.findings_of(name)),
        round(median(loads), 1) if loads else None,
        (len(pairs & {each.pair for each in done}), len(pairs)) if pairs else None,
        ", ".join(sorted({each.api_server for each in done if each.api_server})),
    )


def merge_rows(
    kept: Sequence[MeasuredRow], state: State, known: Mapping[str, type[Scenario]]
) -> list[MeasuredRow]:
    """By scenario: the row of this campaign, then the kept rows that it does not replace."""
    merged = []
    for name, kind in known.items():
        made = make_row(state, kind)
        older = [row for row in kept if row.scenario == name]
        if made:
            merged += [made, *(row for row in older if not made.replaces(row))]
        else:
            merged += older
    return merged


def read_rows(path: Path) -> list[MeasuredRow]:
    if not path.exists():
        return []
    return [_read(json.loads(line)) for line in path.read_text().splitlines()]


def _read(values: dict[str, object]) -> MeasuredRow:
    again, findings, pairs = values["again"], values["findings"], values.get("pairs")
    assert isinstance(again, list | None) and isinstance(findings, list), values
    assert isinstance(pairs, list | None), values
    return MeasuredRow(
        **{  # type: ignore[arg-type]
            **values,
            "again": None if again is None else tuple(again),
            "pairs": None if pairs is None else tuple(pairs),
            "findings": tuple((place, text) for place, text in findings),
        }
    )


def write_rows(path: Path, rows: Iterable[MeasuredRow]) -> None:
    path.write_text("".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows))


def name_numbers(numbers: Sequence[int]) -> str:
    """Sorted numbers in the shortest form: 0-2+5."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return "+".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
