"""What Prometheus reads of providers. Each process counts the calls that it makes itself."""

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
    "Things found outside that belong to members that are gone: leaks, which Berth removes.",
    ["provider"],
    registry=REGISTRY,
)


def timed_call(provider: str, call: str) -> timed:
    return timed(PROVIDER_SECONDS, provider, call)
