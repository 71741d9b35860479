"""The tab Scaling of a pool: decisions with reasons, next removals, orders of operators, and charts
of demand and capacity.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.template.loader import render_to_string
from django.utils import timezone

from claims.scaling.decision_cards import (
    CHANGES,
    Card,
    ScalingOverview,
    read_scaling_overview,
    try_changes,
)
from claims.scaling.replay import Replay, outcomes_of, replay_pool, table_of
from pools.access.permissions import Identity
from pools.lifecycle.selectors import LIVE, spec_of
from pools.models import Pool
from pools.pages.base import explain_missing_role, find_visible_pool
from pools.scaling.replay import Point
from project.dashboard.actions import Action, describe_full, scaling_orders
from project.dashboard.charts import GAP
from project.dashboard.regions import Context, pool_region
from project.kernel.db.guards import reporting
from project.kernel.db.sql import run
from project.kernel.errors import BerthError
from project.kernel.live.regions import OpenedRegion, region

HOURS = {6: "6 h", 24: "24 h", 168: "7 days"}
POINTS = 360
DAYS = {"1": 1, "7": 7}  # lengths of a replay
NUMBER = re.compile(r"\d{1,6}(\.\d{1,3})?", re.ASCII)
PERCENT = ("grow_above", "shrink_below")
LABELS = {
    "max": "Max",
    "min": "Min",
    "grow_above": "Grow above, %",
    "shrink_below": "Shrink below, %",
    "max_idle": "Max idle",
    "size": "Size",
}

# At most `POINTS` points: of each stretch the highest demand and the fewest slots.
SAMPLES = """
SELECT extract(epoch FROM date_bin(make_interval(secs => %(bin)s), at,
  'epoch'::timestamptz))::bigint AS at, min(slots) AS slots,
  round(avg(held), 1)::float8 AS held, round(avg(reserved), 1)::float8 AS reserved,
    max(held + reserved + waiting) AS wanted
FROM pools_sample WHERE pool_id = %(pool)s AND NOT is_hourly
  AND at >= now() - make_interval(secs => %(seconds)s)
