"""The report of a campaign: docs/faults.md."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from tests.faults.campaign.scenario import Scenario, choose_rounds
from tests.faults.campaign.state import State

PAGE = Path(__file__).resolve().parents[3] / "docs" / "faults.md"
HEAD = Path(__file__).with_name("report_head.md")


def write_report(state: State, known: Mapping[str, type[Scenario]]) -> str:
    facts = state.facts
    rounds = len({(done.scenario, done.number) for done in state.rounds})
    earlier = len(state.commits) - 1
    more = f" (some rounds on {earlier} earlier commits)" if earlier > 0 else ""
    commits = f"{facts.get('commit', 'unknown')}{more}"
    seed = str(facts.get("seed", "N"))
    lines = [
        HEAD.read_text().replace("SEED_HERE", seed),
        f"Commit {commits}, seed {seed}, "
        f"{facts.get('machine', 'unknown machine')}:\n{rounds} rounds, "
        f"{sum(done.faults for done in state.rounds)} faults, "
        f"{state.count_findings()} findings.\n",
        "| scenario | what it breaks | rounds | faults | again, p50/max (s) | from "
        "| median round (s) | duration (min) | findings |",
        "|---|---|---|---|---|---|---|---|---|",
        *(write_row(state, kind) for kind in known.values()),
        "",
    ]
    unaudited = [
        f"`{name}` {name_numbers(numbers)}"
        for name in known
        if (numbers := state.unaudited_rounds_of(name))
    ]
    if unaudited:
        lines += [f"Rounds without an audit: {', '.join(unaudited)}.", ""]
    findings = [
        f"- `{name}`, {place}: {' '.join(text.split())[:400]}"
        for name in known
        for place, text in state.findings_of(name)
    ]
    if findings:
        lines += ["## Findings", "", *findings, ""]
    return "\n".join(lines)


def write_row(state: State, kind: type[Scenario]) -> str:
    done = state.rounds_of(kind.name)
    if not done:
        why = state.skipped.get(kind.name)
        what = f"skipped: {why}" if why else "not run"
        return f"| `{kind.name}` | {kind.breaks} | {what} | | | | | | |"
    again = sorted(each.again for each in done if each.faults)
    times = f"{median(again):.1f}/{again[-1]:.1f}" if again else "–"
    audits = sum(each.seconds for each in state.verifications if each.scenario == kind.name)
    usual = median(each.seconds for each in done)
    minutes = (sum(each.seconds for each in done) + audits) / 60
    cells = [
        f"`{kind.name}`",
        kind.breaks,
        f"{len({each.number for each in done})}/{choose_rounds(usual)}",
        sum(each.faults for each in done),
        times,
        kind.counts_from,
        f"{usual:.1f}",
        f"{minutes:.1f}",
        len(state.findings_of(kind.name)),
    ]
    return f"| {' | '.join(map(str, cells))} |"


def name_numbers(numbers: Sequence[int]) -> str:
    """Sorted numbers in the shortest form: 0-2+5."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return "+".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
