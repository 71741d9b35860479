"""A world of load balancers in memory for each test."""

from typing import Any

import pytest

from tests.claims.ports.quay import PROVIDERS, Quay, QuayProvider

FORWARDER = "pools.providers.forwarder.provider.ForwarderProvider"


@pytest.fixture(autouse=True)
def _world(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)  # of a CI in a cluster
    settings.BERTH_PROVIDERS = (*PROVIDERS, FORWARDER)
    QuayProvider.world = Quay()
