"""Gauges of waiting claims, read from the database at each scrape."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from claims import claims_sql
from project.kernel.metrics import measures


@measures
def measure_queues() -> Iterator[Metric]:
    waiting = GaugeMetricFamily(
        "berth_claims_waiting",
        (
            "Claims in the queue of a pool, by state: waiting for a slot, or blocked by "
            "their workspace."
        ),
        labels=["pool", "state"],
    )
    oldest = GaugeMetricFamily(
        "berth_claims_oldest_waiting_seconds",
        (
            "Age of the oldest claim in the queue of a pool. Claims whose pool does not exist "
            "count under an empty name."
        ),
        labels=["pool"],
    )
    for row in claims_sql.measure_queues():
        waiting.add_metric([row.pool, "waiting"], row.waiting)
        waiting.add_metric([row.pool, "blocked"], row.blocked)
        oldest.add_metric([row.pool], row.oldest)
    yield from (waiting, oldest)
