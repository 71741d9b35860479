"""Replay the recorded demand of the last days with another policy or other limits, and compare
with what really happened.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import yaml

from claims.allocation.member_limits import limits_between
from claims.scaling.scaler import not_scaled
from pools.config.layout import slots_of
from pools.config.scaling_spec import build_policy
from pools.config.spec import PoolSpec, parse_pool
from pools.lifecycle.selectors import config_of, spec_of
from pools.models import Pool
from pools.providers.base import option_readers, own_policies
from pools.scaling import MemberLimits, find_open
from pools.scaling.model import span
from pools.scaling.replay import DemandSample, ReplayResult, as_it_was, replay
from project.kernel.db.guards import reporting
from project.kernel.db.sql import run
from project.kernel.errors import FieldError, Invalid, wrong_field
from project.kernel.yaml_text import load_yaml

MOST_DAYS = 7  # retention of samples by minute
DAYS = (1, 7)
READY_AFTER = 60.0  # assumed seconds until a new member is ready, if none was created lately
PARTS = ("scaling", "members")  # fields of a configuration that a replay may change
EXAMPLE = "Write scaling: {policy: warm}, for example."

SAMPLES = """
SELECT extract(epoch FROM at)::float8 AS at, members, slots, held, reserved, waiting
  FROM pools_sample