GROUP BY 1 ORDER BY 1"""
MARKS = """
SELECT extract(epoch FROM at)::bigint AS at, delta FROM pools_decision
WHERE pool_id = %(pool)s AND delta <> 0 AND at >= now() - make_interval(secs => %(seconds)s)
  ORDER BY at DESC LIMIT 200"""


@dataclass(frozen=True, slots=True)
class Trial:
    """A field of the dry run."""

    name: str
    label: str
    value: str


def is_shown(pool: Pool) -> bool:
    return pool.spec.get("scaling") is not None


def summarise_decision(card: Card) -> str:
    """Short form of a decision: no change, 20–80 %; +1; +1 blocked: max is 12."""
    if card.verdict == "hold" and card.gauge is not None and not card.inputs.get("wanted"):
        return f"{card.words}, {card.gauge['low']:g}–{card.gauge['high']:g} %"
    is_full = card.verdict == "blocked" and card.code == "max"
    return f"{card.words}: max is {card.inputs['max']}" if is_full else card.words


def scaling_context(identity: Identity, pool: Pool, query: Mapping[str, str]) -> Context:
    """The parts of the tab that are not live: length of the chart, dry run and replay."""
    hours = (
        int(query["hours"])
        if query.get("hours", "").isdecimal() and int(query["hours"]) in HOURS
        else 6
    )
    overview = read_scaling_overview(pool, limit=1)
    context: Context = {
        "hours": hours,
        "hours_text": str(hours),
        "lengths": HOURS.items(),
        "trials": [],
        "is_tried": False,
    }
    if overview.subject is None or overview.subject.spec.scaling is None:
        return context
    limits = overview.subject.snapshot.limits
    usual = {"max": f"{limits.high}"} | {
        name: f"{value:g}" for name, value in overview.options.items() if name in CHANGES
    }
    given = {
        name: text
        for name in usual
        if (text := query.get(name, "").strip()) and text != usual[name]
    }
    context["trials"] = [
        Trial(name, LABELS[name], given.get(name, value)) for name, value in usual.items()
    ]
    context["policy"] = overview.subject.spec.scaling.policy
    context |= preview_changes(overview, given)
    if query.get("replay", "") in DAYS and "trial_problem" not in context:
        context |= replay_context(pool, DAYS[query["replay"]], given)
    return context


def read_numbers(given: Mapping[str, str]) -> dict[str, float]:
    return {
        name: float(text) if name in PERCENT else int(float(text)) for name, text in given.items()
    }


def replay_context(pool: Pool, days: int, given: Mapping[str, str]) -> Context:
    """Replay the limits of the dry run over recorded demand, beside the recorded members."""
    numbers = read_numbers(given)
    members = {name: value for name, value in numbers.items() if name in ("min", "max")}
    options = {name: value for name, value in numbers.items() if name not in members}
    changes: dict[str, object] = {"members": members} if members else {}
    if options:
        changes["scaling"] = options
    try:
        found = replay_pool(pool, days=days, changes=changes or None)
    except BerthError as error:
        return {"replay_problem": describe_error(error)}
    if not found.minutes:
        return {"replay_problem": "No samples are recorded yet: Berth takes one per minute."}
    names = (
        ("was", "as configured") if found.other is None else ("was", "as configured", "with these")
    )
    return {
        "replay": found,
        "replay_names": names,
        "replay_rows": table_of(found),
        "replay_lines": draw_replay(found),
        "replay_days": days,
    }


def describe_error(error: BerthError) -> str:
    return " ".join(fault.message for fault in error.fields) or error.detail


def draw_replay(found: Replay) -> Context:
    """Members over time, as lines in a box of 1000 by 100."""
    outcomes = list(outcomes_of(found).values())
    points = [outcome.thinned() for outcome in outcomes]
    first, last = found.was.points[0].at, found.was.points[-1].at
    most = max(1, *(outcome.most for outcome in outcomes))

    def line(some: Sequence[Point]) -> str:
        placed = [
            (1000 * (p.at - first) / max(1.0, last - first), 100 - 96 * p.members / most)
            for p in some
        ]
        return " ".join(
            f"{x:.1f},{before:.1f} {x:.1f},{y:.1f}"
            for (x, y), (_, before) in zip(placed, [placed[0], *placed], strict=False)
        )

    return {
        "lines": list(zip(("was", "now", "tried"), map(line, points), strict=False)),
        "most": most,
        "first": first,
        "last": last,
    }


def preview_changes(overview: ScalingOverview, given: Mapping[str, str]) -> Context:
    assert overview.subject is not None  # `scaling_context` checks it
    wrong = next((name for name, text in given.items() if not NUMBER.fullmatch(text)), None)
    if wrong is not None:
        problem = f"{LABELS[wrong]}: {given[wrong][:20]} is not a number."
        return {"is_tried": True, "trial_problem": problem}
    if not given:
        return {"trial": overview.now}
    try:
        trial = try_changes(overview.subject, read_numbers(given))
    except BerthError as error:
        return {"is_tried": True, "trial_problem": describe_error(error)}
    return {"is_tried": True, "trial": trial}


def orders(identity: Identity, pool: Pool, overview: ScalingOverview) -> list[Action]:
    """Orders of operators. An action that is off gives the reason."""
    role, now = explain_missing_role(identity, "scale", pool.pk), timezone.now()
    frozen = full = going = ""
    if overview.subject is not None:
        snapshot, limits = overview.subject.snapshot, overview.subject.snapshot.limits
        frozen = f"Frozen: {limits.frozen}. Lift it first." if limits.frozen else ""
        full = describe_full(len(snapshot.members), limits.high)
        if snapshot.roll.is_wanted and not pool.roll_stopped_at and not pool.roll_paused_until:
            going = "The roll is running: each member is renewed once it is idle."
    is_paused = pool.scaling_paused_until is not None and pool.scaling_paused_until > now
    found = {
        "grow": role or frozen or full,
        "pin" if pool.pin_count is None else "unpin": role,
        "resume" if is_paused else "pause": role,
    }
    if frozen:
        found["unfreeze"] = role
    roll = overview.roll
    if roll is not None and (roll.members or roll.is_under_way or pool.roll_stopped_at):
        is_paused = pool.roll_paused_until is not None and pool.roll_paused_until > now
        found["roll"] = role or going
        found["resume-roll" if is_paused else "pause-roll"] = role
    return scaling_orders(pool, found)


def draw_scaling_chart(pool: Pool, hours: int) -> Context:
    seconds = hours * 3600
    values = {"pool": pool.pk, "seconds": seconds, "bin": max(60, seconds // POINTS)}
    with reporting():
        rows, marks = run(SAMPLES, values, prepare=False), run(MARKS, values, prepare=False)
    scaling = spec_of(pool).scaling
    options = scaling.options if scaling is not None else {}
    series = {
        **series_of(rows, max(GAP.total_seconds(), 2 * values["bin"])),
        "marks": [[mark.at, mark.delta] for mark in reversed(marks)],
        "grow": options.get("grow_above"),
        "shrink": options.get("shrink_below"),
    }
    is_known = len(rows) > 2
    return {
        "series": json.dumps(series),
        "label": chart_label(rows[-1]) if is_known else "",
        "is_known": is_known,
        "hours": hours,
    }


def chart_label(last: Any) -> str:
    """The end of the chart as text, for screen readers."""
    return (
        f"{last.held:.0f} slots held, {last.reserved:.0f} reserved, {last.wanted} wanted, "
        f"{last.slots} existing at the end"
    )


def series_of(rows: Sequence[Any], gap: float) -> dict[str, list[Any]]:
    """Columns for the chart. A row of nulls breaks the lines where samples are missing for longer
    than `gap` seconds.
    """
    names = ("at", "slots", "held", "reserved", "wanted")
    found: dict[str, list[Any]] = {name: [] for name in names}
    for row in rows:
        if found["at"] and row.at - found["at"][-1] > gap:
            for name in names:
                found[name].append(found["at"][-1] + 1 if name == "at" else None)
        for name in names:
            found[name].append(getattr(row, name))
    return found


def board_context(identity: Identity, pool: Pool) -> Context:
    overview = read_scaling_overview(pool)
    return {"overview": overview, "orders": orders(identity, pool, overview)}


pool_region("pool.scaling", "dashboard/pool_scaling.html", board_context, 1.0, by_role=True)


@region("pool.scaling.chart")
def open_chart(identity: Identity, argument: str) -> OpenedRegion | None:
    """Argument: name of the pool, comma, hours."""
    name, _, length = argument.rpartition(",")
    pool = find_visible_pool(identity, name)
    if pool is None or not length.isdecimal() or int(length) not in HOURS:
        return None
    hours = int(length)
    pool_id, full = pool.pk, f"pool.scaling.chart:{argument}"

    def render() -> str:
        fresh = Pool.objects.get(LIVE, pk=pool_id)
        return render_to_string(
            "dashboard/pool_scaling_chart.html", draw_scaling_chart(fresh, hours) | {"pool": fresh}
        )

    return OpenedRegion(full, f"{full}|{pool_id}", frozenset({("pool", pool_id)}), render, 10.0)
