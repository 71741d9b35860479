"""Prometheus metrics of calls to API servers."""

from prometheus_client import Histogram

from project.kernel.metrics import COARSE, REGISTRY
from project.kernel.outbox.call_timing import timed

REQUEST_SECONDS = Histogram(
    "berth_cluster_request_seconds",
    "Time an API server takes to answer, by method and outcome: ok, or the code of the error.",
    ["method", "outcome"],
    buckets=COARSE,
    registry=REGISTRY,
)


def timed_request(method: str) -> timed:
    return timed(REQUEST_SECONDS, method)
