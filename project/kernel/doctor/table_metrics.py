"""Prometheus metrics read from the kernel's tables."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from project.kernel.controllers.heartbeats import NEWEST
from project.kernel.db.sql import run
from project.kernel.metrics import measures

OPEN = """
SELECT queue, count(*) AS n, coalesce(extract(epoch FROM clock_timestamp() - min(created_at)),
  0)::float8 AS oldest,
  count(*) FILTER (WHERE error_code = 'permanent') AS permanent
FROM kernel_operation WHERE done_at IS NULL GROUP BY queue"""


@measures
def measure_operations() -> Iterator[Metric]:
    count = GaugeMetricFamily("berth_operations_open", "Operations not done.", labels=["queue"])
    oldest = GaugeMetricFamily(
        "berth_operations_oldest_seconds", "Age of the oldest open operation.", labels=["queue"]
    )
    permanent = GaugeMetricFamily(
        "berth_operations_permanent", "Operations that failed permanently.", labels=["queue"]
    )
    for row in run(OPEN):
        count.add_metric([row.queue], row.n)
        oldest.add_metric([row.queue], row.oldest)
        permanent.add_metric([row.queue], row.permanent)
    yield from (count, oldest, permanent)


@measures
def measure_heartbeats() -> Iterator[Metric]:
    age = GaugeMetricFamily(
        "berth_controller_beat_seconds",
        "Seconds since the last heartbeat of a controller.",
        labels=["controller"],
    )
    failures = GaugeMetricFamily(
        "berth_controller_failures", "Failed steps in a row.", labels=["controller"]
    )
    for row in run(NEWEST):
        age.add_metric([row.name], max(0.0, row.age))
        failures.add_metric([row.name], row.failures)
    yield from (age, failures)