WHERE pool_id = %(pool)s AND NOT is_hourly AND at >= now() - make_interval(secs => %(seconds)s)
  ORDER BY at"""

# Median time to ready of the last 50 members, by their events.
READY_TIMES = """
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY took)::float8 AS seconds FROM (
  SELECT extract(epoch FROM r.at - a.at) AS took
  FROM (SELECT member_id, at FROM kernel_event WHERE pool_id = %(pool)s AND verb = 'add'
    ORDER BY id DESC LIMIT 50) a
  CROSS JOIN LATERAL (
    SELECT at FROM kernel_event WHERE member_id = a.member_id AND verb = 'ready' AND at >= a.at
      ORDER BY id LIMIT 1) r) x"""


@dataclass(frozen=True, slots=True)
class Replay:
    """The results of a replay and its assumptions."""

    pool: Pool
    days: float
    minutes: int  # recorded samples
    ready_after: float
    was: ReplayResult
    now: ReplayResult  # with the present configuration
    other: ReplayResult | None  # with the changed configuration


def replay_pool(
    pool: Pool, *, days: float = MOST_DAYS, changes: Mapping[str, object] | None = None
) -> Replay:
    """Replay a pool's demand, without changing the pool. `changes`: parts of a configuration, as
    in a pool file. `Conflict` if the pool has no scaling.
    """
    if not 0 < days <= MOST_DAYS:
        raise wrong_field("days", f"{days:g} days are not recorded.", f"Use up to {MOST_DAYS}.")
    spec = spec_of(pool)
    if spec.scaling is None:
        raise not_scaled(pool.name)
    other = None if changes is None else changed_spec(pool, changes)
    with reporting():
        rows = run(SAMPLES, {"pool": pool.pk, "seconds": days * 86400}, prepare=False)
        took = run(READY_TIMES, {"pool": pool.pk}, prepare=False)
    moments = [
        DemandSample(row.at, row.members, row.slots, row.held, row.reserved, row.waiting)
        for row in rows
    ]
    ready_after = took[0].seconds if took and took[0].seconds is not None else READY_AFTER
    each = len(slots_of(spec.layout))
    now = _replay(moments, spec, each, ready_after)
    return Replay(
        pool, days, len(moments), ready_after, as_it_was(moments, each=each), now,
        None if other is None else _replay(moments, other, each, ready_after),
    )  # fmt: skip


def changed_spec(pool: Pool, changes: Mapping[str, object]) -> PoolSpec:
    """The present configuration with the given `scaling` and `members`. `Invalid` for other
    fields and wrong values.
    """
    if unknown := sorted(set(changes) - {*PARTS, "kind", "name"}):
        faults = [
            FieldError(name, f"A replay cannot change {name}.", f"Use {' and '.join(PARTS)} only.")
            for name in unknown[:5]
        ]
        raise Invalid(fields=faults)
    config = config_of(pool)
    for name in PARTS:
        if name not in changes:
            continue
        given, before = changes[name], config[name]
        if isinstance(given, Mapping) and given.get("policy", before.get("policy")) == before.get(
            "policy"
        ):
            given = {**before, **given}  # the same policy: keep the options that are not given
        config[name] = given
    return parse_pool(config, option_readers())


def _replay(
    moments: list[DemandSample], spec: PoolSpec, each: int, ready_after: float
) -> ReplayResult:
    assert spec.scaling is not None  # callers check it
    policy = build_policy(spec.scaling, own_policies())
    return replay(moments, policy, limits_over(spec), each=each, ready_after=ready_after)


def limits_over(spec: PoolSpec) -> Callable[[datetime], MemberLimits]:
    """The limits of the configuration at a moment. Past orders of operators are not replayed."""
    scaling = spec.scaling
    plain = MemberLimits(spec.min_members, spec.max_members)
    if scaling is None or not (scaling.schedule or scaling.freeze):
        return lambda moment: plain

    def find(moment: datetime) -> MemberLimits:
        low, high, words = limits_between(scaling, spec.min_members, spec.max_members, moment)
        freeze = find_open(scaling.freeze, moment)
        return replace(
            plain,
            low=low,
            high=high,
            window=words,
            frozen="" if freeze is None else freeze[0].words,
        )

    return find


def read_changes(text: str, where: str) -> Mapping[str, object]:
    """Parse the YAML of the parts to try. Of a whole pool file, only these parts are used.
    `where`: the field that errors name.
    """
    try:
        found = load_yaml(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at_line = f" in line {mark.line + 1}" if mark is not None else ""
        raise wrong_field(where, f"This is not valid YAML{at_line}.", EXAMPLE) from None
    if not isinstance(found, Mapping):
        raise wrong_field(where, "This is not a YAML mapping.", EXAMPLE)
    if found.get("kind") == "Pool":
        return {str(name): value for name, value in found.items() if name in PARTS}
    return dict(found)


def outcomes_of(found: Replay) -> dict[str, ReplayResult]:
    columns = {"was": found.was, "now": found.now}
    return columns if found.other is None else columns | {"tried": found.other}


def figures_of(outcome: ReplayResult) -> dict[str, float]:
    return {
        "wait_half_s": round(outcome.wait(0.5), 1),
        "wait_nine_s": round(outcome.wait(0.9), 1),
        "wait_longest_s": round(outcome.wait(1.0), 1),
        "came": len(outcome.waits) + outcome.still_waiting,
        "still_waiting": outcome.still_waiting,
        "waiting_hours": round(outcome.waiting_hours, 1),
        "member_hours": round(outcome.member_hours, 1),
        "created": outcome.created,
        "removed": outcome.removed,
        "most": outcome.most,
    }


LABELS = {
    "wait_half_s": "Median wait",
    "wait_nine_s": "Wait of 9 in 10",
    "wait_longest_s": "Longest wait",
    "waiting_hours": "Slot hours waited",
    "member_hours": "Member hours",
    "created": "Created",
    "removed": "Removed",
    "most": "Most members",
}


def table_of(found: Replay) -> list[tuple[str, list[str]]]:
    """Rows of a table: a label, then a cell for each outcome."""
    figures = [figures_of(outcome) for outcome in outcomes_of(found).values()]
    return [
        (label, [_cell(name, each[name]) for each in figures]) for name, label in LABELS.items()
    ]


def _cell(name: str, value: float) -> str:
    return (
        span(value)
        if name.endswith("_s")
        else f"{value:,.1f}"
        if name.endswith("hours")
        else f"{value:,}"
    )
