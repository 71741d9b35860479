"""Prometheus metrics of provider calls. Each process counts its own calls."""

from prometheus_client import Counter, Histogram

from project.kernel.metrics import COARSE, REGISTRY
from project.kernel.outbox.call_timing import timed

PROVIDER_SECONDS = Histogram(
    "berth_provider_seconds",
    "Time a provider takes, by call (look, sync) and outcome: ok, or the code of its error.",
    ["provider", "call", "outcome"],
    buckets=COARSE,
    registry=REGISTRY,
)
STRAYS = Counter(
    "berth_strays_found",
    "Objects found outside that belong to gone members. Berth removes these leaks.",
    ["provider"],
    registry=REGISTRY,
)


def timed_call(provider: str, call: str) -> timed:
    return timed(PROVIDER_SECONDS, provider, call)
