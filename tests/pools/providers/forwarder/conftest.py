"""Each test has a state folder of its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pools.providers.forwarder.helpers import own_home


@pytest.fixture(autouse=True)
def home(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)  # of a CI in a cluster
    with own_home(settings, tmp_path) as home:
        yield home
