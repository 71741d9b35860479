"""Metrics of claims. Each process counts its own work."""

from prometheus_client import Counter, Histogram

from project.kernel.metrics import REGISTRY

BOUND = Counter(
    "berth_claims_bound", "Claims that waited and were bound by this process.", registry=REGISTRY
)
CREATED = Counter(
    "berth_claims_created",
    "Claims created by this process, by their first state.",
    ["state"],
    registry=REGISTRY,
)
WAITED = Histogram(
    "berth_claim_wait_seconds",
    "Time between the creation of a claim that waited and its allocation, by pool.",
    ["pool"],
    buckets=(0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0),
    registry=REGISTRY,
)
FAILED = Counter(
    "berth_allocation_failures",
    "Queues whose wait reason has changed, by pool and reason.",
    ["pool", "reason"],
    registry=REGISTRY,
)
