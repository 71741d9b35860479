"""Another policy, or other limits, over the demand of the last days: what there would have been,
beside what there was.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import yaml

from claims.allocation.member_limits import limits_between
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
from project.kernel.errors import Conflict, FieldError, Invalid
from project.kernel.yaml_text import load_yaml

MOST_DAYS = 7  # samples by minute are kept so long
DAYS = (1, 7)
READY_AFTER = 60.0  # seconds until a new member is there, where none was made lately
PARTS = ("scaling", "members")  # of a configuration that a replay may change

SAMPLES = """
SELECT extract(epoch FROM at)::float8 AS at, members, slots, held, reserved, waiting
  FROM pools_sample
WHERE pool_id = %(pool)s AND NOT is_hourly AND at >= now() - make_interval(secs => %(seconds)s)
  ORDER BY at"""

# Of the last that were made, as far as the log says when they were ready.
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
    """Three columns, and what they rest on."""

    pool: Pool
    days: float
    minutes: int  # of samples
    ready_after: float
    was: ReplayResult
    now: ReplayResult  # with the configuration as it is
    other: ReplayResult | None  # with the one that is tried


def replay_pool(
    pool: Pool, *, days: float = MOST_DAYS, changes: Mapping[str, Any] | None = None
) -> Replay:
    """Changes nothing. `changes`: parts of a configuration, as a file says them."""
    if not 0 < days <= MOST_DAYS:
        raise Invalid(
            fields=[
                FieldError("days", f"{days:g} days are not recorded.", f"Use up to {MOST_DAYS}.")
            ]
        )
    spec = spec_of(pool)
    if spec.scaling is None:
        way_out = "Add scaling to its configuration, or try one with it."
        raise Conflict(
            f"The members of pool {pool.name} come and go by hand.",
            code="not_scaled",
            way_out=way_out,
        )
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


def changed_spec(pool: Pool, changes: Mapping[str, Any]) -> PoolSpec:
    """The present configuration with other scaling or other limits, read like any other."""
    if unknown := sorted(set(changes) - {*PARTS, "kind", "name"}):
        faults = [
            FieldError(name, f"{name} is not replayed.", f"Only {' and '.join(PARTS)} are.")
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
            given = {**before, **given}  # a part of it; another policy has other options
        config[name] = given
    return parse_pool(config, option_readers())


def _replay(
    moments: list[DemandSample], spec: PoolSpec, each: int, ready_after: float
) -> ReplayResult:
    assert spec.scaling is not None  # whoever asks has looked
    policy = build_policy(spec.scaling, own_policies())
    return replay(moments, policy, limits_over(spec), each=each, ready_after=ready_after)


def limits_over(spec: PoolSpec) -> Callable[[datetime], MemberLimits]:
    """By the clock alone: what people ordered then is not repeated."""
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


def read_changes(text: str, where: str) -> Mapping[str, Any]:
    """A file with the parts of a configuration that are tried. One with a whole pool is taken
    for these parts of it.
    """
    try:
        found = load_yaml(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at_line = f" in line {mark.line + 1}" if mark is not None else ""
        raise Invalid(
            fields=[
                FieldError(
                    where,
                    f"This is no YAML{at_line}.",
                    "Write scaling: {policy: warm}, for example.",
                )
            ]
        ) from None
    if not isinstance(found, Mapping):
        raise Invalid(
            fields=[
                FieldError(
                    where,
                    "This is no configuration.",
                    "Write scaling: {policy: warm}, for example.",
                )
            ]
        )
    return (
        {str(name): value for name, value in found.items() if name in PARTS}
        if found.get("kind") == "Pool"
        else dict(found)
    )


def outcomes_of(found: Replay) -> dict[str, ReplayResult]:
    columns = {"was": found.was, "now": found.now}
    return columns if found.other is None else columns | {"tried": found.other}


def figures_of(outcome: ReplayResult) -> dict[str, Any]:
    """What programs and tables show of one."""
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
    "wait_half_s": "Wait, half of those seen",
    "wait_nine_s": "Wait, nine in ten",
    "wait_longest_s": "Longest wait",
    "waiting_hours": "Slot hours waited",
    "member_hours": "Member hours",
    "created": "Created",
    "removed": "Removed",
    "most": "Most members",
}


def table_of(found: Replay) -> list[tuple[str, list[str]]]:
    """Rows of text: a label, then a cell for each outcome."""
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
