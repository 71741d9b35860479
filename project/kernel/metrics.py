"""Metrics for Prometheus. Each process counts its own work; figures of the database
(`table_metrics`) are read on each scrape.
"""

import secrets
from collections.abc import Callable, Iterable

from django.conf import settings
from django.db import Error as DatabaseError
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

REGISTRY = CollectorRegistry()
LOOPBACK = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})
REFUSAL = "Metrics are read with the token in BERTH_METRICS_TOKEN, or from this machine.\n"

FINE = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
COARSE = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)

OPERATIONS = Counter(
    "berth_operations",
    "Operations settled, by kind and outcome.",
    ["kind", "outcome"],
    registry=REGISTRY,
)
OPERATION_SECONDS = Histogram(
    "berth_operation_seconds",
    "Time in provider calls.",
    ["kind"],
    buckets=COARSE,
    registry=REGISTRY,
)
STEPS = Counter(
    "berth_controller_steps",
    "Steps of controllers, by outcome.",
    ["controller", "outcome"],
    registry=REGISTRY,
)
STEP_SECONDS = Histogram(
    "berth_controller_step_seconds",
    "Time a step takes.",
    ["controller"],
    buckets=FINE,
    registry=REGISTRY,
)
CHORES_FAILED = Counter(
    "berth_chores_failed", "Failed steps of the finalizer, by chore.", ["chore"], registry=REGISTRY
)
HTTP_SECONDS = Histogram(
    "berth_http_seconds",
    "Time to answer, by view and status.",
    ["view", "status"],
    buckets=FINE,
    registry=REGISTRY,
)
BROKEN_RULES = Counter(
    "berth_broken_rules",
    "Changes the database refused: a bug each.",
    ["sqlstate"],
    registry=REGISTRY,
)

Measure = Callable[[], Iterable[Metric]]
_measures: list[Measure] = []


def measures(function: Measure) -> Measure:
    """Register a function that reads figures from the database, such as the length of a queue."""
    _measures.append(function)
    return function


class _FromDatabase(Collector):
    def collect(self) -> Iterable[Metric]:
        is_up = True
        for measure in _measures:
            try:
                yield from measure()
            except DatabaseError:  # the figures of the process are still useful
                is_up = False
        yield GaugeMetricFamily(
            "berth_database_up",
            "1 if the database answered all queries of this scrape.",
            value=float(is_up),
        )


REGISTRY.register(_FromDatabase())


def may_read(authorization: str, *, is_local: bool) -> bool:
    """With BERTH_METRICS_TOKEN set, metrics need the token; without it, a loopback address."""
    token: str = settings.BERTH_METRICS_TOKEN
    if not token:
        return is_local
    kind, _, given = authorization.partition(" ")
    return kind == "Bearer" and secrets.compare_digest(given.encode(), token.encode())


def render() -> bytes:
    return generate_latest(REGISTRY)
