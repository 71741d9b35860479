"""Heartbeats of controller loops. An old heartbeat means a stuck or dead loop."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import psycopg
from django.db import connection

from project.kernel.db.sql import run

LONGEST_ERROR = 500
STALE = 30.0  # seconds without a heartbeat

# `at` is the last progress of the loop: now for a sleeping loop, else the start of its step.
WRITE = """
INSERT INTO kernel_beat AS b (name, instance, at, started_at, steps, failures, error)
SELECT name, %(instance)s, now(), now(), steps, failures, error
FROM unnest(%(names)s::text[], %(stuck)s::float8[], %(steps)s::bigint[], %(failures)s::int[],
  %(errors)s::text[])
  AS t (name, stuck, steps, failures, error)
ON CONFLICT (name, instance) DO UPDATE SET steps = EXCLUDED.steps, failures = EXCLUDED.failures,
  error = EXCLUDED.error,
  at = greatest(b.at, now() - make_interval(secs => (
    SELECT s FROM unnest(%(names)s::text[], %(stuck)s::float8[]) AS t (n, s) WHERE n = b.name)))"""
REMOVE = "DELETE FROM kernel_beat WHERE instance = %(instance)s"
NEWEST = """
SELECT DISTINCT ON (name) name, instance, extract(epoch FROM clock_timestamp() - at)::float8 AS age,
  failures, error
FROM kernel_beat ORDER BY name, at DESC"""


@dataclass(frozen=True, slots=True)
class LoopHeartbeat:
    name: str
    stuck: float  # seconds of the current step
    steps: int
    failures: int
    error: str


class Health(NamedTuple):
    name: str
    is_well: bool
    detail: str


def write(
    using: psycopg.Connection[object], instance: str, pulses: Sequence[LoopHeartbeat]
) -> None:
    columns = {
        "names": [p.name for p in pulses],
        "stuck": [p.stuck for p in pulses],
        "steps": [p.steps for p in pulses],
        "failures": [p.failures for p in pulses],
        "errors": [p.error for p in pulses],
    }
    using.execute(WRITE, {"instance": instance, **columns})


def remove(using: psycopg.Connection[object], instance: str) -> None:
    using.execute(REMOVE, {"instance": instance})


def check_loops(expected: Iterable[str] = ()) -> list[Health]:
    """One line for each controller that should run or did: well if at least one instance
    of it moves.
    """
    connection.ensure_connection()
    newest = {row.name: row for row in run(NEWEST)}
    found = []
    for name in sorted({*expected, *newest}):
        row = newest.get(name)
        if row is None:
            found.append(Health(name, False, "no process runs it"))
        elif row.age > STALE:
            found.append(
                Health(name, False, f"has not moved for {row.age:.0f} s on {row.instance}")
            )
        elif row.failures:
            found.append(
                Health(name, row.failures < 5, f"{row.failures} failed steps in a row: {row.error}")
            )
        else:
            found.append(Health(name, True, ""))
    return found
