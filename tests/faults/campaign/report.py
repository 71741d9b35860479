"""The report of campaigns: docs/faults.md."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.faults.campaign.rows import MeasuredRow
from tests.faults.campaign.scenario import FAKE, Scenario

PAGE = Path(__file__).resolve().parents[3] / "docs" / "faults.md"
HEAD = Path(__file__).with_name("report_head.md")
TABLE = (
    "| scenario | what it breaks | commit | rounds | faults (pairs) | again, p50/max (s) |",
    "|---|---|---|---|---|---|",
)
UNRECORDED = "server unknown"
SHOWN = 300  # characters of a finding on the page; the kept row has all


def write_report(
    rows: Sequence[MeasuredRow], known: Mapping[str, type[Scenario]], skipped: Mapping[str, str]
) -> str:
    parts = [HEAD.read_text().rstrip(), describe_starts(known.values())]
    campaigns: dict[tuple[str, str, str], list[MeasuredRow]] = {}
    for row in rows:
        campaigns.setdefault((row.commit, row.seed, row.machine), []).append(row)
    if rows:
        machines = "; ".join(dict.fromkeys(row.machine for row in rows))
        told = map(write_campaign, campaigns.values())
        parts.append("\n".join(["## Campaigns\n", f"Machine: {machines}.\n", *told]))
        faked = [f"`{row.scenario}`" for row in rows if FAKE in row.api_server]
        if faked:
            parts.append(f"**{FAKE}, not a real API server, served {', '.join(faked)}.**")
        parts.append("\n".join([*TABLE, *(write_row(row, known[row.scenario]) for row in rows)]))
    measured = {row.scenario for row in rows}
    left = [
        f"- `{name}`: {kind.breaks}{f' (skipped: {skipped[name]})' if name in skipped else ''}"
        for name, kind in known.items()
        if name not in measured
    ]
    if left:
        parts.append("\n".join(["## Not run\n", *left]))
    findings = [
        f"- `{row.scenario}`, commit {row.commit}, {place}: {shorten(text)}"
        for row in rows
        for place, text in row.findings
    ]
    if findings:
        parts.append("\n".join(["## Findings\n", *findings]))
    return "\n\n".join(parts) + "\n"


def describe_starts(kinds: Iterable[type[Scenario]]) -> str:
    """From where the scenarios measure."""
    kinds, names = list(kinds), dict[str, list[str]]()
    starts: dict[str, list[str]] = {}  # of each family, the first word of its names
    for kind in kinds:
        starts.setdefault(family_of(kind), []).append(kind.counts_from)
    for kind in kinds:
        its_starts = starts[family_of(kind)]
        is_one = len(its_starts) > 1 and len(set(its_starts)) == 1
        name = f"{family_of(kind)}-*" if is_one else kind.name
        its = names.setdefault(kind.counts_from, [])
        if f"`{name}`" not in its:
            its.append(f"`{name}`")
    usual = names.pop(Scenario.counts_from, [])
    others = [f"in {', '.join(its)} from {start}" for start, its in names.items()]
    text = f"*Again* counts from {'; '.join([Scenario.counts_from] * bool(usual) + others)}."
    return textwrap.fill(text, 120, break_on_hyphens=False)


def family_of(kind: type[Scenario]) -> str:
    return kind.name.partition("-")[0]


def write_campaign(rows: Sequence[MeasuredRow]) -> str:
    """Rows of one commit."""
    first = rows[0]
    loads = [row.load for row in rows if row.load is not None]
    ends = dict.fromkeys(f"{end:.0f}" for end in (min(loads), max(loads))) if loads else {}
    load = f", load {' to '.join(ends)}" if ends else ""
    unaudited = [f"`{row.scenario}` {row.unaudited}" for row in rows if row.unaudited]
    return (
        f"- {first.commit}, seed {first.seed}{load}: "
        f"{sum(row.minutes for row in rows):.0f} minutes, "
        f"{sum(row.rounds for row in rows)} rounds, {sum(row.faults for row in rows)} faults, "
        f"{sum(len(row.findings) for row in rows)} findings."
        + (f" Rounds without an audit: {', '.join(unaudited)}." if unaudited else "")
    )


def write_row(row: MeasuredRow, kind: type[Scenario]) -> str:
    cells = [
        f"`{row.scenario}`",
        kind.breaks + (f" ({row.api_server or UNRECORDED})" if kind.has_api_server else ""),
        row.commit,
        f"{row.rounds}/{row.goal}",
        f"{row.faults} ({'/'.join(map(str, row.pairs))})" if row.pairs else row.faults,
        f"{row.again[0]:.1f}/{row.again[1]:.1f}" if row.again else "–",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} …"
