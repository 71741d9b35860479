"""What Prometheus reads of claims. Each process counts what it does itself."""

from prometheus_client import Counter

from project.kernel.metrics import REGISTRY

BOUND = Counter("berth_claims_bound", "Claims that waited and were bound by this process.", registry=REGISTRY)
CREATED = Counter("berth_claims_created", "Claims made by this process, by the state they began in.", ["state"], registry=REGISTRY)
